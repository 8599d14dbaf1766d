//! `bunraku doctor`: checks this machine's configuration, credentials, connection, clock and disk.
//!
//! It only reads. Every finding that is not good says what to do.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use bunraku_model::{ContentPlace, Role};
use bunraku_wire::api::{NodeSummary, ServerStatus, StoreStatus};
use bunraku_wire::endpoints::{ListNodes, ShowServer, ShowStore};
use bunraku_wire::{Client, Credentials};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::version;
use crate::config::{LoadedConfig, RunMethodKind, StoreKind};
use crate::connection::{failed, open};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::needed_programs::find;
use crate::output::{self, count};

/// Certificates are renewed long before this; one that is this close to its end was not.
const EXPIRES_SOON: jiff::SignedDuration = jiff::SignedDuration::from_hours(72);
/// A difference between two clocks that breaks certificates and deadlines.
const CLOCKS_DIFFER: Duration = Duration::from_secs(30);
/// Less than this share of free space is a problem, in percent.
const LITTLE_SPACE: u64 = 10;

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku doctor
  bunraku doctor --config ./bunraku.toml --json

Exit code 0: nothing is wrong. Exit code 1: something is.
`bunraku status` shows the state of the whole fleet.")]
pub(crate) struct DoctorArguments {}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Good,
    /// Works, but needs attention.
    Warning,
    Bad,
}

/// The result of one check.
#[derive(Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    finding: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Finding {
    fn good(check: &'static str, finding: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Good,
            finding: finding.into(),
            hint: None,
        }
    }

    fn bad(check: &'static str, finding: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Bad,
            hint: Some(hint.into()),
            ..Self::good(check, finding)
        }
    }

    fn warning(check: &'static str, finding: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warning,
            ..Self::bad(check, finding, hint)
        }
    }

    fn failure(check: &'static str, failure: &Failure) -> Self {
        Self {
            verdict: Verdict::Bad,
            hint: failure.hint_text().map(str::to_owned),
            ..Self::good(check, failure.cause_text())
        }
    }
}

pub(crate) fn run(_: &DoctorArguments, context: &Context) -> Result<Exit, Failure> {
    let mut findings = vec![
        Finding::good("program", format!("bunraku {}", version::line())),
        configuration(&context.loaded),
    ];
    findings.extend(programs(&context.loaded));
    findings.extend(disks(&context.loaded));
    match open(&context.global, &context.loaded) {
        Err(failure) => findings.push(Finding::failure("credentials", &failure)),
        Ok(connection) => {
            findings.push(credentials(&connection.credentials, Timestamp::now()));
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            findings.extend(runtime.block_on(connected(&connection.client)));
        }
    }
    if context.global.json {
        output::json(&findings)?;
    } else {
        output::write(&render(&findings))?;
    }
    let is_bad = |finding: &Finding| finding.verdict == Verdict::Bad;
    Ok(if findings.iter().any(is_bad) {
        Exit::Error
    } else {
        Exit::Done
    })
}

fn configuration(loaded: &LoadedConfig) -> Finding {
    // It was read to get here, so it is valid.
    let finding = match &loaded.path {
        Some(path) => format!("{} is valid", path.display()),
        None => "no file; the defaults apply".to_owned(),
    };
    Finding::good("configuration", finding)
}

/// Checks the programs that the configuration needs.
fn programs(loaded: &LoadedConfig) -> Vec<Finding> {
    let (server, agent) = (&loaded.file.server, &loaded.file.agent);
    let mut findings = Vec::new();
    if server.data_dir.exists() {
        findings.push(match find("git") {
            Some(git) => Finding::good("git", git.display().to_string()),
            None => Finding::bad(
                "git",
                "not installed; servers deploy code with it",
                "on Debian and Ubuntu, install it with `apt-get install git`",
            ),
        });
    }
    if server.data_dir.join("cluster/member.json").exists()
        && server.store.kind == StoreKind::Embedded
    {
        let etcd = &server.cluster.etcd;
        findings.push(if etcd.is_file() {
            Finding::good("etcd", etcd.display().to_string())
        } else {
            Finding::bad(
                "etcd",
                format!(
                    "{} does not exist; members of a cluster run it",
                    etcd.display()
                ),
                "on Debian and Ubuntu, install it with `apt-get install etcd-server etcd-client`",
            )
        });
    }
    if agent.run_method == RunMethodKind::Puppet && find("puppet").is_none() {
        let places = ["/opt/puppetlabs/bin/puppet", "/usr/bin/puppet"];
        if !places.iter().any(|place| Path::new(place).is_file()) {
            findings.push(Finding::warning(
                "puppet",
                "not found; the agent's run method is `puppet`",
                "install Puppet, or set `run_method` in [agent]",
            ));
        }
    }
    findings
}

/// Checks the file systems of the data directories that exist.
fn disks(loaded: &LoadedConfig) -> Vec<Finding> {
    let directories = [&loaded.file.server.data_dir, &loaded.file.agent.data_dir];
    let existing = directories.into_iter().filter(|it| it.exists());
    existing.filter_map(|directory| disk(directory)).collect()
}

fn disk(directory: &Path) -> Option<Finding> {
    let space = rustix::fs::statvfs(directory).ok()?;
    let free = space.f_bavail.saturating_mul(100) / space.f_blocks.max(1);
    let mebibytes = space.f_bavail.saturating_mul(space.f_frsize) >> 20;
    let finding = format!("{free} % ({mebibytes} MiB) free at {}", directory.display());
    Some(if free < LITTLE_SPACE {
        Finding::warning(
            "disk",
            finding,
            "free some space; servers refuse writes on a full disk",
        )
    } else {
        Finding::good("disk", finding)
    })
}

