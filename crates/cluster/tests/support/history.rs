//! What clients saw, and whether a single register and a single lock could
//! have shown it to them.
//!
//! Every write has a value of its own, so the values of a key form one chain
//! if writes were compare-and-swaps: each names the value before it. A
//! history is fine if there is one chain, and everything that was seen stands
//! on it in an order that agrees with real time.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The value of a key; nothing before the first write.
pub(crate) type Value = Option<String>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// The key had this value.
    Read(Value),
    /// It was changed, and this was acknowledged.
    Swapped { from: Value, to: String },
    /// It may have been changed.
    Perhaps { from: Value, to: String },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) client: usize,
    pub(crate) key: String,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
    pub(crate) seen: Seen,
}

/// A lock that a client was sure to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) client: usize,
    pub(crate) lock: String,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// Everything that is wrong with a history.
pub(crate) fn check(events: &[Event], held: &[Held]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_key: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events {
        by_key.entry(&event.key).or_default().push(event);
    }
    for (key, events) in by_key {
        wrong.extend(
            check_register(&events)
                .into_iter()
                .map(|why| format!("{key}: {why}")),
        );
    }
    wrong.extend(check_locks(held));
    wrong
}

fn check_register(events: &[&Event]) -> Vec<String> {
    let mut wrong = Vec::new();
    let chain = match chain(events) {
        Ok(chain) => chain,
        Err(why) => return vec![why],
    };
    let place = |value: &Value| chain.get(value).copied();
    let mut placed = Vec::new();
    for event in events {
        let value = match &event.seen {
            Seen::Read(value) => value.clone(),
            Seen::Swapped { to, .. } => Some(to.clone()),
            Seen::Perhaps { .. } => continue,
        };
        match place(&value) {
            Some(place) => placed.push((*event, place)),
            None => wrong.push(format!(
                "{event:?} saw a value that no chain of writes leads to"
            )),
        }
    }
    wrong.extend(check_real_time(&mut placed));
    wrong
}

/// The place of each value, from nothing on.
fn chain(events: &[&Event]) -> Result<HashMap<Value, usize>, String> {
    let mut after: HashMap<Value, String> = HashMap::new();
    let mut perhaps: HashMap<Value, Vec<String>> = HashMap::new();
    for event in events {
        match &event.seen {
            Seen::Swapped { from, to } => {
                if let Some(other) = after.insert(from.clone(), to.clone()) {
                    return Err(format!(
                        "two acknowledged writes replaced {from:?}: {other} and {to}"
                    ));
                }
            }
            Seen::Perhaps { from, to } => perhaps.entry(from.clone()).or_default().push(to.clone()),
            Seen::Read(_) => {}
        }
    }
    // A write of unknown outcome took place if somebody saw, or built on, its value.
    let known = |value: &str| {
        let value = Some(value.to_owned());
        let built_on = after.contains_key(&value) || perhaps.contains_key(&value);
        built_on
            || events
                .iter()
                .any(|event| matches!(&event.seen, Seen::Read(read) if *read == value))
    };
    let mut places = HashMap::from([(None, 0)]);
    let mut current: Value = None;
    loop {
        let next = match (after.get(&current), perhaps.get(&current)) {
            (Some(acknowledged), others) => {
                let stolen = others.into_iter().flatten().find(|other| known(other));
                if let Some(other) = stolen {
                    return Err(format!(
                        "{acknowledged} and {other} both replaced {current:?}"
                    ));
                }
                acknowledged.clone()
            }
            (None, Some(others)) => {
                let happened: Vec<_> = others.iter().filter(|other| known(other)).collect();
                match happened.as_slice() {
                    [] => return Ok(places),
                    [one] => (*one).clone(),
                    many => return Err(format!("{many:?} all replaced {current:?}")),
                }
            }
            (None, None) => return Ok(places),
        };
        current = Some(next);
        if places.insert(current.clone(), places.len()).is_some() {
            return Err(format!("{current:?} comes twice"));
        }
    }
}

/// What ended before something else began cannot stand after it.
fn check_real_time(placed: &mut [(&Event, usize)]) -> Vec<String> {
    let mut ends: Vec<(Duration, usize, &Event)> = placed
        .iter()
        .map(|(event, place)| (event.ended, *place, *event))
        .collect();
    ends.sort_by_key(|(ended, _, _)| *ended);
    placed.sort_by_key(|(event, _)| event.begun);
    let mut wrong = Vec::new();
    let mut furthest: Option<(usize, &Event)> = None;
    let mut next = 0;
    for (event, place) in placed.iter() {
        while next < ends.len() && ends[next].0 < event.begun {
            let (_, end_place, earlier) = ends[next];
            if furthest.is_none_or(|(most, _)| end_place > most) {
                furthest = Some((end_place, earlier));
            }
            next += 1;
        }
        let Some((most, earlier)) = furthest else {
            continue;
        };
        let writes = matches!(event.seen, Seen::Swapped { .. });
        if *place < most || (writes && *place == most) {
            wrong.push(format!(
                "{event:?} came after {earlier:?}, and saw what was before it"
            ));
        }
    }
    wrong
}

fn check_locks(held: &[Held]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_lock: BTreeMap<&str, Vec<&Held>> = BTreeMap::new();
    for one in held.iter().filter(|one| one.from < one.until) {
        by_lock.entry(&one.lock).or_default().push(one);
    }
    for mut held in by_lock.into_values() {
        held.sort_by_key(|one| one.from);
        for pair in held.windows(2) {
            if pair[1].from < pair[0].until {
                wrong.push(format!("held twice: {:?} and {:?}", pair[0], pair[1]));
            }
        }
    }
    wrong
}
