//! What else happens with facts, as far as this service needs to know.

use async_trait::async_trait;
use bunraku_model::{EnvironmentName, FactSetId, NodeName, VolatileFacts};
use bunraku_store::Transaction;

use crate::ServiceError;

/// Told when a node's facts changed in more than volatile ones.
///
/// It adds to the very transaction that makes them the node's facts, so that
/// neither can happen without the other: no change is forgotten by a crash,
/// and none is told twice. It may be called again when that transaction loses.
#[async_trait]
pub trait FactsChanged: Send + Sync + 'static {
    async fn facts_changed(
        &self,
        transaction: Transaction,
        node: &NodeName,
        fact_set: FactSetId,
    ) -> Result<Transaction, ServiceError>;
}

/// Tells a node's environment: each may have its own list of volatile facts.
#[async_trait]
pub trait EnvironmentOf: Send + Sync + 'static {
    async fn environment_of(
        &self,
        node: &NodeName,
    ) -> Result<Option<EnvironmentName>, ServiceError>;

    /// The list that operators gave it, if they did.
    async fn volatile_in(
        &self,
        _environment: &EnvironmentName,
    ) -> Result<Option<VolatileFacts>, ServiceError> {
        Ok(None)
    }
}
