//! The first certificate of a machine that has none.

use std::time::Duration;

use bunraku_model::{ContentId, NodeName, Role};
use bunraku_store::{Compare, Settled, Transaction, WatchStart, settle};
use bunraku_wire::api::{JoinReply, JoinRequest, PendingRequest, SignRequest};
use bunraku_wire::{PeerIdentity, Request};
use futures::StreamExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::inventory::{Claim, StoredCertificate};
use super::{Certificates, parse_request, tokens};
use crate::document;
use crate::{ServiceError, keys};

/// The longest time that the server holds an answer back.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A request as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredRequest {
    pem: String,
    fingerprint: String,
    received: Timestamp,
    from: String,
}

impl Certificates {
    /// Signs the request if it has a token, and queues it otherwise. Repeating a
    /// request returns the same answer, so a lost reply does no harm.
    pub async fn join(&self, join: &JoinRequest, from: &str) -> Result<JoinReply, ServiceError> {
        let request = parse_request(&join.certificate_request)?;
        if let Some(signed) = self.already_signed(&request).await? {
            return Ok(signed);
        }
        let claim = self.claim(&request).await?;
        if let Some(token) = &join.token {
            return self.join_with_token(&request, token, claim).await;
        }
        self.queue(&request, from).await?;
        let most = Duration::from_secs(join.wait_seconds).min(LONGEST_WAIT);
        self.wait_until_signed(&request, most).await
    }

    /// Returns the pending requests, by name.
    pub async fn requests(&self) -> Result<Vec<PendingRequest>, ServiceError> {
        let entries = document::read_all(&*self.store, keys::REQUESTS).await?;
        let pending = entries.iter().map(|entry| {
            let stored: StoredRequest = document::decode(entry)?;
            let name = NodeName::new(&entry.key[keys::REQUESTS.len()..]).map_err(|error| {
                ServiceError::internal("a pending request has an invalid node name", error)
            })?;
            Ok(PendingRequest {
                name,
                fingerprint: stored.fingerprint,
                received: stored.received,
                from: stored.from,
            })
        });
        pending.collect()
    }

    /// Signs a pending request.
    pub async fn sign(
        &self,
        name: &NodeName,
        sign: &SignRequest,
        operator: &PeerIdentity,
    ) -> Result<(), ServiceError> {
        let standing = self.validity(operator).await?;
        let waiting = self.waiting(name).await?;
        if let Some(expected) = &sign.fingerprint
            && *expected != waiting.document.fingerprint
        {
            return Err(ServiceError::conflict(
                format!(
                    "the request of `{name}` has the fingerprint {}",
                    waiting.document.fingerprint
                ),
                "compare it with the one that the node printed; if they differ, reject it with `bunraku cert reject`",
            ));
        }
        let request = parse_request(&waiting.document.pem)?;
        let claim = self.claim(&request).await?;
        let paid_with = standing
            .when(Compare::Modified(
                waiting.entry.key.clone(),
                waiting.entry.modified,
            ))
            .delete(waiting.entry.key.clone());
        match self
            .sign_and_commit(&request, operator.name.as_str(), claim, paid_with)
            .await?
        {
            Some(_) => Ok(()),
            None => Err(ServiceError::conflict(
                format!("the request of `{name}` changed in the meantime"),
                "review it with `bunraku cert requests`",
            )),
        }
    }

    /// Deletes a pending request.
    pub async fn reject(&self, name: &NodeName) -> Result<(), ServiceError> {
        let waiting = self.waiting(name).await?;
        self.store
            .commit(Transaction::new().delete(waiting.entry.key))
            .await?;
        Ok(())
    }

    async fn waiting(
        &self,
        name: &NodeName,
    ) -> Result<document::Versioned<StoredRequest>, ServiceError> {
        document::read(&*self.store, &keys::certificate_request(name))
            .await?
            .ok_or_else(|| ServiceError::NotFound {
                what: format!("a request of `{name}`"),
                hint: Some("list the pending requests with `bunraku cert requests`".to_owned()),
            })
    }

    async fn already_signed(&self, request: &Request) -> Result<Option<JoinReply>, ServiceError> {
        let now = self.clock.now();
        let key = ContentId::of(request.public_key_info());
        let known = self.certificates_of(request.name()).await?;
        let newest = known
            .into_iter()
            .filter(|stored| stored.key == key && stored.is_valid(now) && stored.role == Role::Node)
            .filter(|stored| self.is_trusted(stored))
            .max_by_key(|stored| stored.not_after);
        Ok(newest.map(|stored| self.signed_reply(stored.pem)))
    }

