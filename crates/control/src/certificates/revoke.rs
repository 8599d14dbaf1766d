//! Revocation, and its distribution to all servers.

use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_store::{Range, WatchStart};
use bunraku_wire::Serial;
use bunraku_wire::api::RevokeRequest;
use bunraku_wire::revocation::Revoked;
use futures::StreamExt;
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use super::Certificates;
use super::inventory::{Revocation, StoredCertificate};
use crate::document::{self, Decision};
use crate::{ServiceError, keys};

/// The lifetime of a revocation list. A new list is made long before it ends.
const LIST_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 30);

/// The delay before the follower retries after the store was unavailable.
const RETRY: Duration = Duration::from_millis(500);

impl Certificates {
    /// Revokes all certificates of a name, or one of them. Returns how many.
    pub async fn revoke(
        &self,
        name: &NodeName,
        request: &RevokeRequest,
        by: &str,
    ) -> Result<usize, ServiceError> {
        if request.reason.trim().is_empty() {
            return Err(ServiceError::invalid(
                "a certificate is revoked with a reason that others can read",
            ));
        }
        let wanted = request.serial.as_deref().map(parse_serial).transpose()?;
        let known = self.certificates_of(name).await?;
        let chosen: Vec<&StoredCertificate> = known
            .iter()
            .filter(|stored| {
                wanted
                    .as_ref()
                    .is_none_or(|serial| *serial == stored.serial)
            })
            .collect();
        if let (true, Some(serial), true) = (
            chosen.is_empty(),
            &wanted,
            self.authority.puppet_directory().is_some(),
        ) {
            // Puppet signed it, so only its serial is known here.
            self.revoke_in_puppet_directory(serial).await?;
            self.revocations.add(serial.clone());
            return Ok(1);
        }
        if chosen.is_empty() {
            return Err(ServiceError::NotFound {
                what: format!("a certificate of `{name}`"),
                hint: Some("list certificates with `bunraku cert list`".to_owned()),
            });
        }
        let mut revoked = 0;
        for stored in chosen.iter().filter(|stored| stored.revoked.is_none()) {
            self.revoke_one(stored, &request.reason, by).await?;
            revoked += 1;
        }
        Ok(revoked)
    }

    async fn revoke_one(
        &self,
        stored: &StoredCertificate,
        reason: &str,
        by: &str,
    ) -> Result<(), ServiceError> {
        let since = self.clock.now();
        document::update(
            &*self.store,
            &stored.store_key(),
            |current: Option<StoredCertificate>| {
                Ok(match current {
                    Some(current) if current.revoked.is_none() => {
                        Decision::Write(StoredCertificate {
                            revoked: Some(Revocation {
                                since,
                                reason: reason.to_owned(),
                                by: by.to_owned(),
                            }),
                            ..current
                        })
                    }
                    _ => Decision::Keep,
                })
            },
        )
        .await?;
        self.revoke_in_puppet_directory(&stored.serial).await?;
        // This server applies it at once; the other servers learn of it through their watch.
        self.revocations.add(stored.serial.clone());
        tracing::warn!(name = %stored.name, serial = %stored.serial, reason, by, "revoked a certificate");
        Ok(())
    }

    /// Adds the serial to Puppet's own list too, if the authority is Puppet's.
    async fn revoke_in_puppet_directory(&self, serial: &Serial) -> Result<(), ServiceError> {
        let (authority, serial, now) = (self.authority.clone(), serial.clone(), self.clock.now());
        let written = tokio::task::spawn_blocking(move || match authority.puppet_directory() {
            None => Ok(()),
            Some(directory) => directory.revoke(&authority, &[serial], now),
        });
        written
            .await
            .map_err(|error| ServiceError::internal("revoking was cut off", error))?
            .map_err(|error| {
                ServiceError::internal("Puppet's revocation list cannot be written", error)
            })
    }

    /// Returns the signed list of all revoked certificates, in PEM. With Puppet's
    /// authority, returns the lists that Puppet keeps.
    pub async fn revocation_lists_pem(&self) -> Result<String, ServiceError> {
        if let Some(directory) = self.authority.puppet_directory() {
            return directory.revocation_lists_pem().map_err(|error| {
                ServiceError::internal("Puppet's revocation list cannot be read", error)
            });
        }
        let newest = Range {
            limit: 1,
            ..Range::prefix(keys::CERTIFICATES)
        };
        let page = self.store.range(newest).await?;
        let revoked: Vec<Revoked> = self
            .stored_under(keys::CERTIFICATES)
            .await?
            .into_iter()
            .filter_map(|stored| {
                Some(Revoked {
                    serial: stored.serial,
                    at: stored.revoked?.since,
                })
            })
            .collect();
        // The store's revision only grows, so a later list has a higher number.
        let number = page.revision.0.max(1);
        self.authority
            .revocation_list(&revoked, number, self.clock.now(), LIST_LIFETIME)
            .map(|list| list.to_pem())
            .map_err(|error| ServiceError::internal("the revocation list could not be made", error))
    }

    /// Keeps the shared set of revoked serials up to date, until cancelled. Calls
    /// `changed` after each change, to reload TLS and close connections.
    pub async fn follow_revocations(&self, changed: impl Fn(), shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                outcome = self.follow_once(&changed) => {
                    if let Err(error) = outcome {
                        tracing::warn!(error = %error, "following revocations failed; trying again");
                    }
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow_once(&self, changed: &impl Fn()) -> Result<(), ServiceError> {
        let mut changes = self
            .store
            .watch(keys::CERTIFICATES, WatchStart::Now)
            .await?;
        self.read_revocations().await?;
        changed();
        while let Some(batch) = changes.next().await {
            for change in batch?.changes {
                let bunraku_store::Change::Put(entry) = change else {
                    continue;
                };
                let stored: StoredCertificate = document::decode(&entry)?;
                if stored.revoked.is_some() {
                    self.revocations.add(stored.serial);
                    changed();
                }
            }
        }
        Ok(())
    }

    /// Reloads the whole set.
    pub async fn read_revocations(&self) -> Result<(), ServiceError> {
        let stored = self.stored_under(keys::CERTIFICATES).await?;
        let ours = stored
            .into_iter()
            .filter(|stored| stored.revoked.is_some())
            .map(|stored| stored.serial);
        let puppets = match self.authority.puppet_directory() {
            None => Vec::new(),
            Some(directory) => directory.revoked(&self.authority).map_err(|error| {
                ServiceError::internal("Puppet's revocation list cannot be read", error)
            })?,
        };
        self.revocations
            .replace(ours.chain(puppets.into_iter().map(|revoked| revoked.serial)));
        Ok(())
    }
}

fn parse_serial(text: &str) -> Result<Serial, ServiceError> {
    text.parse()
        .map_err(|_| ServiceError::invalid(format!("`{text}` is not a serial number")))
}
