//! Adds and removes holds on catalogs.

use bunraku_model::CatalogId;
use bunraku_store::{Compare, Swap, Transaction, compare_and_swap, settle};

use super::record::State;
use super::{CatalogError, Catalogs};
use bunraku_control::document;
use bunraku_control::keys;

impl Catalogs {
    /// Adds a hold to the caller's transaction, so that both succeed or neither
    /// does. If the transaction is refused, start again from here.
    ///
    /// `holder` is the end of a key (`compiled/web-1`). Holding twice under one
    /// name has the same effect as holding once. Costs one compare and two
    /// operations.
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

    /// Adds the removal of a hold to the caller's transaction. It is not an
    /// error if the catalog was not held. Costs one operation.
    pub fn release_in(&self, transaction: Transaction, id: CatalogId, holder: &str) -> Transaction {
        transaction.delete(keys::catalog_hold(id, holder))
    }

    /// Holds the catalog in a separate transaction.
    pub async fn hold(&self, id: CatalogId, holder: &str) -> Result<(), CatalogError> {
        compare_and_swap(&*self.store, |_| async {
            let transaction = self.hold_in(Transaction::new(), id, holder).await?;
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    /// Removes the hold in a separate transaction.
    pub async fn release(&self, id: CatalogId, holder: &str) -> Result<(), CatalogError> {
        let transaction = self.release_in(Transaction::new(), id, holder);
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    /// Returns the catalog's holders, in order.
    pub async fn holders(&self, id: CatalogId) -> Result<Vec<String>, CatalogError> {
        let prefix = keys::catalog_holds(id);
        let keys = document::keys_under(&*self.store, &prefix).await?;
        Ok(keys
            .into_iter()
            .map(|key| key[prefix.len()..].to_owned())
            .collect())
    }
}
