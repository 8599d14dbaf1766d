//! Holding a catalog, and letting it go.

use bunraku_model::CatalogId;
use bunraku_store::{Compare, Transaction, TransactionOutcome};

use super::record::State;
use super::{CatalogError, Catalogs};
use bunraku_control::document;
use bunraku_control::keys;

impl Catalogs {
    /// Adds a hold to a transaction of the caller's, so that both are done or
    /// neither. When it is refused, start again from here.
    ///
    /// `holder` is the end of a key (`compiled/web-1`): holding twice under one
    /// name is holding once. Costs one compare and two operations.
    pub async fn hold_in(
        &self,
        transaction: Transaction,
        id: CatalogId,
        holder: &str,
    ) -> Result<Transaction, CatalogError> {
        let found = self.stored(id).await?.ok_or(CatalogError::Missing(id))?;
        if !matches!(found.document.state, State::Kept { .. }) {
            return Err(CatalogError::Missing(id));
        }
        let key = keys::catalog(id);
        Ok(transaction
            .when(Compare::Value(key.clone(), found.entry.value.clone()))
            .put(key, document::encode(&found.document.reprieved()))
            .put(keys::catalog_hold(id, holder), ""))
    }

    /// Adds letting go to a transaction of the caller's. No error if it was
    /// not held. One operation.
    pub fn let_go_in(&self, transaction: Transaction, id: CatalogId, holder: &str) -> Transaction {
        transaction.delete(keys::catalog_hold(id, holder))
    }

    /// Holds it, in a transaction of its own.
    pub async fn hold(&self, id: CatalogId, holder: &str) -> Result<(), CatalogError> {
        loop {
            let transaction = self.hold_in(Transaction::new(), id, holder).await?;
            match self.store.commit(transaction).await? {
                TransactionOutcome::Committed(_) => return Ok(()),
                TransactionOutcome::Refused(_) => {}
            }
        }
    }

    /// Lets it go, in a transaction of its own.
    pub async fn let_go(&self, id: CatalogId, holder: &str) -> Result<(), CatalogError> {
        let transaction = self.let_go_in(Transaction::new(), id, holder);
        self.store.commit(transaction).await?;
        Ok(())
    }

    /// Who holds it, in order.
    pub async fn holders(&self, id: CatalogId) -> Result<Vec<String>, CatalogError> {
        let prefix = keys::catalog_holds(id);
        let keys = document::keys_under(&*self.store, &prefix).await?;
        Ok(keys
            .into_iter()
            .map(|key| key[prefix.len()..].to_owned())
            .collect())
    }
}