    fn signed_reply(&self, certificate: String) -> JoinReply {
        JoinReply::Signed {
            certificate,
            ca: self.authority_pem(),
        }
    }

    async fn join_with_token(
        &self,
        request: &Request,
        token: &str,
        claim: Claim,
    ) -> Result<JoinReply, ServiceError> {
        let id = tokens::id_of(token);
        let entry = self.usable_token(&id, request.name()).await?;
        let paid_with = Transaction::new()
            .when(Compare::Modified(entry.key.clone(), entry.modified))
            .delete(entry.key)
            .delete(keys::certificate_request(request.name()));
        match self
            .sign_and_commit(
                request,
                &format!("token {}", tokens::short(&id)),
                claim,
                paid_with,
            )
            .await?
        {
            Some(stored) => Ok(self.signed_reply(stored.pem)),
            None => Err(tokens::refused()),
        }
    }

    /// Signs, and records the certificate in the transaction that deletes the
    /// token or request that allowed it.
    async fn sign_and_commit(
        &self,
        request: &Request,
        by: &str,
        claim: Claim,
        paid_with: Transaction,
    ) -> Result<Option<StoredCertificate>, ServiceError> {
        let signed = self.sign_request(request, Role::Node, &[], None).await?;
        let issuer = self.issuer_of(&signed.pem);
        let stored = StoredCertificate::new(&signed, request, by, issuer);
        self.nodes.register(request.name()).await?;
        Ok(self
            .record(&stored, claim, paid_with)
            .await?
            .then_some(stored))
    }

    async fn queue(&self, request: &Request, from: &str) -> Result<(), ServiceError> {
        let key = keys::certificate_request(request.name());
        let fingerprint = request.fingerprint().to_string();
        let known = document::read::<StoredRequest>(&*self.store, &key).await?;
        if let Some(known) = known {
            return same_request(&known.document, &fingerprint, request.name());
        }
        let waiting = document::keys_under(&*self.store, keys::REQUESTS)
            .await?
            .len();
        if waiting >= self.options.most_waiting {
            return Err(ServiceError::Busy {
                message: format!("{waiting} requests are already waiting for an operator"),
            });
        }
        let received = self.clock.now();
        let stored = StoredRequest {
            pem: request.to_pem(),
            fingerprint,
            received,
            from: from.to_owned(),
        };
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key.clone(), document::encode(&stored))
            .read_on_failure(key);
        match settle(&*self.store, transaction).await? {
            Settled::Committed => {
                tracing::info!(name = %request.name(), from, "a request waits for an operator");
                Ok(())
            }
            Settled::Refused(reads) => match reads.into_iter().flatten().next() {
                Some(entry) => same_request(
                    &document::decode(&entry)?,
                    &stored.fingerprint,
                    request.name(),
                ),
                None => Ok(()),
            },
        }
    }

    async fn wait_until_signed(
        &self,
        request: &Request,
        most: Duration,
    ) -> Result<JoinReply, ServiceError> {
        let waiting = || JoinReply::Waiting {
            fingerprint: request.fingerprint().to_string(),
        };
        let signed = async {
            let mut changes = self
                .store
                .watch(&keys::certificates_of(request.name()), WatchStart::Now)
                .await?;
            loop {
                if let Some(reply) = self.already_signed(request).await? {
                    return Ok(reply);
                }
                match changes.next().await {
                    Some(batch) => drop(batch?),
                    None => return Ok(waiting()),
                }
            }
        };
        match tokio::time::timeout(most, signed).await {
            Ok(reply) => reply,
            Err(_) => Ok(waiting()),
        }
    }
}

fn same_request(
    known: &StoredRequest,
    fingerprint: &str,
    name: &NodeName,
) -> Result<(), ServiceError> {
    if known.fingerprint == fingerprint {
        return Ok(());
    }
    Err(ServiceError::conflict(
        format!("another request for `{name}` is already pending"),
        format!(
            "ask an operator to compare its fingerprint, and to run `bunraku cert reject {name}` if it is not the node's"
        ),
    ))
}
