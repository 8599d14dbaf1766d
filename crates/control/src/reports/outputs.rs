//! Outputs that a node's resources register, stored with the report that contains them.
//!
//! The newest output of each name is stored as `node-outputs/<node>/<name>`,
//! before the end of the run is stored, so that anyone who waits for that end
//! finds it. Secrets never get here: the node that has them withholds them.
//!
//! Absent here: who may read an output (`outputs`).

use std::collections::BTreeMap;

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::{SharedStore, Transaction, settle};
use bunraku_wire::api::{EventStatus, NumberedEvent, ReportEvent, ResourceEvent};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::document;
use crate::{ServiceError, keys};

/// The size limit of an output. A larger one stays on its node.
const LARGEST: usize = 64 << 10;
/// Outputs per transaction, so that together they stay within the store's limit.
const AT_ONCE: usize = 16;
/// The size limit of all outputs of a node. Beyond it, an output has no value.
const MOST_BYTES: usize = 4 << 20;
/// The maximum number of outputs of a node. Further names are ignored.
const MOST_OUTPUTS: usize = 1_000;
/// The longest name of an output. Outputs with longer names are ignored.
const LONGEST_NAME: usize = 200;

/// The newest output of one name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeOutput {
    pub run: NodeRunId,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Map<String, Value>>,
    /// The reason why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// Stores the outputs that a run's events register. Repeating it changes nothing.
pub(crate) async fn note(
    store: &SharedStore,
    node: &NodeName,
    run: NodeRunId,
    events: &[NumberedEvent],
    now: Timestamp,
) -> Result<(), ServiceError> {
    let mut given: Vec<(String, NodeOutput)> = (events.iter())
        .filter_map(|event| match &event.event {
            ReportEvent::Resource(event) => registered(event, run, now),
            _ => None,
        })
        .collect();
    if given.is_empty() {
        return Ok(());
    }
    keep_within_budget(store, node, &mut given).await?;
    for some in given.chunks(AT_ONCE) {
        // If a batch has two outputs of one name, the later one counts: a store
        // accepts a key only once per transaction.
        let newest: std::collections::BTreeMap<_, _> =
            some.iter().map(|(name, output)| (name, output)).collect();
        let transaction =
            (newest.into_iter()).fold(Transaction::new(), |transaction, (name, output)| {
                let key = keys::node_output(node, name);
                transaction.put(key, document::encode(output))
            });
        settle(&**store, transaction).await?;
    }
    Ok(())
}

/// Withholds the outputs that exceed what one node may store, by what it has stored.
async fn keep_within_budget(
    store: &SharedStore,
    node: &NodeName,
    given: &mut Vec<(String, NodeOutput)>,
) -> Result<(), ServiceError> {
    let stored = document::read_all(&**store, &keys::node_outputs(node)).await?;
    let mut sizes: BTreeMap<String, usize> = (stored.iter())
        .map(|entry| (entry.key.clone(), entry.value.len()))
        .collect();
    let mut total: usize = sizes.values().sum();
    given.retain_mut(|(name, output)| {
        let key = keys::node_output(node, name);
        if sizes.len() >= MOST_OUTPUTS && !sizes.contains_key(&key) {
            tracing::warn!(%node, name, "ignoring an output: the node has too many");
            return false;
        }
        let before = sizes.get(&key).copied().unwrap_or(0);
        let mut size = document::encode(output).len();
        if total - before + size > MOST_BYTES {
            output.value = None;
            output.withheld = Some(format!(
                "the outputs of the node exceed the limit of {MOST_BYTES} bytes"
            ));
            size = document::encode(output).len();
        }
        total = total - before + size;
        sizes.insert(key, size);
        true
    });
    Ok(())
}

fn registered(
    event: &ResourceEvent,
    run: NodeRunId,
    at: Timestamp,
) -> Option<(String, NodeOutput)> {
    let plain = |name: &&String| !name.contains('/') && name.len() <= LONGEST_NAME;
    let name = event.register.as_ref().filter(plain)?;
    let resource = || format!("{}[{}]", event.type_name, event.title);
    let withheld = match event.status {
        // A noop run has nothing new.
        EventStatus::Pending => return None,
        EventStatus::Failed => Some(format!("{} failed", resource())),
        EventStatus::Skipped => Some(format!("{} did not run", resource())),
        EventStatus::Unchanged | EventStatus::Changed => event.outputs_withheld.clone(),
    };
    let value = value_of(event);
    let size = serde_json::to_string(&value).map_or(0, |text| text.len());
    let withheld = withheld.or_else(|| {
        let too_large = format!("it has {size} bytes, which exceeds the limit of {LARGEST}");
        (size > LARGEST).then_some(too_large)
    });
    let output = NodeOutput {
        run,
        at,
        value: withheld.is_none().then_some(value),
        withheld,
    };
    Some((name.clone(), output))
}

/// The value that the node's own later states may read, too.
fn value_of(event: &ResourceEvent) -> Map<String, Value> {
    let mut value = event.outputs.clone();
    let changes: Map<String, Value> = (event.changes.iter())
        .map(|change| {
            let sides = json!({"old": change.from, "new": change.to});
            (change.property.clone(), sides)
        })
        .collect();
    let changed = event.status == EventStatus::Changed;
    value.entry("changes").or_insert(Value::Object(changes));
    value.entry("changed").or_insert(json!(changed));
    value.entry("result").or_insert(json!(true));
    value.entry("comment").or_insert(json!(event.message));
    value
}
