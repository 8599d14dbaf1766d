//! The conditions under which a certificate still authorises something at the
//! moment of a commit.
//!
//! A server learns of revocations through a watch, so a request may still arrive
//! with a certificate that another server just revoked. Whatever is *signed* on
//! the strength of a certificate (a renewal, or a certificate that an operator
//! issues) therefore carries these conditions in its transaction:
//!
//! - the name's claim is not fenced and has not changed since it was read. A
//!   revocation of the whole name writes it before it lists the certificates, so
//!   that no certificate can appear behind its back;
//! - the certificate's own entry has not changed: it was not revoked by its serial;
//! - the serial is not among those that were revoked without an entry.

use bunraku_model::NodeName;
use bunraku_store::{Compare, Transaction};
use bunraku_wire::PeerIdentity;

use super::Certificates;
use super::inventory::{Claim, NameClaim, StoredCertificate};
use crate::document;
use crate::{ServiceError, keys};

impl Certificates {
    /// Returns the conditions for the holder's certificate, and its name's claim.
    /// Fails if the certificate is revoked already.
    ///
    /// The conditions do not include the claim: [`Certificates::record`] compares
    /// that itself.
    pub(super) async fn validity_with_claim(
        &self,
        holder: &PeerIdentity,
    ) -> Result<(Claim, Transaction), ServiceError> {
        // The claim is read first: a fence that comes later changes it.
        let claim = self.store.get(&keys::name_claim(&holder.name)).await?;
        if let Some(entry) = &claim
            && let NameClaim::Fenced { .. } = document::decode(entry)?
        {
            return Err(revoked(&holder.name));
        }
        let serial = holder.serial.to_string();
        let key = keys::certificate(&holder.name, &serial);
        let stored = document::read::<StoredCertificate>(&*self.store, &key).await?;
        match &stored {
            Some(stored) if stored.document.revoked.is_some() => {
                return Err(revoked(&holder.name));
            }
            // Puppet's own certificates have no entry here; all of ours have one.
            None if !self.authority.is_puppet() => {
                return Err(unknown(&holder.name));
            }
            _ => {}
        }
        let by_serial = keys::revoked_serial(&serial);
        if self.store.get(&by_serial).await?.is_some() {
            return Err(revoked(&holder.name));
        }
        let conditions = Transaction::new()
            .when_unchanged(&key, stored.as_ref().map(|stored| &stored.entry))
            .when(Compare::Absent(by_serial));
        Ok((Claim { entry: claim }, conditions))
    }

    /// Returns all conditions for the certificate of an operator who signs a
    /// certificate.
    pub(super) async fn validity(
        &self,
        operator: &PeerIdentity,
    ) -> Result<Transaction, ServiceError> {
        let (claim, conditions) = self.validity_with_claim(operator).await?;
        Ok(conditions.when_unchanged(&keys::name_claim(&operator.name), claim.entry.as_ref()))
    }
}

fn revoked(name: &NodeName) -> ServiceError {
    ServiceError::Forbidden {
        message: format!("the certificate of `{name}` is revoked"),
        hint: Some("ask an operator for a new one".to_owned()),
    }
}

fn unknown(name: &NodeName) -> ServiceError {
    ServiceError::Forbidden {
        message: format!("the certificate of `{name}` is not in the inventory"),
        hint: Some(
            "it may have been signed after the backup that was restored; join again with a new token"
                .to_owned(),
        ),
    }
}
