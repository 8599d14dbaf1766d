//! The first certificate of a machine that has none.

use std::collections::BTreeSet;
use std::time::Duration;

use bunraku_model::{ContentId, NodeName, Role};
use bunraku_store::{Compare, Transaction, WatchStart};
use bunraku_wire::api::{JoinReply, JoinRequest, SignRequest};
use bunraku_wire::{PeerIdentity, Request};
use futures::StreamExt;

use super::inventory::{Claim, StoredCertificate};
use super::pending::StoredRequest;
use super::signing::WantedContents;
use super::{Certificates, parse_request, tokens};
use crate::{ServiceError, keys};

/// The longest time that the server holds an answer back.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

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

    /// Signs a pending request.
    pub async fn sign(
        &self,
        name: &NodeName,
        sign: &SignRequest,
        operator: &PeerIdentity,
    ) -> Result<(), ServiceError> {
        let standing = self.validity(operator).await?;
        let waiting = self.waiting(name).await?;
        let requests = &waiting.document.0;
        let wanted = |request: &&StoredRequest| request.fingerprint == sign.fingerprint;
        let Some(wanted) = requests.iter().find(wanted) else {
            let known: Vec<&str> = requests.iter().map(|one| &*one.fingerprint).collect();
            return Err(ServiceError::conflict(
                format!(
                    "no request of `{name}` has this fingerprint, but {}",
                    known.join(", ")
                ),
                "compare it with the one that the node printed; if they differ, reject it with `bunraku cert reject`",
            ));
        };
        let request = parse_request(&wanted.pem)?;
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
        let wanted = WantedContents {
            role: Role::Node,
            server_names: &[],
            groups: &BTreeSet::new(),
        };
        let signed = self.sign_request(request, wanted, None).await?;
        let issuer = self.issuer_of(&signed.pem);
        let stored = StoredCertificate::new(&signed, request, by, issuer);
        self.nodes.register(request.name()).await?;
        Ok(self
            .record(&stored, claim, paid_with)
            .await?
            .then_some(stored))
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
