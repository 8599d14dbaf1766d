//! Checks locks: one holder at a time, and tokens that only increase.
//!
//! A holder is sure of its lock from the answer until it asks to release it, and no
//! longer than its lease, counted from the request.

use std::collections::BTreeMap;

use super::at;
use crate::history::{Call, History, Micros, Operation};

struct Hold<'a> {
    operation: &'a Operation,
    session: &'a str,
    token: u64,
    until: Micros,
}

pub(super) fn check(history: &History) -> Vec<String> {
    let mut locks: BTreeMap<&str, Vec<Hold<'_>>> = BTreeMap::new();
    for operation in history.acknowledged() {
        if let Call::Acquire {
            lock,
            session,
            lease,
            token: Some(token),
        } = &operation.call
        {
            let released = released(history, lock, *token, operation.client);
            locks.entry(lock).or_default().push(Hold {
                operation,
                session,
                token: *token,
                until: released.min(operation.begun + lease),
            });
        }
    }
    let mut wrong = Vec::new();
    for (lock, holds) in locks {
        for (number, one) in holds.iter().enumerate() {
            for other in &holds[number + 1..] {
                wrong.extend(compare(lock, one, other));
            }
        }
    }
    wrong
}

/// Returns the time at which its holder first asked to release it, whatever the outcome.
fn released(history: &History, lock: &str, token: u64, client: usize) -> Micros {
    let releases = history.operations.iter().filter(|operation| {
        operation.client == client
            && matches!(&operation.call, Call::Release { lock: name, token: given } if name == lock && *given == token)
    });
    releases.map(|it| it.begun).min().unwrap_or(Micros::MAX)
}

fn compare(lock: &str, one: &Hold<'_>, other: &Hold<'_>) -> Option<String> {
    let clients = (one.operation.client, other.operation.client);
    if one.token == other.token && one.session != other.session {
        return Some(format!(
            "lock {lock}: token {} was given to clients {clients:?}",
            one.token
        ));
    }
    let (first, second) = if one.operation.ended <= other.operation.ended {
        (one, other)
    } else {
        (other, one)
    };
    if first.operation.ended <= second.operation.begun && first.token >= second.token {
        return Some(format!(
            "lock {lock}: token {} at {} after token {} at {}",
            second.token,
            at(second.operation.ended),
            first.token,
            at(first.operation.ended)
        ));
    }
    let overlap = second.operation.ended < first.until && second.operation.ended < second.until;
    (overlap && first.session != second.session).then(|| {
        format!(
            "lock {lock}: held by clients {clients:?} at {} (tokens {} and {})",
            at(second.operation.ended),
            first.token,
            second.token
        )
    })
}
