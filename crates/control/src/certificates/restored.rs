//! Certificates after a restore: those that the backup does not know, and revocations that it
//! forgot.

use bunraku_model::{NodeName, Role};
use bunraku_wire::api::{CertificateState, RestoreReview};
use bunraku_wire::revocation::RevocationList;
use bunraku_wire::{Certificate, PeerIdentity};

use super::Certificates;
use super::signing::failed;
use crate::document::{self, Decision};
use crate::epoch::{Epoch, StoredEpoch};
use crate::{ServiceError, keys};

impl Certificates {
    /// Returns the epoch of the data.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Returns the reason why a restored server does not trust this certificate yet.
    pub fn distrust(&self, peer: &PeerIdentity) -> Option<ServiceError> {
        if self.revocations.is_unknown(&peer.serial) {
            self.epoch.note_unknown(peer, self.clock.now());
            return Some(ServiceError::Forbidden {
                message: format!(
                    "the certificate of `{}` is not in the inventory: it was signed after the backup that was restored",
                    peer.name
                ),
                hint: Some(
                    "join again with a new token; an operator needs new credentials".to_owned(),
                ),
            });
        }
        if peer.role == Role::Operator && !self.is_own_operator(peer) && self.epoch.needs_review() {
            return Some(ServiceError::Forbidden {
                message: "this server was restored from a backup, and operators who were revoked later may be in it"
                    .to_owned(),
                hint: Some(
                    "as root on this server, run `bunraku backup check`, then `bunraku backup accept`"
                        .to_owned(),
                ),
            });
        }
        None
    }

    /// Takes back the revocations that the signer remembers. Without the signer, they come back
    /// later, with the lists of clients.
    pub async fn recover_revocations(&self) -> Result<(), ServiceError> {
        if self.epoch.number() == 0 || self.authority.is_puppet() {
            return Ok(());
        }
        let remembered = match self.signer.revoked().await {
            Ok(remembered) => remembered,
            Err(error) if error.is_away() => {
                tracing::warn!(error = %error, "cannot ask for revocations that the backup lacks");
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        for serial in remembered {
            self.revoke_again(&serial, "the signer").await?;
        }
        Ok(())
    }

    /// Takes revocations from a list that a client kept. Only lists that this CA signed count,
    /// so nobody can invent one.
    pub async fn accept_lists(&self, pem: &str, from: &NodeName) -> Result<(), ServiceError> {
        let lists = RevocationList::from_pem(pem)
            .map_err(|error| ServiceError::invalid(format!("cannot use the list: {error}")))?;
        let trusted = bunraku_wire::certificate::chain_from_pem(&self.authority_pem())
            .map_err(|error| ServiceError::internal("cannot read the CA", error))?;
        let trusted: Vec<Certificate> = trusted
            .iter()
            .filter_map(|der| Certificate::from_der(der).ok())
            .collect();
        for list in lists {
            if !trusted.iter().any(|ca| list.check_signature(ca).is_ok()) {
                return Err(ServiceError::invalid("this CA did not sign the list"));
            }
            for entry in list.revoked {
                self.revoke_again(&entry.serial, from.as_str()).await?;
            }
        }
        Ok(())
    }

    async fn revoke_again(
        &self,
        serial: &bunraku_wire::Serial,
        from: &str,
    ) -> Result<(), ServiceError> {
        if self.revocations.is_revoked(serial) {
            return Ok(());
        }
        let by = format!("a list from {from}");
        self.store_revoked_serial(serial, "revoked before the restore", &by)
            .await?;
        self.revocations.add(serial.clone());
        tracing::warn!(%serial, from, "revoked a certificate again that the backup did not know as revoked");
        Ok(())
    }

    /// Returns what an operator should look at after a restore.
    pub async fn restore_review(&self) -> Result<RestoreReview, ServiceError> {
        self.epoch.reread(&self.store).await?;
        let epoch = self.epoch.stored();
        let entries = self.list().await?;
        let valid = |role: Role| {
            entries
                .iter()
                .filter(|entry| entry.role == role && entry.state == CertificateState::Valid)
                .filter(|entry| {
                    let serial = entry.serial.parse();
                    serial.is_ok_and(|serial| !self.revocations.is_revoked(&serial))
                })
                .cloned()
                .collect::<Vec<_>>()
        };
        let recovered = document::keys_under(&*self.store, keys::REVOKED_SERIALS).await?;
        Ok(RestoreReview {
            epoch: epoch.number,
            is_reviewed: epoch.is_reviewed(),
            since: epoch.since,
            because: epoch.because,
            reviewed_by: epoch.reviewed_by,
            newest_certificate: entries.iter().map(|entry| entry.not_before).max(),
            operators: valid(Role::Operator),
            nodes: valid(Role::Node).len(),
            recovered_revocations: recovered.len(),
            unknown: self.epoch.unknown(),
        })
    }

    /// Ends the review: operators in the inventory are trusted again.
    pub async fn accept_restore(&self, by: &str) -> Result<(), ServiceError> {
        document::update(&*self.store, keys::EPOCH, |stored: Option<StoredEpoch>| {
            Ok::<_, ServiceError>(match stored {
                Some(stored) if !stored.is_reviewed() => Decision::Write(StoredEpoch {
                    reviewed_by: Some(by.to_owned()),
                    ..stored
                }),
                _ => Decision::Keep,
            })
        })
        .await?;
        self.epoch.reread(&self.store).await
    }

    /// Starts a new epoch, because an operator says that the data was restored.
    pub async fn begin_epoch(&self, by: &str) -> Result<(), ServiceError> {
        let because = format!("{by} said so");
        self.epoch
            .begin(&self.store, &self.clock, &because, 0)
            .await?;
        self.recover_revocations().await?;
        self.read_revocations().await
    }
}
