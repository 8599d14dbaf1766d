//! The history of modules: who published, removed, trusted and revoked what, and refusals.

use bunraku_store::Transaction;
use bunraku_wire::api::modules::ModuleEvent;
use uuid::Uuid;

use super::Modules;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// Number of events kept.
const KEPT: usize = 1_000;

impl Modules {
    /// Adds a history entry to the transaction that it describes.
    pub(super) fn add_entry(
        &self,
        transaction: Transaction,
        by: &str,
        what: &str,
        subject: String,
        detail: String,
    ) -> Transaction {
        let event = ModuleEvent {
            at: self.clock.now(),
            by: by.to_owned(),
            what: what.to_owned(),
            subject,
            detail,
        };
        transaction.put(keys::module_event(Uuid::now_v7()), document::encode(&event))
    }

    /// Returns the newest events, newest first.
    pub async fn history(&self, most: usize) -> Result<Vec<ModuleEvent>, ServiceError> {
        let entries = document::read_all(&*self.store, keys::MODULE_EVENTS).await?;
        entries
            .iter()
            .rev()
            .take(most)
            .map(document::decode)
            .collect()
    }

    pub(super) async fn forget_old_events(&self) -> Result<(), ServiceError> {
        document::forget_oldest(&*self.store, keys::MODULE_EVENTS, KEPT).await
    }
}
