//! Compiles nodes again when an answer to a question of their code changes.
//!
//! Everything is derived from the store and the index: a server compares the
//! digests that nodes received with those of the current answers. So nothing is
//! lost when a server dies at any moment, and after a start everything is
//! compared once. A node whose answers differ is compiled once they have been
//! the same for the quiet period. One transaction marks the node's questions as
//! outdated and requests the compile, so only one of several servers succeeds.
//!
//! Nodes that export what they collect from each other might be compiled for
//! ever. After some rounds, such a circle is looked for ([`circles`]), and the
//! node that closes it is no longer compiled because of answers.

mod circles;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_store::{
    Change, Follow, FollowEvent, KeyValue, StoreError, Swap, Transaction, compare_and_swap,
};
use bunraku_wire::api::{CompileNote, CompileReason, LastCompile};
use tokio::time::Instant;

use super::Compiles;
use super::reads::{CALM, CompileReads, ReadsStop, is_within};
use crate::code_questions::{AnswerDigests, CodeQuestion};
use bunraku_control::document;
use bunraku_control::error::chain;
use bunraku_control::{ServiceError, keys};

/// Number of compiles in a row, because of answers alone, after which a circle is looked for.
const MOST_ROUNDS: u32 = 10;
/// Minimum time between two comparisons. Longer if a comparison takes long.
const PAUSE: Duration = Duration::from_millis(100);
/// A comparison takes at most this part of the time.
const SHARE: u32 = 10;
/// Under constant change, a node waits for this many quiet periods at most.
const LONGEST_WAIT: u32 = 10;
/// Delay before an unavailable store or index is retried.
const RETRY: Duration = Duration::from_millis(500);

/// A node whose answers have changed.
struct Outdated {
    since: Instant,
    changed: Instant,
    /// The digests of the current answers.
    digests: Vec<String>,
}

impl Outdated {
    fn due(&self, quiet: Duration) -> Instant {
        (self.changed + quiet).min(self.since + quiet * LONGEST_WAIT)
    }
}

/// The questions of all nodes, and the current answers.
#[derive(Default)]
struct AnswerWatch {
    readers: BTreeMap<NodeName, (KeyValue, CompileReads)>,
    /// The state of the index and the digests, by question.
    answers: HashMap<CodeQuestion, (u64, AnswerDigests)>,
    outdated: BTreeMap<NodeName, Outdated>,
}

