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

mod inventory;
mod join;
mod revoke;
#[cfg(test)]
mod tests;
mod tokens;
mod validity;

use std::sync::Arc;

use bunraku_model::{ContentId, NodeName, Role};
use bunraku_store::{SharedStore, Transaction};
use bunraku_wire::api::{
    CertificateEntry, CertificateState, IssueRequest, IssuedCertificate, RenewRequest,
};
use bunraku_wire::certificate::earliest_renewal;
use bunraku_wire::{Authority, Grant, PeerIdentity, Request, Revocations, SignedCertificate};
use jiff::{SignedDuration, Timestamp};

use crate::clock::Clock;
use crate::{Nodes, ServiceError};

use inventory::{Claim, StoredCertificate, claimed_meanwhile};

/// The most valid certificates that a name may have for a renewal to add another.
const MOST_VALID: usize = 4;

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
}

impl Default for CertificateOptions {
    fn default() -> Self {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        Self {
            node_lifetime: days(365),
            operator_lifetime: days(365),
            server_lifetime: days(90),
            most_waiting: 10_000,
        }
    }
}

/// The handle on the certificate service.
#[derive(Clone)]
pub struct Certificates {
    store: SharedStore,
    clock: Clock,
    authority: Arc<Authority>,
    revocations: Revocations,
    nodes: Nodes,
    options: CertificateOptions,
}

impl Certificates {
    pub fn new(
        store: SharedStore,
        clock: Clock,
        authority: Arc<Authority>,
        revocations: Revocations,
        nodes: Nodes,
        options: CertificateOptions,
    ) -> Self {
        Self {
            store,
            clock,
            authority,
            revocations,
            nodes,
            options,
        }
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The fingerprint that a node pins before its first contact.
    pub fn ca_fingerprint(&self) -> String {
        self.authority.fingerprint().to_string()
    }

    /// Registers a node that the authority knows but this service does not: one
    /// whose certificate Puppet signed. With our own authority, every node is
    /// registered when its certificate is signed, and an unregistered node was
    /// removed.
    pub async fn admit(&self, node: &NodeName) -> Result<(), ServiceError> {
        match self.authority.puppet_directory() {
            None => Ok(()),
            Some(_) => self.nodes.register(node).await,
        }
    }

    /// The authority's certificates.
    pub fn authority_pem(&self) -> String {
        self.authority.certificates_pem()
    }

    /// Issues the next certificate to the holder of one: same name, same role.
    ///
    /// A certificate can be renewed from the middle of its lifetime on, and only
    /// while its name has few valid certificates, so that a stolen key does not
    /// multiply. Repeating a renewal whose reply was lost returns its certificate.
    pub async fn renew(
        &self,
        holder: &PeerIdentity,
        request: &RenewRequest,
    ) -> Result<IssuedCertificate, ServiceError> {
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
                ca: self.authority.certificates_pem(),
            });
        }
        let signed = self.sign_request(&request, holder.role, &[]).await?;
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
        let from = earliest_renewal(holder.not_before, holder.not_after);
        if now < from {
            return Err(ServiceError::conflict(
                format!("the certificate of `{}` is too new to renew", holder.name),
                format!("renew it after {from}"),
            ));
        }
        let key = ContentId::of(request.public_key_info());
        let known = self.certificates_of(&holder.name).await?;
        let valid: Vec<_> = known
            .into_iter()
            .filter(|stored| stored.is_valid(now))
            .collect();
        let count = valid.len();
        let newest = valid
            .into_iter()
            .filter(|stored| stored.key == key && stored.serial != holder.serial)
            .filter(|stored| now < earliest_renewal(stored.not_before, stored.not_after))
            .max_by_key(|stored| stored.not_after);
        if newest.is_none() && count >= MOST_VALID {
            return Err(ServiceError::conflict(
                format!("`{}` already has {count} valid certificates", holder.name),
                format!(
                    "revoke those that are not in use: `bunraku cert revoke {} --serial SERIAL --reason REASON`",
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
            Signer::ThisServer => ("this server", Transaction::new()),
            Signer::Operator(operator) => (operator.name.as_str(), self.validity(operator).await?),
        };
        let claim = self.claim(&parsed).await?;
        let signed = self
            .sign_request(&parsed, request.role, &request.server_names)
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
        let stored = StoredCertificate::new(signed, request, by);
        if self.record(&stored, claim, standing).await? {
            Ok(())
        } else {
            Err(claimed_meanwhile(request.name()))
        }
    }

    /// Signs a request, away from the threads that serve connections: signing
    /// takes milliseconds of CPU time and, with a Puppet directory, a file lock.
    async fn sign_request(
        &self,
        request: &Request,
        role: Role,
        server_names: &[String],
    ) -> Result<SignedCertificate, ServiceError> {
        let (ip_addresses, dns_names) = split_server_names(server_names);
        let lifetime = match role {
            Role::Node => self.options.node_lifetime,
            Role::Operator => self.options.operator_lifetime,
            Role::Server => self.options.server_lifetime,
        };
        let grant = Grant {
            name: request.name().clone(),
            role,
            lifetime,
            dns_names,
            ip_addresses,
            serial: None,
        };
        let (authority, request, now) = (
            Arc::clone(&self.authority),
            request.clone(),
            self.clock.now(),
        );
        let signed =
            tokio::task::spawn_blocking(move || authority.sign(&request, &grant, now)).await;
        signed
            .map_err(|error| ServiceError::internal("signing was interrupted", error))?
            .map_err(|error| ServiceError::invalid(format!("cannot sign the request: {error}")))
    }

    fn issued(&self, signed: &SignedCertificate) -> IssuedCertificate {
        IssuedCertificate {
            certificate: signed.pem.clone(),
            ca: self.authority.certificates_pem(),
        }
    }
}

/// Splits server names into addresses and host names. A name that parses as an address is one.
fn split_server_names(names: &[String]) -> (Vec<std::net::IpAddr>, Vec<String>) {
    let mut addresses = Vec::new();
    let mut dns_names = Vec::new();
    for name in names {
        match name.parse() {
            Ok(address) => addresses.push(address),
            Err(_) => dns_names.push(name.clone()),
        }
    }
    (addresses, dns_names)
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
        fingerprint: stored.fingerprint.to_string(),
        not_before: stored.not_before,
        not_after: stored.not_after,
        signed_by: stored.signed_by.clone(),
        state,
    }
}
