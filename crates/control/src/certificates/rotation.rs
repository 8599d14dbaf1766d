//! The replacement of the CA by another one, while the fleet works.
//!
//! A rotation has three phases, which one document in the store decides:
//!
//! 1. *Renewing.* Every signer has the next CA, and everybody trusts both. Nodes and operators
//!    get certificates of the next CA. Servers still present certificates of the former one,
//!    because a node that has not renewed trusts only that.
//! 2. *Finished.* Servers present certificates of the new CA, which is the only trusted one.
//! 3. *Aborting*, instead of 2: nodes get certificates of the former CA again, and then the
//!    next one is deleted.
//!
//! Each server follows the document and brings its signer to the same state. All steps can be
//! repeated, so a crash at any point does no harm.
//!
//! A node counts as renewed when it has *used* its new certificate: then it has stored the
//! certificate and both CAs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bunraku_model::{NodeName, Role};
use bunraku_signer::{AuthorityDescription, IssuerChoice};
use bunraku_store::{Transaction, WatchStart};
use bunraku_wire::api::cluster::keys as cluster_keys;
use bunraku_wire::api::{AuthorityView, RotateRequest, RotationPhase, RotationStatus};
use bunraku_wire::{Certificate, PeerIdentity};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::inventory::StoredCertificate;
use super::signing::failed;
use super::{Certificates, THIS_SERVER};
use crate::document::{self, Decision};
use crate::{ServiceError, keys};

/// The time between two looks at the end of the period.
const LOOK: Duration = Duration::from_secs(20);

/// The delay before the follower retries.
const RETRY: Duration = Duration::from_secs(1);

/// The shortest and the longest period.
const PERIODS: std::ops::RangeInclusive<u64> = 1..=365 * 24 * 3600;

/// A rotation as stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Rotation {
    pub(crate) phase: RotationPhase,
    pub(crate) started: Timestamp,
    pub(crate) started_by: String,
    pub(crate) until: Timestamp,
    /// The fingerprint of the signing certificate of the CA that is replaced.
    pub(crate) former: String,
    /// The fingerprint of the signing certificate of the new CA.
    pub(crate) new: String,
    /// The certificates of the new CA, PEM.
    pub(crate) new_certificates: String,
    /// The new CA with its key, encrypted for holders of the former key.
    pub(crate) sealed: Option<String>,
    /// The names of the servers whose signers have the new CA.
    pub(crate) adopted: BTreeSet<String>,
}

impl Rotation {
    /// Returns `true` while two CAs are trusted.
    pub(super) fn is_running(&self) -> bool {
        self.phase != RotationPhase::Finished
    }

    /// Returns the CA that nodes should have a certificate of.
    fn wanted(&self) -> &str {
        match self.phase {
            RotationPhase::Renewing | RotationPhase::Finished => &self.new,
            RotationPhase::Aborting => &self.former,
        }
    }
}

/// Returns the fingerprint of the certificate that signs.
pub(super) fn issuer_id(pem: &str) -> String {
    Certificate::from_pem(pem).map_or_else(|_| String::new(), |it| it.fingerprint.to_string())
}

impl Certificates {
    /// Returns the CA that signs a certificate of this role now.
    pub(super) fn issuer_for(&self, role: Role) -> IssuerChoice {
        let (description, rotation) = self.authority.both();
        let next = description.next.as_deref().map(issuer_id);
        match rotation {
            Some(rotation)
                if rotation.phase == RotationPhase::Renewing
                    && role != Role::Server
                    && next.as_ref() == Some(&rotation.new) =>
            {
                IssuerChoice::Next
            }
            _ => IssuerChoice::Current,
        }
    }

    /// Returns `true` if a CA that signs certificates of this role now has signed it, and it is
    /// known if only known certificates count.
    pub fn is_of_wanted_issuer(&self, certificate: &Certificate) -> bool {
        if self.revocations.is_unknown(&certificate.serial) {
            return false;
        }
        let (description, _) = self.authority.both();
        let pem = match self.issuer_for(certificate.role) {
            IssuerChoice::Current => Some(description.certificates),
            IssuerChoice::Next => description.next,
        };
        pem.and_then(|pem| Certificate::from_pem(&pem).ok())
            .is_some_and(|authority| certificate.is_signed_by(&authority))
    }

