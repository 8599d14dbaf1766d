//! Revocation, and its distribution to all servers.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use bunraku_model::NodeName;
use bunraku_store::{Compare, KeyValue, Range, Transaction, WatchStart};
use bunraku_wire::Serial;
use bunraku_wire::api::RevokeRequest;
use bunraku_wire::revocation::RevokedCertificate;
use futures::StreamExt;
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use super::Certificates;
use super::inventory::{NameClaim, Revocation, StoredCertificate};
use crate::document::{self, Decision};
use crate::{ServiceError, keys};

/// The lifetime of a revocation list. A new list is made long before it ends.
const LIST_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 30);

/// The time between two looks at Puppet's revocation list.
const LIST_CHECK: Duration = Duration::from_secs(2);

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
                "revoking a certificate needs a reason",
            ));
        }
        match request.serial.as_deref().map(parse_serial).transpose()? {
            Some(serial) => self.revoke_serial(name, &serial, &request.reason, by).await,
            None => self.revoke_name(name, &request.reason, by).await,
        }
    }

    /// Revokes one certificate.
    async fn revoke_serial(
        &self,
        name: &NodeName,
        serial: &Serial,
        reason: &str,
        by: &str,
    ) -> Result<usize, ServiceError> {
        let known = self.certificates_of(name).await?;
        match known.iter().find(|stored| stored.serial == *serial) {
            Some(stored) if stored.revoked.is_some() => Ok(0),
            Some(stored) => {
                self.revoke_one(stored, reason, by).await?;
                Ok(1)
            }
            // Puppet signed it, so only its serial is known here.
            None if self.authority.puppet_directory().is_some() => {
                self.revoke_in_puppet_directory(serial).await?;
                self.store_revoked_serial(serial, reason, by).await?;
                self.revocations.add(serial.clone());
                Ok(1)
            }
            None => Err(no_certificate(name)),
        }
    }

    /// Revokes all certificates of a name. The name is fenced first, without a
    /// condition, so that someone who renews in a loop can neither delay the
    /// revocation nor obtain a certificate that it does not see.
    async fn revoke_name(
        &self,
        name: &NodeName,
        reason: &str,
        by: &str,
    ) -> Result<usize, ServiceError> {
        if self.certificates_of(name).await?.is_empty() {
            return Err(no_certificate(name));
        }
        let claim = keys::name_claim(name);
        let mut revoked = 0;
        loop {
            let fence = NameClaim::Fenced {
                fenced: self.clock.now(),
            };
            self.store
                .commit(Transaction::new().put(&claim, document::encode(&fence)))
                .await?;
            let fenced = self.store.get(&claim).await?;
            let valid = self.certificates_of(name).await?;
            for stored in valid.iter().filter(|stored| stored.revoked.is_none()) {
                self.revoke_one(stored, reason, by).await?;
                revoked += 1;
            }
            // A machine that joined in between has lifted the fence.
            let now = self.store.get(&claim).await?;
            if now.map(|entry| entry.modified) == fenced.map(|entry| entry.modified) {
                return Ok(revoked);
            }
        }
    }

    async fn store_revoked_serial(
        &self,
        serial: &Serial,
        reason: &str,
        by: &str,
    ) -> Result<(), ServiceError> {
        let revocation = Revocation {
            since: self.clock.now(),
            reason: reason.to_owned(),
            by: by.to_owned(),
        };
        let key = keys::revoked_serial(&serial.to_string());
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .put(key, document::encode(&revocation));
        self.store.commit(transaction).await?;
        Ok(())
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
            .map_err(|error| ServiceError::internal("revoking was interrupted", error))?
            .map_err(|error| ServiceError::internal("cannot write Puppet's revocation list", error))
    }

    /// Returns the signed list of all revoked certificates, in PEM. With Puppet's
    /// authority, returns the lists that Puppet keeps.
    pub async fn revocation_lists_pem(&self) -> Result<String, ServiceError> {
        if let Some(directory) = self.authority.puppet_directory() {
            return directory.revocation_lists_pem().map_err(|error| {
                ServiceError::internal("cannot read Puppet's revocation list", error)
            });
        }
        let newest = Range {
            limit: 1,
            ..Range::prefix(keys::CERTIFICATES)
        };
        let page = self.store.range(newest).await?;
        let revoked: Vec<RevokedCertificate> = self
            .stored_under(keys::CERTIFICATES)
            .await?
            .into_iter()
            .filter_map(|stored| {
                Some(RevokedCertificate {
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
            .map_err(|error| ServiceError::internal("cannot create the revocation list", error))
    }

    /// Keeps the shared set of revoked serials up to date, until cancelled. Calls
    /// `changed` after each change, to reload TLS and close connections.
    pub async fn follow_revocations(&self, changed: impl Fn(), shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                outcome = self.follow_once(&changed) => {
                    if let Err(error) = outcome {
                        tracing::warn!(error = %error, "watching revocations failed; retrying");
                    }
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow_once(&self, changed: &impl Fn()) -> Result<(), ServiceError> {
        let ours = self
            .store
            .watch(keys::CERTIFICATES, WatchStart::Now)
            .await?;
        let puppets = self
            .store
            .watch(keys::REVOKED_SERIALS, WatchStart::Now)
            .await?;
        let mut changes = futures::stream::select(ours, puppets);
        self.read_revocations().await?;
        changed();
        let mut list = PuppetList::default();
        let mut looks = tokio::time::interval(LIST_CHECK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let batch = tokio::select! {
                batch = changes.next() => batch,
                _ = looks.tick() => {
                    if self.import_from_puppet(&mut list).await? {
                        changed();
                    }
                    continue;
                }
            };
            let Some(batch) = batch else {
                return Ok(());
            };
            for change in batch?.changes {
                let bunraku_store::Change::Put(entry) = change else {
                    continue;
                };
                if let Some(serial) = revoked_in(&entry)? {
                    self.revocations.add(serial);
                    changed();
                }
            }
        }
    }

    /// Stores what Puppet added to its revocation list since the last look, so
    /// that it also reaches servers without the directory. Returns `true` if there
    /// was anything.
    async fn import_from_puppet(&self, list: &mut PuppetList) -> Result<bool, ServiceError> {
        let Some(directory) = self.authority.puppet_directory() else {
            return Ok(false);
        };
        let stamp = std::fs::metadata(directory.revocation_list_path())
            .and_then(|metadata| Ok((metadata.modified()?, metadata.len())))
            .ok();
        if stamp == list.stamp {
            return Ok(false);
        }
        let authority = self.authority.clone();
        let revoked = tokio::task::spawn_blocking(move || {
            authority
                .puppet_directory()
                .map(|directory| directory.revoked(&authority))
                .transpose()
        });
        let revoked = revoked
            .await
            .map_err(|error| ServiceError::internal("reading a list was cut off", error))?
            .map_err(|error| {
                ServiceError::internal("Puppet's revocation list cannot be read", error)
            })?;
        let mut added = false;
        for RevokedCertificate { serial, .. } in revoked.unwrap_or_default() {
            if list.stored.contains(&serial) {
                continue;
            }
            self.store_revoked_serial(&serial, "in Puppet's revocation list", "Puppet")
                .await?;
            added |= !self.revocations.contains(&serial);
            self.revocations.add(serial.clone());
            list.stored.insert(serial);
        }
        list.stamp = stamp;
        Ok(added)
    }

    /// Reloads the whole set.
    pub async fn read_revocations(&self) -> Result<(), ServiceError> {
        let stored = self.stored_under(keys::CERTIFICATES).await?;
        let ours = stored
            .into_iter()
            .filter(|stored| stored.revoked.is_some())
            .map(|stored| stored.serial);
        let by_serial: Vec<Serial> = document::keys_under(&*self.store, keys::REVOKED_SERIALS)
            .await?
            .iter()
            .filter_map(|key| key.strip_prefix(keys::REVOKED_SERIALS)?.parse().ok())
            .collect();
        let puppets = match self.authority.puppet_directory() {
            None => Vec::new(),
            Some(directory) => directory.revoked(&self.authority).map_err(|error| {
                ServiceError::internal("cannot read Puppet's revocation list", error)
            })?,
        };
        let puppets = puppets.into_iter().map(|revoked| revoked.serial);
        self.revocations
            .replace(ours.chain(by_serial).chain(puppets));
        Ok(())
    }
}

/// The state of Puppet's revocation list at the last look.
#[derive(Default)]
struct PuppetList {
    /// The file's time and length.
    stamp: Option<(SystemTime, u64)>,
    /// The serials that are known to be in the store.
    stored: HashSet<Serial>,
}

/// Returns the serial that an entry under one of the two prefixes revokes.
fn revoked_in(entry: &KeyValue) -> Result<Option<Serial>, ServiceError> {
    if let Some(serial) = entry.key.strip_prefix(keys::REVOKED_SERIALS) {
        return parse_serial(serial).map(Some);
    }
    let stored: StoredCertificate = document::decode(entry)?;
    Ok(stored.revoked.is_some().then_some(stored.serial))
}

fn no_certificate(name: &NodeName) -> ServiceError {
    ServiceError::NotFound {
        what: format!("a certificate of `{name}`"),
        hint: Some("list certificates with `bunraku cert list`".to_owned()),
    }
}

fn parse_serial(text: &str) -> Result<Serial, ServiceError> {
    text.parse()
        .map_err(|_| ServiceError::invalid(format!("`{text}` is not a serial number")))
}
