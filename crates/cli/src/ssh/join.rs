//! Verifies over SSH a server that wants to join.
//!
//! Only the operator's files count: the hosts in `known_hosts`, and a key or an SSH authority that
//! those hosts accept. No one can answer a prompt, and no user's `~/.ssh` is used.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bunraku_process::{Output, OutputError, OutputLimits, Program};
use bunraku_wire::api::cluster::SSH_PLACE;

use super::quoted;
use crate::config::ClusterSshSection;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The time limit for one connection and its whole conversation.
const PATIENCE: Duration = Duration::from_secs(30);

/// The reason why a machine was not verified.
#[derive(Debug, thiserror::Error)]
enum JoinError {
    #[error("cannot run `{program}`")]
    Program {
        program: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("`{program}` failed: {said}")]
    Failed { program: &'static str, said: String },
    #[error("{0} did not answer in time")]
    TimedOut(String),
    #[error("[server.cluster.ssh] has neither `identity` nor `authority`")]
    NoKey,
}

/// The means by which this server reaches joining servers.
pub(crate) struct JoinOverSsh {
    section: ClusterSshSection,
}

/// The key to log in with, for as long as this value lives.
struct Login {
    key: PathBuf,
    _made: Option<tempfile::TempDir>,
}

fn last_line(output: &Output) -> String {
    let said = output.stderr_text();
    let line = said.trim().lines().last().unwrap_or("no output");
    line.trim().to_owned()
}

async fn keygen(arguments: &[&str]) -> Result<(), JoinError> {
    let program = "ssh-keygen";
    let output = Program::new(program)
        .args(arguments)
        .output(OutputLimits::with_timeout(PATIENCE))
        .await
        .map_err(|error| JoinError::Program {
            program,
            source: error.into_io(),
        })?;
    if output.status.success() {
        Ok(())
    } else {
        Err(JoinError::Failed {
            program,
            said: last_line(&output),
        })
    }
}

impl JoinOverSsh {
    pub(crate) fn new(section: ClusterSshSection) -> Self {
        Self { section }
    }

    /// Reads the key from this path on the machine.
    pub(crate) async fn read_key(&self, host: &str, place: &str) -> Result<String, Error> {
        let script = format!("cat {SSH_PLACE}/{place}/key");
        let output = self.run(host, &script, &[]).await?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Puts a new member's data in place, atomically and readable by root only.
    pub(crate) async fn place_welcome(
        &self,
        host: &str,
        place: &str,
        text: &[u8],
    ) -> Result<(), Error> {
        let script = format!(
            "set -eu; umask 077; cd {SSH_PLACE}/{place}; cat > welcome.part; mv welcome.part welcome"
        );
        self.run(host, &script, text).await?;
        Ok(())
    }

    /// Returns the login. With an authority: a new key with a short-lived certificate.
    async fn login(&self) -> Result<Login, Error> {
        let Some(authority) = &self.section.authority else {
            let identity = self.section.identity.clone().ok_or(JoinError::NoKey)?;
            return Ok(Login {
                key: identity,
                _made: None,
            });
        };
        let made = tempfile::Builder::new().prefix("bunraku-join").tempdir()?;
        let key = made.path().join("key");
        let text = |path: &Path| path.display().to_string();
        let (path, public) = (text(&key), text(&key.with_extension("pub")));
        keygen(&["-q", "-t", "ed25519", "-N", "", "-f", &path]).await?;
        let (authority, user) = (text(authority), &self.section.user);
        keygen(&[
            "-q",
            "-s",
            &authority,
            "-I",
            "bunraku-cluster",
            "-n",
            user,
            "-V",
            "-5m:+5m",
            &public,
        ])
        .await?;
        Ok(Login {
            key,
            _made: Some(made),
        })
    }

    fn command(&self, host: &str, key: &Path, script: &str) -> Program {
        let section = &self.section;
        // No user's files affect which hosts this server trusts.
        let known_hosts = section.known_hosts.display();
        let mut command = Program::new("ssh")
            .args(["-F", "none", "-T"])
            .args(["-oBatchMode=yes", "-oIdentitiesOnly=yes"])
            .args(["-oStrictHostKeyChecking=yes"])
            .args(["-oGlobalKnownHostsFile=/dev/null"])
            .args(["-oConnectTimeout=10", "-oIdentityAgent=none"])
            .arg(format!("-oUserKnownHostsFile={known_hosts}"))
            .arg("-i")
            .arg(key);
        if let Some(port) = section.port {
            command = command.arg(format!("-p{port}"));
        }
        let shell = if section.sudo {
            "sudo -n -H sh -c"
        } else {
            "sh -c"
        };
        command
            .args(section.options.iter().map(|option| format!("-o{option}")))
            .args(["-l", &section.user, "--", host])
            .arg(format!("{shell} {}", quoted(script)))
    }

    async fn run(&self, host: &str, script: &str, input: &[u8]) -> Result<Output, Error> {
        let login = self.login().await?;
        let program = "ssh";
        let output = self
            .command(host, &login.key, script)
            .input(input)
            .output(OutputLimits::with_timeout(PATIENCE))
            .await
            .map_err(|error| match error {
                OutputError::TimeOut(_) => JoinError::TimedOut(host.to_owned()),
                other => JoinError::Program {
                    program,
                    source: other.into_io(),
                },
            })?;
        if output.status.success() {
            Ok(output)
        } else {
            Err(JoinError::Failed {
                program,
                said: last_line(&output),
            }
            .into())
        }
    }
}
