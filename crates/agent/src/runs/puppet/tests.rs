//! Puppet processes that misbehave, as shell scripts: real Puppet cannot be made to do so. The
//! tests with real Puppet are in `real`, and in `crates/cli/tests/binary/puppet_runs.rs`.

mod real;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bunraku_model::NodeRunId;
use bunraku_wire::api::{
    Cause, NumberedEvent, ReportEvent, RunEnding, RunFailure, RunMode, RunStarted, RunSubject,
};
use expect_test::{Expect, expect};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::reports::{Spool, SpoolOptions};
use crate::runs::method::{RunEnd, RunMethod, RunOrder};

/// The variables and functions for the script: `$report`, `$log`, `$job`, `$state`, and `good`,
/// which writes a good report.
const BEGINNING: &str = r#"#!/bin/sh
state=DIRECTORY/state
if [ "$1" = config ]; then
  echo "config = DIRECTORY/puppet.conf"
  echo "agent_catalog_run_lockfile = $state/agent_catalog_run.lock"
  echo "agent_disabled_lockfile = $state/agent_disabled.lock"
  echo "lastrunreport = $state/last_run_report.yaml"
  echo "certname = dev1"
  echo "report_server = puppet"
  echo "report_port = 8140"
  echo "server_list = "
  exit 0
fi
echo "$@" >> DIRECTORY/started
while [ $# -gt 0 ]; do
  case "$1" in
    --lastrunreport) report=$2;;
    --logdest) log=${2#syslog,};;
    --job-id) job=$2;;
    --noop) noop=true;;
  esac
  shift
done
good() {
  cat > "$report" <<END
--- !ruby/object:Puppet::Transaction::Report
transaction_uuid: ${uuid-8cb8bd2a-2f9b-4a4f-9d3c-0f4f4d6a1d11}
status: changed
transaction_completed: true
noop: ${noop-false}
job_id: $job
catalog_uuid: ${catalog-none}
logs:
- {level: notice, message: once, source: Puppet, time: '2026-11-16T03:21:04.1+00:00'}
resource_statuses:
  File[/a]: {resource_type: File, title: /a, changed: true}
corrective_change: false
END
}
"#;

struct Node {
    directory: TempDir,
    options: PuppetOptions,
}

#[derive(Debug)]
struct Outcome {
    end: RunEnd,
    events: Vec<ReportEvent>,
}

