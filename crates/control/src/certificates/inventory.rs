//! The inventory of all signed certificates.

use std::collections::BTreeSet;

use bunraku_model::access::GroupName;
use bunraku_model::{ContentId, NodeName, Role};
use bunraku_store::{KeyValue, Transaction, settle};
use bunraku_wire::api::{CertificateEntry, Page, PageQuery, page};
use bunraku_wire::{Fingerprint, PeerIdentity, Request, Serial, SignedCertificate};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Certificates, entry};
use crate::access::OperatorIdentity;
use crate::audit::AuditAction;
use crate::document;
use crate::{ServiceError, keys, pages};

/// A certificate as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredCertificate {
    pub name: NodeName,
    pub role: Role,
    /// The groups of an operator.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<GroupName>,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    /// The hash of the public key. It tells whether a request comes from the same holder.
    pub key: ContentId,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub signed_by: String,
    pub pem: String,
    /// The fingerprint of the CA certificate that signed it. Absent in entries of servers that
    /// knew only one CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
}

/// The time, reason and author of a revocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Revocation {
    pub since: Timestamp,
    pub reason: String,
    pub by: String,
}

impl StoredCertificate {
    pub(super) fn new(
        signed: &SignedCertificate,
        request: &Request,
        by: &str,
        issuer: Option<String>,
    ) -> Self {
        Self {
            name: signed.name.clone(),
            role: signed.role,
            groups: signed.groups.clone(),
            serial: signed.serial.clone(),
            fingerprint: signed.fingerprint,
            key: ContentId::of(request.public_key_info()),
            not_before: signed.not_before,
            not_after: signed.not_after,
            signed_by: by.to_owned(),
            pem: signed.pem.clone(),
            issuer,
            revoked: None,
        }
    }

    /// Returns the fingerprint of the CA certificate that signed it, if it is known.
    pub(super) fn issuer(&self) -> Option<String> {
        self.issuer.clone()
    }

    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.not_after > now
    }

    pub(super) fn store_key(&self) -> String {
        keys::certificate(&self.name, &self.serial.to_string())
    }
}

impl Certificates {
    /// Returns all certificates, by name, oldest first.
    pub async fn list(&self) -> Result<Vec<CertificateEntry>, ServiceError> {
        let now = self.clock.now();
        let mut stored = self.stored_under(keys::CERTIFICATES).await?;
        stored.sort_by(|one, other| {
            (&one.name, one.not_before).cmp(&(&other.name, other.not_before))
        });
        Ok(stored.iter().map(|stored| entry(stored, now)).collect())
    }

    /// Deletes certificates that ended long ago. Returns their number.
    pub async fn forget_expired(&self) -> Result<usize, ServiceError> {
        super::expired::forget_expired(&self.store, self.clock.now()).await
    }

    /// Returns one page of all certificates, by name and serial.
    pub async fn page(&self, query: &PageQuery) -> Result<Page<CertificateEntry>, ServiceError> {
        let now = self.clock.now();
        let after = pages::after_key(query)?;
        let (mut items, mut last) = (Vec::new(), None);
        let start = after.map(|after| format!("{}{after}", keys::CERTIFICATES));
        let read = pages::read_some(&*self.store, keys::CERTIFICATES, start, |found| {
            if items.len() == query.size() {
                return Ok(false);
            }
            let stored: StoredCertificate = document::decode(&found)?;
            items.push(entry(&stored, now));
            last = found.key.strip_prefix(keys::CERTIFICATES).map(page::cursor);
            Ok(true)
        });
        let is_end = read.await?;
        items.sort_by(|one, other| {
            (&one.name, one.not_before).cmp(&(&other.name, other.not_before))
        });
        Ok(Page {
            items,
            next: last.filter(|_| !is_end),
            total: None,
        })
    }

    /// Returns the operators with a valid certificate, newest certificate first.
    pub async fn valid_operators(&self) -> Result<Vec<OperatorIdentity>, ServiceError> {
        let now = self.clock.now();
        let mut stored = self.stored_under(keys::CERTIFICATES).await?;
        stored.retain(|stored| stored.role == Role::Operator && stored.is_valid(now));
        stored.sort_by_key(|stored| std::cmp::Reverse(stored.not_before));
        let operators = stored.into_iter().map(|stored| OperatorIdentity {
            name: stored.name,
            groups: stored.groups,
        });
        Ok(operators.collect())
    }

