//! Asks the signer. This process never has the CA key.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use bunraku_model::Role;
use bunraku_model::access::GroupName;
use bunraku_signer::{AuthorityDescription, RefusalKind, SignAsk, SignerError};
use bunraku_wire::{Fingerprint, OperatorProof, Request, SignedCertificate};

use super::Certificates;
use super::rotation::Rotation;
use crate::ServiceError;

/// The CA as this server knows it. Cloning shares it.
#[derive(Clone)]
pub(super) struct KnownAuthority {
    known: Arc<RwLock<(AuthorityDescription, Option<Rotation>)>>,
}

impl KnownAuthority {
    pub(super) fn new(description: AuthorityDescription) -> Self {
        Self {
            known: Arc::new(RwLock::new((description, None))),
        }
    }

    /// Returns the CA, and the rotation that this server knows of.
    pub(super) fn both(&self) -> (AuthorityDescription, Option<Rotation>) {
        self.known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn description(&self) -> AuthorityDescription {
        self.both().0
    }

    /// Replaces what is known. Returns `true` if the trusted CAs or the wanted one changed.
    pub(super) fn replace(
        &self,
        description: AuthorityDescription,
        rotation: Option<Rotation>,
    ) -> bool {
        // It is encrypted again each time, and of no use here.
        let description = AuthorityDescription {
            sealed_next: None,
            ..description
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let phase = |rotation: &Option<Rotation>| rotation.as_ref().map(|it| it.phase);
        let is_changed = known.0 != description || phase(&known.1) != phase(&rotation);
        *known = (description, rotation);
        is_changed
    }

    /// Returns all trusted CAs in PEM, the current one first.
    pub(super) fn trusted_pem(&self) -> String {
        let (description, rotation) = self.both();
        let mut pem = description.certificates;
        if let Some(rotation) = rotation.filter(Rotation::is_running) {
            pem.push_str(&rotation.new_certificates);
        }
        pem
    }

    pub(super) fn is_puppet(&self) -> bool {
        self.description().is_puppet
    }

    /// Returns the fingerprint of the topmost certificate, which people pin.
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        let chain =
            bunraku_wire::certificate::chain_from_pem(&self.description().certificates).ok()?;
        chain.last().map(|der| Fingerprint::of(der))
    }
}

/// The contents of a certificate, besides its name and key.
#[derive(Clone, Copy)]
pub(super) struct WantedContents<'a> {
    pub(super) role: Role,
    pub(super) server_names: &'a [String],
    pub(super) groups: &'a BTreeSet<GroupName>,
}

impl Certificates {
    /// Signs a request. The signer decides whether it may.
    pub(super) async fn sign_request(
        &self,
        request: &Request,
        wanted: WantedContents<'_>,
        proof: Option<&OperatorProof>,
    ) -> Result<SignedCertificate, ServiceError> {
        let WantedContents {
            role,
            server_names,
            groups,
        } = wanted;
        let lifetime = match role {
            Role::Node => self.options.node_lifetime,
            Role::Operator => self.options.operator_lifetime,
            Role::Server => self.options.server_lifetime,
        };
        let ask = SignAsk {
            certificate_request: request.to_pem(),
            role,
            lifetime_seconds: lifetime.as_secs(),
            server_names: server_names.to_vec(),
            groups: groups.clone(),
            proof: proof.cloned(),
            issuer: self.issuer_for(role),
        };
        let signed = self.signer.sign(ask, self.clock.now()).await;
        let signed = signed.map_err(failed)?;
        // A signer of an earlier version does not know groups. Without them, the holder could be
        // an administrator.
        if signed.groups != *groups || signed.role != role {
            return Err(ServiceError::Unavailable {
                message: "the signer did not put the groups into the certificate; the certificate was discarded".to_owned(),
                hint: "update the signer".to_owned(),
            });
        }
        Ok(signed)
    }
}

/// Explains to a client that the signer did not sign.
pub(super) fn failed(error: SignerError) -> ServiceError {
    match error {
        SignerError::Away { .. } => {
            tracing::error!(error = %error, "the signer is away");
            ServiceError::Unavailable {
                message: format!("{error}: nothing was signed"),
                hint: "everything else works; try again when the signer runs".to_owned(),
            }
        }
        SignerError::Refused(refusal) => match refusal.kind {
            RefusalKind::Invalid => ServiceError::Invalid {
                message: refusal.message,
                hint: refusal.hint,
            },
            RefusalKind::Forbidden => ServiceError::Forbidden {
                message: format!("the signer refused: {}", refusal.message),
                hint: refusal.hint,
            },
            RefusalKind::Busy => ServiceError::Busy {
                message: refusal.message,
            },
            RefusalKind::Failed => ServiceError::internal("the signer failed", refusal),
        },
        error => ServiceError::internal("the signer failed", error),
    }
}
