//! Interfaces to the services that react to facts or know about environments.

use async_trait::async_trait;
use bunraku_model::{EnvironmentName, FactSetId, NodeName, VolatileFacts};
use bunraku_store::Transaction;

use crate::ServiceError;

/// A listener for changes of a node's facts, other than changes of volatile facts only.
///
/// It adds to the transaction that stores the new facts, so that neither can
/// happen without the other: a crash loses no change and repeats none. It may be
/// called again if that transaction is refused.
#[async_trait]
pub trait FactsChanged: Send + Sync + 'static {
    async fn facts_changed(
        &self,
        transaction: Transaction,
        node: &NodeName,
        fact_set: FactSetId,
    ) -> Result<Transaction, ServiceError>;
}

/// Looks up a node's environment, since each may have its own list of volatile facts.
#[async_trait]
pub trait EnvironmentOf: Send + Sync + 'static {
    async fn environment_of(
        &self,
        node: &NodeName,
    ) -> Result<Option<EnvironmentName>, ServiceError>;

    /// Returns the list that operators set for an environment, if any.
    async fn volatile_in(
        &self,
        _environment: &EnvironmentName,
    ) -> Result<Option<VolatileFacts>, ServiceError> {
        Ok(None)
    }
}
