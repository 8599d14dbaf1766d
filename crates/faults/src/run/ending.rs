//! Collects the final state after all faults are repaired: the answers of every
//! server, and the records of the agents.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bunraku_plan::run::{RunOutcome, RunSummary};
use bunraku_wire::api::Cause;
use bunraku_wire::api::once::{AttemptOutcome, OnceStatus};
use bunraku_wire::api::triggers::{TriggerEvent, TriggerNews};
use bunraku_wire::endpoints::{
    Endpoint, ListRuns, ListTriggerEvents, ShowOnceStanding, TriggerEventsQuery,
};

use super::auditing::AuditWitness;
use crate::checker;
use crate::history::{Call, Change, End, History, NodeRun, RunEnd, Server};
use crate::incident::Incidents;
use crate::setup::{AGENTS, PATIENCE, REGISTERS, SiteError};
use crate::site::Site;
use crate::workload::{CLIENTS, KEYS, LOCKS, Recorder, Worker, order};

/// The time between two looks at unfinished work.
const LOOK: Duration = Duration::from_millis(500);

/// The time limit for a record to be linked to the audit log. Normally that takes milliseconds,
/// and some seconds if the server that does it died.
const LINKED: Duration = Duration::from_secs(30);

/// Asks every server, and waits for promised work.
pub(super) async fn collect(
    seed: u64,
    site: &mut Site,
    recorder: &Recorder,
    shifted: &[Server],
    audit: &AuditWitness,
) -> Result<History, SiteError> {
    let mut last = super::worker(CLIENTS, seed, site, recorder).await?;
    last_words(site, &mut last).await?;
    let deadline = Instant::now() + PATIENCE;
    let mut unrecorded_since = None;
    loop {
        let (operations, cuts) = recorder.all();
        let mut history = History {
            operations,
            cuts,
            node_runs: Vec::new(),
            order: order(),
            incidents: Incidents::default(),
            end: End::default(),
        };
        if let Some(mut end) = end(site, recorder, &history, shifted).await
            && let Some(trail) = audit.trail(site).await
        {
            // After the runs, whose ends are in the log.
            end.audit = Some(trail);
            history.end = end;
            // After the servers' answers: runs that they report as finished are recorded by then.
            history.node_runs = node_runs(site, recorder);
            // Nothing else improves by waiting.
            let mut waits = !checker::outstanding(&history).is_empty();
            if !waits && !checker::unrecorded(&history).is_empty() {
                let since = *unrecorded_since.get_or_insert_with(Instant::now);
                waits = since.elapsed() < LINKED;
            }
            let late = Instant::now() > deadline;
            if !waits || late {
                match site.hashes().await {
                    Ok(hashes) => {
                        history.end.hashes = hashes.into_iter().collect();
                        return Ok(history);
                    }
                    Err(error) if late => return Err(error),
                    // The servers' report on a datastore may be slightly old.
                    Err(_) => {}
                }
            }
        } else if Instant::now() > deadline {
            return Err(SiteError::Late(
                "the servers do not say how it ended".to_owned(),
            ));
        }
        site.restart_dead_processes();
        tokio::time::sleep(LOOK).await;
    }
}

