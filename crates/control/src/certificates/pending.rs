//! Certificate requests that wait for an operator.
//!
//! Anyone can send them. So they expire, several machines can ask for the same name without
//! blocking each other, and an operator signs one by its fingerprint.

use bunraku_model::NodeName;
use bunraku_store::{Compare, Swap, Transaction, compare_and_swap};
use bunraku_wire::Request;
use bunraku_wire::api::PendingRequest;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Certificates;
use crate::audit::AuditAction;
use crate::document;
use crate::{ServiceError, keys};

/// How long a request waits after it was last sent. Agents send it again and again.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// How often a repeated request is written again.
const REFRESH: SignedDuration = SignedDuration::from_hours(1);

/// The most requests for one name.
const MOST_PER_NAME: usize = 5;

/// The most requests for one name from one address, so that one machine cannot use them all.
const MOST_PER_ADDRESS: usize = 2;

/// A request as stored.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct StoredRequest {
    pub(super) pem: String,
    pub(super) fingerprint: String,
    pub(super) received: Timestamp,
    pub(super) from: String,
    /// The last time that it was sent, if that is not the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) repeated: Option<Timestamp>,
}

impl StoredRequest {
    fn is_expired(&self, now: Timestamp) -> bool {
        now.duration_since(self.repeated.unwrap_or(self.received)) > LIFETIME
    }
}

/// The requests for one name. Earlier versions stored a single one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "StoredForm", into = "Vec<StoredRequest>")]
pub(super) struct RequestsOfName(pub(super) Vec<StoredRequest>);

#[derive(Deserialize)]
#[serde(untagged)]
enum StoredForm {
    Several(Vec<StoredRequest>),
    One(StoredRequest),
}

impl From<StoredForm> for RequestsOfName {
    fn from(form: StoredForm) -> Self {
        match form {
            StoredForm::Several(requests) => Self(requests),
            StoredForm::One(request) => Self(vec![request]),
        }
    }
}

impl From<RequestsOfName> for Vec<StoredRequest> {
    fn from(requests: RequestsOfName) -> Self {
        requests.0
    }
}

impl RequestsOfName {
    fn drop_expired(&mut self, now: Timestamp) {
        self.0.retain(|request| !request.is_expired(now));
    }

    /// Adds a request beside those of other keys.
    fn add(&mut self, request: StoredRequest, name: &NodeName) -> Result<(), ServiceError> {
        let same_address = self.0.iter().filter(|known| known.from == request.from);
        if self.0.len() >= MOST_PER_NAME || same_address.count() >= MOST_PER_ADDRESS {
            return Err(ServiceError::Busy {
                message: format!("other requests for `{name}` are already pending"),
            });
        }
        self.0.push(request);
        Ok(())
    }
}

impl Certificates {
    /// Returns the pending requests, by name.
    pub async fn requests(&self) -> Result<Vec<PendingRequest>, ServiceError> {
        let now = self.clock.now();
        let mut pending = Vec::new();
        for entry in document::read_all(&*self.store, keys::REQUESTS).await? {
            let mut stored: RequestsOfName = document::decode(&entry)?;
            stored.drop_expired(now);
            let name = NodeName::new(&entry.key[keys::REQUESTS.len()..]).map_err(|error| {
                ServiceError::internal("a pending request has an invalid node name", error)
            })?;
            pending.extend(stored.0.into_iter().map(|request| PendingRequest {
                name: name.clone(),
                fingerprint: request.fingerprint,
                received: request.received,
                from: request.from,
            }));
        }
        Ok(pending)
    }

