//! Certificates: requests, tokens, renewals, revocations.
//!
//! The cryptography is `wire`'s. This module does the bookkeeping: it stores
//! every signed certificate as a document before the holder gets it. The
//! certificate can then be listed, sent again if a reply was lost, and revoked.
//!
//! Invariants: a name has at most one key at a time (a second request for a name
//! with a valid certificate is refused); a token is deleted in the transaction
//! that records the certificate it paid for; nothing is signed on the strength of
//! a certificate that was revoked before the signature was recorded (see
//! [`validity`]).

mod expired;
mod inventory;
mod join;
mod pending;
mod restored;
mod revoke;
mod rotation;
mod rotation_end;
mod signing;
#[cfg(test)]
mod tests;
mod tokens;
mod validity;

use bunraku_model::{ContentId, NodeName, Role};
use bunraku_signer::{AuthorityDescription, RefusalKind, SignerError, SignerHandle};
use bunraku_store::{SharedStore, Transaction};
use bunraku_wire::api::cluster::AuthorityFiles;
use bunraku_wire::api::{
    CertificateEntry, CertificateState, IssueRequest, IssuedCertificate, RenewRequest,
};
use bunraku_wire::certificate::earliest_renewal;
use bunraku_wire::{PeerIdentity, Request, Revocations, SignedCertificate};
use jiff::{SignedDuration, Timestamp};

use crate::audit::ServiceAudit;
use crate::clock::Clock;
use crate::epoch::Epoch;
use crate::{Nodes, ServiceError};

use inventory::{Claim, StoredCertificate, claimed_meanwhile};
use revoke::SignedLists;
use signing::{KnownAuthority, WantedContents};

/// The most valid certificates that a name may have for a renewal to add another.
const MOST_VALID: usize = 4;

/// The signer of the certificates that a server issues for itself.
const THIS_SERVER: &str = "this server";

/// The party on whose behalf a certificate is issued.
#[derive(Clone, Copy, Debug)]
pub enum Signer<'a> {
    ThisServer,
    Operator(&'a PeerIdentity),
}

/// The lifetimes of certificates and the limit on pending requests.
#[derive(Clone, Debug)]
pub struct CertificateOptions {
    pub node_lifetime: SignedDuration,
    pub operator_lifetime: SignedDuration,
    pub server_lifetime: SignedDuration,
    /// The most requests that may wait for an operator. Anyone can send them.
    pub most_waiting: usize,
    /// The name of this server.
    pub server_name: String,
}

impl Default for CertificateOptions {
    fn default() -> Self {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        Self {
            node_lifetime: days(365),
            operator_lifetime: days(90),
            server_lifetime: days(14),
            most_waiting: 10_000,
            server_name: "server".to_owned(),
        }
    }
}

/// The handle on the certificate service.
#[derive(Clone)]
pub struct Certificates {
    store: SharedStore,
    clock: Clock,
    signer: SignerHandle,
    authority: KnownAuthority,
    /// The last signed revocation lists.
    lists: SignedLists,
    epoch: Epoch,
    revocations: Revocations,
    nodes: Nodes,
    audit: ServiceAudit,
    options: CertificateOptions,
}

impl Certificates {
    /// Creates the handle. `described` is what the signer said about its CA.
    pub fn new(
        store: SharedStore,
        clock: Clock,
        (signer, described): (SignerHandle, AuthorityDescription),
        revocations: Revocations,
        nodes: Nodes,
        options: CertificateOptions,
    ) -> Self {
        Self {
            store,
            clock,
            signer,
            authority: KnownAuthority::new(described),
            lists: SignedLists::default(),
            epoch: Epoch::default(),
            revocations,
            nodes,
            audit: ServiceAudit::default(),
            options,
        }
    }

