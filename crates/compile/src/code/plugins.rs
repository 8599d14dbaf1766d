//! The plugins of an environment's deployed commit, as one blob that every node fetches.
//!
//! `code-plugins/<environment>` names the blob and keeps it. Catalogs that need plugins refer to
//! their own version, so a release does not depend on this record.

use bunraku_model::catalog::SourceFile;
use bunraku_model::{CodeId, EnvironmentName};
use bunraku_store::Transaction;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Code, CodeError};
use bunraku_control::document::{self, Versioned};
use bunraku_control::keys;

/// The plugins of one commit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PluginRecord {
    pub code_id: CodeId,
    /// The archive; nothing if the commit has no plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<SourceFile>,
}

impl Code {
    /// Returns the plugins that were stored last, of whichever commit.
    pub async fn plugins(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<PluginRecord>, CodeError> {
        Ok((self.stored_plugins(environment).await?).map(|found| found.document))
    }

    /// Stores the plugins of a commit, in place of those of another one.
    pub async fn keep_plugins(
        &self,
        environment: &EnvironmentName,
        code_id: &CodeId,
        archive: Option<Bytes>,
    ) -> Result<PluginRecord, CodeError> {
        let key = keys::code_plugins(environment);
        let written = match archive {
            Some(bytes) => {
                let mut bytes = std::io::Cursor::new(bytes);
                Some(self.blobs.put(&mut bytes, None).await?)
            }
            None => None,
        };
        let record = PluginRecord {
            code_id: code_id.clone(),
            archive: (written.as_ref()).map(|written| SourceFile {
                content: written.info.id,
                size: written.info.size,
            }),
        };
        loop {
            let stored = self.stored_plugins(environment).await?;
            let mut transaction = Transaction::new()
                .when_unchanged(&key, stored.as_ref().map(|stored| &stored.entry))
                .put(key.clone(), document::encode(&record));
            let old = stored.and_then(|stored| stored.document.archive);
            if let Some(old) = old.filter(|old| Some(*old) != record.archive) {
                transaction = self.blobs.unreference_in(transaction, old.content, &key)?;
            }
            if let Some(new) = record.archive {
                let blobs = &self.blobs;
                transaction = blobs.reference_in(transaction, new.content, &key).await?;
            }
            if self.store.commit(transaction).await?.is_committed() {
                break;
            }
        }
        if let Some(written) = written {
            written.pin.release().await?;
        }
        Ok(record)
    }

    /// Removes the record of an environment that is being removed.
    pub(super) async fn forget_plugins(
        &self,
        environment: &EnvironmentName,
    ) -> Result<(), CodeError> {
        let key = keys::code_plugins(environment);
        while let Some(stored) = self.stored_plugins(environment).await? {
            let mut transaction = Transaction::new()
                .when_unchanged(&key, Some(&stored.entry))
                .delete(key.clone());
            if let Some(old) = stored.document.archive {
                transaction = self.blobs.unreference_in(transaction, old.content, &key)?;
            }
            if self.store.commit(transaction).await?.is_committed() {
                break;
            }
        }
        Ok(())
    }

    async fn stored_plugins(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<Versioned<PluginRecord>>, CodeError> {
        Ok(document::read(&*self.store, &keys::code_plugins(environment)).await?)
    }
}
