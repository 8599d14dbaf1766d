//! A machine, reached by `ssh`.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use super::quoted;
use crate::failure::Failure;

/// The exit code of `ssh` itself when it could not connect.
const NOT_CONNECTED: i32 = 255;

/// Options for the SSH connection to a machine.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SshArgs {
    /// Port of the SSH server
    #[arg(long, value_name = "PORT")]
    ssh_port: Option<u16>,
    /// Private key for the login
    #[arg(long, value_name = "FILE")]
    ssh_identity: Option<PathBuf>,
    /// Option for `ssh -o`, as KEY=VALUE; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    ssh_option: Vec<String>,
    /// Become root on that machine with `sudo -n`
    #[arg(long)]
    sudo: bool,
}

/// The data for the standard input of a remote script.
pub(crate) enum Upload<'a> {
    Nothing,
    Bytes(&'a [u8]),
    File(&'a Path),
    /// Each directory or file under its remote name, as a tar archive.
    Trees(&'a [(String, PathBuf)]),
}

/// An open connection. It closes when this is dropped.
pub(crate) struct SshConnection {
    destination: String,
    options: Vec<String>,
    sudo: bool,
    /// Holds the socket of the shared connection.
    _control: tempfile::TempDir,
}

impl SshConnection {
    /// Stores how to reach the machine. Sends nothing yet.
    pub(crate) fn new(destination: &str, arguments: &SshArgs) -> Result<Self, Failure> {
        if destination.is_empty() || destination.starts_with('-') {
            let failure = Failure::usage(format!("`{destination}` is not a valid SSH destination"));
            return Err(failure.hint("write HOST or USER@HOST"));
        }
        let control = tempfile::Builder::new().prefix("bunraku-ssh").tempdir()?;
        let socket = control.path().join("connection");
        let mut options = vec![
            format!("-oControlPath={}", socket.display()),
            "-oControlMaster=auto".to_owned(),
            "-oControlPersist=120".to_owned(),
            "-oConnectTimeout=15".to_owned(),
            "-oServerAliveInterval=15".to_owned(),
        ];
        if !io::stdin().is_terminal() {
            // No one can answer a prompt.
            options.push("-oBatchMode=yes".to_owned());
        }
        options.extend(arguments.ssh_port.map(|port| format!("-p{port}")));
        if let Some(identity) = &arguments.ssh_identity {
            options.push(format!("-i{}", identity.display()));
            options.push("-oIdentitiesOnly=yes".to_owned());
        }
        options.extend((arguments.ssh_option.iter()).map(|option| format!("-o{option}")));
        Ok(Self {
            destination: destination.to_owned(),
            options,
            sudo: arguments.sudo,
            _control: control,
        })
    }

    pub(crate) fn destination(&self) -> &str {
        &self.destination
    }

    /// Runs a script on the machine. A script that fails is an error with its output.
    pub(crate) fn run(
        &self,
        doing: &str,
        script: &str,
        upload: &Upload,
    ) -> Result<String, Failure> {
        let output = self.output(script, upload)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(self.refused(doing, &output))
    }

    /// Runs a script on the machine with this process's output and, if there is one, its terminal.
    pub(crate) fn attached(&self, script: &str) -> Result<ExitStatus, Failure> {
        // The script prints the data of this command.
        crate::json_mode::has_data();
        let mut command = self.command(script, io::stdout().is_terminal());
        command.status().map_err(no_ssh)
    }

    pub(crate) fn output(&self, script: &str, upload: &Upload) -> Result<Output, Failure> {
        let mut child = self
            .command(script, false)
            .stdin(match upload {
                Upload::Nothing => Stdio::null(),
                _ => Stdio::piped(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(no_ssh)?;
        let stdin = child.stdin.take();
        let sent = std::thread::scope(|scope| {
            let sending = scope.spawn(move || stdin.map_or(Ok(()), |stdin| upload.send(stdin)));
            let output = child.wait_with_output();
            (sending.join(), output)
        });
        let output = sent.1?;
        match sent.0 {
            // A script that failed closed its input early, so its own output is the error.
            Ok(Err(error)) if output.status.success() => Err(error.into()),
            _ => Ok(output),
        }
    }

    fn command(&self, script: &str, terminal: bool) -> Command {
        let mut command = Command::new("ssh");
        command.args(&self.options);
        command.arg(if terminal { "-tt" } else { "-T" });
        command.arg("--").arg(&self.destination);
        let shell = if self.sudo {
            "sudo -n -H sh -c"
        } else {
            "sh -c"
        };
        command.arg(format!("{shell} {}", quoted(script)));
        command
    }

    fn refused(&self, doing: &str, output: &Output) -> Failure {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        let last = said.lines().last().unwrap_or("no output").trim();
        let message = match output.status.code() {
            Some(NOT_CONNECTED) => format!("cannot reach {}: {last}", self.destination),
            _ => format!("cannot {doing} on {}: {last}", self.destination),
        };
        Failure::new(message).hint_if(hint(said).map(str::to_owned))
    }
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        let _ = Command::new("ssh")
            .args(&self.options)
            .args(["-O", "exit", "--", &self.destination])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

impl Upload<'_> {
    fn send(&self, mut to: impl Write) -> io::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Bytes(bytes) => to.write_all(bytes),
            Self::File(path) => io::copy(&mut std::fs::File::open(path)?, &mut to).map(|_| ()),
            Self::Trees(trees) => {
                let mut archive = tar::Builder::new(to);
                archive.follow_symlinks(false);
                for (name, path) in *trees {
                    if path.is_dir() {
                        archive.append_dir_all(name, path)?
                    } else {
                        archive.append_path_with_name(path, name)?
                    }
                }
                archive.into_inner()?.flush()
            }
        }
    }
}

fn hint(said: &str) -> Option<&'static str> {
    let hints = [
        (
            "Host key verification failed",
            "connect once with `ssh` and compare its host key, or add it to known_hosts",
        ),
        (
            "Permission denied",
            "pass a key with `--ssh-identity FILE`, or load one with `ssh-add`",
        ),
        (
            "sudo: a password is required",
            "allow the user `sudo` without a password, or log in as root",
        ),
        (
            "No space left on device",
            "free some space there and try again",
        ),
    ];
    (hints.iter()).find_map(|(sign, hint)| said.contains(sign).then_some(*hint))
}

fn no_ssh(error: io::Error) -> Failure {
    Failure::new("cannot start `ssh`")
        .caused_by(&error)
        .hint("install the OpenSSH client")
}