/// Checks the files of the credentials, and when the certificate expires.
fn credentials(credentials: &Credentials, now: Timestamp) -> Finding {
    let directory = credentials.directory().display().to_string();
    let again = "create new ones; `bunraku cert issue -h` has an example";
    let identity = match credentials.identity() {
        Ok(Some(identity)) => identity,
        Ok(None) => return Finding::bad("credentials", format!("none in {directory}"), again),
        Err(error) => {
            let error = bunraku_model::error_chain(&error);
            return Finding::bad("credentials", format!("{directory}: {error}"), again);
        }
    };
    let key = credentials.key_path();
    let is_open = std::fs::metadata(&key).is_ok_and(|it| it.mode() & 0o077 != 0);
    let certificate = identity.certificate();
    let (name, ends) = (&certificate.common_name, certificate.not_after);
    let text = format!(
        "{directory}: {name} ({}), valid until {ends:.0}",
        certificate.role
    );
    if ends <= now {
        return Finding::bad(
            "credentials",
            format!("{directory}: expired at {ends:.0}"),
            again,
        );
    }
    if certificate.not_before > now {
        let begins = certificate.not_before;
        return Finding::bad(
            "credentials",
            format!("{directory}: valid only from {begins:.0}"),
            "set this machine's clock",
        );
    }
    if is_open {
        return Finding::bad(
            "credentials",
            format!("others can read {}", key.display()),
            format!("run `chmod 600 {}`", key.display()),
        );
    }
    if ends.duration_since(now) < EXPIRES_SOON && certificate.role == Role::Operator {
        return Finding::warning(
            "credentials",
            text,
            "it is renewed at the next command that reaches a server",
        );
    }
    Finding::good("credentials", text)
}

/// Checks the server that answers: its version, its clock, and its agents.
async fn connected(client: &Client) -> Vec<Finding> {
    let asked = Timestamp::now();
    let server: ServerStatus = match client.call(ShowServer).await {
        Ok(server) => server,
        Err(error) => return vec![Finding::failure("connection", &failed(&error))],
    };
    let answered = Timestamp::now();
    let address = client.server().await;
    let address = address.map_or_else(|| "a server".to_owned(), |it| it.to_string());
    let mut findings = vec![Finding::good(
        "connection",
        format!("{address} answers, {} store", server.store),
    )];
    findings.push(versions(&server));
    findings.extend(clock(&server, asked, answered));
    // Only operators may ask for it.
    if let Ok(store) = client.call(ShowStore).await {
        findings.extend(content(&store));
    }
    // Only operators may list nodes.
    if let Ok(nodes) = client.call(ListNodes).await {
        findings.push(agents(&server, &nodes));
    }
    findings
}

/// Checks S3, if the server has settings for it.
fn content(store: &StoreStatus) -> Option<Finding> {
    let mut places = store.content.places.iter();
    let s3 = places.find(|place| place.place == ContentPlace::S3)?;
    match &store.s3_problem {
        Some(problem) => Some(Finding::bad(
            "content",
            format!("the server cannot use S3: {problem}"),
            "check the S3 server, and `[server.content]` on the servers",
        )),
        None if s3.is_configured => Some(Finding::good("content", "S3 answers the server")),
        None => None,
    }
}

fn versions(server: &ServerStatus) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    if server.version == own {
        Finding::good("version", format!("the server has version {own} too"))
    } else {
        Finding::warning(
            "version",
            format!(
                "the server has version {}, this program {own}",
                server.version
            ),
            "use the same version: upgrade servers first, then agents and the command line",
        )
    }
}

fn clock(server: &ServerStatus, asked: Timestamp, answered: Timestamp) -> Option<Finding> {
    let theirs = server.now?;
    let off = if theirs < asked {
        asked.duration_since(theirs)
    } else if theirs > answered {
        theirs.duration_since(answered)
    } else {
        jiff::SignedDuration::ZERO
    };
    let off = off.unsigned_abs();
    let text = format!("differs from the server's by {} s", off.as_secs());
    Some(if off > CLOCKS_DIFFER {
        Finding::bad(
            "clock",
            text,
            "synchronize the clocks of both machines, for example with chrony",
        )
    } else {
        Finding::good("clock", text)
    })
}

fn agents(server: &ServerStatus, nodes: &[NodeSummary]) -> Finding {
    let is_other = |node: &&NodeSummary| {
        let version = node.agent_version.as_ref();
        version.is_some_and(|version| *version != server.version)
    };
    let other: Vec<&NodeSummary> = nodes.iter().filter(is_other).collect();
    match other.first() {
        None => Finding::good(
            "agents",
            format!("{} with the server's version", count(nodes.len(), "node")),
        ),
        Some(first) => Finding::warning(
            "agents",
            format!(
                "{} with another version, such as {} ({})",
                count(other.len(), "node"),
                first.name,
                first.agent_version.as_deref().unwrap_or("unknown")
            ),
            "upgrade the agents after the servers",
        ),
    }
}

fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for one in findings {
        let mark = match one.verdict {
            Verdict::Good => "✓",
            Verdict::Warning => "!",
            Verdict::Bad => "✗",
        };
        text.push_str(&format!("{mark} {:<14} {}\n", one.check, one.finding));
        if let Some(hint) = &one.hint {
            text.push_str(&format!("{:<17}{hint}\n", ""));
        }
    }
    let bad = findings
        .iter()
        .filter(|it| it.verdict == Verdict::Bad)
        .count();
    text.push_str(&match bad {
        0 => "\nNothing is wrong.\n".to_owned(),
        bad => format!("\n{} found.\n", count(bad, "problem")),
    });
    text
}
