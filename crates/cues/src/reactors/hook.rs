//! Hooks: events from outside, sent by callers that know the environment's secret.
//!
//! Either the body is signed (`X-Hub-Signature-256`, as for deploys), or the
//! secret is sent as a bearer token, which Prometheus' Alertmanager can do. The
//! reply is sent when the events that rules match are stored.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use bunraku_model::EnvironmentName;
use bunraku_store::Transaction;
use bunraku_wire::api::reactors::{EventHookReply, ReactorEvent, ReactorEventKind};
use serde_json::{Value, json};

use super::inbox::{self, Entry, fields};
use super::{Reactors, matching};
use bunraku_control::webhook_secrets::{Secret, is_signed, new_secret};
use bunraku_control::{ServiceError, document, keys};

/// The size limit of one call, in bytes.
const LARGEST: usize = 256 * 1024;
/// The most alerts in one call.
const MOST_ALERTS: usize = 1_000;
/// Events per entry, so that together they stay below the size limit of a value.
const PER_ENTRY: usize = 50;

/// A caller's proof that it knows the secret.
pub struct Proof<'a> {
    pub signature: Option<&'a str>,
    pub authorization: Option<&'a str>,
}

impl Reactors {
    /// Accepts a call. Returns `None` if the caller does not know the secret.
    pub async fn deliver(
        &self,
        environment: &EnvironmentName,
        hook: &str,
        proof: &Proof<'_>,
        body: &[u8],
    ) -> Result<Option<EventHookReply>, ServiceError> {
        let key = keys::environment_secret(environment);
        let secret = document::read::<Secret>(&*self.store, &key).await?;
        let known = secret.map(|secret| secret.document.secret);
        // An environment that does not exist takes as long, and gets the same answer.
        let secret = known.clone().unwrap_or_else(new_secret);
        if !verifies(proof, &secret, body) || known.is_none() {
            return Ok(None);
        }
        if body.len() > LARGEST {
            return Err(ServiceError::TooLarge {
                what: "the body of a hook".to_owned(),
                size: body.len() as u64,
                limit: LARGEST as u64,
                hint: None,
            });
        }
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| ServiceError::invalid(format!("the body must be JSON: {error}")))?;
        let events = read(hook, body)?;
        let (count, rules) = (events.len(), self.inbox.of(environment));
        let wanted: Vec<ReactorEvent> = events
            .into_iter()
            .filter(|event| {
                rules
                    .iter()
                    .any(|rule| matching::mismatch(rule, event).is_none())
            })
            .collect();
        let transaction =
            wanted
                .chunks(PER_ENTRY)
                .fold(Transaction::new(), |transaction, happenings| {
                    let entry = Entry {
                        environment: Some(environment.clone()),
                        happenings: happenings.to_vec(),
                        ..Entry::default()
                    };
                    inbox::put(transaction, &entry)
                });
        if !wanted.is_empty() {
            self.store.commit(transaction).await?;
        }
        Ok(Some(EventHookReply {
            events: count,
            taken: wanted.len(),
        }))
    }
}

fn verifies(proof: &Proof<'_>, secret: &str, body: &[u8]) -> bool {
    let token = proof.authorization.and_then(|header| {
        let (scheme, token) = header.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(token.trim())
    });
    let known = token
        .is_some_and(|token| verify_slices_are_equal(token.as_bytes(), secret.as_bytes()).is_ok());
    known || is_signed(secret, body, proof.signature)
}

/// Returns one event, or one for each alert that Alertmanager sends.
fn read(hook: &str, body: Value) -> Result<Vec<ReactorEvent>, ServiceError> {
    let alerts = match (body.get("alerts"), body.get("groupKey")) {
        (Some(Value::Array(alerts)), Some(_)) => alerts,
        _ => {
            return Ok(vec![event_of(
                ReactorEventKind::Webhook,
                json!({ "hook": hook, "body": body }),
            )]);
        }
    };
    if alerts.len() > MOST_ALERTS {
        let message = format!("{} alerts exceed the limit of {MOST_ALERTS}", alerts.len());
        return Err(ServiceError::invalid(message));
    }
    let alerts = alerts.iter().map(|alert| {
        event_of(
            ReactorEventKind::Alert,
            json!({ "hook": hook, "alert": alert }),
        )
    });
    Ok(alerts.collect())
}

fn event_of(event: ReactorEventKind, said: Value) -> ReactorEvent {
    ReactorEvent {
        event,
        node: None,
        fields: fields(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_or_its_signature_passes() {
        let check = |authorization: Option<&str>, signature: Option<&str>| {
            let proof = Proof {
                signature,
                authorization,
            };
            verifies(&proof, "It's a Secret to Everybody", b"Hello, World!")
        };
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(check(None, Some(signature)));
        assert!(check(Some("Bearer It's a Secret to Everybody"), None));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Basic It's a Secret to Everybody",
            "Bearer It's",
        ] {
            assert!(!check(Some(wrong), None), "{wrong}");
        }
        assert!(!check(None, None));
        assert!(!check(None, Some("sha256=00")));
    }

    #[test]
    fn every_alert_is_an_event_of_its_own_and_other_bodies_are_one() {
        let body = json!({"version": "4", "groupKey": "g", "alerts": [{"status": "firing"}, {"status": "resolved"}]});
        let events = read("prometheus", body).expect("read");
        assert_eq!(events.len(), 2);
        assert_eq!(events[1].fields["alert"]["status"], "resolved");
        let events = read("ci", json!([1])).expect("read");
        assert_eq!(events[0].fields["body"], json!([1]));
        let many = json!({"groupKey": "g", "alerts": vec![json!({}); 1_001]});
        assert!(read("prometheus", many).is_err());
    }
}
