//! Runs that execute a command.

use std::time::Duration;

use bunraku_model::NodeRunId;
use bunraku_testkit::eventually;
use bunraku_wire::api::{Cause, LogLine, ReportEvent, RunStarted, RunSubject};
use jiff::Timestamp;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::reports::{Spool, SpoolOptions};

struct Outcome {
    end: RunEnd,
    logs: Vec<LogLine>,
}

fn order() -> RunOrder {
    RunOrder {
        id: NodeRunId(Uuid::from_u128(7)),
        mode: RunMode::Enforce,
        subject: RunSubject::configured(),
        tags: Vec::new(),
        causes: vec![Cause::Schedule],
        more_causes: 5,
        work: bunraku_process::WorkLog::new("/nonexistent/work"),
    }
}

fn shell(script: &str) -> CommandMethod {
    CommandMethod::new(CommandOptions {
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        noop_command: None,
        success_codes: vec![0, 2],
    })
}

async fn execute(method: &CommandMethod, stop: CancellationToken) -> Outcome {
    let directory = TempDir::new().expect("a directory");
    let spool = Spool::open(directory.path(), SpoolOptions::default()).expect("a spool");
    let order = order();
    let prepared = method.prepare(&order).await.expect("it can start");
    let started = RunStarted::new(Timestamp::now(), order.mode, method.name());
    let recorder = spool.begin(order.id, started, false);
    let end = tokio::time::timeout(Duration::from_secs(60), prepared.execute(recorder, stop));
    let end = end.await.expect("it ends within a minute");
    let path = directory.path().join(format!("{}.events", order.id));
    let text = std::fs::read_to_string(path).expect("a report");
    let events = text.lines().map(|line| {
        serde_json::from_str::<bunraku_wire::api::NumberedEvent>(line).expect("an event")
    });
    let logs = events
        .filter_map(|event| match event.event {
            ReportEvent::Log(line) => Some(line),
            _ => None,
        })
        .collect();
    Outcome { end, logs }
}

#[tokio::test]
async fn output_is_reported_and_the_exit_code_decides() {
    let script = "echo out; echo err >&2; printf tail; exit 2";
    let outcome = execute(&shell(script), CancellationToken::new()).await;
    assert_eq!(outcome.end.ending, RunEnding::Succeeded);
    let mut shown: Vec<(String, String)> = (outcome.logs.into_iter())
        .map(|line| (line.level, line.message))
        .collect();
    shown.sort();
    let wanted = [("info", "out"), ("info", "tail"), ("warning", "err")];
    assert_eq!(
        shown,
        wanted.map(|(level, text)| (level.to_owned(), text.to_owned()))
    );
    let outcome = execute(&shell("exit 3"), CancellationToken::new()).await;
    assert_eq!(outcome.end.ending, RunEnding::Failed);
    assert!(outcome.end.message.expect("why").contains("exit code 3"));
}

#[tokio::test]
async fn it_knows_its_run_and_its_causes() {
    let script = "echo \"$BUNRAKU_RUN $BUNRAKU_CAUSES $BUNRAKU_MORE_CAUSES\"";
    let outcome = execute(&shell(script), CancellationToken::new()).await;
    assert_eq!(
        outcome.logs[0].message,
        format!("{} [{{\"cause\":\"schedule\"}}] 5", order().id)
    );
}

#[tokio::test]
async fn stopping_it_ends_its_whole_process_group() {
    let stop = CancellationToken::new();
    let marker = TempDir::new().expect("a directory");
    let file = marker.path().join("child");
    let script = format!(
        "(sleep 600 & echo $! > {0}; wait) & echo started; wait",
        file.display()
    );
    let method = shell(&script);
    let ended = execute(&method, stop.clone());
    let stopping = async {
        let written = || std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'));
        eventually(async || written()).await;
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(ended, stopping);
    assert_eq!(outcome.end.ending, RunEnding::Failed);
    let child: i32 = std::fs::read_to_string(&file)
        .expect("written")
        .trim()
        .parse()
        .expect("a process id");
    let gone = || {
        let state = std::fs::read_to_string(format!("/proc/{child}/stat"));
        state.map_or(true, |stat| stat.contains(") Z "))
    };
    eventually(async || gone()).await;
}

#[tokio::test]
async fn something_that_stays_behind_does_not_hold_the_run_up() {
    let outcome = execute(&shell("sleep 5 & echo done"), CancellationToken::new()).await;
    assert_eq!(outcome.end.ending, RunEnding::Succeeded);
    assert_eq!(outcome.logs[0].message, "done");
}

#[tokio::test]
async fn a_program_that_is_not_there_and_a_noop_that_is_not_configured_do_not_start() {
    let method = CommandMethod::new(CommandOptions {
        command: vec!["/nowhere/at/all".to_owned()],
        noop_command: None,
        success_codes: vec![0],
    });
    let outcome = execute(&method, CancellationToken::new()).await;
    assert_eq!(outcome.end.ending, RunEnding::NotStarted);
    let noop = RunOrder {
        mode: RunMode::Noop,
        ..order()
    };
    let refused = method.prepare(&noop).await.err().expect("refused");
    assert!(refused.message.contains("noop"), "{refused}");
}