impl Node {
    fn new(script: &str) -> Self {
        let directory = TempDir::new().expect("a directory");
        let place = directory.path().display().to_string();
        std::fs::create_dir(directory.path().join("state")).expect("made");
        let program = directory.path().join("puppet");
        let text = format!("{BEGINNING}{script}").replace("DIRECTORY", &place);
        std::fs::write(&program, text).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("executable");
        let options = PuppetOptions {
            programs: vec!["/nowhere/puppet".into(), program],
            ..PuppetOptions::new(directory.path().join("data"))
        };
        Self { directory, options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn started(&self) -> usize {
        let text = std::fs::read_to_string(self.path("started")).unwrap_or_default();
        text.lines().count()
    }

    async fn run(&self, mode: RunMode, stop: CancellationToken) -> Outcome {
        execute(&self.options, self.directory.path(), mode, stop).await
    }
}

fn order(mode: RunMode) -> RunOrder {
    RunOrder {
        id: NodeRunId(Uuid::from_u128(7)),
        mode,
        subject: RunSubject::configured(),
        tags: Vec::new(),
        causes: vec![Cause::Schedule],
        more_causes: 0,
        work: bunraku_process::WorkLog::new("/nonexistent/work"),
    }
}

async fn execute(
    options: &PuppetOptions,
    directory: &Path,
    mode: RunMode,
    stop: CancellationToken,
) -> Outcome {
    let method = PuppetMethod::without_catalogs(options.clone());
    execute_with(&method, directory, mode, stop).await
}

async fn execute_with(
    method: &PuppetMethod,
    directory: &Path,
    mode: RunMode,
    stop: CancellationToken,
) -> Outcome {
    let spool = Spool::open(&directory.join("spool"), SpoolOptions::default()).expect("a spool");
    let order = order(mode);
    let prepared = match method.prepare(&order).await {
        Ok(prepared) => prepared,
        Err(not_started) => {
            let end = RunEnd {
                ending: not_started.ending,
                message: Some(not_started.message),
                failure: not_started.failure,
            };
            return Outcome {
                end,
                events: Vec::new(),
            };
        }
    };
    let started = RunStarted::new(Timestamp::now(), mode, method.name());
    let recorder = spool.begin(order.id, started, false);
    let end = tokio::time::timeout(Duration::from_secs(120), prepared.execute(recorder, stop));
    let end = end.await.expect("it ends within two minutes");
    let path = directory.join("spool").join(format!("{}.events", order.id));
    let text = std::fs::read_to_string(path).expect("a report");
    let events = text
        .lines()
        .map(|line| serde_json::from_str::<NumberedEvent>(line).expect("an event"));
    Outcome {
        end,
        events: events.map(|event| event.event).collect(),
    }
}

impl Outcome {
    fn logs(&self) -> Vec<&str> {
        let logs = self.events.iter().filter_map(|event| match event {
            ReportEvent::Log(line) => Some(line.message.as_str()),
            _ => None,
        });
        logs.collect()
    }

    fn resources(&self) -> usize {
        let is_resource = |event: &&ReportEvent| matches!(event, ReportEvent::Resource(_));
        self.events.iter().filter(is_resource).count()
    }
}

async fn check(script: &str, expected: Expect) {
    let node = Node::new(script);
    let outcome = node.run(RunMode::Enforce, CancellationToken::new()).await;
    let end = &outcome.end;
    let failure = end.failure.map(|kind| format!(" ({kind:?})"));
    let place = node.directory.path().display().to_string();
    expected.assert_eq(&format!(
        "{:?}{}: {}",
        end.ending,
        failure.unwrap_or_default(),
        end.message
            .clone()
            .unwrap_or_default()
            .replace(&place, "DIRECTORY")
    ));
    let left: Vec<_> = std::fs::read_dir(node.path("data"))
        .expect("read")
        .collect();
    assert!(left.is_empty(), "files of the run were left: {left:?}");
}

#[tokio::test]
async fn the_report_of_this_run_decides() {
    check("good; exit 2", expect!["Succeeded: "]).await;
    check("good; exit 0", expect!["Succeeded: "]).await;
    check(
        "good; exit 1",
        expect!["Failed (ExitCode): Puppet exited with exit code 1"],
    )
    .await;
    check(
        "exit 0",
        expect!["Failed (NoReport): Puppet exited with exit code 0 without a report of this run"],
    )
    .await;
    check(
        "exit 1",
        expect!["Failed (ExitCode): Puppet exited with exit code 1"],
    )
    .await;
    check(
        "kill -9 $$",
        expect!["Failed (ExitCode): Puppet exited with signal 9"],
    )
    .await;
    check("echo '- x' > $report; exit 0", expect!["Failed (InvalidReport): Puppet's report of this run is not usable: it is corrupt: expected mapping start at line 1, column 1"]).await;
    check(
        "good; sed -i 's/^corrective.*//' $report; exit 0",
        expect!["Failed (InvalidReport): Puppet's report of this run is not usable: it is corrupt: missing field `corrective_change` at line 10, column 1"],
    )
    .await;
    check("uuid=x; good; exit 0", expect!["Failed (InvalidReport): Puppet's report of this run is not usable: it has no transaction uuid"]).await;
    check(
        "good; sed -i 's/status: changed/status: failed/' $report; exit 4",
        expect!["Failed: Puppet reported a failed run without a reason"],
    )
    .await;
}

#[tokio::test]
async fn an_older_report_or_one_of_another_run_is_never_taken_for_this_one() {
    check(
        "job=00000000-0000-0000-0000-000000000008; good; exit 2",
        expect!["Failed (InvalidReport): Puppet's report of this run is not usable: it belongs to another run (00000000-0000-0000-0000-000000000008)"],
    )
    .await;
    // The usual location has a report of an earlier run, or of the daemon.
    check(
        "mine=$report; report=$state/last_run_report.yaml; good; exit 0",
        expect!["Failed (NoReport): Puppet exited with exit code 0 without a report of this run"],
    )
    .await;
}

#[tokio::test]
async fn events_reported_during_the_run_are_not_repeated_from_the_report() {
    let line = r#"{"level":"notice","message":"once","source":"Puppet","time":"2026-11-16T03:21:04.1+00:00"}"#;
    let script =
        format!("echo '{line}' >> $log; echo 'no JSON' >> $log; echo early >&2; good; exit 2");
    let node = Node::new(&script);
    let outcome = node.run(RunMode::Enforce, CancellationToken::new()).await;
    let logs = outcome.logs();
    assert_eq!(
        logs.iter().filter(|text| **text == "once").count(),
        1,
        "{logs:?}"
    );
    assert!(logs.contains(&"early"), "{logs:?}");
    assert_eq!(outcome.resources(), 1);
    let last = std::fs::read_to_string(node.path("state/last_run_report.yaml"));
    assert!(last.expect("left for others").contains("transaction_uuid"));
    // Without such lines, the lines of the report are logged.
    let node = Node::new("good; exit 2");
    let outcome = node.run(RunMode::Enforce, CancellationToken::new()).await;
    assert!(outcome.logs().contains(&"once"));
}

#[tokio::test]
async fn noop_is_asked_for_and_must_have_been_noop() {
    let node = Node::new("good; exit 0");
    let outcome = node.run(RunMode::Noop, CancellationToken::new()).await;
    assert_eq!(outcome.end.ending, RunEnding::Succeeded);
    let node = Node::new("noop=false; good; exit 0");
    let outcome = node.run(RunMode::Noop, CancellationToken::new()).await;
    assert_eq!(outcome.end.failure, Some(RunFailure::InvalidReport));
    let node = Node::new("noop=true; good; exit 0");
    let outcome = node.run(RunMode::Enforce, CancellationToken::new()).await;
    assert_eq!(outcome.end.ending, RunEnding::Succeeded);
    let logs = outcome.logs();
    assert!(
        logs.iter()
            .any(|text| text.contains("Puppet's own settings"))
    );
}

#[tokio::test]
async fn a_disabled_puppet_is_not_started_and_disabling_it_meanwhile_is_reported() {
    let node = Node::new("good; exit 0");
    let lock = r#"{"disabled_message":"disk swap"}"#;
    std::fs::write(node.path("state/agent_disabled.lock"), lock).expect("written");
    let outcome = node.run(RunMode::Enforce, CancellationToken::new()).await;
    assert_eq!(outcome.end.ending, RunEnding::Disabled);
    let why = "Puppet is disabled on this node: disk swap";
    assert_eq!(outcome.end.message.as_deref(), Some(why));
    assert_eq!(node.started(), 0);
    let script = "echo '{\"disabled_message\":\"disk swap\"}' > $state/agent_disabled.lock; exit 1";
    check(
        script,
        expect!["Disabled: Puppet is disabled on this node: disk swap"],
    )
    .await;
}

#[tokio::test]
async fn a_missing_puppet_and_one_that_cannot_start_are_distinguished() {
    let mut node = Node::new("");
    let plain = node.path("plain");
    std::fs::write(&plain, "").expect("written");
    let nowhere: PathBuf = "/nowhere/puppet".into();
    for (programs, expected) in [
        (vec![nowhere], RunFailure::NoProgram),
        (vec![plain, "/bin/false".into()], RunFailure::DidNotStart),
        (vec!["/bin/false".into()], RunFailure::DidNotStart),
    ] {
        let named = programs[0].display().to_string();
        node.options.programs = programs;
        let outcome = node.run(RunMode::Enforce, CancellationToken::new()).await;
        let end = outcome.end;
        let failure = (end.ending, end.failure);
        assert_eq!(failure, (RunEnding::NotStarted, Some(expected)), "{named}");
        if expected == RunFailure::NoProgram {
            assert!(end.message.expect("why").contains(&named));
        }
    }
}

/// Starts a process that counts as Puppet, and creates its lock.
fn other_puppet(node: &Node) -> std::process::Child {
    let program = node.path("puppet-other");
    std::fs::copy("/bin/sleep", &program).expect("copied");
    let child = std::process::Command::new(&program)
        .arg("600")
        .spawn()
        .expect("it starts");
    let lock = node.path("state/agent_catalog_run.lock");
    std::fs::write(lock, child.id().to_string()).expect("written");
    child
}

/// Polls until the report says that the run waits for another one.
async fn waits(node: &Node) {
    let spooled = node.path(&format!("spool/{}.events", order(RunMode::Enforce).id));
    let says_so = |text: String| text.contains("waiting for");
    until(|| std::fs::read_to_string(&spooled).is_ok_and(says_so)).await;
}

async fn until(holds: impl Fn() -> bool) {
    bunraku_testkit::eventually(async || holds()).await;
}

#[tokio::test]
async fn a_run_in_progress_is_waited_for_and_a_stale_lock_is_not() {
    let node = Node::new("good; exit 0");
    let mut other = other_puppet(&node);
    let run = node.run(RunMode::Enforce, CancellationToken::new());
    let ending = async {
        waits(&node).await;
        assert_eq!(node.started(), 0, "it waits");
        other.kill().expect("killed");
        other.wait().expect("gone");
    };
    let (outcome, ()) = tokio::join!(run, ending);
    assert_eq!(outcome.end.ending, RunEnding::Succeeded);
    let logs = outcome.logs();
    assert!(logs.iter().any(|text| text.contains("stale lock")));
}

#[tokio::test]
async fn waiting_ends_with_the_run_and_says_who_was_in_the_way() {
    let node = Node::new("good; exit 0");
    let mut other = other_puppet(&node);
    let stop = CancellationToken::new();
    let run = node.run(RunMode::Enforce, stop.clone());
    let stopping = async {
        waits(&node).await;
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(run, stopping);
    other.kill().expect("killed");
    other.wait().expect("gone");
    assert_eq!(outcome.end.failure, Some(RunFailure::Locked));
    assert_eq!(node.started(), 0);
}

#[tokio::test]
async fn a_run_that_came_in_between_is_waited_for_and_then_it_is_tried_again() {
    let script = "if [ ! -e DIRECTORY/second ]; then
  touch DIRECTORY/second; cp /bin/sleep DIRECTORY/puppet-other
  DIRECTORY/puppet-other 1 > /dev/null 2>&1 &
  echo $! > $state/agent_catalog_run.lock; sleep 0.2; exit 1
fi
good; exit 0";
    let node = Node::new(script);
    let outcome = node.run(RunMode::Enforce, CancellationToken::new()).await;
    assert_eq!(
        outcome.end.ending,
        RunEnding::Succeeded,
        "{:?}",
        outcome.end
    );
    assert_eq!(node.started(), 2);
}

#[tokio::test]
async fn stopping_also_ends_child_processes_and_the_report_is_still_sent() {
    // Puppet runs each command in its own session.
    let script = "trap 'good; exit 1' TERM
setsid sleep 600 & echo $! > DIRECTORY/child
wait; wait";
    let node = Node::new(script);
    let stop = CancellationToken::new();
    let run = node.run(RunMode::Enforce, stop.clone());
    let child = node.path("child");
    let stopping = async {
        until(|| std::fs::read_to_string(&child).is_ok_and(|text| text.ends_with('\n'))).await;
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(run, stopping);
    assert_eq!(outcome.end.ending, RunEnding::Failed);
    assert_eq!(outcome.resources(), 1, "what it did before is reported");
    let child = std::fs::read_to_string(&child).expect("written");
    let stat = format!("/proc/{}/stat", child.trim());
    until(|| std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))).await;
}

#[tokio::test]
async fn a_puppet_that_ignores_signals_is_killed() {
    let node = Node::new("trap '' TERM; echo up > DIRECTORY/up; while :; do sleep 1; done");
    let stop = CancellationToken::new();
    let run = node.run(RunMode::Enforce, stop.clone());
    let stopping = async {
        until(|| node.path("up").exists()).await;
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(run, stopping);
    assert_eq!(outcome.end.ending, RunEnding::Failed);
}
