//! The alerts that a hook has delivered: whether one is new, or sent again.
//!
//! Alertmanager sends an alert several times: after a lost reply, whenever another alert joins its
//! group, and at its repeat interval. It is the same alert as long as its fingerprint, status and
//! start are the same. One document per environment records them, in the transaction that stores
//! the events, so that a retry is recognised whenever a server dies. Pure.

use std::collections::BTreeMap;

use bunraku_wire::api::reactors::ReactorEvent;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most alerts that are remembered.
const MOST_SEEN: usize = 2_000;
/// The time after which an alert that was not sent again is forgotten.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(14 * 24);
/// The longest fingerprint and start that are remembered.
const LONGEST: usize = 64;

/// The alerts of one environment, by hook and fingerprint.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct SeenAlerts {
    alerts: BTreeMap<String, SeenAlert>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct SeenAlert {
    status: String,
    /// The start of the alert, as Alertmanager wrote it.
    start: String,
    at: Timestamp,
}

impl SeenAlerts {
    /// Marks the events of alerts that are known already (`repeated`), and remembers the others.
    pub(super) fn mark(&mut self, hook: &str, events: &mut [ReactorEvent], now: Timestamp) {
        for event in events {
            let Some((id, seen)) = seen_alert(hook, event, now) else {
                continue;
            };
            let known = self.alerts.insert(id, seen.clone());
            let is_repeated =
                known.is_some_and(|known| known.status == seen.status && known.start == seen.start);
            (event.fields).insert("repeated".to_owned(), Value::Bool(is_repeated));
        }
        self.forget(now);
    }

    fn forget(&mut self, now: Timestamp) {
        (self.alerts).retain(|_, seen| now.duration_since(seen.at) <= FORGOTTEN_AFTER);
        if let Some(over) = self
            .alerts
            .len()
            .checked_sub(MOST_SEEN)
            .filter(|over| *over > 0)
        {
            let mut times: Vec<Timestamp> = self.alerts.values().map(|seen| seen.at).collect();
            times.sort();
            let oldest = times[over - 1];
            (self.alerts).retain(|_, seen| seen.at > oldest);
        }
    }
}

fn seen_alert(hook: &str, event: &ReactorEvent, now: Timestamp) -> Option<(String, SeenAlert)> {
    let alert = event.fields.get("alert")?;
    let text = |name: &str| {
        let text = alert.get(name)?.as_str()?;
        (text.len() <= LONGEST).then(|| text.to_owned())
    };
    let seen = SeenAlert {
        status: text("status")?,
        start: text("startsAt")?,
        at: now,
    };
    Some((format!("{hook}/{}", text("fingerprint")?), seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn alert(fingerprint: &str, status: &str, start: &str) -> ReactorEvent {
        serde_json::from_value(json!({"event": "alert", "hook": "p", "alert": {
            "status": status, "startsAt": start, "fingerprint": fingerprint, "labels": {}}}))
        .expect("an event")
    }

    /// Delivers one alert. Returns whether it is a repetition.
    fn repeated(seen: &mut SeenAlerts, event: ReactorEvent, at: i64) -> Option<bool> {
        let mut events = [event];
        let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(at);
        seen.mark("p", &mut events, at);
        events[0].fields.get("repeated").and_then(Value::as_bool)
    }

    #[test]
    fn only_a_new_status_or_a_new_start_is_another_alert() {
        let mut seen = SeenAlerts::default();
        for (at, status, start, expected) in [
            (0, "firing", "1", false),
            (1, "firing", "1", true),
            (2, "resolved", "1", false),
            (3, "resolved", "1", true),
            (4, "firing", "2", false),
        ] {
            let found = repeated(&mut seen, alert("f", status, start), at);
            assert_eq!(found, Some(expected), "{at}");
        }
        assert_eq!(
            repeated(&mut seen, alert("g", "firing", "2"), 5),
            Some(false)
        );
        let long = "x".repeat(100);
        assert_eq!(repeated(&mut seen, alert(&long, "firing", "2"), 6), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut seen = SeenAlerts::default();
        for number in 0..MOST_SEEN as i64 + 10 {
            repeated(&mut seen, alert(&number.to_string(), "firing", "1"), number);
        }
        assert_eq!(seen.alerts.len(), MOST_SEEN);
        let later = FORGOTTEN_AFTER.as_secs() + 10_000;
        repeated(&mut seen, alert("new", "firing", "1"), later);
        assert_eq!(seen.alerts.len(), 1);
    }
}