impl Compiles {
    /// Compiles nodes again whose answers are outdated. Never returns.
    pub(super) async fn follow_answers(&self) {
        let quiet = self.inner.options.answer_quiet;
        let mut reads = Follow::new(self.inner.store.clone(), keys::COMPILE_READS);
        let mut changes = self.inner.answers.changes();
        let mut watch = AnswerWatch::default();
        let mut next_look: Option<Instant> = None;
        let mut earliest = Instant::now();
        loop {
            let due = watch.next_due(quiet);
            tokio::select! {
                followed = reads.next() => {
                    watch.take(followed).await;
                    next_look.get_or_insert(earliest.max(Instant::now()));
                }
                Ok(()) = changes.changed() => {
                    next_look.get_or_insert(earliest.max(Instant::now()));
                }
                () = sleep_until(next_look) => {
                    let started = Instant::now();
                    next_look = match self.check_answers(&mut watch).await {
                        Ok(()) => None,
                        Err(error) => {
                            tracing::warn!(error = %chain(&error), "cannot compare answers to queries in code; retrying");
                            Some(Instant::now() + RETRY)
                        }
                    };
                    earliest = Instant::now() + PAUSE.max(started.elapsed() * SHARE);
                }
                () = sleep_until(due) => {
                    if let Err(error) = self.compile_outdated(&mut watch, quiet).await {
                        tracing::warn!(error = %chain(&error), "cannot queue nodes with outdated answers; retrying");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }
    }

    /// Compares the answers that nodes received with the current ones.
    async fn check_answers(&self, watch: &mut AnswerWatch) -> Result<(), ServiceError> {
        let questions: HashSet<CodeQuestion> = (watch.readers.values())
            .filter(|(_, reads)| !reads.is_requested)
            .flat_map(|(_, reads)| reads.asked.iter().map(|asked| asked.question.clone()))
            .collect();
        watch
            .answers
            .retain(|question, _| questions.contains(question));
        for question in questions {
            let since = watch.answers.get(&question).map(|(state, _)| *state);
            let looked = self.inner.answers.digests(question.clone(), since).await?;
            if let (state, Some(digests)) = looked {
                watch.answers.insert(question, (state, digests));
            }
        }
        watch.compare(Instant::now());
        Ok(())
    }

    async fn compile_outdated(
        &self,
        watch: &mut AnswerWatch,
        quiet: Duration,
    ) -> Result<(), ServiceError> {
        // The last comparison may be old.
        self.check_answers(watch).await?;
        let now = Instant::now();
        let due: Vec<NodeName> = (watch.outdated.iter())
            .filter(|(_, outdated)| outdated.due(quiet) <= now)
            .map(|(node, _)| node.clone())
            .collect();
        for node in due {
            let Some((entry, reads)) = watch.readers.get(&node) else {
                watch.outdated.remove(&node);
                continue;
            };
            let is_handled = match self.circle_to_stop(watch, &node, reads) {
                Some(circle) => self.stop_circle(entry, reads, circle).await?,
                None => self.compile_reader(&node, entry, reads).await?,
            };
            watch.outdated.remove(&node);
            // Its questions have changed in the store, and are compared again when
            // the change arrives. Otherwise, look again after another quiet period.
            if is_handled {
                watch.readers.remove(&node);
            }
        }
        watch.compare(Instant::now());
        Ok(())
    }

    /// Returns the circle that a node is in, if it has been compiled often enough.
    fn circle_to_stop(
        &self,
        watch: &AnswerWatch,
        node: &NodeName,
        reads: &CompileReads,
    ) -> Option<Vec<NodeName>> {
        if reads.rounds < MOST_ROUNDS {
            return None;
        }
        let circle = watch.circle(node)?;
        let stopped = reads.stopped.as_ref();
        let resumed = stopped.is_some_and(|stopped| {
            // A query names no feeders: try again from time to time.
            let is_query = stopped.circle.len() == 1;
            let is_calm = !is_within(stopped.at, self.inner.clock.now(), CALM);
            (is_query && is_calm) || watch.changed_for_another_reason(&circle, stopped.at)
        });
        (!resumed).then_some(circle)
    }

    /// Marks a node's questions as outdated and requests its compile. Returns
    /// whether the stored questions have changed.
    async fn compile_reader(
        &self,
        node: &NodeName,
        entry: &KeyValue,
        reads: &CompileReads,
    ) -> Result<bool, ServiceError> {
        let store = &*self.inner.store;
        let marked = CompileReads {
            is_requested: true,
            stopped: None,
            ..reads.clone()
        };
        compare_and_swap(store, async |_| {
            // Another server may have been faster.
            let now = store.get(&entry.key).await?;
            if now.is_none_or(|now| now.modified != entry.modified) {
                return Ok(Swap::Done(()));
            }
            let transaction = Transaction::new().when_unchanged(&entry.key, Some(entry));
            let marking = transaction
                .clone()
                .put(entry.key.clone(), document::encode(&marked));
            let reason = CompileReason::Answers;
            match self.inner.queue.request_in(marking, node, reason).await {
                Ok(transaction) => Ok(Swap::Write(transaction, ())),
                // The node was removed.
                Err(ServiceError::NotFound { .. }) => {
                    Ok(Swap::Write(transaction.delete(entry.key.clone()), ()))
                }
                Err(error) => Err::<_, ServiceError>(error),
            }
        })
        .await?;
        tracing::debug!(%node, "answers to queries in its code changed; compiling it again");
        Ok(true)
    }

    /// Records that a node is no longer compiled because of answers, and why.
    /// Returns whether the stored questions have changed.
    async fn stop_circle(
        &self,
        entry: &KeyValue,
        reads: &CompileReads,
        circle: Vec<NodeName>,
    ) -> Result<bool, ServiceError> {
        if reads
            .stopped
            .as_ref()
            .is_some_and(|stopped| stopped.circle == circle)
        {
            return Ok(false);
        }
        let Some(node) = circle.first().cloned() else {
            return Ok(false);
        };
        let store = &*self.inner.store;
        let message = stop_message(reads.rounds, &circle);
        let stopped = CompileReads {
            stopped: Some(ReadsStop {
                at: self.inner.clock.now(),
                circle,
            }),
            ..reads.clone()
        };
        let key = keys::compile_status(&node);
        compare_and_swap(store, async |_| {
            let now = store.get(&entry.key).await?;
            if now.is_none_or(|now| now.modified != entry.modified) {
                return Ok::<_, ServiceError>(Swap::Done(()));
            }
            let mut transaction = Transaction::new()
                .when_unchanged(&entry.key, Some(entry))
                .put(entry.key.clone(), document::encode(&stopped));
            if let Some(status) = document::read::<LastCompile>(store, &key).await? {
                let mut last = status.document;
                last.notes.push(CompileNote {
                    level: "warning".to_owned(),
                    message: message.clone(),
                    ..CompileNote::default()
                });
                transaction = transaction
                    .when_unchanged(&key, Some(&status.entry))
                    .put(key.clone(), document::encode(&last));
            }
            Ok(Swap::Write(transaction, ()))
        })
        .await?;
        tracing::warn!(%node, "{message}");
        Ok(true)
    }
}

fn stop_message(rounds: u32, circle: &[NodeName]) -> String {
    let names: Vec<&str> = circle.iter().map(NodeName::as_str).collect();
    match names.as_slice() {
        [one] => format!(
            "compiled {rounds} times in a row because a query of its code has a new answer after \
             every compile; the query may read the catalog of {one} itself"
        ),
        _ => format!(
            "compiled {rounds} times in a row because these nodes change each other's exported \
             resources: {} -> {}; not compiled again until something else changes",
            names.join(" -> "),
            names[0]
        ),
    }
}

impl AnswerWatch {
    async fn take(&mut self, followed: Result<FollowEvent, StoreError>) {
        let changes = match followed {
            Ok(FollowEvent::Snapshot { items, .. }) => items.into_iter().map(Change::Put).collect(),
            Ok(FollowEvent::Changes(batch)) => batch.changes,
            Err(error) => {
                tracing::warn!(error = %error, "cannot watch queries in code; retrying");
                return tokio::time::sleep(RETRY).await;
            }
        };
        for change in changes {
            let (key, entry) = match change {
                Change::Put(entry) => (entry.key.clone(), Some(entry)),
                Change::Delete { key } => (key, None),
            };
            let Some(node) = keys::parse_node_below(keys::COMPILE_READS, &key) else {
                continue;
            };
            self.readers.remove(&node);
            let Some(entry) = entry else {
                continue;
            };
            match document::decode(&entry) {
                Ok(reads) => {
                    self.readers.insert(node, (entry, reads));
                }
                Err(error) => {
                    tracing::error!(%node, error = %chain(&error), "cannot read the queries of a node");
                }
            }
        }
    }

    /// Updates which nodes are outdated, and since when.
    fn compare(&mut self, now: Instant) {
        let mut outdated = BTreeMap::new();
        for (node, (_, reads)) in &self.readers {
            if reads.is_requested {
                continue;
            }
            let Some(digests) = self.current_digests(node, reads) else {
                continue;
            };
            let received = reads.asked.iter().map(|asked| &asked.digest);
            if received.eq(digests.iter()) {
                continue;
            }
            let known = self.outdated.remove(node);
            let since = known.as_ref().map_or(now, |known| known.since);
            let changed = match known {
                Some(known) if known.digests == digests => known.changed,
                _ => now,
            };
            let entry = Outdated {
                since,
                changed,
                digests,
            };
            outdated.insert(node.clone(), entry);
        }
        self.outdated = outdated;
    }

    fn current_digests(&self, node: &NodeName, reads: &CompileReads) -> Option<Vec<String>> {
        let questions = reads.asked.iter();
        questions
            .map(|asked| {
                let (_, digests) = self.answers.get(&asked.question)?;
                Some(digests.for_reader(node))
            })
            .collect()
    }

    /// Returns when the next node is due. Stopped nodes wait for a comparison
    /// that finds the circle open.
    fn next_due(&self, quiet: Duration) -> Option<Instant> {
        let due = self.outdated.values().map(|outdated| outdated.due(quiet));
        due.min()
    }

    /// Returns the nodes whose exports the answers to a node contain.
    fn feeders(&self, node: &NodeName) -> BTreeSet<&NodeName> {
        let Some((_, reads)) = self.readers.get(node) else {
            return BTreeSet::new();
        };
        let answers = reads.asked.iter();
        let answers = answers.filter_map(|asked| self.answers.get(&asked.question));
        let feeders = answers.flat_map(|(_, digests)| match digests {
            AnswerDigests::Collected { by_node, .. } => by_node.keys().collect::<Vec<_>>(),
            AnswerDigests::Same { .. } => Vec::new(),
        });
        feeders.filter(|feeder| *feeder != node).collect()
    }

    /// Returns the circle that a node is part of, from the node on.
    fn circle(&self, node: &NodeName) -> Option<Vec<NodeName>> {
        let found = circles::find(node, |one| self.feeders(one));
        found.or_else(|| self.reads_catalogs(node).then(|| vec![node.clone()]))
    }

    /// Returns whether a query of a node may have a new answer because of a compile.
    fn reads_catalogs(&self, node: &NodeName) -> bool {
        let Some((_, reads)) = self.readers.get(node) else {
            return false;
        };
        let answers = reads.asked.iter();
        let mut answers = answers.filter_map(|asked| self.answers.get(&asked.question));
        answers.any(|(_, digests)| {
            matches!(
                digests,
                AnswerDigests::Same {
                    reads_catalogs: true,
                    ..
                }
            )
        })
    }

    /// Returns whether a node of the circle was compiled for another reason since.
    fn changed_for_another_reason(&self, circle: &[NodeName], since: jiff::Timestamp) -> bool {
        let others = circle.iter().filter_map(|node| self.readers.get(node));
        others
            .into_iter()
            .any(|(_, reads)| reads.rounds == 0 && reads.compiled_at > since)
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