    /// Returns the roles of a name's valid certificates.
    pub async fn valid_roles(&self, name: &NodeName) -> Result<Vec<Role>, ServiceError> {
        let now = self.clock.now();
        let stored = self.certificates_of(name).await?;
        let valid = stored.iter().filter(|stored| stored.is_valid(now));
        Ok(valid.map(|stored| stored.role).collect())
    }

    /// Returns whether these are the credentials that this server created for root on its own
    /// machine.
    pub fn is_own_operator(&self, peer: &PeerIdentity) -> bool {
        let own = format!("operator.{}", self.options.server_name);
        peer.role == Role::Operator && peer.name.as_str() == own
    }

    pub(super) async fn certificates_of(
        &self,
        name: &NodeName,
    ) -> Result<Vec<StoredCertificate>, ServiceError> {
        self.stored_under(&keys::certificates_of(name)).await
    }

    pub(super) async fn stored_under(
        &self,
        prefix: &str,
    ) -> Result<Vec<StoredCertificate>, ServiceError> {
        document::read_all(&*self.store, prefix)
            .await?
            .iter()
            .map(document::decode)
            .collect()
    }

    /// Records a certificate before its holder gets it, unless another request
    /// has claimed the name since. `with` holds further conditions and writes of
    /// the transaction.
    pub(super) async fn record(
        &self,
        stored: &StoredCertificate,
        claim: Claim,
        with: Transaction,
    ) -> Result<bool, ServiceError> {
        let key = keys::name_claim(&stored.name);
        let transaction = with
            .when_unchanged(&key, claim.entry.as_ref())
            .put(key, document::encode(&NameClaim::Key(stored.key)))
            .put(stored.store_key(), document::encode(stored));
        let action = AuditAction::new("sign-certificate")
            .on("certificate", &stored.name)
            .detail("role", stored.role.to_string())
            .detail("serial", stored.serial.to_string())
            .detail("signed_by", stored.signed_by.clone());
        let transaction = self.audit.record_in(transaction, action);
        let committed = settle(&*self.store, transaction).await?.is_committed();
        if committed {
            self.revocations.learn(&stored.serial);
            let StoredCertificate {
                name,
                role,
                serial,
                signed_by,
                ..
            } = stored;
            tracing::info!(%name, %role, %serial, by = %signed_by, "signed a certificate");
        }
        Ok(committed)
    }

    /// Claims the request's name for its key. A name belongs to the key that has
    /// a valid certificate for it.
    ///
    /// Pass the claim to [`Certificates::record`], so that two requests with
    /// different keys cannot both succeed.
    pub(super) async fn claim(&self, request: &Request) -> Result<Claim, ServiceError> {
        let now = self.clock.now();
        let key = ContentId::of(request.public_key_info());
        let entry = self.store.get(&keys::name_claim(request.name())).await?;
        let known = self.certificates_of(request.name()).await?;
        match known
            .iter()
            .find(|stored| stored.is_valid(now) && stored.key != key && self.is_trusted(stored))
        {
            None => Ok(Claim { entry }),
            Some(stored) if stored.role == Role::Server => Err(ServiceError::conflict(
                format!("`{}` is the name of a server", stored.name),
                format!(
                    "a node on a server's machine needs a name of its own: join again with `--name node.{}`",
                    stored.name
                ),
            )),
            Some(stored) => Err(ServiceError::conflict(
                format!(
                    "`{}` already has a valid certificate with another key",
                    stored.name
                ),
                format!(
                    "if that machine no longer exists, run `bunraku cert revoke {} --reason …`, then join again",
                    stored.name
                ),
            )),
        }
    }
}

/// The document of a name, written with every certificate and with a revocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum NameClaim {
    /// The name belongs to this key.
    Key(ContentId),
    /// All certificates of the name are revoked, or are about to be. Nothing is
    /// renewed until a new certificate is signed for the name.
    Fenced { fenced: Timestamp },
}

/// Proof that a name was free for a key at one moment.
pub(super) struct Claim {
    pub(super) entry: Option<KeyValue>,
}

/// The error for a name that another request claimed first.
pub(super) fn claimed_meanwhile(name: &NodeName) -> ServiceError {
    ServiceError::conflict(
        format!("the certificates of `{name}` changed in the meantime"),
        "try again",
    )
}
