//! Events as JSON lines.

use bunraku_engine::{Event, Reason, ResourceResult, Stream};
use serde_json::{Map, Value, json};

/// Formats one event as one line.
pub(super) fn line(event: &Event<'_>) -> String {
    let value = match event {
        Event::Begun { resources, noop } => {
            json!({"event": "begun", "resources": resources, "noop": noop})
        }
        Event::Started { number, reference } => {
            json!({"event": "started", "number": number, "resource": reference})
        }
        Event::Output {
            reference,
            stream,
            line,
        } => {
            let stream = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            json!({"event": "output", "resource": reference, "stream": stream, "line": line})
        }
        Event::Retrying(retry) => json!({
            "event": "retrying", "resource": retry.reference, "attempt": retry.attempt,
            "wait": retry.wait.as_secs_f64(), "why": retry.why,
        }),
        Event::Finished(finished) => {
            let mut value = one(finished);
            value.insert("event".to_owned(), json!("finished"));
            value.insert(
                "outputs".to_owned(),
                Value::Object(finished.outcome.outputs.clone()),
            );
            Value::Object(value)
        }
    };
    format!("{value}\n")
}

/// The fields that Salt users know of a state, and those that Puppet users know of a resource.
pub(super) fn one(finished: &ResourceResult) -> Map<String, Value> {
    let outcome = &finished.outcome;
    let state = finished.state.as_deref();
    let changes: Map<String, Value> = (outcome.changes.iter())
        .map(|change| {
            let mut value = json!({"old": change.from, "new": change.to});
            if let Some(diff) = &change.diff {
                value["diff"] = json!(diff);
            }
            (change.property.clone(), value)
        })
        .collect();
    let value = json!({
        "resource": finished.reference,
        "id": state.map_or(finished.reference.title(), |state| state.id.as_str()),
        "name": state.map_or(finished.reference.title(), |state| state.name.as_str()),
        "function": state.map(|state| state.function.as_str()),
        "file": finished.place.file,
        "line": finished.place.line,
        "run_number": finished.number,
        "status": outcome.status.as_str(),
        "result": outcome.result(),
        "ran": outcome.ran(),
        "changes": changes,
        "comment": comment(finished),
        "duration": outcome.duration.as_secs_f64(),
        "corrective": outcome.corrective,
        "refreshed": outcome.refreshed,
        "attempts": outcome.attempts,
        "reasons": outcome.reasons.iter().map(Reason::to_string).collect::<Vec<_>>(),
    });
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn comment(finished: &ResourceResult) -> String {
    let outcome = &finished.outcome;
    let mut parts: Vec<String> = outcome.reasons.iter().map(Reason::to_string).collect();
    parts.extend(outcome.message.clone());
    parts.join("; ")
}
