//! Reads everything, to find damage before someone needs the bytes.

use bunraku_model::ContentId;
use futures::TryStreamExt;

use super::BlobError;
use super::record::{BlobRecord, record_key};
use super::stored::{BlobStore, FoundRecord};
use crate::{Compare, Transaction, settle};

/// The results of one scrub.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ScrubSummary {
    pub checked: usize,
    /// Contents with wrong or missing bytes. They are no longer returned. Writing them again
    /// repairs them.
    pub damaged: Vec<ContentId>,
}

impl BlobStore {
    pub(super) async fn read_everything(&self) -> Result<ScrubSummary, BlobError> {
        let (mut scrubbed, mut after) = (ScrubSummary::default(), None);
        loop {
            let page = self.records(after).await?;
            let Some((last, _)) = page.last() else {
                return Ok(scrubbed);
            };
            after = Some(*last);
            for (id, found) in page {
                scrubbed.checked += 1;
                if !self.check(id, &found).await? {
                    scrubbed.damaged.push(id);
                }
            }
        }
    }

    /// Returns whether the content is sound, or was removed meanwhile.
    async fn check(&self, id: ContentId, found: &FoundRecord) -> Result<bool, BlobError> {
        let read = async {
            let mut stream = self.read_whole(id).await?;
            while stream.try_next().await?.is_some() {}
            Ok::<_, BlobError>(())
        };
        match read.await {
            Ok(()) => return Ok(true),
            Err(error) if error.is_damage() => {}
            Err(other) => return Err(other),
        }
        let damaged = BlobRecord {
            damaged: true,
            ..found.record.clone()
        };
        let key = record_key(id);
        let note = Transaction::new()
            .when(Compare::Value(key.clone(), found.stored.value.clone()))
            .put(key, damaged.encode());
        settle(&*self.store, note).await?;
        // If the upload changed or was removed, the bytes just read no longer matter.
        let now = self.find(id).await?;
        Ok(now.is_none_or(|now| now.record.upload != found.record.upload))
    }
}
