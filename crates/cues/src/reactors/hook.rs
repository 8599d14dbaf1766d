//! Hooks: events from outside, sent by callers that know the environment's secret.
//!
//! Either the body is signed (`X-Hub-Signature-256`, as for deploys), or the
//! secret is sent as a bearer token, which Prometheus' Alertmanager can do. The
//! reply is sent when the events that rules match are stored.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use bunraku_model::EnvironmentName;
use bunraku_store::{Swap, Transaction, compare_and_swap};
use bunraku_wire::api::AuditSource;
use bunraku_wire::api::reactors::{EventHookReply, Reactor, ReactorEvent, ReactorEventKind};
use serde_json::{Value, json};

use super::inbox::{self, Entry, fields};
use super::seen_alerts::SeenAlerts;
use super::{Reactors, matching};
use bunraku_control::webhook_secrets::{Secret, is_signed, new_secret};
use bunraku_control::{AuditAction, ServiceError, document, keys};

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
        refuse_unusable(environment, hook, &rules, &events)?;
        let key = keys::reactor_alerts(environment);
        let (events, rules, key) = (&events, &rules, &key);
        let taken = compare_and_swap(&*self.store, |_| async move {
            let known = document::read::<SeenAlerts>(&*self.store, key).await?;
            let entry = known.as_ref().map(|known| known.entry.clone());
            let mut seen = known.map(|known| known.document).unwrap_or_default();
            let mut events = events.clone();
            seen.mark(hook, &mut events, self.clock.now());
            let is_wanted = |event: &ReactorEvent| {
                (rules.iter()).any(|rule| matching::mismatch(rule, event).is_none())
            };
            let are_alerts = events
                .iter()
                .any(|event| event.event == ReactorEventKind::Alert);
            let wanted: Vec<ReactorEvent> = events.into_iter().filter(is_wanted).collect();
            let mut transaction = Transaction::new();
            if are_alerts {
                transaction = transaction
                    .when_unchanged(key, entry.as_ref())
                    .put(key, document::encode(&seen));
            } else if wanted.is_empty() {
                return Ok::<_, ServiceError>(Swap::Done(0));
            }
            for happenings in wanted.chunks(PER_ENTRY) {
                let entry = Entry {
                    environment: Some(environment.clone()),
                    happenings: happenings.to_vec(),
                    ..Entry::default()
                };
                transaction = inbox::put(transaction, &entry);
            }
            if !wanted.is_empty() {
                let action = AuditAction::new("receive-events")
                    .on("environment", environment)
                    .detail("hook", hook)
                    .detail("events", count)
                    .detail("taken", wanted.len())
                    .by("webhook", AuditSource::Webhook);
                transaction = self.audit.record_in(transaction, action);
            }
            Ok(Swap::Write(transaction, wanted.len()))
        });
        let taken = taken.await?;
        Ok(Some(EventHookReply {
            events: count,
            taken,
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
    // Every version of Alertmanager sends both.
    if body.get("alerts").is_none() && body.get("groupKey").is_none() {
        return Ok(vec![event_of(
            ReactorEventKind::Webhook,
            json!({ "hook": hook, "body": body }),
        )]);
    }
    let Some(Value::Array(alerts)) = body.get("alerts") else {
        return Err(not_alerts("`alerts` is not a list"));
    };
    if alerts.is_empty() {
        return Err(not_alerts("`alerts` is empty"));
    }
    if alerts.len() > MOST_ALERTS {
        let message = format!("{} alerts exceed the limit of {MOST_ALERTS}", alerts.len());
        return Err(ServiceError::invalid(message));
    }
    let mut events = Vec::with_capacity(alerts.len());
    for (at, alert) in alerts.iter().enumerate() {
        if !alert.get("status").is_some_and(Value::is_string) {
            return Err(not_alerts(&format!(
                "`alerts[{at}].status` is not a string"
            )));
        }
        let labels = alert.get("labels").and_then(Value::as_object);
        if !labels.is_some_and(|labels| labels.values().all(Value::is_string)) {
            return Err(not_alerts(&format!(
                "`alerts[{at}].labels` is not a map of strings"
            )));
        }
        events.push(event_of(
            ReactorEventKind::Alert,
            json!({ "hook": hook, "alert": alert }),
        ));
    }
    Ok(events)
}

fn not_alerts(why: &str) -> ServiceError {
    ServiceError::Invalid {
        message: format!("the body is not a message of Alertmanager: {why}"),
        hint: Some("configure the URL under `webhook_configs` of Alertmanager".to_owned()),
    }
}

/// Refuses a body that no rule of the environment can use, whatever its values: the sender has the
/// wrong URL, or sends something else than the rules expect.
fn refuse_unusable(
    environment: &EnvironmentName,
    hook: &str,
    rules: &[Reactor],
    events: &[ReactorEvent],
) -> Result<(), ServiceError> {
    let kind = match events.first() {
        Some(event) => event.event,
        None => return Ok(()),
    };
    let named = event_of(kind, json!({ "hook": hook }));
    let is_for = |rule: &&Reactor| {
        let matches = rule.matches.get_key_value("hook");
        let hook_only = Reactor {
            matches: (matches.into_iter())
                .map(|(field, values)| (field.clone(), values.clone()))
                .collect(),
            ..(*rule).clone()
        };
        matching::mismatch(&hook_only, &named).is_none()
    };
    if rules.iter().any(|rule| is_for(&rule)) {
        return Ok(());
    }
    let what = match kind {
        ReactorEventKind::Alert => "a message of Alertmanager",
        _ => "JSON without `alerts`",
    };
    Err(ServiceError::Invalid {
        message: format!(
            "no reactor of `{environment}` can use this body: it is {what}, and no rule with \
             `event: {}` accepts the hook `{hook}`",
            kind.as_str()
        ),
        hint: Some("list the rules with `bunraku reactor list`".to_owned()),
    })
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
        let body = json!({"version": "4", "groupKey": "g", "alerts": [
            {"status": "firing", "labels": {"alertname": "DiskFull"}},
            {"status": "resolved", "labels": {}},
        ]});
        let events = read("prometheus", body).expect("read");
        assert_eq!(events.len(), 2);
        assert_eq!(events[1].fields["alert"]["status"], "resolved");
        let events = read("ci", json!([1])).expect("read");
        assert_eq!(events[0].fields["body"], json!([1]));
        let many = json!({"groupKey": "g", "alerts": vec![json!({}); 1_001]});
        assert!(read("prometheus", many).is_err());
    }

    #[test]
    fn something_that_only_resembles_alerts_is_refused_with_the_place() {
        for (body, expected) in [
            (json!({"groupKey": "g"}), "`alerts` is not a list"),
            (json!({"alerts": {}}), "`alerts` is not a list"),
            (json!({"alerts": []}), "`alerts` is empty"),
            (json!({"alerts": [5]}), "`alerts[0].status` is not a string"),
            (
                json!({"alerts": [{"status": "firing"}]}),
                "`alerts[0].labels` is not a map of strings",
            ),
            (
                json!({"alerts": [{"status": "firing", "labels": {"a": 1}}]}),
                "`alerts[0].labels` is not a map of strings",
            ),
        ] {
            let error = read("prometheus", body.clone()).expect_err("refused");
            assert!(error.to_string().ends_with(expected), "{body}: {error}");
        }
    }

    #[test]
    fn a_body_that_no_rule_can_use_is_refused() {
        let rules = "
disk: {when: {event: alert, hook: prometheus, alert.status: firing}, then: {hosts: a}}
build: {when: {event: webhook, hook: 'ci-*'}, then: {hosts: a}}
";
        let rules = crate::reactors::rules::parse("r.yaml", rules).expect("rules");
        let environment = EnvironmentName::new("production").expect("a name");
        let alert = json!({"alerts": [{"status": "resolved", "labels": {}}]});
        let check = |hook: &str, body: &Value| {
            let events = read(hook, body.clone()).expect("read");
            refuse_unusable(&environment, hook, &rules, &events).is_ok()
        };
        assert!(check("prometheus", &alert), "another value may match");
        assert!(!check("promtheus", &alert), "no rule is for this hook");
        assert!(!check("prometheus", &json!({"x": 1})), "not an alert");
        assert!(check("ci-main", &json!({"x": 1})));
        assert!(!check("ci-main", &alert));
    }
}
