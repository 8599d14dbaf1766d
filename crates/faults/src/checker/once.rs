//! Checks things that are done once: never by two clients at a time, never again
//! once done, and done for good.

use std::collections::BTreeMap;

use super::at;
use crate::history::{Call, CallOutcome, History, Micros, Operation};

#[derive(Default)]
struct OnceObservation<'a> {
    claims: Vec<(&'a Operation, u64, Micros)>,
    /// The operations that reported it as done, acknowledged or with an unknown outcome.
    finishes: Vec<(&'a Operation, u64)>,
}

pub(super) fn check(history: &History) -> Vec<String> {
    let mut apps: BTreeMap<&str, OnceObservation<'_>> = BTreeMap::new();
    for operation in &history.operations {
        match (&operation.call, operation.outcome) {
            (
                Call::Claim {
                    app,
                    lease,
                    token: Some(token),
                },
                CallOutcome::Done,
            ) => {
                let seen = apps.entry(app).or_default();
                seen.claims.push((operation, *token, *lease));
            }
            (Call::Finish { app, token }, CallOutcome::Done | CallOutcome::Unknown) => {
                let seen = apps.entry(app).or_default();
                seen.finishes.push((operation, *token));
            }
            _ => {}
        }
    }
    let mut wrong = Vec::new();
    for (app, seen) in &apps {
        wrong.extend(two_at_once(app, seen));
        wrong.extend(done_twice(app, seen));
        wrong.extend(forgotten(app, seen, history));
    }
    wrong
}

/// Finds overlapping claims. A claim is sure until its holder reports it as done,
/// and no longer than its lease.
fn two_at_once(app: &str, seen: &OnceObservation<'_>) -> Vec<String> {
    let sure = |(operation, token, lease): &(&Operation, u64, Micros)| {
        let finish = seen.finishes.iter().filter(|(_, given)| given == token);
        let finish = finish.map(|(finish, _)| finish.begun).min();
        (operation.begun + lease).min(finish.unwrap_or(Micros::MAX))
    };
    let mut wrong = Vec::new();
    for (number, one) in seen.claims.iter().enumerate() {
        for other in &seen.claims[number + 1..] {
            let (first, second) = if one.0.ended <= other.0.ended {
                (one, other)
            } else {
                (other, one)
            };
            if first.1 == second.1 {
                wrong.push(format!("once {app}: claim {} was granted twice", first.1));
            } else if second.0.ended < sure(first) && second.0.ended < sure(second) {
                wrong.push(format!(
                    "once {app}: claims {} and {} at the same time, {}",
                    first.1,
                    second.1,
                    at(second.0.ended)
                ));
            }
        }
    }
    wrong
}

fn done_twice(app: &str, seen: &OnceObservation<'_>) -> Vec<String> {
    let done: Vec<_> = seen
        .finishes
        .iter()
        .filter(|(finish, _)| finish.outcome == CallOutcome::Done)
        .collect();
    let mut wrong = Vec::new();
    if done.len() > 1 {
        let tokens: Vec<u64> = done.iter().map(|(_, token)| *token).collect();
        wrong.push(format!("once {app}: done {} times, {tokens:?}", done.len()));
    }
    for (finish, token) in done {
        let later = seen
            .claims
            .iter()
            .filter(|claim| claim.0.begun > finish.ended);
        wrong.extend(later.map(|claim| {
            format!(
                "once {app}: done under {token} at {}, and claimed again at {}",
                at(finish.ended),
                at(claim.0.ended)
            )
        }));
    }
    wrong
}

/// Checks that acknowledged work is still there at the end.
fn forgotten(app: &str, seen: &OnceObservation<'_>, history: &History) -> Option<String> {
    let (_, token) = seen
        .finishes
        .iter()
        .find(|(finish, _)| finish.outcome == CallOutcome::Done)?;
    match history.end.done.get(app) {
        Some(Some(known)) if known == token => None,
        found => Some(format!(
            "once {app}: done under {token}, and in the end it is {found:?}"
        )),
    }
}
