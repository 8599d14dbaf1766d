//! How much content each place holds.

use std::collections::BTreeMap;

use bunraku_model::ContentPlace;

use super::BlobError;
use super::stored::BlobStore;

/// The contents of one place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PlaceUsage {
    pub contents: u64,
    /// Their size before compression.
    pub bytes: u64,
}

/// The contents of all places.
pub type ContentUsage = BTreeMap<ContentPlace, PlaceUsage>;

impl BlobStore {
    pub(super) async fn count_usage(&self) -> Result<ContentUsage, BlobError> {
        let mut usage = ContentUsage::new();
        for share in self.shares().await? {
            for (_, found) in self.records_of(&share).await? {
                let place = usage.entry(found.record.place).or_default();
                place.contents += 1;
                place.bytes += found.record.size;
            }
        }
        Ok(usage)
    }
}
