//! Revocation, and its distribution to all servers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::{NodeName, Role};
use bunraku_signer::{AuthorityDescription, SignerError};
use bunraku_store::{Compare, KeyValue, Transaction, WatchStart, newest_revision};
use bunraku_wire::Serial;
use bunraku_wire::api::RevokeRequest;
use bunraku_wire::revocation::RevokedCertificate;
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use super::Certificates;
use super::inventory::{NameClaim, Revocation, StoredCertificate};
use super::signing::failed;
use crate::document::{self, Decision};
use crate::{ServiceError, keys};

/// The age at which a revocation list is signed again even if nothing changed. It is valid for
/// much longer.
const LIST_AGE: SignedDuration = SignedDuration::from_hours(12);

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
            None if self.authority.is_puppet() => {
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

    /// Returns whether all certificates of this name are revoked.
    pub async fn are_revoked(&self, name: &NodeName) -> Result<bool, ServiceError> {
        let all = self.certificates_of(name).await?;
        Ok(!all.is_empty() && all.iter().all(|stored| stored.revoked.is_some()))
    }

    pub(super) async fn store_revoked_serial(
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
        if !self.authority.is_puppet() {
            return Ok(());
        }
        self.signer
            .revoke_in_puppet(vec![serial.clone()], self.clock.now())
            .await
            .map_err(failed)
    }

    /// Returns the signed list of all revoked certificates, in PEM. With Puppet's
    /// authority, returns the lists that Puppet keeps. While the signer is away,
    /// returns the last list that it signed.
    pub async fn revocation_lists_pem(&self) -> Result<String, ServiceError> {
        if self.authority.is_puppet() {
            let read = self.signer.puppet_lists(None).await.map_err(failed)?;
            return Ok(read.map_or_else(String::new, |lists| lists.pem));
        }
        let newest = newest_revision(&*self.store).await?;
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
            .chain(self.revoked_by_serial().await?)
            .collect();
        let (now, authority) = (self.clock.now(), self.authority.description());
        if let Some(pem) = self.lists.fitting(&revoked, &authority, now) {
            return Ok(pem);
        }
        // The store's revision only grows within an epoch, so a later list has a higher number.
        let number = self.epoch.floor().saturating_add(newest.0.max(1));
        match self
            .signer
            .revocation_lists(revoked.clone(), number, now)
            .await
        {
            Ok(pem) => {
                self.lists.keep(revoked, authority, now, &pem);
                Ok(pem)
            }
            Err(error) if error.is_away() => match self.lists.last() {
                Some(pem) => {
                    tracing::warn!(error = %error, "the revocation list is not up to date");
                    Ok(pem)
                }
                None => Err(failed(error)),
            },
            Err(error) => Err(failed(error)),
        }
    }

    /// Keeps the shared set of revoked serials up to date, until cancelled. Calls
    /// `changed` after each change, to reload TLS and close connections, with the
    /// role of the revoked certificate if it is known.
    pub async fn follow_revocations(
        &self,
        changed: impl Fn(Option<Role>),
        shutdown: CancellationToken,
    ) {
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

    async fn follow_once(&self, changed: &impl Fn(Option<Role>)) -> Result<(), ServiceError> {
        let ours = self
            .store
            .watch(keys::CERTIFICATES, WatchStart::Now)
            .await?;
        let puppets = self
            .store
            .watch(keys::REVOKED_SERIALS, WatchStart::Now)
            .await?;
        let epoch = self.store.watch(keys::EPOCH, WatchStart::Now).await?;
        let changes = futures::stream::select(ours, puppets);
        let mut changes = futures::stream::select(changes, epoch);
        self.read_revocations().await?;
        changed(None);
        let mut list = PuppetList::default();
        let mut looks = tokio::time::interval(LIST_CHECK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let batch = tokio::select! {
                batch = changes.next() => batch,
                _ = looks.tick() => {
                    if self.import_from_puppet(&mut list).await? {
                        changed(None);
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
                if entry.key == keys::EPOCH {
                    self.epoch.reread(&self.store).await?;
                    self.read_revocations().await?;
                    changed(None);
                    continue;
                }
                if let Some((_, serial)) = keys::parse_certificate(&entry.key) {
                    self.revocations.learn(&parse_serial(&serial)?);
                }
                if let Some((serial, role)) = revoked_in(&entry)? {
                    self.revocations.add(serial);
                    changed(role);
                }
            }
        }
    }

    /// Stores what Puppet added to its revocation list since the last look, so
    /// that it also reaches servers without the directory. Returns `true` if there
    /// was anything.
    async fn import_from_puppet(&self, list: &mut PuppetList) -> Result<bool, ServiceError> {
        if !self.authority.is_puppet() {
            return Ok(false);
        }
        let lists = match self.signer.puppet_lists(list.stamp.clone()).await {
            Ok(Some(lists)) => lists,
            Ok(None) => return Ok(false),
            Err(error) if error.is_away() => {
                tracing::warn!(error = %error, "cannot look at Puppet's revocation list");
                return Ok(false);
            }
            Err(error) => return Err(failed(error)),
        };
        let mut added = false;
        for RevokedCertificate { serial, .. } in lists.revoked {
            if list.stored.contains(&serial) {
                continue;
            }
            self.store_revoked_serial(&serial, "in Puppet's revocation list", "Puppet")
                .await?;
            added |= !self.revocations.contains(&serial);
            self.revocations.add(serial.clone());
            list.stored.insert(serial);
        }
        list.stamp = Some(lists.stamp);
        Ok(added)
    }

    /// Reloads the whole set.
    pub async fn read_revocations(&self) -> Result<(), ServiceError> {
        let stored = self.stored_under(keys::CERTIFICATES).await?;
        // Puppet's own certificates have no entry.
        if self.epoch.number() > 0 && !self.authority.is_puppet() {
            let known = stored.iter().map(|stored| stored.serial.clone());
            self.revocations.require_known(known);
        }
        let ours = stored
            .into_iter()
            .filter(|stored| stored.revoked.is_some())
            .map(|stored| stored.serial);
        let by_serial: Vec<Serial> = document::keys_under(&*self.store, keys::REVOKED_SERIALS)
            .await?
            .iter()
            .filter_map(|key| key.strip_prefix(keys::REVOKED_SERIALS)?.parse().ok())
            .collect();
        let puppets = match self.puppets_revocations().await {
            Ok(revoked) => revoked,
            // What Puppet revoked before is in the store.
            Err(error) if error.is_away() => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let puppets = puppets.into_iter().map(|revoked| revoked.serial);
        self.revocations
            .replace(ours.chain(by_serial).chain(puppets));
        Ok(())
    }
}

impl Certificates {
    /// Returns the revocations without a certificate in the inventory.
    async fn revoked_by_serial(&self) -> Result<Vec<RevokedCertificate>, ServiceError> {
        let mut revoked = Vec::new();
        for entry in document::read_all(&*self.store, keys::REVOKED_SERIALS).await? {
            let serial = entry.key.strip_prefix(keys::REVOKED_SERIALS);
            if let Some(serial) = serial.and_then(|serial| serial.parse().ok()) {
                let at = document::decode::<Revocation>(&entry)?.since;
                revoked.push(RevokedCertificate { serial, at });
            }
        }
        Ok(revoked)
    }

    async fn puppets_revocations(&self) -> Result<Vec<RevokedCertificate>, SignerError> {
        if !self.authority.is_puppet() {
            return Ok(Vec::new());
        }
        let lists = self.signer.puppet_lists(None).await?;
        Ok(lists.map_or_else(Vec::new, |lists| lists.revoked))
    }
}

/// The last revocation lists that the signer signed. Cloning shares them.
#[derive(Clone, Default)]
pub(super) struct SignedLists(Arc<Mutex<Option<SignedList>>>);

struct SignedList {
    revoked: Vec<RevokedCertificate>,
    authority: AuthorityDescription,
    at: Timestamp,
    pem: String,
}

impl SignedLists {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<SignedList>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last lists if they are still right.
    fn fitting(
        &self,
        revoked: &[RevokedCertificate],
        authority: &AuthorityDescription,
        now: Timestamp,
    ) -> Option<String> {
        self.lock()
            .as_ref()
            .filter(|list| {
                list.revoked == revoked
                    && list.authority == *authority
                    && now.duration_since(list.at).abs() < LIST_AGE
            })
            .map(|list| list.pem.clone())
    }

    fn last(&self) -> Option<String> {
        self.lock().as_ref().map(|list| list.pem.clone())
    }

    fn keep(
        &self,
        revoked: Vec<RevokedCertificate>,
        authority: AuthorityDescription,
        at: Timestamp,
        pem: &str,
    ) {
        *self.lock() = Some(SignedList {
            revoked,
            authority,
            at,
            pem: pem.to_owned(),
        });
    }
}

/// The state of Puppet's revocation list at the last look.
#[derive(Default)]
struct PuppetList {
    /// Identifies the version of the list.
    stamp: Option<String>,
    /// The serials that are known to be in the store.
    stored: HashSet<Serial>,
}

/// Returns the serial that an entry under one of the two prefixes revokes, and its role if it
/// is known.
fn revoked_in(entry: &KeyValue) -> Result<Option<(Serial, Option<Role>)>, ServiceError> {
    if let Some(serial) = entry.key.strip_prefix(keys::REVOKED_SERIALS) {
        return parse_serial(serial).map(|serial| Some((serial, None)));
    }
    let stored: StoredCertificate = document::decode(entry)?;
    let role = Some(stored.role);
    Ok(stored.revoked.is_some().then_some((stored.serial, role)))
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
