//! Answers of nodes to the commands that ask them to run.
//!
//! A positive answer says only that the node has the command: the report contains the rest.

use std::collections::{HashMap, VecDeque};

use bunraku_model::{CommandId, NodeName};
use bunraku_plan::StepIndex;
use bunraku_plan::run::Event;
use bunraku_store::{Change, SharedStore, WatchStart, WatchStream};
use bunraku_wire::api::{CommandOutcome, CommandResult};
use futures::StreamExt;

use bunraku_control::{ServiceError, document, keys};

pub(super) struct Answers {
    store: SharedStore,
    asked: HashMap<(NodeName, CommandId), StepIndex>,
    /// Answers to be read, because the watch was not open when their commands were sent.
    unread: VecDeque<(NodeName, CommandId)>,
    changes: Option<WatchStream>,
}

impl Answers {
    pub(super) fn new(store: SharedStore) -> Self {
        Self {
            store,
            asked: HashMap::new(),
            unread: VecDeque::new(),
            changes: None,
        }
    }

    pub(super) fn expect(&mut self, node: NodeName, id: CommandId, step: StepIndex) {
        self.unread.push_back((node.clone(), id));
        self.asked.insert((node, id), step);
    }

    /// Returns the next refusal. Safe to cancel at any time: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Event, ServiceError> {
        loop {
            match self.step().await {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(error) if error.is_lost_watch() => {
                    self.changes = None;
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Event>, ServiceError> {
        if self.changes.is_none() {
            let prefix = keys::all_command_results();
            self.changes = Some(self.store.watch(&prefix, WatchStart::Now).await?);
            self.unread = self.asked.keys().cloned().collect();
        }
        if let Some((node, id)) = self.unread.front().cloned() {
            let key = keys::command_result(&node, id);
            let found = document::read::<CommandResult>(&*self.store, &key).await?;
            self.unread.pop_front();
            return Ok(found.and_then(|found| self.note(&(node, id), &found.document)));
        }
        let changes = self.changes.as_mut().expect("opened above");
        match changes.next().await {
            None => self.changes = None,
            Some(batch) => {
                for change in batch?.changes {
                    // Answers are read by their key, so that there is one code path for all.
                    if let Change::Put(entry) = change
                        && let Some(place) = keys::parse_command_result(&entry.key)
                        && self.asked.contains_key(&place)
                    {
                        self.unread.push_back(place);
                    }
                }
            }
        }
        Ok(None)
    }

    fn note(&mut self, place: &(NodeName, CommandId), result: &CommandResult) -> Option<Event> {
        let step = self.asked.remove(place)?;
        match result.outcome {
            CommandOutcome::Done => None,
            _ => Some(Event::Refused {
                step,
                reason: result.message.clone(),
            }),
        }
    }
}
