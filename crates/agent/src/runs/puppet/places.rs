//! The locations of Puppet's files on this node, as Puppet reports them.
//!
//! Distributions differ, and a node's `puppet.conf` may contain anything, so the agent asks Puppet
//! (`puppet config print`). That takes seconds, so the answer is cached until `puppet.conf`
//! changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bunraku_process::{OutputError, OutputLimits, Program, describe};
use tokio::sync::Mutex;

use super::failure::PuppetFailure;
use super::{PuppetOptions, invocation};

/// The time limit for the query: Ruby starts slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Puppet's settings that matter here.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct PuppetPaths {
    pub(super) config: PathBuf,
    pub(super) run_lock: PathBuf,
    pub(super) disabled_lock: PathBuf,
    /// The default location of Puppet's last report.
    pub(super) last_report: PathBuf,
    pub(super) certificate_name: String,
    /// The server that receives reports.
    pub(super) report_server: String,
    pub(super) report_port: String,
}

const NAMES: [&str; 8] = [
    "config",
    "agent_catalog_run_lockfile",
    "agent_disabled_lockfile",
    "lastrunreport",
    "certname",
    "report_server",
    "report_port",
    "server_list",
];

/// Puppet's last answer.
#[derive(Default)]
pub(super) struct KnownPlaces {
    known: Mutex<Option<(Stamp, PuppetPaths)>>,
}

/// The modification time of `puppet.conf`, and its size.
type Stamp = Option<(SystemTime, u64)>;

impl KnownPlaces {
    pub(super) async fn get(
        &self,
        program: &Path,
        options: &PuppetOptions,
    ) -> Result<PuppetPaths, PuppetFailure> {
        let mut known = self.known.lock().await;
        if let Some((stamp, places)) = &*known
            && *stamp == stamp_of(&places.config)
        {
            return Ok(places.clone());
        }
        let places = ask(program, options).await?;
        *known = Some((stamp_of(&places.config), places.clone()));
        Ok(places)
    }
}

fn stamp_of(config: &Path) -> Stamp {
    let data = config.metadata().ok()?;
    Some((data.modified().ok()?, data.len()))
}

async fn ask(program: &Path, options: &PuppetOptions) -> Result<PuppetPaths, PuppetFailure> {
    let output = Program::new(program)
        .args(["config", "print", "--section", "agent", "--color=false"])
        .args(invocation::identity(options))
        .args(NAMES)
        .output(OutputLimits::with_timeout(PATIENCE))
        .await
        .map_err(|error| PuppetFailure::DidNotStart {
            why: match error {
                OutputError::Start(error) => format!("cannot start {}: {error}", program.display()),
                other => format!("`puppet config print` {other}"),
            },
        })?;
    parse(&output.stdout_text()).ok_or_else(|| {
        let said = output.stderr_text();
        let said = said.lines().next_back().unwrap_or("no output");
        PuppetFailure::DidNotStart {
            why: format!(
                "`puppet config print` exited with {} and printed no settings: {said}",
                describe(output.status)
            ),
        }
    })
}

fn parse(text: &str) -> Option<PuppetPaths> {
    let settings: HashMap<&str, &str> = (text.lines())
        .filter_map(|line| line.split_once(" ="))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let setting = |name: &str| {
        settings
            .get(name)
            .copied()
            .filter(|value| !value.is_empty())
    };
    let path = |name: &str| {
        setting(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    // The first of several servers receives reports, as in Puppet.
    let listed = setting("server_list").and_then(|list| list.split(',').next());
    let (server, port) = match listed {
        None => (setting("report_server")?, setting("report_port")?),
        Some(listed) => listed.split_once(':').unwrap_or((listed, "8140")),
    };
    Some(PuppetPaths {
        config: path("config")?,
        run_lock: path("agent_catalog_run_lockfile")?,
        disabled_lock: path("agent_disabled_lockfile")?,
        last_report: path("lastrunreport")?,
        certificate_name: setting("certname")
            .filter(|name| !name.contains('/') && !name.starts_with('.'))?
            .to_owned(),
        report_server: server.to_owned(),
        report_port: port.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "agent_catalog_run_lockfile = /v/state/agent_catalog_run.lock
agent_disabled_lockfile = /v/state/agent_disabled.lock
certname = dev1
config = /c/puppet.conf
lastrunreport = /v/state/last_run_report.yaml
report_port = 8140
report_server = puppet
server_list = 
";

    #[test]
    fn what_puppet_prints_is_read() {
        let places = parse(PRINTED).expect("all there");
        assert_eq!(
            places.run_lock,
            Path::new("/v/state/agent_catalog_run.lock")
        );
        assert_eq!(
            (places.report_server.as_str(), places.report_port.as_str()),
            ("puppet", "8140")
        );
        let listed = PRINTED.replace("server_list = ", "server_list = one:8141,two");
        let places = parse(&listed).expect("all there");
        assert_eq!(
            (places.report_server.as_str(), places.report_port.as_str()),
            ("one", "8141")
        );
    }

    #[test]
    fn an_answer_that_lacks_something_or_leads_elsewhere_is_none() {
        for (from, to) in [
            ("config = /c/puppet.conf\n", ""),
            (
                "/v/state/agent_disabled.lock",
                "relative/agent_disabled.lock",
            ),
            ("certname = dev1", "certname = ../../etc/passwd"),
        ] {
            assert_eq!(parse(&PRINTED.replace(from, to)), None, "{to}");
        }
        assert_eq!(parse("Error: Could not parse application options"), None);
    }
}