/// Asks every server for every register, and acquires every lock.
async fn last_words(site: &mut Site, last: &mut Worker) -> Result<(), SiteError> {
    let late = |what: &str| SiteError::Late(format!("{what}, after all was mended"));
    let deadline = Instant::now() + PATIENCE;
    for key in KEYS {
        while last.read_store(key).await.is_none() {
            if Instant::now() > deadline {
                return Err(late("the store does not answer"));
            }
        }
    }
    for server in 0..site.machines.len() {
        for node in REGISTERS {
            while !last.read_node(server, node).await {
                if Instant::now() > deadline {
                    return Err(late(&format!("s{} does not answer", server + 1)));
                }
                site.restart_dead_processes();
                tokio::time::sleep(LOOK).await;
            }
        }
    }
    for lock in LOCKS {
        while last.acquire(0, lock).await.is_none() {
            if Instant::now() > deadline {
                return Err(late(&format!("lock {lock} cannot be taken")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}

fn node_runs(site: &Site, recorder: &Recorder) -> Vec<NodeRun> {
    let mut runs = Vec::new();
    for node in AGENTS {
        let text = std::fs::read_to_string(site.ran(node)).unwrap_or_default();
        runs.extend(
            text.lines()
                .filter_map(|line| node_run(node, line, recorder)),
        );
    }
    runs
}

/// Parses `RUN BEGUN ENDED MORE CAUSES`, as the agents' command writes it.
fn node_run(node: &str, line: &str, recorder: &Recorder) -> Option<NodeRun> {
    let mut words = line.splitn(5, ' ');
    let id = words.next()?.to_owned();
    let mut time = || Some(recorder.of_day(Duration::from_nanos(words.next()?.parse().ok()?)));
    let (begun, ended) = (time()?, time()?);
    let more = words.next()?.parse().ok()?;
    let causes: Vec<Cause> = serde_json::from_str(words.next()?).ok()?;
    let mut firings = BTreeSet::new();
    let mut run = None;
    for cause in causes {
        match cause {
            Cause::Trigger(trigger) => {
                firings.extend(trigger.firing.map(|firing| firing.0.to_string()));
            }
            Cause::Run { run: id } => run = Some(id.to_string()),
            _ => {}
        }
    }
    Some(NodeRun {
        node: node.to_owned(),
        id,
        begun,
        ended,
        firings,
        more,
        run,
    })
}

/// Returns the end as the servers report it, or `None` if they do not report it yet.
async fn end(
    site: &Site,
    recorder: &Recorder,
    history: &History,
    shifted: &[Server],
) -> Option<End> {
    let client = site.client(0);
    let mut end = End::default();
    let query = TriggerEventsQuery {
        trigger: None,
        most: Some(1_000),
    };
    let events = client.call(ListTriggerEvents.with_query((), &query));
    let events: Vec<TriggerEvent> = events.await.ok()?;
    for event in events {
        if let TriggerNews::Expired { node } | TriggerNews::Refused { node, .. } = event.what {
            let trigger = event.trigger.to_string();
            end.reported.insert((trigger, node.to_string()));
        }
    }
    let runs: Vec<RunSummary> = client.call(ListRuns).await.ok()?;
    for run in runs {
        let Some(ended) = run.end else { continue };
        let succeeded = ended.outcome == RunOutcome::Succeeded;
        end.runs
            .insert(run.record.id.to_string(), RunEnd { succeeded });
    }
    let apps: BTreeSet<&String> = history
        .operations
        .iter()
        .filter_map(|operation| match &operation.call {
            Call::Finish { app, .. } => Some(app),
            _ => None,
        })
        .collect();
    for app in apps {
        let name = app.parse().expect("a name");
        let standing = client.call(ShowOnceStanding.at(&name)).await;
        let standing: OnceStatus = standing.ok()?;
        let done = match standing {
            OnceStatus::Done { attempt } => {
                matches!(attempt.outcome, AttemptOutcome::Done { .. }).then_some(attempt.token)
            }
            _ => None,
        };
        end.done.insert(app.clone(), done);
    }
    end.changes = changes(site, recorder, shifted).await?;
    Some(end)
}

async fn changes(site: &Site, recorder: &Recorder, shifted: &[Server]) -> Option<Vec<Change>> {
    let status = site.status().await?;
    let number = |name: &str| site.machines.iter().position(|it| it.name == name);
    let changes = status.events.iter().filter_map(|event| {
        let by = number(event.by.as_str())?;
        let at = Duration::from_nanos(u64::try_from(event.at.as_nanosecond()).ok()?);
        (!shifted.contains(&by)).then(|| Change {
            at: recorder.of_day(at),
            by,
            what: event.what.clone(),
        })
    });
    Some(changes.collect())
}