    /// Works in this epoch of the data.
    #[must_use]
    pub fn in_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
    }

    /// Records changes in this audit log.
    #[must_use]
    pub fn with_audit(mut self, audit: impl Into<ServiceAudit>) -> Self {
        self.audit = audit.into();
        self
    }

    /// Returns the CA with its key for a server that joins the cluster, or `None` if that
    /// server has to reach the CA in its own way: a Puppet CA, or a signer that does not share.
    pub async fn export_authority(&self) -> Result<Option<AuthorityFiles>, ServiceError> {
        if self.authority.is_puppet() {
            return Ok(None);
        }
        match self.signer.export().await {
            Ok(files) => Ok(Some(files)),
            Err(SignerError::Refused(refusal)) if refusal.kind == RefusalKind::Forbidden => {
                Ok(None)
            }
            Err(error) => Err(signing::failed(error)),
        }
    }

    /// The fingerprint that a node pins before its first contact.
    pub fn ca_fingerprint(&self) -> String {
        let fingerprint = self.authority.fingerprint();
        fingerprint.map_or_else(String::new, |it| it.to_string())
    }

    /// Registers a node that the authority knows but this service does not: one
    /// whose certificate Puppet signed. With our own authority, every node is
    /// registered when its certificate is signed, and an unregistered node was
    /// removed.
    pub async fn admit(&self, node: &NodeName) -> Result<(), ServiceError> {
        if self.authority.is_puppet() {
            self.nodes.register(node).await?;
        }
        Ok(())
    }

    /// The authority's certificates.
    pub fn authority_pem(&self) -> String {
        self.authority.trusted_pem()
    }

    /// Issues the next certificate to the holder of one: same name, same role, same groups.
    ///
    /// A certificate can be renewed from the middle of its lifetime on, and only
    /// while its name has few valid certificates, so that a stolen key does not
    /// multiply. Repeating a renewal whose reply was lost returns its certificate.
    pub async fn renew(
        &self,
        holder: &PeerIdentity,
        request: &RenewRequest,
    ) -> Result<IssuedCertificate, ServiceError> {
        let proof = request.proof.as_ref();
        let request = parse_request(&request.certificate_request)?;
        let name = &holder.name;
        if request.name() != name {
            return Err(ServiceError::Forbidden {
                message: format!(
                    "`{name}` cannot renew a certificate for `{}`",
                    request.name()
                ),
                hint: None,
            });
        }
        // A renewal may bring a new key: the current certificate is sufficient proof.
        let (claim, standing) = self.validity_with_claim(holder).await?;
        if let Some(stored) = self.renewed_already(holder, &request).await? {
            return Ok(IssuedCertificate {
                certificate: stored.pem,
                ca: self.authority_pem(),
            });
        }
        let wanted = WantedContents {
            role: holder.role,
            server_names: &[],
            groups: &holder.groups,
        };
        let signed = self.sign_request(&request, wanted, proof).await?;
        self.record_or_refuse(&signed, &request, "renewal", claim, standing)
            .await?;
        Ok(self.issued(&signed))
    }

    /// Returns the certificate that an earlier renewal with this key yielded, if it
    /// is new. Refuses a renewal that comes too early or one too many.
    async fn renewed_already(
        &self,
        holder: &PeerIdentity,
        request: &Request,
    ) -> Result<Option<StoredCertificate>, ServiceError> {
        let now = self.clock.now();
        let wanted = self.wanted_issuer();
        let known = self.certificates_of(&holder.name).await?;
        // While the CA is replaced, a certificate of the other CA is renewed at any age.
        let is_of_wanted = |stored: &StoredCertificate| match &wanted {
            None => true,
            Some(wanted) => stored.issuer().as_ref() == Some(wanted),
        };
        let is_replaced = known
            .iter()
            .any(|stored| stored.serial == holder.serial && !is_of_wanted(stored));
        let from = earliest_renewal(holder.not_before, holder.not_after);
        if now < from && !is_replaced {
            return Err(ServiceError::conflict(
                format!("the certificate of `{}` is too new to renew", holder.name),
                format!("renew it after {from}"),
            ));
        }
        let key = ContentId::of(request.public_key_info());
        let valid: Vec<_> = known
            .into_iter()
            .filter(|stored| stored.is_valid(now) && is_of_wanted(stored))
            .collect();
        let count = valid.len();
        let newest = valid
            .into_iter()
            .filter(|stored| stored.key == key && stored.serial != holder.serial)
            // A renewal never changes the groups.
            .filter(|stored| stored.groups == holder.groups)
            .filter(|stored| now < earliest_renewal(stored.not_before, stored.not_after))
            .max_by_key(|stored| stored.not_after);
        if newest.is_none() && count >= MOST_VALID {
            return Err(ServiceError::conflict(
                format!("`{}` already has {count} valid certificates", holder.name),
                format!(
                    "revoke those that are not in use, by their serial numbers: `bunraku cert revoke {} --serial`",
                    holder.name
                ),
            ));
        }
        Ok(newest)
    }

    /// Issues a certificate of any role, on an operator's request.
    pub async fn issue(
        &self,
        request: &IssueRequest,
        signer: Signer<'_>,
    ) -> Result<IssuedCertificate, ServiceError> {
        let parsed = parse_request(&request.certificate_request)?;
        let (by, standing) = match signer {
            Signer::ThisServer => (THIS_SERVER, Transaction::new()),
            Signer::Operator(operator) => (operator.name.as_str(), self.validity(operator).await?),
        };
        let claim = self.claim(&parsed).await?;
        let wanted = WantedContents {
            role: request.role,
            server_names: &request.server_names,
            groups: &request.groups,
        };
        let signed = self
            .sign_request(&parsed, wanted, request.proof.as_ref())
            .await?;
        self.record_or_refuse(&signed, &parsed, by, claim, standing)
            .await?;
        if request.role == Role::Node {
            self.nodes.register(parsed.name()).await?;
        }
        Ok(self.issued(&signed))
    }

    async fn record_or_refuse(
        &self,
        signed: &SignedCertificate,
        request: &Request,
        by: &str,
        claim: Claim,
        standing: Transaction,
    ) -> Result<(), ServiceError> {
        let issuer = self.issuer_of(&signed.pem);
        let stored = StoredCertificate::new(signed, request, by, issuer);
        if self.record(&stored, claim, standing).await? {
            Ok(())
        } else {
            Err(claimed_meanwhile(request.name()))
        }
    }

    fn issued(&self, signed: &SignedCertificate) -> IssuedCertificate {
        IssuedCertificate {
            certificate: signed.pem.clone(),
            ca: self.authority_pem(),
        }
    }
}

fn parse_request(pem: &str) -> Result<Request, ServiceError> {
    Request::from_pem(pem).map_err(|error| {
        ServiceError::invalid(format!("the certificate request is refused: {error}"))
    })
}

/// The list entry of a certificate.
fn entry(stored: &StoredCertificate, now: Timestamp) -> CertificateEntry {
    let state = match &stored.revoked {
        Some(revoked) => CertificateState::Revoked {
            since: revoked.since,
            reason: revoked.reason.clone(),
            by: revoked.by.clone(),
        },
        None if stored.not_after <= now => CertificateState::Expired,
        None => CertificateState::Valid,
    };
    CertificateEntry {
        serial: stored.serial.to_string(),
        name: stored.name.clone(),
        role: stored.role,
        groups: stored.groups.clone(),
        fingerprint: stored.fingerprint.to_string(),
        not_before: stored.not_before,
        not_after: stored.not_after,
        signed_by: stored.signed_by.clone(),
        state,
    }
}
