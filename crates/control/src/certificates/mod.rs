//! Certificates: requests, tokens, renewals, revocations.
//!
//! The cryptography is `wire`'s. This module does the bookkeeping: it stores
//! every signed certificate as a document before the holder gets it. The
//! certificate can then be listed, sent again if a reply was lost, and revoked.
//!
//! Invariants: a name has at most one key at a time (a second request for a name
//! with a valid certificate is refused); a token is deleted in the transaction
//! that records the certificate it paid for.

mod inventory;
mod join;
mod revoke;
mod tokens;

use std::sync::Arc;

use bunraku_model::{NodeName, Role};
use bunraku_store::{SharedStore, Transaction};
use bunraku_wire::api::{
    CertificateEntry, CertificateState, IssueRequest, IssuedCertificate, RenewRequest,
};
use bunraku_wire::{Authority, Grant, Request, Revocations, SignedCertificate};
use jiff::{SignedDuration, Timestamp};

use crate::clock::Clock;
use crate::{Nodes, ServiceError};

use inventory::{Claim, StoredCertificate, claimed_meanwhile};

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
    pub async fn renew(
        &self,
        name: &NodeName,
        role: Role,
        request: &RenewRequest,
    ) -> Result<IssuedCertificate, ServiceError> {
        let request = parse_request(&request.certificate_request)?;
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
        let claim = self.claim_for_renewal(name).await?;
        let signed = self.sign_request(&request, role, &[]).await?;
        self.record_or_refuse(&signed, &request, "renewal", claim)
            .await?;
        Ok(self.issued(&signed))
    }

    /// Issues a certificate of any role, on an operator's request.
    pub async fn issue(
        &self,
        request: &IssueRequest,
        by: &str,
    ) -> Result<IssuedCertificate, ServiceError> {
        let parsed = parse_request(&request.certificate_request)?;
        let claim = self.claim(&parsed).await?;
        let signed = self
            .sign_request(&parsed, request.role, &request.server_names)
            .await?;
        self.record_or_refuse(&signed, &parsed, by, claim).await?;
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
    ) -> Result<(), ServiceError> {
        let stored = StoredCertificate::new(signed, request, by);
        match self.record(&stored, claim, Transaction::new()).await? {
            true => Ok(()),
            false => Err(claimed_meanwhile(request.name())),
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
            .map_err(|error| ServiceError::internal("signing was cut off", error))?
            .map_err(|error| {
                ServiceError::invalid(format!("the request cannot be signed: {error}"))
            })
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
