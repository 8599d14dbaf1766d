//! Checks incidents: a flood is bounded and harms nobody else, a frozen agent is noticed, and a
//! revoked certificate stays revoked, however often it was renewed.

use super::at;
use crate::history::History;
use crate::incident::{Flood, Freeze, Theft};

/// The duration of a flood, in microseconds, in which somebody else must be served.
const LONG_FLOOD: u64 = 2_000_000;

pub(super) fn check(history: &History) -> Vec<String> {
    let incidents = &history.incidents;
    let floods = incidents.floods.iter();
    let mut wrong: Vec<String> = floods.flat_map(|flood| bounded(history, flood)).collect();
    wrong.extend(incidents.freezes.iter().filter_map(noticed));
    wrong.extend(incidents.thefts.iter().flat_map(stopped));
    // A fault without effect would let every other check pass.
    let idle = incidents.lateness.iter().filter(|late| late.messages == 0);
    wrong.extend(idle.map(|late| format!("{} was late, and delayed nothing", late.server)));
    wrong
}

fn bounded(history: &History, flood: &Flood) -> Vec<String> {
    let mut wrong = Vec::new();
    let when = format!("flood from {} to {}", at(flood.begun), at(flood.ended));
    if flood.accepted > flood.allowed {
        wrong.push(format!(
            "{when}: {} requests were accepted, and the budget allows {}",
            flood.accepted, flood.allowed
        ));
    }
    if flood.sent > flood.allowed && flood.refused == 0 {
        wrong.push(format!(
            "{when}: none of {} requests was refused",
            flood.sent
        ));
    }
    let during = |begun, ended| begun >= flood.begun && ended <= flood.ended;
    let mut others = history.acknowledged();
    let is_long = flood.ended - flood.begun > LONG_FLOOD;
    if flood.alone && is_long && !others.any(|other| during(other.begun, other.ended)) {
        wrong.push(format!("{when}: nobody else was served"));
    }
    wrong
}

fn noticed(freeze: &Freeze) -> Option<String> {
    let unnoticed = freeze.noticed.is_none();
    unnoticed.then(|| {
        format!(
            "{} was frozen from {} to {}, and still counted as connected",
            freeze.node,
            at(freeze.begun),
            at(freeze.ended)
        )
    })
}

fn stopped(theft: &Theft) -> Vec<String> {
    let node = &theft.node;
    let Some(revoked) = theft.revoked else {
        return vec![format!(
            "certificate of {node}: the revocation never succeeded"
        )];
    };
    let mut wrong = Vec::new();
    if let Some(late) = theft.renewals.iter().find(|renewal| **renewal > revoked) {
        wrong.push(format!(
            "certificate of {node}: revoked at {}, and renewed at {}",
            at(revoked),
            at(*late)
        ));
    }
    if !theft.accepted_by.is_empty() {
        wrong.push(format!(
            "certificate of {node}: revoked at {}, and still accepted by {}",
            at(revoked),
            theft.accepted_by.join(", ")
        ));
    }
    wrong
}