    /// Deletes requests that nobody has sent for a day.
    pub async fn expire_requests(&self) -> Result<usize, ServiceError> {
        let now = self.clock.now();
        let mut deleted = 0;
        for entry in document::read_all(&*self.store, keys::REQUESTS).await? {
            let mut stored: RequestsOfName = document::decode(&entry)?;
            let before = stored.0.len();
            stored.drop_expired(now);
            if stored.0.len() == before {
                continue;
            }
            let unchanged = Compare::Modified(entry.key.clone(), entry.modified);
            let transaction = Transaction::new().when(unchanged);
            let transaction = if stored.0.is_empty() {
                transaction.delete(entry.key)
            } else {
                transaction.put(entry.key, document::encode(&stored))
            };
            // If a request arrived in the meantime, the next turn deletes the old one.
            self.store.commit(transaction).await?;
            deleted += before - stored.0.len();
        }
        Ok(deleted)
    }

    /// Keeps a request until an operator decides.
    pub(super) async fn queue(&self, request: &Request, from: &str) -> Result<(), ServiceError> {
        let (name, key) = (request.name(), keys::certificate_request(request.name()));
        let (fingerprint, key) = (request.fingerprint().to_string(), &key);
        let (pem, fingerprint) = (request.to_pem(), &fingerprint);
        let is_new = compare_and_swap(&*self.store, |_| {
            let pem = pem.clone();
            async move {
                let now = self.clock.now();
                let known = document::read::<RequestsOfName>(&*self.store, key).await?;
                let entry = known.as_ref().map(|known| known.entry.clone());
                let mut requests = known.map(|known| known.document).unwrap_or_default();
                requests.drop_expired(now);
                let same = |request: &&mut StoredRequest| request.fingerprint == *fingerprint;
                let mut is_new = false;
                match requests.0.iter_mut().find(same) {
                    Some(same) => {
                        let last = same.repeated.unwrap_or(same.received);
                        if now.duration_since(last) < REFRESH {
                            return Ok(Swap::Done(false));
                        }
                        same.repeated = Some(now);
                    }
                    None => {
                        if entry.is_none() {
                            self.check_room().await?;
                        }
                        let stored = StoredRequest {
                            pem,
                            fingerprint: fingerprint.clone(),
                            received: now,
                            from: from.to_owned(),
                            repeated: None,
                        };
                        requests.add(stored, name)?;
                        is_new = true;
                    }
                }
                let transaction = Transaction::new()
                    .when_unchanged(key, entry.as_ref())
                    .put(key.clone(), document::encode(&requests));
                let transaction = if is_new {
                    let action = AuditAction::new("request-certificate")
                        .on("certificate", name)
                        .detail("fingerprint", fingerprint.clone());
                    self.audit.record_in(transaction, action)
                } else {
                    transaction
                };
                Ok::<_, ServiceError>(Swap::Write(transaction, is_new))
            }
        });
        if is_new.await? {
            tracing::info!(%name, from, "a request waits for an operator");
        }
        Ok(())
    }

    /// Refuses a new name while too many requests wait.
    async fn check_room(&self) -> Result<(), ServiceError> {
        let count = async || -> Result<usize, ServiceError> {
            let keys = document::keys_under(&*self.store, keys::REQUESTS).await?;
            Ok(keys.len())
        };
        let mut waiting = count().await?;
        if waiting >= self.options.most_waiting && self.expire_requests().await? > 0 {
            waiting = count().await?;
        }
        if waiting >= self.options.most_waiting {
            return Err(ServiceError::Busy {
                message: format!("{waiting} requests are already waiting for an operator"),
            });
        }
        Ok(())
    }

    /// Returns the requests for a name.
    pub(super) async fn waiting(
        &self,
        name: &NodeName,
    ) -> Result<document::Versioned<RequestsOfName>, ServiceError> {
        let found = document::read(&*self.store, &keys::certificate_request(name)).await?;
        let found = found.map(|mut found: document::Versioned<RequestsOfName>| {
            found.document.drop_expired(self.clock.now());
            found
        });
        found
            .filter(|found| !found.document.0.is_empty())
            .ok_or_else(|| ServiceError::NotFound {
                what: format!("a request of `{name}`"),
                hint: Some("list the pending requests with `bunraku cert requests`".to_owned()),
            })
    }
}
