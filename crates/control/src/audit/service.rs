//! The log as services use it.

use bunraku_store::Transaction;
use bunraku_wire::api::AuditOutcome;

use super::{AuditAction, AuditLog};

/// A service's handle on the audit log. The default records nothing: for tests of one service.
#[derive(Clone, Default)]
pub struct ServiceAudit(Option<AuditLog>);

impl From<AuditLog> for ServiceAudit {
    fn from(log: AuditLog) -> Self {
        Self(Some(log))
    }
}

impl ServiceAudit {
    /// Adds the record of a change to the transaction that makes it.
    #[must_use]
    pub fn record_in(&self, transaction: Transaction, action: AuditAction) -> Transaction {
        match &self.0 {
            Some(log) => log.record_in(transaction, action),
            None => transaction,
        }
    }

    /// Records a change that is done, for work that consists of many transactions.
    pub async fn record(&self, action: AuditAction) {
        if let Some(log) = &self.0 {
            log.record_or_warn(action, AuditOutcome::Succeeded).await;
        }
    }
}
