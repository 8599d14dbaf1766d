//! Removal of code that is no longer needed, in the store and on this server.

use std::collections::BTreeSet;

use bunraku_control::document::{self, Decision};
use bunraku_control::keys;
use bunraku_model::{CodeId, EnvironmentName};
use bunraku_store::{Transaction, settle};

use super::{Code, CodeError, CodeRecord, blocking};

impl Code {
    /// Removes all but the newest commits and those in use, and the trees that no
    /// record names.
    pub async fn prune(
        &self,
        environment: &EnvironmentName,
        in_use: &BTreeSet<CodeId>,
    ) -> Result<usize, CodeError> {
        let prefix = keys::code_of(environment);
        let mut known = Vec::new();
        for entry in document::read_all(&*self.store, &prefix).await? {
            let record: CodeRecord = document::decode(&entry)?;
            let commit = CodeId(entry.key[prefix.len()..].to_owned());
            known.push((record, commit, entry));
        }
        known.sort_by_key(|(record, _, _)| std::cmp::Reverse(record.fetched));
        let mut kept = Vec::new();
        let mut removed = 0;
        for (at, (record, commit, entry)) in known.into_iter().enumerate() {
            if at < self.options.keep || in_use.contains(&commit) {
                kept.push(commit);
                continue;
            }
            let transaction = Transaction::new()
                .when_unchanged(&entry.key, Some(&entry))
                .delete(entry.key.clone());
            let transaction = self.unreferenced(transaction, &record, &entry.key)?;
            settle(&*self.store, transaction).await?;
            removed += 1;
        }
        self.remove_trees(environment, kept).await?;
        Ok(removed)
    }

    /// Removes all code of an environment that is being removed.
    pub async fn forget(&self, environment: &EnvironmentName) -> Result<(), CodeError> {
        let prefix = keys::code_of(environment);
        for entry in document::read_all(&*self.store, &prefix).await? {
            let record: CodeRecord = document::decode(&entry)?;
            let transaction = Transaction::new().delete(entry.key.clone());
            let transaction = self.unreferenced(transaction, &record, &entry.key)?;
            settle(&*self.store, transaction).await?;
        }
        self.forget_plugins(environment).await?;
        self.remove_trees(environment, Vec::new()).await
    }

    fn unreferenced(
        &self,
        mut transaction: Transaction,
        record: &CodeRecord,
        key: &str,
    ) -> Result<Transaction, CodeError> {
        for content in record.contents() {
            transaction = self.blobs.unreference_in(transaction, content, key)?;
        }
        Ok(transaction)
    }

    async fn remove_trees(
        &self,
        environment: &EnvironmentName,
        kept: Vec<CodeId>,
    ) -> Result<(), CodeError> {
        let trees = self.directory.join("trees").join(environment.as_str());
        blocking(move || {
            let Ok(entries) = std::fs::read_dir(&trees) else {
                return Ok(());
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if !kept.iter().any(|commit| name.to_str() == Some(&commit.0)) {
                    let _ = std::fs::remove_dir_all(entry.path());
                }
            }
            Ok(())
        })
        .await
    }

    /// Marks a commit as recently used, so that it counts as new when old
    /// commits are removed.
    pub async fn touch(
        &self,
        environment: &EnvironmentName,
        commit: &CodeId,
    ) -> Result<(), CodeError> {
        let now = self.clock.now();
        document::update(
            &*self.store,
            &keys::code(environment, commit),
            |record: Option<CodeRecord>| {
                Ok(record.map_or(Decision::Keep, |record| {
                    Decision::Write(CodeRecord {
                        fetched: now,
                        ..record
                    })
                }))
            },
        )
        .await?;
        Ok(())
    }
}
