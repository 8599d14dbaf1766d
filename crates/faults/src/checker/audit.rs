//! Checks the audit log: it contains what clients and servers did, once, and nothing else.
//!
//! A record belongs to the request with its id. Clients send each request once, except for those
//! that are safe to repeat. The outcome of a server that was believed dead may follow the record
//! `unknown` of the same action.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_wire::endpoints::{
    AcquireLock, ClaimOnceTask, CreateRun, DefineOnceTask, DisableNode, Endpoint, FinishOnceClaim,
    FireTrigger, ReleaseLock,
};

use super::at;
use crate::history::{
    AuditTrail, AuditedAction, Call, CallOutcome, History, Operation, SETUP_REQUEST,
};

/// Returns all violations.
pub(super) fn check(history: &History) -> Vec<String> {
    let Some(trail) = &history.end.audit else {
        return Vec::new();
    };
    let mut wrong: Vec<String> = Vec::new();
    wrong.extend((trail.broken.iter()).map(|why| format!("audit: the log is not intact: {why}")));
    wrong.extend(strangers(history, trail));
    let by_request = by_request(trail);
    for operation in &history.operations {
        let Some(request) = &operation.request else {
            continue;
        };
        let records = by_request.get(request.as_str());
        let records = records.map_or(&[][..], Vec::as_slice);
        wrong.extend(compare(operation, request, records));
    }
    wrong.extend(finished_runs(history, trail));
    wrong
}

/// Returns acknowledged calls whose records are not in the chain yet.
pub(super) fn missing(history: &History) -> Vec<String> {
    let Some(trail) = &history.end.audit else {
        return Vec::new();
    };
    let by_request = by_request(trail);
    let acknowledged = history.acknowledged().filter_map(|operation| {
        let request = operation.request.as_deref()?;
        (!by_request.contains_key(request)).then(|| unrecorded(operation, request))
    });
    acknowledged.chain(finished_runs(history, trail)).collect()
}

fn by_request(trail: &AuditTrail) -> BTreeMap<&str, Vec<&AuditedAction>> {
    let mut by_request: BTreeMap<&str, Vec<&AuditedAction>> = BTreeMap::new();
    for record in &trail.records {
        if let Some(request) = &record.request {
            by_request.entry(request).or_default().push(record);
        }
    }
    by_request
}

fn unrecorded(operation: &Operation, request: &str) -> String {
    format!(
        "audit: request {request} was acknowledged at {}, and the log does not contain it: {:?}",
        at(operation.ended),
        operation.call
    )
}

/// Returns the action that the record of a call names, and the name of its object.
fn expected(call: &Call) -> Option<(String, Option<&str>)> {
    let (definition, object) = match call {
        Call::Read { .. } | Call::Swap { .. } => return None,
        Call::Write { key, .. } => (DisableNode::DEFINITION, Some(key)),
        Call::Acquire { lock, .. } => (AcquireLock::DEFINITION, Some(lock)),
        Call::Release { lock, .. } => (ReleaseLock::DEFINITION, Some(lock)),
        Call::Define { app } => (DefineOnceTask::DEFINITION, Some(app)),
        Call::Claim { app, .. } => (ClaimOnceTask::DEFINITION, Some(app)),
        Call::Finish { app, .. } => (FinishOnceClaim::DEFINITION, Some(app)),
        Call::Fire { trigger, .. } => (FireTrigger::DEFINITION, Some(trigger)),
        Call::StartRun { .. } => (CreateRun::DEFINITION, None),
    };
    Some((definition.action(), object.map(String::as_str)))
}

/// Returns true if the client repeats the request when a connection breaks.
fn may_be_sent_again(call: &Call) -> bool {
    matches!(call, Call::Define { .. } | Call::Finish { .. })
}

fn compare(operation: &Operation, request: &str, records: &[&AuditedAction]) -> Vec<String> {
    let Some((action, object)) = expected(&operation.call) else {
        return Vec::new();
    };
    let mut wrong = Vec::new();
    let mut say = |what: String| wrong.push(format!("audit: request {request}: {what}"));
    for record in records {
        let is_on = |name: &str| {
            let found = record.object.as_deref();
            found.is_some_and(|found| found.split_once('/').is_some_and(|(_, it)| it == name))
        };
        if record.action != action || !object.is_none_or(is_on) {
            say(format!(
                "record {} is about {} on {:?}, and not about {action} on {object:?}",
                record.number, record.action, record.object
            ));
        }
    }
    let mut actions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for record in records {
        let outcomes = actions.entry(&record.id).or_default();
        outcomes.push(&record.outcome);
    }
    let most = if may_be_sent_again(&operation.call) {
        2
    } else {
        1
    };
    if actions.len() > most {
        say(format!(
            "it was sent once, and recorded {} times",
            actions.len()
        ));
    }
    for outcomes in actions.values() {
        // Late, from a server that was believed dead.
        if !matches!(
            outcomes[..],
            [_] | ["unknown", "succeeded" | "refused" | "failed"]
        ) {
            say(format!("one action has the outcomes {outcomes:?}"));
        }
    }
    let succeeded = records.iter().any(|record| record.outcome == "succeeded");
    match operation.outcome {
        CallOutcome::Done if records.is_empty() => wrong.push(unrecorded(operation, request)),
        CallOutcome::Done if !succeeded => say(format!(
            "it was acknowledged at {}, and the log says {:?}",
            at(operation.ended),
            actions.values().collect::<Vec<_>>()
        )),
        CallOutcome::Refused if succeeded => {
            say("it was refused, and the log says that it succeeded".to_owned());
        }
        CallOutcome::Done | CallOutcome::Refused | CallOutcome::Unknown => {}
    }
    wrong
}

/// Returns changes in the log that nobody made.
fn strangers(history: &History, trail: &AuditTrail) -> Vec<String> {
    let known: BTreeSet<&str> = history
        .operations
        .iter()
        .filter_map(|operation| operation.request.as_deref())
        .chain([SETUP_REQUEST])
        .collect();
    let is_strange = |record: &&AuditedAction| match record.role.as_str() {
        "operator" => {
            let request = record.request.as_deref();
            record.outcome != "refused" && !request.is_some_and(|it| known.contains(it))
        }
        "server" => !trail.servers.contains(&record.who),
        _ => false,
    };
    let strange = trail.records.iter().filter(is_strange).map(|record| {
        format!(
            "audit: record {} says that {} did {} on {:?}, and nobody did",
            record.number, record.who, record.action, record.object
        )
    });
    strange.collect()
}

/// Checks that the end of each run is in the log once.
fn finished_runs(history: &History, trail: &AuditTrail) -> Vec<String> {
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for record in trail.records.iter().filter(|it| it.action == "finish-run") {
        let run = record.object.as_deref().unwrap_or_default();
        *ends.entry(run.trim_start_matches("run/")).or_default() += 1;
    }
    let wrong = history.end.runs.keys().filter_map(|run| {
        let count = ends.get(run.as_str()).copied().unwrap_or_default();
        (count != 1).then(|| format!("audit: the end of run {run} is recorded {count} times"))
    });
    wrong.collect()
}
