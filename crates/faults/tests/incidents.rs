//! Tests that the checker finds floods, frozen agents and stolen certificates that did harm.

use bunraku_faults::checker::check;
use bunraku_faults::history::{Call, CallOutcome, History, Operation};
use bunraku_faults::incident::{Flood, Freeze, Incidents, Lateness, Theft};

const SECOND: u64 = 1_000_000;

fn found(incidents: Incidents) -> Vec<String> {
    let operation = Operation {
        client: 0,
        server: Some(0),
        begun: 11 * SECOND,
        ended: 12 * SECOND,
        call: Call::Read {
            key: "k".to_owned(),
            value: None,
        },
        outcome: CallOutcome::Done,
        request: None,
    };
    check(&History {
        operations: vec![operation],
        incidents,
        ..History::default()
    })
}

fn wrong(incidents: Incidents, about: &str) {
    let found = found(incidents);
    assert!(found.iter().any(|it| it.contains(about)), "{found:?}");
}

fn flood() -> Flood {
    Flood {
        begun: 10 * SECOND,
        ended: 14 * SECOND,
        alone: true,
        sent: 1_000,
        accepted: 200,
        refused: 800,
        allowed: 220,
    }
}

fn one_flood(flood: Flood) -> Incidents {
    Incidents {
        floods: vec![flood],
        ..Incidents::default()
    }
}

#[test]
fn a_flood_within_its_budget_is_fine() {
    assert_eq!(found(one_flood(flood())), [""; 0]);
}

#[test]
fn a_flood_beyond_its_budget_is_found() {
    let accepted = 221;
    let too_many = Flood {
        accepted,
        ..flood()
    };
    wrong(one_flood(too_many), "the budget allows 220");
    let unlimited = Flood {
        refused: 0,
        ..flood()
    };
    wrong(one_flood(unlimited), "none of 1000 requests was refused");
}

#[test]
fn a_flood_during_which_nobody_else_is_served_is_found() {
    let begun = 12 * SECOND;
    let starving = Flood { begun, ..flood() };
    assert_eq!(
        found(one_flood(starving.clone())),
        [""; 0],
        "too short to tell"
    );
    let ended = 15 * SECOND;
    let starving = Flood { ended, ..starving };
    wrong(one_flood(starving.clone()), "nobody else was served");
    let alone = false;
    let with_others = Flood { alone, ..starving };
    assert_eq!(found(one_flood(with_others)), [""; 0]);
}

#[test]
fn a_frozen_agent_that_nobody_notices_is_found() {
    let freeze = |noticed| Incidents {
        freezes: vec![Freeze {
            node: "n1".to_owned(),
            begun: SECOND,
            noticed,
            ended: 9 * SECOND,
        }],
        ..Incidents::default()
    };
    assert_eq!(found(freeze(Some(8 * SECOND))), [""; 0]);
    wrong(freeze(None), "n1 was frozen from 1.000 s to 9.000 s");
}

#[test]
fn a_certificate_that_survives_its_revocation_is_found() {
    let theft = Theft {
        node: "stolen-1".to_owned(),
        revoked: Some(5 * SECOND),
        renewals: vec![SECOND, 5 * SECOND],
        accepted_by: Vec::new(),
    };
    let one = |theft| Incidents {
        thefts: vec![theft],
        ..Incidents::default()
    };
    assert_eq!(found(one(theft.clone())), [""; 0]);
    let renewals = vec![6 * SECOND];
    let renewed = Theft {
        renewals,
        ..theft.clone()
    };
    wrong(one(renewed), "revoked at 5.000 s, and renewed at 6.000 s");
    let accepted_by = vec!["s2".to_owned()];
    let accepted = Theft {
        accepted_by,
        ..theft.clone()
    };
    wrong(one(accepted), "still accepted by s2");
    let revoked = None;
    wrong(
        one(Theft { revoked, ..theft }),
        "the revocation never succeeded",
    );
}

#[test]
fn lateness_without_a_late_message_is_found() {
    let late = |messages| Incidents {
        lateness: vec![Lateness {
            server: "s1".to_owned(),
            messages,
        }],
        ..Incidents::default()
    };
    assert_eq!(found(late(3)), [""; 0]);
    wrong(late(0), "s1 was late, and delayed nothing");
}
