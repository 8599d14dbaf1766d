//! Events as JSON lines.

use bunraku_engine::{Event, Finished, Reason, Stream};
use serde_json::{Map, Value, json};

/// Prints one event as one line of stdout. A reader that went away is not an error of the run,
/// which continues.
pub(super) fn print(event: &Event<'_>) {
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
        Event::Retrying {
            reference,
            attempt,
            wait,
            why,
        } => json!({
            "event": "retrying", "resource": reference, "attempt": attempt, "wait": wait.as_secs_f64(), "why": why,
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
    write(&value);
}

pub(super) fn write(value: &Value) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{value}");
}

/// The fields that Salt users know of a state, and those that Puppet users know of a resource.
pub(super) fn one(finished: &Finished) -> Map<String, Value> {
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

fn comment(finished: &Finished) -> String {
    let outcome = &finished.outcome;
    let mut parts: Vec<String> = outcome.reasons.iter().map(Reason::to_string).collect();
    parts.extend(outcome.message.clone());
    parts.join("; ")
}