    /// Returns `true` if a CA that is trusted now has signed it.
    pub(super) fn is_trusted(&self, stored: &StoredCertificate) -> bool {
        let (description, rotation) = self.authority.both();
        // Without a rotation there was never another CA. (A Puppet CA may have several.)
        let Some(rotation) = rotation else {
            return true;
        };
        match stored.issuer() {
            // It is older than the first rotation.
            None => rotation.is_running(),
            Some(issuer) => {
                issuer == issuer_id(&description.certificates)
                    || (rotation.is_running() && issuer == rotation.new)
            }
        }
    }

    /// Returns the fingerprint of the CA certificate that signed this certificate.
    pub(super) fn issuer_of(&self, pem: &str) -> Option<String> {
        let signed = Certificate::from_pem(pem).ok()?;
        let description = self.authority.description();
        [Some(description.certificates), description.next]
            .into_iter()
            .flatten()
            .filter_map(|pem| Certificate::from_pem(&pem).ok())
            .find(|authority| signed.is_signed_by(authority))
            .map(|authority| authority.fingerprint.to_string())
    }

    /// Returns the CA from which renewals come now, if it may differ from a certificate's own.
    pub(super) fn wanted_issuer(&self) -> Option<String> {
        let (_, rotation) = self.authority.both();
        rotation
            .filter(Rotation::is_running)
            .map(|rotation| rotation.wanted().to_owned())
    }

    /// Returns what a client should trust and do. Notes that it uses a certificate of the
    /// wanted CA.
    pub async fn authority_for(&self, peer: &PeerIdentity) -> Result<AuthorityView, ServiceError> {
        let lists = match self.revocation_lists_pem().await {
            Err(ServiceError::Unavailable { .. }) => String::new(),
            lists => lists?,
        };
        let mut view = AuthorityView {
            ca: self.authority_pem(),
            renew: false,
            revocation_list: bunraku_wire::trust::list_id(&lists),
            epoch: self.epoch.number(),
        };
        let Some(wanted) = self.wanted_issuer() else {
            return Ok(view);
        };
        let key = keys::certificate(&peer.name, &peer.serial.to_string());
        let Some(stored) = document::read::<StoredCertificate>(&*self.store, &key).await? else {
            return Ok(view);
        };
        if stored.document.issuer().as_ref() == Some(&wanted) {
            self.confirm(&peer.name, &wanted).await?;
        } else {
            view.renew = peer.role != Role::Server;
        }
        Ok(view)
    }

    async fn confirm(&self, name: &NodeName, issuer: &str) -> Result<(), ServiceError> {
        let key = keys::authority_confirmed(name);
        let known = self.store.get(&key).await?;
        if known.is_some_and(|entry| entry.value == issuer.as_bytes()) {
            return Ok(());
        }
        self.store
            .commit(Transaction::new().put(key, issuer.as_bytes().to_vec()))
            .await?;
        Ok(())
    }

