//! The run queue in operation: one run at a time, holds, restarts.

use async_trait::async_trait;
use bunraku_model::RunId;
use bunraku_testkit::{appears, soon};
use bunraku_wire::api::{ReportEvent, RunFinished, RunStarted, TriggerCause};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::reports::{Recorder, SpoolOptions};

/// A method that does what the test tells it to, when the test tells it to.
struct Scripted {
    started: mpsc::UnboundedSender<RunOrder>,
    endings: Mutex<mpsc::UnboundedReceiver<RunEnding>>,
}

struct Script {
    order: RunOrder,
    method: Arc<Scripted>,
}

struct Bench {
    directory: TempDir,
    started: mpsc::UnboundedReceiver<RunOrder>,
    end: mpsc::UnboundedSender<RunEnding>,
    runs: Runs,
    spool: Arc<Spool>,
    shutdown: CancellationToken,
    worker: tokio::task::JoinHandle<()>,
}

struct ScriptedMethod(Arc<Scripted>);

#[async_trait]
impl RunMethod for ScriptedMethod {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn prepare(&self, order: &RunOrder) -> Result<Box<dyn PreparedRun>, RunStartError> {
        if order.tags.contains(&"impossible".to_owned()) {
            return Err(RunStartError::new("it cannot be done"));
        }
        Ok(Box::new(Script {
            order: order.clone(),
            method: Arc::clone(&self.0),
        }))
    }
}

#[async_trait]
impl PreparedRun for Script {
    fn describe(&self) -> RunDescription {
        RunDescription::new(self.order.mode)
    }

    async fn execute(self: Box<Self>, recorder: Arc<Recorder>, stop: CancellationToken) -> RunEnd {
        recorder.log("info", None, "working");
        let _ = self.method.started.send(self.order.clone());
        let next = std::future::poll_fn(|context| {
            let mut endings = self.method.endings.lock().expect("not poisoned");
            endings.poll_recv(context)
        });
        let ending = tokio::select! {
            ending = next => ending.unwrap_or(RunEnding::Failed),
            () = stop.cancelled() => RunEnding::Failed,
        };
        RunEnd {
            ending,
            message: None,
            failure: None,
        }
    }
}

impl Bench {
    fn new() -> Self {
        Self::on(TempDir::new().expect("a directory"))
    }

    fn on(directory: TempDir) -> Self {
        Self::with(
            directory,
            RunSettings {
                noop: false,
                windows: Windows::default(),
                timeout: None,
            },
        )
    }

    fn with(directory: TempDir, settings: RunSettings) -> Self {
        let (started_sender, started) = mpsc::unbounded_channel();
        let (end, endings) = mpsc::unbounded_channel();
        let scripted = Arc::new(Scripted {
            started: started_sender,
            endings: Mutex::new(endings),
        });
        let method: Arc<dyn RunMethod> = Arc::new(ScriptedMethod(scripted));
        let methods = Methods {
            engine: Arc::clone(&method),
            configured: method,
        };
        let spool = Spool::open(&directory.path().join("spool"), SpoolOptions::default());
        let spool = spool.expect("a spool");
        let file = QueueFile::open(directory.path()).expect("a queue");
        let runs = Runs::new(file, Arc::clone(&spool), methods, settings);
        let shutdown = CancellationToken::new();
        let (working, stop) = (runs.clone(), shutdown.clone());
        let worker = tokio::spawn(async move { working.work(&stop).await });
        Self {
            directory,
            started,
            end,
            runs,
            spool,
            shutdown,
            worker,
        }
    }

    async fn started(&mut self) -> RunOrder {
        soon(self.started.recv()).await.expect("the worker lives")
    }

    fn finish(&self, ending: RunEnding) {
        self.end.send(ending).expect("a run waits for it");
    }

    /// Stops the agent as `kill -9` does: nothing more is written.
    fn crash(self) -> TempDir {
        self.worker.abort();
        self.directory
    }

    /// Returns the report of a run, once the run is finished.
    async fn report(&self, run: NodeRunId) -> (RunStarted, RunFinished) {
        appears(async || report_in(&self.directory, run)).await
    }
}

