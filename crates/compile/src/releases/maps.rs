//! Release maps, stored as blobs.

use std::sync::{Arc, Mutex, PoisonError};

use bunraku_model::ContentId;
use bunraku_store::blobs::{BlobError, PinnedBlob, SharedBlobs};
use serde::de::DeserializeOwned;

use super::document::{self, MapAddress, ReleaseMap};
use bunraku_control::ServiceError;

/// A base is replaced when more than one in this many of its entries have changed.
const CHANGES_PER_BASE: usize = 8;

/// A base and its address.
type MapBase = (ContentId, Arc<ReleaseMap>);

/// A written map, pinned until a release refers to it.
pub(super) struct StoredMap {
    pub(super) address: MapAddress,
    pub(super) pins: Vec<PinnedBlob>,
}

/// Reads and writes maps; caches the last used base.
#[derive(Clone)]
pub(super) struct Maps {
    blobs: SharedBlobs,
    remembered: Arc<Mutex<Option<MapBase>>>,
}

impl Maps {
    pub(super) fn new(blobs: SharedBlobs) -> Self {
        Self {
            blobs,
            remembered: Arc::default(),
        }
    }

    pub(super) async fn read(&self, address: &MapAddress) -> Result<ReleaseMap, ServiceError> {
        let base = self.base(address.base).await?;
        Ok(match address.changes {
            None => base.as_ref().clone(),
            Some(changes) => {
                let changes = self.json(changes).await?;
                document::with_changes(base.as_ref().clone(), changes)
            }
        })
    }

    /// Writes a map, on the base of its parent's map if that saves enough.
    pub(super) async fn write(
        &self,
        map: &ReleaseMap,
        parent: Option<&MapAddress>,
    ) -> Result<StoredMap, ServiceError> {
        if let Some(parent) = parent {
            let base = self.base(parent.base).await?;
            let changes = document::changes_between(&base, map);
            if changes.len() * CHANGES_PER_BASE <= base.len() {
                // Pinned, so that it is not collected before the release refers to it.
                let base = self.blobs.pin(parent.base).await.map_err(map_error)?;
                let info = bunraku_store::blobs::BlobInfo {
                    id: parent.base,
                    size: 0,
                };
                let mut pins = vec![PinnedBlob { info, pin: base }];
                // The text of no changes is that of an empty base: one blob, not two.
                let mut address = MapAddress {
                    base: parent.base,
                    changes: None,
                };
                if !changes.is_empty() {
                    let written = self.put(&changes).await?;
                    address.changes = Some(written.info.id);
                    pins.push(written);
                }
                return Ok(StoredMap { address, pins });
            }
        }
        let written = self.put(map).await?;
        let address = MapAddress {
            base: written.info.id,
            changes: None,
        };
        Ok(StoredMap {
            address,
            pins: vec![written],
        })
    }

    async fn put<T: serde::Serialize>(&self, value: &T) -> Result<PinnedBlob, ServiceError> {
        let text = serde_json::to_vec(value).expect("maps are plain data that JSON can hold");
        let written = self.blobs.put(&mut text.as_slice(), None).await;
        written.map_err(map_error)
    }

    async fn base(&self, id: ContentId) -> Result<Arc<ReleaseMap>, ServiceError> {
        let known = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some((known, base)) = known
            && known == id
        {
            return Ok(base);
        }
        let base: Arc<ReleaseMap> = Arc::new(self.json(id).await?);
        let mut remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *remembered = Some((id, Arc::clone(&base)));
        Ok(base)
    }

    async fn json<T: DeserializeOwned>(&self, id: ContentId) -> Result<T, ServiceError> {
        let text = self.blobs.read(id).await.map_err(map_error)?;
        serde_json::from_slice(&text)
            .map_err(|error| ServiceError::internal("cannot read the map of a release", error))
    }
}

pub(super) fn map_error(error: BlobError) -> ServiceError {
    ServiceError::content("the map of a release is invalid", error)
}