    /// Starts a rotation.
    pub async fn rotate(
        &self,
        request: &RotateRequest,
        by: &str,
    ) -> Result<RotationStatus, ServiceError> {
        if self.authority.is_puppet() {
            return Err(ServiceError::conflict(
                "a Puppet CA cannot be rotated here",
                "replace it with Puppet's own tools",
            ));
        }
        if !PERIODS.contains(&request.period_seconds) {
            return Err(ServiceError::invalid(
                "the period must be between one second and a year",
            ));
        }
        let known = document::read::<Rotation>(&*self.store, keys::ROTATION).await?;
        if let Some(known) = &known
            && known.document.is_running()
        {
            return Err(ServiceError::conflict(
                "the CA is being replaced already",
                "see `bunraku authority status`",
            ));
        }
        let now = self.clock.now();
        let step = bunraku_signer::Ask::PrepareNext;
        let described = self.signer.rotate(step, now).await.map_err(failed)?;
        let Some(next) = described.next else {
            return Err(ServiceError::invalid("the signer has created no CA"));
        };
        let period = i64::try_from(request.period_seconds).expect("at most a year");
        let rotation = Rotation {
            phase: RotationPhase::Renewing,
            started: now,
            started_by: by.to_owned(),
            until: now + SignedDuration::from_secs(period),
            former: issuer_id(&described.certificates),
            new: issuer_id(&next),
            new_certificates: next,
            sealed: described.sealed_next,
            adopted: BTreeSet::new(),
        };
        let entry = known.as_ref().map(|known| &known.entry);
        let transaction = Transaction::new()
            .when_unchanged(keys::ROTATION, entry)
            .put(keys::ROTATION, document::encode(&rotation));
        let settled = bunraku_store::settle(&*self.store, transaction).await?;
        if !settled.is_committed() {
            return Err(ServiceError::conflict(
                "the CA is being replaced already",
                "see `bunraku authority status`",
            ));
        }
        tracing::warn!(by, new = rotation.new, "started to replace the CA");
        self.rotation_status().await
    }

    /// Ends the rotation: the former CA is no longer trusted.
    pub async fn finish_rotation(&self, force: bool) -> Result<RotationStatus, ServiceError> {
        let status = self.rotation_status().await?;
        match status.phase {
            RotationPhase::Finished => return Ok(status),
            RotationPhase::Aborting => {
                return Err(ServiceError::conflict(
                    "the rotation is being aborted",
                    "wait until the nodes have certificates of the former CA again",
                ));
            }
            RotationPhase::Renewing => {}
        }
        if !status.servers_waiting.is_empty() && !force {
            return Err(ServiceError::conflict(
                format!(
                    "these servers do not have the new CA yet: {}",
                    status.servers_waiting.join(", ")
                ),
                "start them, or let all servers use one signer",
            ));
        }
        if !status.waiting.is_empty() && !force {
            return Err(ServiceError::conflict(
                format!(
                    "{} would lose their connection",
                    counted(status.waiting.len())
                ),
                "start them, or pass `--force`; each needs a new token and the new fingerprint afterwards",
            ));
        }
        self.finish_now(status.servers_waiting.is_empty()).await?;
        self.rotation_status().await
    }

    async fn finish_now(&self, everybody_has_it: bool) -> Result<(), ServiceError> {
        self.change_rotation(|rotation| {
            if rotation.phase == RotationPhase::Renewing {
                rotation.phase = RotationPhase::Finished;
                if everybody_has_it {
                    rotation.sealed = None;
                }
            }
        })
        .await?;
        tracing::warn!("the former CA is no longer trusted");
        Ok(())
    }

    /// Goes back to the former CA.
    pub async fn abort_rotation(&self) -> Result<(), ServiceError> {
        let status = self.rotation_status().await?;
        if status.phase == RotationPhase::Finished {
            return Err(ServiceError::conflict(
                "the rotation has finished; the former CA no longer exists",
                "start another rotation with `bunraku authority rotate`",
            ));
        }
        self.change_rotation(|rotation| {
            if rotation.is_running() {
                rotation.phase = RotationPhase::Aborting;
            }
        })
        .await
    }

    async fn change_rotation(&self, change: impl Fn(&mut Rotation)) -> Result<(), ServiceError> {
        document::update(&*self.store, keys::ROTATION, |known: Option<Rotation>| {
            let Some(before) = known else {
                return Ok(Decision::Keep);
            };
            let mut after = before.clone();
            change(&mut after);
            Ok::<_, ServiceError>(if after == before {
                Decision::Keep
            } else {
                Decision::Write(after)
            })
        })
        .await?;
        Ok(())
    }

