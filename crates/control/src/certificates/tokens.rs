//! Join tokens: valid once, for a limited time, and optionally for one name only.
//!
//! The store has only a hash of each token, so access to the store does not give
//! anyone a usable token.

use bunraku_model::{ContentId, NodeName};
use bunraku_store::{KeyValue, Transaction, settle};
use bunraku_wire::api::{NewToken, TokenEntry, TokenRequest};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Certificates;
use crate::document;
use crate::{ServiceError, keys};

/// The longest lifetime of a token: one year.
const LONGEST: u64 = 365 * 24 * 3600;

/// Digits of the hash that name a token in lists and logs.
const SHORT: usize = 12;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredToken {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NodeName>,
    created_by: String,
    expires: Timestamp,
}

/// The hash that identifies a token in the store.
pub(super) fn id_of(token: &str) -> String {
    ContentId::of(token.trim().as_bytes()).to_string()
}

pub(super) fn short(id: &str) -> &str {
    &id[..SHORT.min(id.len())]
}

/// The error for a refused token. It is the same for tokens that never existed,
/// are used or have expired, so that a stranger learns nothing.
pub(super) fn refused() -> ServiceError {
    ServiceError::Forbidden {
        message: "the token is not valid: it was used, has expired, or is for another node"
            .to_owned(),
        hint: Some("ask an operator for a new one (`bunraku token create`)".to_owned()),
    }
}

impl Certificates {
    /// Creates a token.
    pub async fn create_token(
        &self,
        request: &TokenRequest,
        by: &str,
    ) -> Result<NewToken, ServiceError> {
        if request.ttl_seconds == 0 || request.ttl_seconds > LONGEST {
            return Err(ServiceError::invalid(
                "a token must be valid for between one second and one year",
            ));
        }
        // Two random ids: 244 bits that nobody can guess.
        let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let id = id_of(&token);
        let ttl =
            SignedDuration::from_secs(i64::try_from(request.ttl_seconds).expect("at most a year"));
        let expires = self.clock.now() + ttl;
        let stored = StoredToken {
            node: request.node.clone(),
            created_by: by.to_owned(),
            expires,
        };
        let transaction = Transaction::new().put(keys::join_token(&id), document::encode(&stored));
        settle(&*self.store, transaction).await?;
        self.forget_expired_tokens().await?;
        Ok(NewToken {
            token,
            entry: entry(&id, &stored),
            ca_fingerprint: self.ca_fingerprint(),
        })
    }

    /// Returns the tokens that can still be used.
    pub async fn tokens(&self) -> Result<Vec<TokenEntry>, ServiceError> {
        let now = self.clock.now();
        let mut tokens = Vec::new();
        for kept in document::read_all(&*self.store, keys::TOKENS).await? {
            let stored: StoredToken = document::decode(&kept)?;
            if stored.expires > now {
                tokens.push(entry(&kept.key[keys::TOKENS.len()..], &stored));
            }
        }
        Ok(tokens)
    }

    /// Revokes a token, by the id that lists show.
    pub async fn revoke_token(&self, id: &str) -> Result<(), ServiceError> {
        let named: Vec<String> = document::keys_under(&*self.store, keys::TOKENS)
            .await?
            .into_iter()
            .filter(|key| id.len() >= SHORT && key[keys::TOKENS.len()..].starts_with(id))
            .collect();
        match named.as_slice() {
            [key] => {
                self.store
                    .commit(Transaction::new().delete(key.clone()))
                    .await?;
                Ok(())
            }
            _ => Err(ServiceError::NotFound {
                what: format!("token `{id}`"),
                hint: Some("list tokens with `bunraku token list`".to_owned()),
            }),
        }
    }

    pub(super) async fn usable_token(
        &self,
        id: &str,
        node: &NodeName,
    ) -> Result<KeyValue, ServiceError> {
        let Some(kept) = document::read::<StoredToken>(&*self.store, &keys::join_token(id)).await?
        else {
            return Err(refused());
        };
        let for_this_node = kept.document.node.as_ref().is_none_or(|name| name == node);
        if !for_this_node || kept.document.expires <= self.clock.now() {
            return Err(refused());
        }
        Ok(kept.entry)
    }

    async fn forget_expired_tokens(&self) -> Result<(), ServiceError> {
        let now = self.clock.now();
        for kept in document::read_all(&*self.store, keys::TOKENS).await? {
            let stored: StoredToken = document::decode(&kept)?;
            if stored.expires <= now {
                self.store
                    .commit(Transaction::new().delete(kept.key))
                    .await?;
            }
        }
        Ok(())
    }
}

fn entry(id: &str, stored: &StoredToken) -> TokenEntry {
    TokenEntry {
        id: short(id).to_owned(),
        node: stored.node.clone(),
        created_by: stored.created_by.clone(),
        expires: stored.expires,
    }
}
