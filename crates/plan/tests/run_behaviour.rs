//! The behaviour of a run, as scripts: text in, text out.

use crate::support::{after, batched, ended, plan, run_id, step_of};
use bunraku_plan::StepIndex;
use bunraku_plan::run::{
    Action, Event, NodeLimit, OnFailure, Run, RunEnding, RunLogEntry, RunOptions, RunOutcome,
    StepState, UnavailableNode, UnavailableReason,
};
use expect_test::{Expect, expect};

/// Executes a script of events, one per line or separated by semicolons, and shows when each step started and its state.
pub(crate) fn transcript(graph: &str, options: RunOptions, script: &str) -> String {
    let plan = batched(plan(graph), &options);
    let mut run = Run::new(run_id(), plan.clone(), options.clone(), &[]);
    let mut log: Vec<RunLogEntry> = Vec::new();
    let mut out = String::new();
    let mut clock = 0;
    for line in script
        .split(['\n', ';'])
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        if let Some(seconds) = line.strip_prefix('+') {
            clock += seconds.parse::<i64>().expect("seconds") * 1_000;
        }
        let event = event(&plan, line);
        let at = after(clock);
        let actions = run.step(&event, at);
        log.push(RunLogEntry { at, event });
        out.push_str(&format!("{line}\n"));
        for action in actions {
            let (word, step) = match action {
                Action::Start { step, .. } => ("start", step),
                Action::Cancel { step, .. } => ("cancel", step),
                Action::Check { gate, check } => {
                    out.push_str(&format!("  check {gate} {check}\n"));
                    continue;
                }
            };
            out.push_str(&format!("  {word} {}\n", plan.steps[step.at()].node));
        }
    }
    out.push_str("---\n");
    for (step, status) in plan.steps.iter().zip(run.statuses()) {
        let why = match &status.state {
            StepState::Skipped { reason } => format!("  {reason}"),
            _ => status
                .message
                .as_ref()
                .map_or_else(String::new, |message| format!("  {message}")),
        };
        out.push_str(&format!("{}  {}{why}\n", step.node, status.state.name()));
    }
    if let Some(outcome) = run.outcome() {
        out.push_str(&format!("{outcome:?}\n"));
    }
    every_cut_recovers(&run, &log, &options);
    out
}

fn event(plan: &bunraku_plan::RunPlan, line: &str) -> Event {
    let Some((node, word)) = line.split_once(": ") else {
        let words: Vec<&str> = line.split(' ').collect();
        if let [word @ ("pass" | "fail"), gate, check] = words.as_slice() {
            let (gate, check) = (
                gate.parse().expect("a gate"),
                check.parse().expect("a check"),
            );
            let by = "ann".to_owned();
            return match *word {
                "pass" => Event::CheckPassed {
                    gate,
                    check,
                    by,
                    message: None,
                },
                _ => Event::CheckFailed {
                    gate,
                    check,
                    by,
                    reason: "too slow".to_owned(),
                },
            };
        }
        return match line {
            "begin" => Event::Begun { unfit: Vec::new() },
            "expire" => Event::Expired {
                reason: "it could not begin in time".to_owned(),
            },
            "stop" => Event::StopRequested {
                by: "ann".to_owned(),
            },
            "cancel" => Event::CancelRequested {
                by: "ann".to_owned(),
            },
            _ if line.starts_with('+') => Event::TimePassed,
            other => panic!("{other}?"),
        };
    };
    let ended = |step, ending| Event::Ended {
        step,
        ending,
        changed: 1,
        failed: 0,
        message: None,
        failures: Vec::new(),
        drifted: 0,
    };
    let unfit = |step, reason| Event::Begun {
        unfit: vec![UnavailableNode { step, reason }],
    };
    let step = step_of(plan, node);
    if word == "drifted" {
        return match ended(step, RunEnding::Succeeded) {
            Event::Ended {
                step,
                ending,
                changed,
                failed,
                message,
                failures,
                ..
            } => Event::Ended {
                step,
                ending,
                changed,
                failed,
                message,
                failures,
                drifted: 2,
            },
            other => other,
        };
    }
    match word {
        "started" => Event::Started { step },
        "succeeded" => ended(step, RunEnding::Succeeded),
        "failed" => ended(step, RunEnding::Failed),
        "interrupted" => ended(step, RunEnding::Interrupted),
        "cancelled" => ended(step, RunEnding::Cancelled),
        "expired" => ended(step, RunEnding::Expired),
        "away" => Event::Away { step },
        "back" => Event::Back { step },
        "refused" => Event::Refused {
            step,
            reason: "its queue is full".to_owned(),
        },
        "disabled" => Event::Disabled {
            step,
            reason: "disk is being replaced".to_owned(),
        },
        "begin without" => unfit(
            step,
            UnavailableReason::Disabled {
                reason: "broken".to_owned(),
            },
        ),
        "begin lost" => unfit(
            step,
            UnavailableReason::Lost {
                reason: "no answer".to_owned(),
            },
        ),
        other => panic!("{other}?"),
    }
}

