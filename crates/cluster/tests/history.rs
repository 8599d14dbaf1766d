//! The checker finds what it is there to find.

#[path = "support/history.rs"]
mod history;

use std::time::Duration;

use history::{Event, Held, Seen, check};

fn event(client: usize, begun: u64, ended: u64, seen: Seen) -> Event {
    Event {
        client,
        key: "k".to_owned(),
        begun: Duration::from_secs(begun),
        ended: Duration::from_secs(ended),
        seen,
    }
}

fn value(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn read(text: &str) -> Seen {
    Seen::Read(value(text))
}

fn swapped(from: &str, to: &str) -> Seen {
    Seen::Swapped {
        from: value(from),
        to: to.to_owned(),
    }
}

fn perhaps(from: &str, to: &str) -> Seen {
    Seen::Perhaps {
        from: value(from),
        to: to.to_owned(),
    }
}

#[test]
fn a_history_of_a_register_is_fine() {
    let events = [
        event(0, 0, 1, swapped("", "a")),
        event(1, 0, 3, read("")),
        event(1, 2, 4, swapped("a", "b")),
        event(0, 5, 6, perhaps("b", "c")),
        event(1, 7, 8, read("c")),
        event(0, 9, 9, perhaps("c", "d")),
        event(1, 10, 11, read("c")),
    ];
    assert_eq!(check(&events, &[]), [""; 0]);
}

#[test]
fn an_acknowledged_write_that_is_lost_is_found() {
    let events = [
        event(0, 0, 1, swapped("", "a")),
        event(0, 2, 3, swapped("a", "b")),
        event(1, 4, 5, read("a")),
    ];
    assert_eq!(check(&events, &[]).len(), 1);
}

#[test]
fn two_writes_over_the_same_value_are_found() {
    let events = [
        event(0, 0, 1, swapped("", "a")),
        event(0, 2, 3, swapped("a", "b")),
        event(1, 2, 3, swapped("a", "c")),
    ];
    assert_eq!(check(&events, &[]).len(), 1);
}

#[test]
fn a_write_of_unknown_outcome_that_took_place_beside_another_is_found() {
    let events = [
        event(0, 0, 1, swapped("", "a")),
        event(0, 2, 3, swapped("a", "b")),
        event(1, 2, 3, perhaps("a", "c")),
        event(1, 4, 5, read("c")),
    ];
    assert!(!check(&events, &[]).is_empty());
}

#[test]
fn a_read_of_the_past_is_found() {
    let events = [event(0, 0, 1, swapped("", "a")), event(1, 2, 3, read(""))];
    assert_eq!(check(&events, &[]).len(), 1);
}

#[test]
fn a_lock_that_two_hold_is_found() {
    let held = |client, from, until| Held {
        client,
        lock: "l".to_owned(),
        from: Duration::from_secs(from),
        until: Duration::from_secs(until),
    };
    assert!(check(&[], &[held(0, 0, 5), held(1, 5, 9)]).is_empty());
    assert_eq!(check(&[], &[held(0, 0, 5), held(1, 4, 9)]).len(), 1);
}
