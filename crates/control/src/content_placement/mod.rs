//! The place that new content goes to, for all servers, and the move of existing content to it.
//!
//! The place is one document in the store. Every server follows it. Records of contents name their
//! own place, so a server that learns of a change late does no harm: what it writes is moved with
//! the rest. One leader moves content, and any server can continue what another one began.

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::ContentPlace;
use bunraku_store::blobs::{BlobError, RelocationSummary, SharedBlobs};
use bunraku_store::{Compare, Follow, SharedStore, Transaction, settle};
use bunraku_wire::api::{ContentPlaceStatus, ContentStatus, StuckContent};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::document::{self, Decision};
use crate::leader::Leadership;
use crate::presence::StoredRegistration;
use crate::{ServiceError, error, keys};

/// The delay before a failed attempt is repeated.
const RETRY: Duration = Duration::from_secs(5);
/// The delay after which content that could not be moved is tried again.
const STUCK_RETRY: Duration = Duration::from_secs(10 * 60);
/// The interval between searches for content outside its place, which a server wrote that learned
/// of a change late.
const CHECK: Duration = Duration::from_secs(3_600);
/// The number of contents that cannot be moved that are named.
const NAMED: usize = 10;

/// The value of [`keys::CONTENT_PLACE`].
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct PlacementRecord {
    active: ContentPlace,
    /// The place that content is moved away from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaving: Option<ContentPlace>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

/// The value of [`keys::CONTENT_MOVE`].
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct MoveRecord {
    /// Why the last attempt stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stuck: Vec<StuckContent>,
    #[serde(default)]
    stuck_count: usize,
}

/// The place of content, for all servers. Clones share everything.
#[derive(Clone)]
pub struct ContentPlacement {
    store: SharedStore,
    blobs: SharedBlobs,
    clock: Clock,
    /// The name of this server as a leader.
    server: Arc<str>,
    leader_ttl: Duration,
}

impl ContentPlacement {
    /// Reads the place and uses it from now on. A fleet without content begins with `wanted`.
    ///
    /// Fails if content is in a place that this server has no settings for.
    pub async fn open(
        store: SharedStore,
        blobs: SharedBlobs,
        clock: Clock,
        server: &str,
        leader_ttl: Duration,
        wanted: ContentPlace,
    ) -> Result<Self, ServiceError> {
        let placement = Self {
            store,
            blobs,
            clock,
            server: server.into(),
            leader_ttl,
        };
        let record = match placement.stored().await? {
            Some(record) => record,
            None => placement.begin(wanted).await?,
        };
        placement.require(&record)?;
        placement.activate(&record)?;
        if wanted != record.active {
            tracing::info!(
                configured = %wanted,
                used = %record.active,
                "content stays where it is; run `bunraku store move content --to {wanted}` to move it"
            );
        }
        Ok(placement)
    }

    async fn stored(&self) -> Result<Option<PlacementRecord>, ServiceError> {
        let found = document::read(&*self.store, keys::CONTENT_PLACE).await?;
        Ok(found.map(|found| found.document))
    }

    async fn record(&self) -> Result<PlacementRecord, ServiceError> {
        Ok(self.stored().await?.unwrap_or_default())
    }

    /// Chooses the place of a fleet that has none yet. Without the document, it is the default one.
    async fn begin(&self, wanted: ContentPlace) -> Result<PlacementRecord, ServiceError> {
        if wanted.is_default() {
            return Ok(PlacementRecord::default());
        }
        let first = self.blobs.list(None).await;
        let first = first.map_err(|error| ServiceError::content("cannot list content", error))?;
        if !first.is_empty() {
            return Ok(PlacementRecord::default());
        }
        let record = PlacementRecord {
            active: wanted,
            since: Some(self.clock.now()),
            ..PlacementRecord::default()
        };
        let transaction = Transaction::new()
            .when(Compare::Absent(keys::CONTENT_PLACE.to_owned()))
            .put(keys::CONTENT_PLACE, document::encode(&record));
        settle(&*self.store, transaction).await?;
        self.record().await
    }

    /// Checks that this server can read all content.
    fn require(&self, record: &PlacementRecord) -> Result<(), ServiceError> {
        let needed = [Some(record.active), record.leaving];
        for place in needed.into_iter().flatten() {
            if !self.blobs.has_place(place) {
                return Err(ServiceError::conflict(
                    "this fleet has content in S3, and this server has no settings for S3",
                    "add `[server.content]` with `kind = \"s3\"`, as on the other servers",
                ));
            }
        }
        Ok(())
    }

    fn activate(&self, record: &PlacementRecord) -> Result<(), ServiceError> {
        let activated = self.blobs.activate(record.active);
        activated.map_err(|error| ServiceError::content("cannot use the place of content", error))
    }

    /// Starts to move all content. Does nothing if it is there, or on its way.
    pub async fn start_move(&self, to: ContentPlace, by: &str) -> Result<(), ServiceError> {
        self.check_servers(to).await?;
        if to == ContentPlace::S3 {
            let checked = self.blobs.check_s3().await;
            checked.map_err(|error| ServiceError::content("cannot use S3", error))?;
        }
        let moved = document::update(&*self.store, keys::CONTENT_PLACE, |found| {
            let found: PlacementRecord = found.unwrap_or_default();
            if found.active == to {
                return Ok(Decision::Keep);
            }
            Ok(Decision::Write(PlacementRecord {
                active: to,
                leaving: Some(found.active),
                since: Some(self.clock.now()),
                by: Some(by.to_owned()),
            }))
        });
        if let Some(record) = moved.await? {
            self.activate(&record)?;
        }
        Ok(())
    }

    /// Checks that every server has settings for the place.
    async fn check_servers(&self, to: ContentPlace) -> Result<(), ServiceError> {
        if !self.blobs.has_place(to) {
            return Err(ServiceError::conflict(
                "this server has no settings for S3",
                "add `[server.content]` with `kind = \"s3\"` on all servers and restart them, one at a time",
            ));
        }
        let servers = document::read_all(&*self.store, keys::SERVERS).await?;
        let lacks = |value: &[u8]| {
            let known = serde_json::from_slice::<StoredRegistration>(value);
            known.is_ok_and(|known| !known.places.contains(&to))
        };
        let lacking = servers.iter().filter(|entry| lacks(&entry.value)).count();
        if to.is_default() || lacking == 0 {
            return Ok(());
        }
        let all = servers.len();
        Err(ServiceError::conflict(
            format!("{lacking} of {all} servers have no settings for S3"),
            "add `[server.content]` with `kind = \"s3\"` there and restart them, one at a time",
        ))
    }

    /// Returns the places, what they hold, and the progress of a move.
    pub async fn status(&self) -> Result<ContentStatus, ServiceError> {
        let record = self.record().await?;
        let noted = document::read(&*self.store, keys::CONTENT_MOVE).await?;
        let noted: MoveRecord = noted.map(|found| found.document).unwrap_or_default();
        let usage = self.blobs.usage().await;
        let usage =
            usage.map_err(|error| ServiceError::content("cannot count the content", error))?;
        let places = ContentPlace::ALL.into_iter().map(|place| {
            let found = usage.get(&place).copied().unwrap_or_default();
            ContentPlaceStatus {
                place,
                is_configured: self.blobs.has_place(place),
                contents: found.contents,
                bytes: found.bytes,
            }
        });
        let is_moving = record.leaving.is_some();
        Ok(ContentStatus {
            active: record.active,
            leaving: record.leaving,
            places: places.collect(),
            problem: noted.problem.filter(|_| is_moving),
            stuck_count: if is_moving { noted.stuck_count } else { 0 },
            stuck: if is_moving { noted.stuck } else { Vec::new() },
        })
    }

    /// Checks that S3 can be used, if it is configured.
    pub async fn check_s3(&self) -> Result<(), BlobError> {
        self.blobs.check_s3().await
    }

    /// Returns the place that new content goes to.
    pub fn active(&self) -> ContentPlace {
        self.blobs.active_place()
    }

    /// Returns the problem of the last request to S3, if it had one.
    pub fn s3_problem(&self) -> Option<String> {
        self.blobs.s3_problem()
    }

    /// Follows the place, and moves content while this server leads. Runs until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        // With one place, there is nothing to follow and nothing to move.
        if !self.blobs.has_place(ContentPlace::S3) {
            return;
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.follow() => {}
            () = self.stand_for_election() => {}
        }
    }

    async fn follow(&self) {
        let mut follow = Follow::new(self.store.clone(), keys::CONTENT_PLACE);
        loop {
            let read = async {
                follow.next().await?;
                let record = self.record().await?;
                self.activate(&record)
            };
            if let Err(error) = read.await {
                let error = error::chain(&error);
                tracing::warn!(error, "cannot follow the place of content; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn stand_for_election(&self) {
        loop {
            let campaign = Leadership::campaign(
                self.store.clone(),
                keys::CONTENT_LEADER,
                &self.server,
                self.leader_ttl,
            );
            match campaign.await {
                Ok(leadership) => {
                    tokio::select! {
                        () = leadership.keep_alive() => {}
                        () = self.lead() => {}
                    }
                    leadership.resign().await;
                }
                Err(error) => {
                    let error = error::chain(&error);
                    tracing::warn!(error, "cannot stand for election to move content; retrying");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Moves content whenever there is some to move.
    async fn lead(&self) {
        let mut changes = Follow::new(self.store.clone(), keys::CONTENT_PLACE);
        // Before the first check, so that a change during the check is not missed.
        changed(&mut changes).await;
        loop {
            let pause = match self.advance().await {
                Ok(pause) => pause,
                Err(error) => {
                    let error = error::chain(&error);
                    tracing::warn!(error, "moving content stopped; retrying");
                    RETRY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = changed(&mut changes) => {}
            }
        }
    }

    /// Moves what is not in its place. Returns the time until the next attempt.
    async fn advance(&self) -> Result<Duration, ServiceError> {
        let record = self.record().await?;
        self.activate(&record)?;
        let mut pass = RelocationSummary::default();
        for share in 0..=u8::MAX {
            match self.blobs.relocate(share).await {
                Ok(some) => pass.add(some),
                Err(error) => {
                    let error = ServiceError::content("cannot move content", error);
                    self.note(Some(error.to_string()), &pass).await?;
                    return Err(error);
                }
            }
        }
        if pass.moved > 0 {
            let (contents, bytes) = (pass.moved, pass.bytes);
            tracing::info!(to = %record.active, contents, bytes, "moved content");
            return Ok(Duration::ZERO);
        }
        if record.leaving.is_none() {
            return Ok(CHECK);
        }
        self.note(None, &pass).await?;
        if !pass.stuck.is_empty() {
            return Ok(STUCK_RETRY);
        }
        // Nothing was found outside the active place: the move is complete.
        document::update(&*self.store, keys::CONTENT_PLACE, |found| {
            Ok(match found {
                Some(found) if found == record => Decision::Write(PlacementRecord {
                    leaving: None,
                    ..found
                }),
                _ => Decision::Keep,
            })
        })
        .await?;
        tracing::info!(to = %record.active, "all content is in its place");
        Ok(CHECK)
    }

    /// Notes what stopped the move and what cannot be moved, for all servers.
    async fn note(
        &self,
        problem: Option<String>,
        pass: &RelocationSummary,
    ) -> Result<(), ServiceError> {
        let stuck = pass.stuck.iter().take(NAMED);
        let new = MoveRecord {
            problem,
            stuck: stuck
                .map(|(id, why)| StuckContent {
                    id: *id,
                    why: why.clone(),
                })
                .collect(),
            stuck_count: pass.stuck.len(),
        };
        document::update(&*self.store, keys::CONTENT_MOVE, |found| {
            Ok(match found {
                Some(found) if found == new => Decision::Keep,
                None if new == MoveRecord::default() => Decision::Keep,
                _ => Decision::Write(new.clone()),
            })
        })
        .await?;
        Ok(())
    }
}

/// Waits for the document, and then for each change of it.
async fn changed(follow: &mut Follow) {
    while follow.next().await.is_err() {
        tokio::time::sleep(RETRY).await;
    }
}

#[cfg(test)]
mod tests;