/// Checks that a server can die after any entry: the next one arrives at the same state, and
/// repeats the actions that may not have been performed.
fn every_cut_recovers(run: &Run, log: &[RunLogEntry], options: &RunOptions) {
    for cut in 0..=log.len() {
        let mut live = Run::new(run.id(), run.plan().clone(), options.clone(), &[]);
        let mut pending = Vec::new();
        for entry in &log[..cut] {
            pending = live.step(&entry.event, entry.at);
        }
        let stored = log[..cut].iter().map(|entry| {
            let text = serde_json::to_string(entry).expect("an entry is JSON");
            serde_json::from_str(&text).expect("and back")
        });
        let (mut recovered, outstanding) =
            Run::recover(run.id(), run.plan().clone(), options.clone(), &[], stored);
        assert_eq!(recovered.statuses(), live.statuses(), "cut at {cut}");
        assert_eq!(recovered.phase(), live.phase(), "cut at {cut}");
        for action in &pending {
            assert!(
                outstanding.contains(action),
                "cut at {cut}: {action:?} is forgotten"
            );
        }
        for entry in &log[cut..] {
            recovered.step(&entry.event, entry.at);
        }
        assert_eq!(
            recovered.statuses(),
            run.statuses(),
            "cut at {cut}, then on"
        );
    }
}

fn check(graph: &str, options: RunOptions, script: &str, expected: Expect) {
    expected.assert_eq(&transcript(graph, options, script));
}

const LAMP: &str = "db -> web-1\ndb -> web-2\ndb -> web-3";

