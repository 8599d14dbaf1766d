//! Reads releases.

use std::time::Duration;

use bunraku_model::{EnvironmentName, ReleaseNumber};
use bunraku_store::{Change, WatchStart};
use bunraku_wire::api::{ReleaseDetail, ReleaseList, ReleaseState, ReleaseSummary};
use futures::StreamExt;

use super::document::{Release, ReleaseMap};
use super::{Releases, number_of};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

impl Releases {
    /// Returns all stored releases, newest first.
    pub async fn list(&self, environment: &EnvironmentName) -> Result<ReleaseList, ServiceError> {
        let mut releases = Vec::new();
        let prefix = keys::releases(environment);
        for entry in document::read_all(&*self.store, &prefix).await? {
            releases.push(document::decode::<Release>(&entry)?.summary);
        }
        releases.reverse();
        let head = self.head(environment).await?;
        let (_, map) = self.newest_map(environment, &head).await?;
        let held = self.held(environment).await?;
        let waits = |(node, held): &(&_, &super::compiled_catalogs::HeldCatalog)| {
            map.get(*node).map(|entry| entry.catalog) != Some(held.catalog)
        };
        Ok(ReleaseList {
            environment: environment.clone(),
            hold: self.hold_of(environment).await?,
            state: match &head {
                None => None,
                Some(head) => Some(self.state(environment, head.document.number).await?),
            },
            waiting: held.iter().filter(waits).count(),
            releases,
        })
    }

    /// Returns one release with its map; the newest if no number is given.
    pub async fn show(
        &self,
        environment: &EnvironmentName,
        number: Option<ReleaseNumber>,
    ) -> Result<ReleaseDetail, ServiceError> {
        let (summary, map) = self.with_map(environment, number).await?;
        let lines = map.iter().map(|(node, entry)| entry.line(node));
        Ok(ReleaseDetail {
            state: self.state(environment, summary.number).await?,
            map: lines.collect(),
            summary,
        })
    }

    /// Same as [`Releases::show`], but waits until the release is applied or
    /// replaced, for at most `most`.
    pub async fn show_applied(
        &self,
        environment: &EnvironmentName,
        number: Option<ReleaseNumber>,
        most: Duration,
    ) -> Result<ReleaseDetail, ServiceError> {
        let wait = async {
            let key = keys::release_applied(environment);
            let mut changes = self.store.watch(&key, WatchStart::Now).await?;
            loop {
                // Watch first, then read, so that no change is missed.
                let detail = self.show(environment, number).await?;
                if detail.state != ReleaseState::Applying {
                    return Ok(());
                }
                loop {
                    let Some(batch) = changes.next().await else {
                        return Ok(());
                    };
                    let put = |change: &Change| matches!(change, Change::Put(_));
                    if batch?.changes.iter().any(put) {
                        break;
                    }
                }
            }
        };
        match tokio::time::timeout(most, wait).await {
            Err(_) | Ok(Ok(())) => self.show(environment, number).await,
            Ok(Err(error)) => Err(error),
        }
    }

    pub async fn with_map(
        &self,
        environment: &EnvironmentName,
        number: Option<ReleaseNumber>,
    ) -> Result<(ReleaseSummary, ReleaseMap), ServiceError> {
        let number = match number {
            Some(number) => number,
            None => number_of(&self.head(environment).await?),
        };
        let release = self.release(environment, number).await?;
        let map = self.maps.read(&release.map).await?;
        Ok((release.summary, map))
    }

    /// Returns the number of the newest release.
    pub async fn newest(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<ReleaseNumber>, ServiceError> {
        let head = self.head(environment).await?;
        Ok(head.map(|head| head.document.number))
    }

    async fn state(
        &self,
        environment: &EnvironmentName,
        number: ReleaseNumber,
    ) -> Result<ReleaseState, ServiceError> {
        // Read in this order: a release applied meanwhile is not newer than the head.
        let applied = self.applied(environment).await?;
        let newest = number_of(&self.head(environment).await?);
        Ok(match () {
            () if number < newest => ReleaseState::Replaced,
            () if applied == Some(number) => ReleaseState::Current,
            () => ReleaseState::Applying,
        })
    }
}