    /// Returns the state of the running or last rotation.
    pub async fn rotation_status(&self) -> Result<RotationStatus, ServiceError> {
        let known = document::read::<Rotation>(&*self.store, keys::ROTATION).await?;
        let Some(rotation) = known.map(|known| known.document) else {
            return Err(ServiceError::NotFound {
                what: "a rotation of the CA".to_owned(),
                hint: Some("start one with `bunraku authority rotate`".to_owned()),
            });
        };
        let (mut renewed, mut waiting, mut operators) = (0, Vec::new(), Vec::new());
        for (name, role, is_renewed) in self.holders(&rotation).await? {
            match (is_renewed, role) {
                (true, Role::Node) => renewed += 1,
                (false, Role::Node) => waiting.push(name),
                (false, Role::Operator) => operators.push(name),
                _ => {}
            }
        }
        Ok(RotationStatus {
            phase: rotation.phase,
            started: rotation.started,
            started_by: rotation.started_by.clone(),
            until: rotation.until,
            renewed,
            waiting,
            operators_waiting: operators,
            servers_waiting: self.servers_without(&rotation).await?,
            former: rotation.former,
            new: rotation.new,
        })
    }

    /// Returns everybody with a valid certificate, and whether they use one of the wanted CA.
    async fn holders(
        &self,
        rotation: &Rotation,
    ) -> Result<Vec<(NodeName, Role, bool)>, ServiceError> {
        let now = self.clock.now();
        let mut confirmed = BTreeSet::new();
        for entry in document::read_all(&*self.store, keys::AUTHORITY_CONFIRMED).await? {
            if entry.value == rotation.wanted().as_bytes()
                && let Some(name) = entry.key.strip_prefix(keys::AUTHORITY_CONFIRMED)
            {
                confirmed.insert(name.to_owned());
            }
        }
        // A holder whose certificates are all of the wanted CA needs no confirmation: it got
        // both CAs with the first of them.
        let mut holders: BTreeMap<NodeName, (Role, bool)> = BTreeMap::new();
        for stored in self.stored_under(keys::CERTIFICATES).await? {
            if stored.revoked.is_some() || stored.not_after <= now || !self.is_trusted(&stored) {
                continue;
            }
            let of_wanted = stored.issuer().as_deref() == Some(rotation.wanted());
            // Servers renew their own credentials and store them at once.
            if of_wanted && stored.signed_by == THIS_SERVER {
                confirmed.insert(stored.name.to_string());
            }
            let holder = holders.entry(stored.name).or_insert((stored.role, true));
            holder.1 &= of_wanted;
        }
        let holders = holders.into_iter().map(|(name, (role, all_wanted))| {
            let is_renewed = all_wanted || confirmed.contains(name.as_str());
            (name, role, is_renewed)
        });
        Ok(holders.collect())
    }

    /// Returns the servers whose signers do not have the new CA.
    async fn servers_without(&self, rotation: &Rotation) -> Result<Vec<String>, ServiceError> {
        if !rotation.is_running() {
            return Ok(Vec::new());
        }
        let members = document::keys_under(&*self.store, cluster_keys::MEMBERS).await?;
        let mut missing: Vec<String> = members
            .iter()
            .filter_map(|key| key.strip_prefix(cluster_keys::MEMBERS))
            .filter(|name| !rotation.adopted.contains(*name))
            .map(str::to_owned)
            .collect();
        let alive = document::keys_under(&*self.store, keys::SERVERS)
            .await?
            .len();
        if missing.is_empty() && alive > rotation.adopted.len() {
            let others = alive - rotation.adopted.len();
            missing.push(format!("{others} others"));
        }
        Ok(missing)
    }

