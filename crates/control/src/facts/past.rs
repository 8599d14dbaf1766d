//! The earlier facts of a node, and the differences between two fact sets.

use bunraku_model::{ContentId, FactSet, FactSetId, NodeName};
use bunraku_wire::api::{FactSetEntry, FactsDifference};

use super::difference::difference;
use super::pointer::{FactHistory, FactsPointer, PastFacts};
use super::queue::Payload;
use super::{Facts, blob_error};
use crate::document::{self, Versioned};
use crate::{ServiceError, keys};

/// The location of a set's facts.
enum FactLocation {
    Here(FactSet),
    Content(ContentId),
}

struct KnownFactSet {
    entry: FactSetEntry,
    place: FactLocation,
}

impl Facts {
    /// Returns the fact sets of a node that can still be read, newest first.
    pub async fn history(&self, node: &NodeName) -> Result<Vec<FactSetEntry>, ServiceError> {
        let all = self.all_of(node).await?;
        Ok(all.into_iter().map(|known| known.entry).collect())
    }

    /// Returns the changes from one fact set to another: by default, from the one
    /// before the newest to the newest.
    pub async fn difference(
        &self,
        node: &NodeName,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<FactsDifference, ServiceError> {
        let all = self.all_of(node).await?;
        let to = match to {
            None => 0,
            Some(text) => find(&all, node, text)?,
        };
        let from = match from {
            Some(text) => find(&all, node, text)?,
            None if to + 1 < all.len() => to + 1,
            None => {
                return Err(ServiceError::NotFound {
                    what: format!("an earlier fact set of `{node}`"),
                    hint: Some("its facts have not changed within the stored history".to_owned()),
                });
            }
        };
        let (before, after) = (
            self.load(node, &all[from]).await?,
            self.load(node, &all[to]).await?,
        );
        Ok(FactsDifference {
            node: node.clone(),
            from: all[from].entry.clone(),
            to: all[to].entry.clone(),
            changes: difference(&before, &after),
        })
    }

    /// Returns all known fact sets. Reads the queue before the pointer, and the
    /// pointer before the history: facts that move on in between are then seen
    /// twice, not missed.
    async fn all_of(&self, node: &NodeName) -> Result<Vec<KnownFactSet>, ServiceError> {
        let known = self.read_stored(node).await?;
        let key = keys::node_fact_history(node);
        let history: Option<Versioned<FactHistory>> = document::read(&*self.store, &key).await?;
        let queued = known.queued.map(|stored| stored.document);
        let pointer = known.pointer.map(|stored| stored.document);
        let mut all = Vec::new();
        if let Some(queued) = queued {
            let entry = entry(queued.fact_set, queued.received, None);
            let place = match queued.payload {
                Payload::Inline(facts) => FactLocation::Here(FactSet::new(facts)),
                Payload::Content(content) => FactLocation::Content(content),
            };
            all.push(KnownFactSet { entry, place });
        }
        let replaced = all.first().map(|newest| newest.entry.changed);
        all.extend(pointer.map(|pointer| of_pointer(&pointer, replaced)));
        let past = history.map(|stored| stored.document).unwrap_or_default();
        all.extend(past.0.iter().map(of_past));
        // Facts that moved on between two of the reads are here twice.
        all.dedup_by(|later, earlier| {
            later.entry.fact_set == earlier.entry.fact_set
                && later.entry.changed == earlier.entry.changed
        });
        if all.is_empty() {
            Err(self.none_of(node).await?)
        } else {
            Ok(all)
        }
    }

    async fn load(&self, node: &NodeName, known: &KnownFactSet) -> Result<FactSet, ServiceError> {
        match &known.place {
            FactLocation::Here(facts) => Ok(facts.clone()),
            FactLocation::Content(content) => self.read(node, *content).await,
        }
    }

    /// Reads facts that are stored as a blob.
    pub(super) async fn read(
        &self,
        node: &NodeName,
        content: ContentId,
    ) -> Result<FactSet, ServiceError> {
        let text = self.blobs.read(content).await.map_err(blob_error)?;
        serde_json::from_slice(&text).map_err(|source| ServiceError::Document {
            key: keys::node_facts(node),
            source,
        })
    }
}

fn entry(
    fact_set: FactSetId,
    changed: jiff::Timestamp,
    replaced: Option<jiff::Timestamp>,
) -> FactSetEntry {
    FactSetEntry {
        fact_set,
        changed,
        replaced,
    }
}

fn of_pointer(pointer: &FactsPointer, replaced: Option<jiff::Timestamp>) -> KnownFactSet {
    KnownFactSet {
        entry: entry(pointer.fact_set, pointer.changed, replaced),
        place: FactLocation::Content(pointer.content),
    }
}

fn of_past(past: &PastFacts) -> KnownFactSet {
    KnownFactSet {
        entry: entry(past.fact_set, past.changed, Some(past.replaced)),
        place: FactLocation::Content(past.content),
    }
}

/// Finds the newest fact set whose id begins with `text`.
fn find(all: &[KnownFactSet], node: &NodeName, text: &str) -> Result<usize, ServiceError> {
    let mut matching = all
        .iter()
        .enumerate()
        .filter(|(_, known)| known.entry.fact_set.to_string().starts_with(text));
    let Some((first, known)) = matching.next().filter(|_| !text.is_empty()) else {
        return Err(ServiceError::NotFound {
            what: format!("a fact set `{text}` of `{node}`"),
            hint: Some(format!("list them with `bunraku facts history {node}`")),
        });
    };
    if let Some((_, other)) =
        matching.find(|(_, other)| other.entry.fact_set != known.entry.fact_set)
    {
        return Err(ServiceError::invalid(format!(
            "`{text}` matches more than one fact set: {} and {}",
            known.entry.fact_set, other.entry.fact_set
        )));
    }
    Ok(first)
}
