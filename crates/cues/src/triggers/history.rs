//! The history of triggers.

use bunraku_model::TriggerName;
use bunraku_store::Transaction;
use bunraku_wire::api::triggers::{TriggerEvent, TriggerNews};
use uuid::Uuid;

use super::Triggers;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The number of events kept.
const KEPT: usize = 1_000;

impl Triggers {
    pub(super) async fn record(
        &self,
        trigger: &TriggerName,
        what: TriggerNews,
    ) -> Result<(), ServiceError> {
        let transaction = self.add_event(Transaction::new(), trigger, what);
        self.store.commit(transaction).await?;
        Ok(())
    }

    /// Adds the news to the transaction that causes it.
    pub(super) fn add_event(
        &self,
        transaction: Transaction,
        trigger: &TriggerName,
        what: TriggerNews,
    ) -> Transaction {
        let event = TriggerEvent {
            trigger: trigger.clone(),
            at: self.clock.now(),
            what,
        };
        let key = keys::trigger_event(Uuid::now_v7());
        transaction.put(key, document::encode(&event))
    }

    /// Returns the newest events, of one trigger or of all, newest first.
    pub async fn history(
        &self,
        trigger: Option<&TriggerName>,
        most: usize,
    ) -> Result<Vec<TriggerEvent>, ServiceError> {
        let mut events = Vec::new();
        let entries = document::read_all(&*self.store, keys::TRIGGER_EVENTS).await?;
        for entry in entries.iter().rev() {
            let event: TriggerEvent = document::decode(entry)?;
            if trigger.is_none_or(|trigger| event.trigger == *trigger) {
                events.push(event);
            }
            if events.len() >= most {
                break;
            }
        }
        Ok(events)
    }

    pub(super) async fn forget_old_events(&self) -> Result<(), ServiceError> {
        document::forget_oldest(&*self.store, keys::TRIGGER_EVENTS, KEPT).await
    }
}