    /// Brings this server and its signer to the state of the stored rotation, and keeps them
    /// there, until cancelled. Calls `changed` whenever the trusted CAs change.
    pub async fn follow_rotation(&self, changed: impl Fn(), shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                outcome = self.follow_rotation_once(&changed) => {
                    if let Err(error) = outcome {
                        tracing::warn!(error = %error, "cannot follow the rotation of the CA; retrying");
                    }
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    async fn follow_rotation_once(&self, changed: &impl Fn()) -> Result<(), ServiceError> {
        let mut changes = self.store.watch(keys::ROTATION, WatchStart::Now).await?;
        self.apply_rotation(changed).await?;
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                batch = changes.next() => match batch {
                    None => return Ok(()),
                    Some(batch) => {
                        batch?;
                        self.apply_rotation(changed).await?;
                    }
                },
                _ = looks.tick() => self.end_if_due().await?,
            }
        }
    }

    /// Brings the signer to the state of the stored rotation. Also called before a server
    /// presents its first certificate.
    pub async fn apply_rotation(&self, changed: &impl Fn()) -> Result<(), ServiceError> {
        let known = document::read::<Rotation>(&*self.store, keys::ROTATION).await?;
        let rotation = known.map(|known| known.document);
        let described = self.signer.describe().await.map_err(failed)?;
        let described = match &rotation {
            None => self.forget_next(described).await?,
            Some(rotation) if rotation.is_running() => self.adopt(described, rotation).await?,
            Some(rotation) => self.promote(described, rotation).await?,
        };
        if let Some(rotation) = &rotation
            && rotation.is_running()
            && described.next.is_some()
            && !rotation.adopted.contains(&self.options.server_name)
        {
            let name = self.options.server_name.clone();
            self.change_rotation(|rotation| {
                rotation.adopted.insert(name.clone());
            })
            .await?;
        }
        if self.authority.replace(described, rotation) {
            changed();
        }
        Ok(())
    }

    /// Deletes a next CA that no rotation knows: it was aborted, or never stored.
    async fn forget_next(
        &self,
        described: AuthorityDescription,
    ) -> Result<AuthorityDescription, ServiceError> {
        if described.next.is_none() {
            return Ok(described);
        }
        let step = bunraku_signer::Ask::DropNext;
        let dropped = self.signer.rotate(step, self.clock.now()).await;
        dropped.map_err(failed)
    }

    async fn adopt(
        &self,
        described: AuthorityDescription,
        rotation: &Rotation,
    ) -> Result<AuthorityDescription, ServiceError> {
        let next = described.next.as_deref().map(issuer_id);
        match &rotation.sealed {
            Some(sealed) if next.as_ref() != Some(&rotation.new) => {
                let sealed = sealed.clone();
                let step = bunraku_signer::Ask::AdoptNext { sealed };
                let adopted = self.signer.rotate(step, self.clock.now()).await;
                adopted.map_err(failed)
            }
            _ => Ok(described),
        }
    }

    async fn promote(
        &self,
        described: AuthorityDescription,
        rotation: &Rotation,
    ) -> Result<AuthorityDescription, ServiceError> {
        if issuer_id(&described.certificates) == rotation.new {
            return Ok(described);
        }
        // Only during this rotation: a later CA of this signer stays.
        if issuer_id(&described.certificates) != rotation.former {
            return Ok(described);
        }
        let described = self.adopt(described, rotation).await?;
        if described.next.as_deref().map(issuer_id).as_ref() != Some(&rotation.new) {
            tracing::error!(
                "the CA was replaced, but the signer of this server does not have the new one; copy the CA directory of another server"
            );
            return Ok(described);
        }
        let fingerprint = topmost(&rotation.new_certificates);
        let step = bunraku_signer::Ask::PromoteNext { fingerprint };
        let promoted = self.signer.rotate(step, self.clock.now()).await;
        promoted.map_err(failed)
    }
}

/// Returns the fingerprint that people pin.
fn topmost(pem: &str) -> String {
    let chain = bunraku_wire::certificate::chain_from_pem(pem).unwrap_or_default();
    chain.last().map_or_else(String::new, |der| {
        bunraku_wire::Fingerprint::of(der).to_string()
    })
}

fn counted(nodes: usize) -> String {
    let noun = if nodes == 1 { "node" } else { "nodes" };
    format!("{nodes} {noun}")
}