fn report_in(directory: &TempDir, run: NodeRunId) -> Option<(RunStarted, RunFinished)> {
    let path = directory.path().join(format!("spool/{run}.events"));
    let text = std::fs::read_to_string(path).ok()?;
    let (mut begin, mut end) = (None, None);
    for line in text.lines() {
        match serde_json::from_str::<bunraku_wire::api::NumberedEvent>(line)
            .ok()?
            .event
        {
            ReportEvent::Started(started) => begin = Some(started),
            ReportEvent::Finished(finished) => end = Some(finished),
            _ => {}
        }
    }
    Some((begin?, end?))
}

fn id(number: u128) -> NodeRunId {
    NodeRunId(Uuid::from_u128(number))
}

fn trigger(name: &str) -> Cause {
    Cause::Trigger(TriggerCause::new(name, 8))
}

fn request(number: u128, cause: Cause) -> RunRequest {
    RunRequest::new(id(number), vec![cause])
}

fn ordered(number: u128) -> RunRequest {
    let run = RunId(Uuid::from_u128(77));
    RunRequest {
        coalesce: false,
        ..request(number, Cause::Run { run })
    }
}

#[tokio::test]
async fn one_run_at_a_time_and_triggers_meanwhile_become_one_further_run() {
    let mut bench = Bench::new();
    bench
        .runs
        .submit(request(1, trigger("first")))
        .expect("taken");
    assert_eq!(bench.started().await.id, id(1));
    for number in 2..=6 {
        bench
            .runs
            .submit(request(number, trigger(&number.to_string())))
            .expect("taken");
    }
    let report = bench.runs.report();
    assert_eq!(report.running.map(|entry| entry.run), Some(id(1)));
    assert_eq!(report.pending.len(), 1);
    assert!(bench.started.try_recv().is_err(), "one at a time");
    bench.finish(RunEnding::Succeeded);
    assert_eq!(bench.started().await.causes.len(), 5);
    bench.finish(RunEnding::Succeeded);
    let (begin, end) = bench.report(id(2)).await;
    assert_eq!((begin.causes.len(), begin.also.len()), (5, 4));
    assert_eq!(end.ending, RunEnding::Succeeded);
}

#[tokio::test]
async fn accepted_runs_survive_a_crash_and_the_active_one_is_reported_and_requested_again() {
    let mut bench = Bench::new();
    bench.runs.submit(request(1, trigger("t"))).expect("taken");
    assert_eq!(bench.started().await.id, id(1));
    bench.runs.submit(ordered(2)).expect("taken");
    let directory = bench.crash();
    let mut bench = Bench::on(directory);
    // The ordered run was already pending; the trigger's run is requested after it.
    assert_eq!(bench.started().await.id, id(2));
    bench.finish(RunEnding::Succeeded);
    let again = bench.started().await;
    assert_eq!(again.causes, [trigger("t")]);
    bench.finish(RunEnding::Succeeded);
    let (_, end) = bench.report(id(1)).await;
    assert_eq!(end.ending, RunEnding::Interrupted);
    assert_eq!(bench.report(again.id).await.1.ending, RunEnding::Succeeded);
    // The commands are repeated, because their answers were lost.
    assert_eq!(
        bench.runs.submit(request(1, trigger("t"))),
        Ok(SubmitOutcome::Known)
    );
    assert_eq!(bench.runs.submit(ordered(2)), Ok(SubmitOutcome::Known));
}

#[tokio::test]
async fn an_ordered_run_that_was_interrupted_is_reported_and_not_started_again() {
    let mut bench = Bench::new();
    bench.runs.submit(ordered(1)).expect("taken");
    bench.started().await;
    let directory = bench.crash();
    let mut bench = Bench::on(directory);
    assert_eq!(bench.report(id(1)).await.1.ending, RunEnding::Interrupted);
    bench.runs.submit(ordered(2)).expect("taken");
    assert_eq!(bench.started().await.id, id(2), "nothing else had waited");
}

#[tokio::test]
async fn a_run_whose_report_was_delivered_before_the_crash_is_finished() {
    let mut bench = Bench::new();
    bench.runs.submit(request(1, trigger("t"))).expect("taken");
    bench.started().await;
    let queue = std::fs::read(bench.directory.path().join("queue.json")).expect("readable");
    bench.finish(RunEnding::Succeeded);
    bench.report(id(1)).await;
    let directory = bench.crash();
    // The report was delivered, but the queue did not record that.
    std::fs::remove_file(directory.path().join(format!("spool/{}.events", id(1)))).expect("sent");
    std::fs::write(directory.path().join("queue.json"), queue).expect("written");
    let mut bench = Bench::on(directory);
    bench.runs.submit(ordered(2)).expect("taken");
    assert_eq!(bench.started().await.id, id(2), "it does not run again");
}

