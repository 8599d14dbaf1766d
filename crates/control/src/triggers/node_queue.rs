//! What waits for one node, on the server's side of the line. Pure.
//!
//! At most one run command is on its way to a node for triggers. What is
//! fired meanwhile waits here and goes out together as the next one, so that
//! a thousand firings at one node are a few commands. A command that is on
//! its way is never added to: the node may have taken it already.

use bunraku_model::{CommandId, TriggerName};
use bunraku_wire::api::TriggerCause;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::chain;

/// Causes that wait for one node one by one; further ones are only counted.
const MOST_WAITING: usize = 200;

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct NodeQueue {
    pub(super) under_way: Option<UnderWay>,
    #[serde(default)]
    pub(super) waiting: Vec<Waiting>,
    /// Those beyond what is kept one by one.
    #[serde(default)]
    pub(super) more: u64,
}

/// The command that is on its way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct UnderWay {
    pub(super) command: CommandId,
    pub(super) triggers: Vec<TriggerName>,
    /// The firings that it carries: the same ones again change nothing.
    pub(super) causes: Vec<TriggerCause>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) trigger: TriggerName,
    pub(super) cause: TriggerCause,
    pub(super) expires: Timestamp,
}

impl NodeQueue {
    /// Puts causes behind what waits. Says whether anything is new.
    pub(super) fn add(
        &mut self,
        trigger: &TriggerName,
        causes: &[TriggerCause],
        expires: Timestamp,
    ) -> bool {
        let mut added = false;
        for cause in causes {
            let known = cause.firing.is_some_and(|firing| {
                let under_way = self.under_way.iter().any(|under_way| {
                    chain::is_known(&under_way.causes, firing) && under_way.causes.contains(cause)
                });
                under_way || self.waiting.iter().any(|waiting| waiting.cause == *cause)
            });
            if known {
                continue;
            }
            added = true;
            if self.waiting.len() >= MOST_WAITING {
                self.more += 1;
                // The run must still start as late as the latest of them allows.
                if let Some(last) = self.waiting.last_mut() {
                    last.expires = last.expires.max(expires);
                }
                continue;
            }
            self.waiting.push(Waiting {
                trigger: trigger.clone(),
                cause: cause.clone(),
                expires,
            });
        }
        added
    }

    /// Takes out what is too late; gives the triggers that it was.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<TriggerName> {
        let (late, on_time): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.expires <= now);
        self.waiting = on_time;
        triggers_of(late.iter().map(|waiting| &waiting.trigger))
    }

    /// Makes everything that waits the next command. Nothing, if nothing waits
    /// or one is under way. Gives its causes and until when it may start.
    pub(super) fn send(&mut self, command: CommandId) -> Option<(Vec<TriggerCause>, Timestamp)> {
        if self.under_way.is_some() {
            return None;
        }
        let expires = self.waiting.iter().map(|waiting| waiting.expires).max()?;
        let waiting = std::mem::take(&mut self.waiting);
        let triggers = triggers_of(waiting.iter().map(|waiting| &waiting.trigger));
        let causes: Vec<TriggerCause> = waiting.into_iter().map(|waiting| waiting.cause).collect();
        self.more = 0;
        self.under_way = Some(UnderWay {
            command,
            triggers,
            causes: causes.clone(),
        });
        Some((causes, expires))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_none() && self.waiting.is_empty()
    }
}

fn triggers_of<'a>(names: impl Iterator<Item = &'a TriggerName>) -> Vec<TriggerName> {
    let mut names: Vec<TriggerName> = names.cloned().collect();
    names.sort();
    names.dedup();
    names
}