#[test]
fn nodes_start_as_soon_as_what_they_need_is_done() {
    check(
        "a -> b -> c\nx -> c\ny",
        RunOptions::default(),
        "begin
         x: started
         a: succeeded
         y: succeeded
         b: succeeded
         x: succeeded
         c: started
         c: succeeded",
        expect![[r#"
            begin
              start a
              start x
              start y
            x: started
            a: succeeded
              start b
            y: succeeded
            b: succeeded
            x: succeeded
              start c
            c: started
            c: succeeded
            ---
            a  succeeded
            x  succeeded
            y  succeeded
            b  succeeded
            c  succeeded
            Succeeded
        "#]],
    );
}

#[test]
fn a_failed_node_holds_back_those_behind_it_and_stops_the_rest() {
    check(
        "db -> web-1 -> lb\nother -> later",
        RunOptions::default(),
        "begin
         db: started
         db: failed
         other: succeeded",
        expect![[r#"
            begin
              start db
              start other
            db: started
            db: failed
            other: succeeded
            ---
            db  failed
            other  succeeded
            later  skipped  db failed
            web-1  skipped  waits for db, which failed
            lb  skipped  waits for web-1, which was skipped because db failed
            Failed
        "#]],
    );
}

#[test]
fn independent_nodes_continue_if_requested() {
    check(
        "db -> web-1 -> lb\nother -> later",
        RunOptions {
            on_failure: OnFailure::ContinueIndependent,
            ..RunOptions::default()
        },
        "begin
         db: failed
         other: succeeded
         later: succeeded",
        expect![[r#"
            begin
              start db
              start other
            db: failed
            other: succeeded
              start later
            later: succeeded
            ---
            db  failed
            other  succeeded
            later  succeeded
            web-1  skipped  waits for db, which failed
            lb  skipped  waits for web-1, which was skipped because db failed
            Failed
        "#]],
    );
}

#[test]
fn silence_is_never_success() {
    check(
        LAMP,
        RunOptions {
            node_timeout_seconds: Some(100),
            ..RunOptions::default()
        },
        "begin
         db: started
         +161",
        expect![[r#"
            begin
              start db
            db: started
            +161
              cancel db
            ---
            db  timed out  it took longer than 100 s
            web-1  skipped  waits for db, which timed out
            web-2  skipped  waits for db, which timed out
            web-3  skipped  waits for db, which timed out
            Failed
        "#]],
    );
    check(
        "db -> web",
        RunOptions::default(),
        "begin\n+600",
        expect![[r#"
            begin
              start db
            +600
              cancel db
            ---
            db  never started  it did not start within 600 s
            web  skipped  waits for db, which never started
            Failed
        "#]],
    );
}

#[test]
fn a_node_that_is_away_for_long_is_lost_and_one_that_comes_back_is_not() {
    check(
        "a\nb",
        RunOptions {
            on_failure: OnFailure::ContinueIndependent,
            ..RunOptions::default()
        },
        "begin; a: started; b: started; a: away; b: away
         +30; b: back; +31; b: away; +59; b: back
         b: succeeded; a: succeeded",
        expect![[r#"
            begin
              start a
              start b
            a: started
            b: started
            a: away
            b: away
            +30
            b: back
            +31
            b: away
            +59
            b: back
            b: succeeded
            a: succeeded
            ---
            a  lost  it was disconnected for 60 s
            b  succeeded
            Failed
        "#]],
    );
}

#[test]
fn each_way_of_not_succeeding_is_its_own_state() {
    check(
        "a\nb\nc\nd\ne\nf",
        RunOptions {
            on_failure: OnFailure::ContinueIndependent,
            ..RunOptions::default()
        },
        "begin
         a: failed
         b: interrupted
         c: refused
         d: disabled
         e: cancelled
         f: expired",
        expect![[r#"
            begin
              start a
              start b
              start c
              start d
              start e
              start f
            a: failed
            b: interrupted
            c: refused
            d: disabled
            e: cancelled
            f: expired
            ---
            a  failed
            b  lost
            c  never started  its queue is full
            d  disabled  disk is being replaced
            e  cancelled
            f  never started
            Failed
        "#]],
    );
}

#[test]
fn nothing_starts_when_a_node_is_not_ready() {
    check(
        LAMP,
        RunOptions::default(),
        "web-2: begin without",
        expect![[r#"
            web-2: begin without
            ---
            db  skipped  not all nodes are ready
            web-1  skipped  not all nodes are ready
            web-2  disabled  broken
            web-3  skipped  not all nodes are ready
            Refused
        "#]],
    );
    check(
        LAMP,
        RunOptions {
            on_failure: OnFailure::ContinueIndependent,
            ..RunOptions::default()
        },
        "web-2: begin lost\ndb: succeeded\nweb-1: succeeded\nweb-3: succeeded",
        expect![[r#"
            web-2: begin lost
              start db
            db: succeeded
              start web-1
              start web-3
            web-1: succeeded
            web-3: succeeded
            ---
            db  succeeded
            web-1  succeeded
            web-2  lost  no answer
            web-3  succeeded
            Failed
        "#]],
    );
}

#[test]
fn a_batch_bounds_how_many_run_at_a_time() {
    check(
        "a\nb\nc\nd",
        RunOptions {
            batch: Some(NodeLimit::Count(2)),
            ..RunOptions::default()
        },
        "begin
         b: succeeded
         a: succeeded
         c: succeeded
         d: succeeded",
        expect![[r#"
            begin
              start a
              start b
            b: succeeded
              start c
            a: succeeded
              start d
            c: succeeded
            d: succeeded
            ---
            a  succeeded
            b  succeeded
            c  succeeded
            d  succeeded
            Succeeded
        "#]],
    );
}

#[test]
fn canaries_go_first_and_a_dead_one_keeps_the_others_safe() {
    let options = RunOptions {
        canary: 2,
        on_failure: OnFailure::ContinueIndependent,
        ..RunOptions::default()
    };
    check(
        LAMP,
        options.clone(),
        "begin
         db: succeeded
         web-1: succeeded",
        expect![[r#"
            begin
              start db
            db: succeeded
              start web-1
            web-1: succeeded
              start web-2
              start web-3
            ---
            db  succeeded
            web-1  succeeded
            web-2  starting
            web-3  starting
        "#]],
    );
    check(
        LAMP,
        options,
        "begin
         db: succeeded
         web-1: failed",
        expect![[r#"
            begin
              start db
            db: succeeded
              start web-1
            web-1: failed
            ---
            db  succeeded
            web-1  failed
            web-2  skipped  web-1, a canary, failed
            web-3  skipped  web-1, a canary, failed
            Failed
        "#]],
    );
}

#[test]
fn more_failures_than_allowed_stop_the_run() {
    check(
        "a\nb\nc\nd -> e",
        RunOptions {
            max_failures: Some(NodeLimit::Percent(20)),
            batch: Some(NodeLimit::Count(2)),
            ..RunOptions::default()
        },
        "begin
         d: failed
         a: failed",
        expect![[r#"
            begin
              start d
              start a
            d: failed
              start b
            a: failed
            ---
            a  failed
            b  starting
            c  skipped  2 nodes failed
            d  failed
            e  skipped  waits for d, which failed
        "#]],
    );
}

#[test]
fn groups_are_barriers_only_on_request() {
    check(
        "a -> b\nc",
        RunOptions {
            by_group: true,
            ..RunOptions::default()
        },
        "begin
         a: succeeded
         c: succeeded
         b: succeeded",
        expect![[r#"
            begin
              start a
              start c
            a: succeeded
            c: succeeded
              start b
            b: succeeded
            ---
            a  succeeded
            c  succeeded
            b  succeeded
            Succeeded
        "#]],
    );
}

#[test]
fn stop_lets_running_nodes_finish_and_cancel_ends_them() {
    check(
        LAMP,
        RunOptions::default(),
        "begin
         db: started
         stop
         db: succeeded",
        expect![[r#"
            begin
              start db
            db: started
            stop
            db: succeeded
            ---
            db  succeeded
            web-1  skipped  ann stopped the run
            web-2  skipped  ann stopped the run
            web-3  skipped  ann stopped the run
            Cancelled
        "#]],
    );
    check(
        "a\nb\nc -> d",
        RunOptions::default(),
        "begin
         a: started
         b: started
         stop
         cancel
         a: cancelled
         b: succeeded
         +60",
        expect![[r#"
            begin
              start c
              start a
              start b
            a: started
            b: started
            stop
            cancel
              cancel a
              cancel b
              cancel c
            a: cancelled
            b: succeeded
            +60
            ---
            a  cancelled
            b  succeeded
            c  cancelled  it did not confirm that it stopped
            d  skipped  ann stopped the run
            Cancelled
        "#]],
    );
}

#[test]
fn a_run_that_could_not_start_in_time_expires_and_starts_no_node() {
    check(
        LAMP,
        RunOptions::default(),
        "expire
         begin",
        expect![[r#"
            expire
            begin
            ---
            db  cancelled
            web-1  cancelled
            web-2  cancelled
            web-3  cancelled
            Expired
        "#]],
    );
    check(
        "a",
        RunOptions::default(),
        "begin
         expire
         a: succeeded",
        expect![[r#"
            begin
              start a
            expire
            a: succeeded
            ---
            a  succeeded
            Succeeded
        "#]],
    );
}

#[test]
fn the_whole_run_has_a_time_limit() {
    check(
        LAMP,
        RunOptions {
            total_timeout_seconds: Some(50),
            ..RunOptions::default()
        },
        "begin
         db: succeeded
         web-1: succeeded
         web-2: started
         +50
         web-2: succeeded",
        expect![[r#"
            begin
              start db
            db: succeeded
              start web-1
              start web-2
              start web-3
            web-1: succeeded
            web-2: started
            +50
              cancel web-2
              cancel web-3
            web-2: succeeded
            ---
            db  succeeded
            web-1  succeeded
            web-2  timed out  the run took longer than 50 s
            web-3  timed out  the run took longer than 50 s
            Failed
        "#]],
    );
}

#[test]
fn repeated_late_or_foreign_events_change_nothing() {
    let plan = plan("a -> b");
    let mut run = Run::new(run_id(), plan, RunOptions::default(), &[]);
    let step = bunraku_plan::StepIndex(0);
    let other = bunraku_plan::StepIndex(1);
    let nobody = bunraku_plan::StepIndex(99);
    assert!(
        run.step(&ended(step, RunEnding::Succeeded), after(0))
            .is_empty(),
        "not asked yet"
    );
    assert_eq!(
        run.step(&Event::Begun { unfit: Vec::new() }, after(0))
            .len(),
        1
    );
    assert!(
        run.step(&Event::Begun { unfit: Vec::new() }, after(0))
            .is_empty()
    );
    assert!(
        run.step(&ended(other, RunEnding::Succeeded), after(1))
            .is_empty(),
        "b was not asked"
    );
    assert!(
        run.step(&ended(nobody, RunEnding::Succeeded), after(1))
            .is_empty()
    );
    assert_eq!(
        run.step(&ended(step, RunEnding::Succeeded), after(2)).len(),
        1
    );
    assert!(
        run.step(&ended(step, RunEnding::Failed), after(3))
            .is_empty()
    );
    assert!(run.step(&Event::Started { step }, after(3)).is_empty());
    assert_eq!(run.statuses()[0].state, StepState::Succeeded);
    assert_eq!(run.statuses()[1].state, StepState::Starting);
}

#[test]
fn a_clock_that_goes_back_ends_nothing_early_and_holds_nothing_up() {
    let mut run = Run::new(run_id(), plan("a"), RunOptions::default(), &[]);
    run.step(&Event::Begun { unfit: Vec::new() }, after(1_000_000));
    run.step(&Event::TimePassed, after(0));
    assert_eq!(run.statuses()[0].state, StepState::Starting);
    run.step(&Event::TimePassed, after(1_600_000));
    assert_eq!(run.statuses()[0].state, StepState::NeverStarted);
}

#[test]
fn a_resumed_run_does_only_what_is_left() {
    let plan = plan(LAMP);
    let done = [step_of(&plan, "db"), step_of(&plan, "web-2")];
    let mut run = Run::new(run_id(), plan.clone(), RunOptions::default(), &done);
    let actions = run.step(&Event::Begun { unfit: Vec::new() }, after(0));
    let names: Vec<&str> = actions
        .iter()
        .map(|action| match action {
            Action::Start { step, .. } | Action::Cancel { step, .. } => {
                plan.steps[step.at()].node.as_str()
            }
            Action::Check { .. } => "a check",
        })
        .collect();
    assert_eq!(names, ["web-1", "web-3"]);
}

#[test]
fn node_runs_have_ids_that_anyone_can_compute() {
    let one = Run::new(run_id(), plan(LAMP), RunOptions::default(), &[]);
    let other = Run::new(
        run_id(),
        plan(LAMP),
        RunOptions {
            noop: true,
            ..RunOptions::default()
        },
        &[],
    );
    let step = bunraku_plan::StepIndex(2);
    assert_eq!(one.node_run(step), other.node_run(step));
    assert_ne!(one.node_run(step), one.node_run(bunraku_plan::StepIndex(1)));
}

#[test]
fn the_timeline_marks_the_chain_that_took_longest() {
    let plan = plan("a -> b -> d\nc -> d");
    let mut run = Run::new(run_id(), plan.clone(), RunOptions::default(), &[]);
    let ended = |node: &str| Event::Ended {
        step: step_of(&plan, node),
        ending: RunEnding::Succeeded,
        changed: 0,
        failed: 0,
        message: None,
        failures: Vec::new(),
        drifted: 0,
    };
    run.step(&Event::Begun { unfit: Vec::new() }, after(0));
    for (node, at) in [("a", 1_000), ("c", 1_500), ("b", 4_000), ("d", 5_000)] {
        run.step(&ended(node), after(at));
    }
    let timeline = run.timeline(after(9_000)).expect("it began");
    let critical: Vec<&str> = timeline
        .bars
        .iter()
        .filter(|bar| bar.critical)
        .map(|bar| bar.name.as_str())
        .collect();
    assert_eq!(critical, ["a", "b", "d"]);
    let svg = bunraku_plan::run::timeline_svg("run 7f3a", &timeline);
    assert_eq!(svg.matches("class=\"critical\"").count(), 3);
    assert_eq!(svg.matches("class=\"bar\"").count(), 1);
}

#[test]
fn a_plan_that_changed_before_the_start_runs_nothing_and_says_where() {
    let plan = plan("a -> b\nc");
    let mut run = Run::new(run_id(), plan.clone(), RunOptions::default(), &[]);
    let changed = Event::PlanChanged {
        nodes: vec![bunraku_plan::StaleNode {
            node: plan.steps[step_of(&plan, "b").at()].node.clone(),
            reason: "it has another catalog now".to_owned(),
        }],
    };
    let options = RunOptions {
        on_failure: OnFailure::ContinueIndependent,
        ..RunOptions::default()
    };
    let mut tolerant = Run::new(run_id(), plan.clone(), options, &[]);
    for run in [&mut run, &mut tolerant] {
        assert_eq!(run.step(&changed, after(0)), [], "nothing starts");
        assert_eq!(run.outcome(), Some(RunOutcome::Refused));
        let late = run.step(&Event::Begun { unfit: Vec::new() }, after(1));
        assert_eq!(late, [], "it has ended");
        let status = &run.statuses()[step_of(&plan, "b").at()];
        assert_eq!(status.state, StepState::NeverStarted);
        let reason = status.failure_reason();
        assert_eq!(reason.as_deref(), Some("it has another catalog now"));
    }
    // A run that has begun is not affected.
    let mut begun = Run::new(run_id(), plan, RunOptions::default(), &[]);
    assert_eq!(
        begun
            .step(&Event::Begun { unfit: Vec::new() }, after(0))
            .len(),
        2
    );
    begun.step(&changed, after(1));
    assert_eq!(begun.outcome(), None);
}

#[test]
fn a_failed_step_names_the_first_resource_that_failed() {
    let plan = plan("a");
    let mut run = Run::new(run_id(), plan, RunOptions::default(), &[]);
    run.step(&Event::Begun { unfit: Vec::new() }, after(0));
    let failed = Event::Ended {
        step: StepIndex(0),
        ending: RunEnding::Failed,
        changed: 0,
        failed: 3,
        message: None,
        failures: vec![bunraku_wire::api::FailedResource {
            resource: "Service[nginx]".to_owned(),
            message: Some("\nunit not found\nsee the journal".to_owned()),
        }],
        drifted: 0,
    };
    run.step(&failed, after(1));
    assert_eq!(
        run.statuses()[0].failure_reason().as_deref(),
        Some("Service[nginx]: unit not found (and 2 more resources failed)")
    );
}