#[tokio::test]
async fn a_shutdown_interrupts_the_run_and_the_next_start_continues() {
    let mut bench = Bench::new();
    bench.runs.submit(request(1, trigger("t"))).expect("taken");
    bench.started().await;
    bench.shutdown.cancel();
    soon(&mut bench.worker).await.expect("the worker ends");
    let mut next = Bench::on(bench.directory);
    assert_eq!(next.report(id(1)).await.1.ending, RunEnding::Interrupted);
    assert_eq!(next.started().await.causes, [trigger("t")]);
}

#[tokio::test]
async fn a_disabled_node_refuses_and_reports_it_also_after_a_restart() {
    let bench = Bench::new();
    bench.runs.administer(Administration::Disabled {
        since: Timestamp::now(),
        reason: "disk".to_owned(),
        by: "alice".to_owned(),
    });
    let directory = bench.crash();
    let mut bench = Bench::on(directory);
    let refused = bench.runs.submit(ordered(1));
    assert!(
        matches!(refused, Err(SubmitRefusal::Disabled { .. })),
        "{refused:?}"
    );
    let (_, end) = bench.report(id(1)).await;
    assert_eq!(end.ending, RunEnding::Disabled);
    assert_eq!(
        end.message.as_deref(),
        Some("the node is disabled by alice: disk")
    );
    bench.runs.administer(Administration::Enabled {
        since: Timestamp::now(),
    });
    bench.runs.submit(ordered(2)).expect("taken");
    assert_eq!(bench.started().await.id, id(2));
}

#[tokio::test]
async fn a_run_that_waits_too_long_is_reported_as_expired_during_another_run() {
    let mut bench = Bench::new();
    bench.runs.submit(ordered(1)).expect("taken");
    bench.started().await;
    let soon_over = RunRequest {
        start_before: Some(Timestamp::now() + Duration::from_millis(50)),
        ..ordered(2)
    };
    bench.runs.submit(soon_over).expect("taken");
    assert_eq!(bench.report(id(2)).await.1.ending, RunEnding::Expired);
    assert!(bench.runs.report().pending.is_empty());
    assert!(bench.runs.report().running.is_some());
}

#[tokio::test]
async fn cancelling_ends_an_active_run_and_removes_a_waiting_one() {
    let mut bench = Bench::new();
    bench.runs.submit(ordered(1)).expect("taken");
    bench.runs.submit(ordered(2)).expect("taken");
    bench.started().await;
    let waiting = bench.runs.cancel(id(2), "not wanted").expect("written");
    assert!(matches!(waiting, CancelOutcome::Pending(_)));
    assert_eq!(
        bench.runs.cancel(id(1), "stop").expect("written"),
        CancelOutcome::Running
    );
    for run in [id(1), id(2)] {
        assert_eq!(bench.report(run).await.1.ending, RunEnding::Cancelled);
    }
    assert_eq!(bench.report(id(1)).await.1.message.as_deref(), Some("stop"));
}

#[tokio::test]
async fn a_run_that_works_for_too_long_is_ended() {
    let mut bench = Bench::new();
    let limited = RunRequest {
        timeout_seconds: Some(1),
        ..ordered(1)
    };
    bench.runs.submit(limited).expect("taken");
    bench.started().await;
    assert_eq!(bench.report(id(1)).await.1.ending, RunEnding::TimedOut);
}

#[tokio::test]
async fn a_run_that_cannot_start_says_why() {
    let bench = Bench::new();
    let impossible = RunRequest {
        tags: vec!["impossible".to_owned()],
        ..ordered(1)
    };
    bench.runs.submit(impossible).expect("taken");
    let (_, end) = bench.report(id(1)).await;
    assert_eq!(end.ending, RunEnding::NotStarted);
    assert_eq!(end.message.as_deref(), Some("it cannot be done"));
}

