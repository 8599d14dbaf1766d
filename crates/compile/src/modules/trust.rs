//! Trusted and revoked signing keys.
//!
//! There is one document for all servers. Nodes have their own keys and take
//! only the revocations from here: a server can remove trust in a node's
//! modules, but never add any.

use bunraku_module::{Fingerprint, PublicKey, Trust};
use bunraku_store::{KeyValue, Swap, Transaction, compare_and_swap};
use bunraku_wire::api::modules::{ModuleKeys, RevokedModuleKey, TrustedModuleKey};

use super::Modules;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// Maximum number of keys of each kind: all of them go to nodes, and each
/// package is compared with them.
const MOST: usize = 1_000;

/// The keys, with the stored entry that they were read from.
pub(super) struct ReadKeys {
    pub(super) keys: ModuleKeys,
    pub(super) entry: Option<KeyValue>,
    pub(super) trust: Trust,
}

impl Modules {
    pub async fn keys(&self) -> Result<ModuleKeys, ServiceError> {
        Ok(self.read_keys().await?.keys)
    }

    /// Returns the fingerprints of the revoked keys.
    pub async fn revoked(&self) -> Result<Vec<String>, ServiceError> {
        let keys = self.read_keys().await?.keys;
        Ok(keys
            .revoked
            .into_iter()
            .map(|one| one.fingerprint)
            .collect())
    }

    pub(super) async fn read_keys(&self) -> Result<ReadKeys, ServiceError> {
        let stored = document::read::<ModuleKeys>(&*self.store, keys::MODULE_KEYS).await?;
        let (keys, entry) = match stored {
            Some(stored) => (stored.document, Some(stored.entry)),
            None => (ModuleKeys::default(), None),
        };
        let broken = |error| ServiceError::internal("cannot read a stored key", error);
        let mut trust = Trust::default();
        for key in &keys.trusted {
            trust.add(&key.key).map_err(broken)?;
        }
        for key in &keys.revoked {
            trust.revoke(&key.fingerprint).map_err(broken)?;
        }
        Ok(ReadKeys { keys, entry, trust })
    }

    /// Trusts a key: its signatures are valid from now on.
    pub async fn trust(&self, line: &str, by: &str) -> Result<TrustedModuleKey, ServiceError> {
        let key =
            PublicKey::parse(line).map_err(|error| ServiceError::invalid(error.to_string()))?;
        let (key, fingerprint) = (&key, &key.fingerprint());
        let (is_new, trusted) = compare_and_swap(&*self.store, |_| async move {
            let read = self.read_keys().await?;
            if read.trust.is_revoked(fingerprint) {
                return Err(ServiceError::conflict(
                    format!("the key {fingerprint} was revoked, which is permanent"),
                    "create a new one with `bunraku module keygen`",
                ));
            }
            let fingerprint = fingerprint.to_string();
            let mut keys = read.keys;
            if let Some(known) = keys
                .trusted
                .iter()
                .find(|known| known.fingerprint == fingerprint)
            {
                return Ok(Swap::Done((false, known.clone())));
            }
            let trusted = TrustedModuleKey {
                fingerprint: fingerprint.clone(),
                key: key.to_line(),
                by: by.to_owned(),
                at: self.clock.now(),
            };
            keys.trusted.push(trusted.clone());
            let transaction = write_keys(&keys, read.entry.as_ref())?;
            let detail = key.comment.clone();
            let transaction = self.add_entry(transaction, by, "trusted", fingerprint, detail);
            Ok(Swap::Write(transaction, (true, trusted)))
        })
        .await?;
        if is_new {
            tracing::info!(key = %trusted.fingerprint, by, "trusted a module key");
        }
        Ok(trusted)
    }

    /// Revokes a key: its signatures are no longer valid anywhere, not even on nodes.
    pub async fn revoke(
        &self,
        fingerprint: &str,
        reason: &str,
        by: &str,
    ) -> Result<RevokedModuleKey, ServiceError> {
        let key: Fingerprint = fingerprint.parse().map_err(|_| {
            ServiceError::invalid(format!(
                "`{fingerprint}` is not a fingerprint of 64 hexadecimal digits"
            ))
        })?;
        let fingerprint = &key.to_string();
        let (is_new, revoked) = compare_and_swap(&*self.store, |_| async move {
            let read = self.read_keys().await?;
            let mut keys = read.keys;
            let known = keys
                .revoked
                .iter()
                .find(|known| known.fingerprint == *fingerprint);
            if let Some(known) = known {
                return Ok(Swap::Done((false, known.clone())));
            }
            let revoked = RevokedModuleKey {
                fingerprint: fingerprint.clone(),
                reason: reason
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(500)
                    .collect(),
                by: by.to_owned(),
                at: self.clock.now(),
            };
            keys.trusted.retain(|one| one.fingerprint != *fingerprint);
            keys.revoked.push(revoked.clone());
            let transaction = write_keys(&keys, read.entry.as_ref())?;
            let (subject, detail) = (fingerprint.clone(), revoked.reason.clone());
            let transaction = self.add_entry(transaction, by, "revoked", subject, detail);
            Ok::<_, ServiceError>(Swap::Write(transaction, (true, revoked)))
        })
        .await?;
        if is_new {
            tracing::warn!(key = %fingerprint, by, "revoked a module key");
        }
        Ok(revoked)
    }
}

fn write_keys(new: &ModuleKeys, read: Option<&KeyValue>) -> Result<Transaction, ServiceError> {
    if new.trusted.len() > MOST || new.revoked.len() > MOST {
        return Err(ServiceError::invalid(format!(
            "there are more than {MOST} keys"
        )));
    }
    Ok(Transaction::new()
        .when_unchanged(keys::MODULE_KEYS, read)
        .put(keys::MODULE_KEYS, document::encode(new)))
}