#[tokio::test]
async fn a_method_without_environments_runs_in_none_that_a_request_names() {
    let bench = Bench::new();
    let elsewhere = RunRequest {
        subject: RunSubject::Configured {
            environment: Some("testing".parse().expect("a name")),
            planned: None,
        },
        ..ordered(1)
    };
    bench.runs.submit(elsewhere).expect("taken");
    let (_, end) = bench.report(id(1)).await;
    assert_eq!(end.ending, RunEnding::NotStarted);
    let message = end.message.expect("it says why");
    assert!(message.contains("environment `testing`"), "{message}");
}

#[tokio::test]
async fn outside_of_a_window_runs_are_noop_unless_somebody_says_otherwise() {
    let never = Windows(vec!["daily 00:00-00:01 UTC".parse().expect("a window")]);
    let settings = RunSettings {
        noop: false,
        // Between 00:00 and 00:01, this test uses a window that is open.
        windows: if never.are_open(Timestamp::now()) {
            Windows(vec!["daily 12:00-12:01 UTC".parse().expect("a window")])
        } else {
            never
        },
        timeout: None,
    };
    let mut bench = Bench::with(TempDir::new().expect("a directory"), settings);
    bench.runs.submit(ordered(1)).expect("taken");
    assert_eq!(bench.started().await.mode, RunMode::Noop);
    bench.finish(RunEnding::Succeeded);
    let insisted = RunRequest {
        mode: Some(RunMode::Enforce),
        ..ordered(2)
    };
    bench.runs.submit(insisted).expect("taken");
    assert_eq!(bench.started().await.mode, RunMode::Enforce);
}

#[tokio::test]
async fn a_queue_that_cannot_be_written_takes_nothing() {
    let bench = Bench::new();
    let directory = bench.directory.path().to_owned();
    std::fs::remove_dir_all(&directory).expect("removed");
    let refused = bench.runs.submit(ordered(1));
    assert!(
        matches!(refused, Err(SubmitRefusal::NotKept(_))),
        "{refused:?}"
    );
    assert!(bench.runs.report().pending.is_empty());
    assert!(bench.spool.unfinished().is_empty());
}

fn hold_for(seconds: u64) -> Option<bunraku_wire::api::NodeHold> {
    Some(bunraku_wire::api::NodeHold {
        run: RunId(Uuid::from_u128(77)),
        seconds,
    })
}

#[tokio::test(start_paused = true)]
async fn while_an_ordered_run_has_the_node_only_its_own_part_starts() {
    let mut bench = Bench::new();
    bench.runs.hold(hold_for(60));
    bench.runs.ask(Cause::Schedule).expect("taken");
    bench.runs.submit(request(1, trigger("t"))).expect("taken");
    bench.runs.submit(ordered(2)).expect("taken");
    assert_eq!(bench.started().await.id, id(2), "it goes first");
    bench.finish(RunEnding::Succeeded);
    bench.report(id(2)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(bench.started.try_recv().is_err(), "the others wait");
    assert_eq!(
        bench.runs.report().held_by,
        Some(RunId(Uuid::from_u128(77)))
    );
    bench.runs.hold(None);
    assert_eq!(bench.started().await.causes, [Cause::Schedule]);
    bench.finish(RunEnding::Succeeded);
    assert_eq!(bench.started().await.id, id(1));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_not_renewed_expires_by_the_nodes_own_clock() {
    let mut bench = Bench::new();
    bench.runs.hold(hold_for(60));
    bench.runs.ask(Cause::Schedule).expect("taken");
    tokio::time::sleep(Duration::from_secs(45)).await;
    bench.runs.hold(hold_for(60));
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert!(bench.started.try_recv().is_err(), "it was said again");
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(bench.started().await.causes, [Cause::Schedule]);
    // The limit applies, however long a hold the server requests.
    bench.finish(RunEnding::Succeeded);
    bench.runs.hold(hold_for(u64::MAX));
    bench.runs.ask(Cause::Schedule).expect("taken");
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!(bench.started().await.causes, [Cause::Schedule]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_survives_the_agent_and_still_runs_out() {
    let bench = Bench::new();
    bench.runs.hold(hold_for(60));
    bench.runs.ask(Cause::Schedule).expect("taken");
    let directory = bench.crash();
    let mut bench = Bench::on(directory);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(bench.started.try_recv().is_err(), "it is still held");
    bench.runs.submit(ordered(2)).expect("taken");
    assert_eq!(bench.started().await.id, id(2));
    bench.finish(RunEnding::Succeeded);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(bench.started().await.causes, [Cause::Schedule]);
}
