//! Stores a catalog: record, files, text, in an order that survives a crash
//! after every step.

use std::collections::BTreeMap;

use bunraku_model::{CatalogId, ContentId};
use bunraku_store::blobs::{BlobError, Pin};
use bunraku_store::{Settled, StoreError, Transaction, settle};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::io::AsyncRead;
use uuid::Uuid;

use super::record::{Record, State};
use super::{CatalogError, CatalogFile, Catalogs, FileSource, NewCatalog};
use bunraku_control::document::{self, Versioned};
use bunraku_control::keys;

/// Number of files written concurrently.
const AT_ONCE: usize = 8;
/// Number of times that a write with an unknown outcome is checked again.
const ATTEMPTS: usize = 5;

impl Catalogs {
    /// Stores a catalog with its files. When this returns, both are durable and
    /// stay for the grace period: hold the catalog before it ends.
    ///
    /// A catalog that is already stored costs one read and keeps its first
    /// text.
    pub async fn put(&self, new: &NewCatalog) -> Result<(CatalogId, ContentId), CatalogError> {
        self.put_as(new.catalog.id(), new).await
    }

    /// Stores a catalog whose id is known. Computing it reads the whole catalog.
    pub(crate) async fn put_as(
        &self,
        id: CatalogId,
        new: &NewCatalog,
    ) -> Result<(CatalogId, ContentId), CatalogError> {
        debug_assert_eq!(id, new.catalog.id(), "the id of another catalog");
        let files = self.check(new)?;
        let mut text = None;
        let mut unknown = 0;
        loop {
            let outcome = match self.stored(id).await? {
                None => {
                    // Check before writing any part of it.
                    if text.is_none() {
                        text = Some(self.text(new)?);
                    }
                    self.begin(id, new, &files).await
                }
                Some(found) => match found.document.state {
                    State::Removing { .. } => self.finish_removal(id, &found).await.map(|()| None),
                    State::Kept { content, .. } => {
                        self.renew(id, &found, content, new, &files).await
                    }
                    State::Writing => {
                        let text = match &text {
                            Some(text) => text,
                            None => text.insert(self.text(new)?),
                        };
                        self.fill(id, found, text, &files).await
                    }
                },
            };
            match outcome {
                Ok(Some(content)) => return Ok((id, content)),
                Ok(None) => {}
                Err(CatalogError::Store(StoreError::OutcomeUnknown(_))) if unknown < ATTEMPTS => {
                    unknown += 1;
                }
                Err(other) => return Err(other),
            }
        }
    }

    fn text(&self, new: &NewCatalog) -> Result<Vec<u8>, CatalogError> {
        let text = serde_json::to_vec(&new.catalog).expect("a catalog is plain data");
        let (size, limit) = (text.len() as u64, self.options.max_size);
        if size > limit {
            return Err(CatalogError::TooLarge { size, limit });
        }
        Ok(text)
    }

    /// Returns every content that the catalog names, with the location of its bytes.
    pub(super) fn check<'a>(
        &self,
        new: &'a NewCatalog,
    ) -> Result<BTreeMap<ContentId, &'a CatalogFile>, CatalogError> {
        let named = new.catalog.contents();
        let limit = self.options.max_files;
        if named.len() > limit {
            let count = named.len();
            return Err(CatalogError::TooManyFiles { count, limit });
        }
        let given: BTreeMap<_, _> = new.files.iter().map(|file| (file.content, file)).collect();
        named
            .into_iter()
            .map(|content| match given.get(&content) {
                Some(file) => Ok((content, *file)),
                None => Err(CatalogError::FileNotGiven(content)),
            })
            .collect()
    }

    /// Creates the record, so that everything written later has one.
    pub(super) async fn begin(
        &self,
        id: CatalogId,
        new: &NewCatalog,
        files: &BTreeMap<ContentId, &CatalogFile>,
    ) -> Result<Option<ContentId>, CatalogError> {
        let record = Record {
            state: State::Writing,
            files: files.keys().copied().collect(),
            node: new.node.clone(),
            environment: new.environment.clone(),
            code_id: new.code_id.clone(),
            incarnation: Uuid::new_v4(),
            condemned: None,
        };
        let key = keys::catalog(id);
        let transaction = Transaction::new()
            .when_unchanged(&key, None)
            .put(key, document::encode(&record));
        settle(&*self.store, transaction).await?;
        Ok(None)
    }

    /// Writes the contents that the record promises, then marks it as stored. A
    /// concurrent writer refers to the same files; the first text wins.
    async fn fill(
        &self,
        id: CatalogId,
        found: Versioned<Record>,
        text: &[u8],
        files: &BTreeMap<ContentId, &CatalogFile>,
    ) -> Result<Option<ContentId>, CatalogError> {
        let referrer = found.document.referrer(id);
        let size = text.len() as u64;
        let pins = self.refer_to_files(files, &referrer).await?;
        let written = self.blobs.put(&mut &*text, None).await?;
        let content = written.info.id;
        let kept = Record {
            state: State::Kept { content, size },
            ..found.document.reprieved()
        };
        let key = keys::catalog(id);
        let transaction = Transaction::new()
            .when_unchanged(&key, Some(&found.entry))
            .put(key, document::encode(&kept));
        let transaction = self
            .blobs
            .reference_in(transaction, content, &referrer)
            .await?;
        let outcome = settle(&*self.store, transaction).await;
        for pin in pins.into_iter().chain([written.pin]) {
            pin.release().await?;
        }
        match outcome? {
            Settled::Committed => Ok(Some(content)),
            Settled::Refused(_) => {
                self.take_back_if_gone(id, &found.document).await?;
                Ok(None)
            }
        }
    }

    /// Removes references if the record was removed while its files were
    /// written: nothing else would remove the references created since.
    async fn take_back_if_gone(&self, id: CatalogId, record: &Record) -> Result<(), CatalogError> {
        let now = self.stored(id).await?;
        if now.is_some_and(|now| now.document.incarnation == record.incarnation) {
            return Ok(());
        }
        for content in &record.files {
            self.blobs
                .unreference(*content, &record.referrer(id))
                .await?;
        }
        Ok(())
    }

    pub(super) async fn refer_to_files(
        &self,
        files: &BTreeMap<ContentId, &CatalogFile>,
        referrer: &str,
    ) -> Result<Vec<Pin>, CatalogError> {
        // Most files are already stored, from the catalogs of other nodes.
        let ids: Vec<ContentId> = files.keys().copied().collect();
        let missing = self.blobs.reference_all(&ids, referrer).await?;
        // Owned, so that the stream does not borrow data that it may outlive.
        let missing = missing.iter().filter_map(|id| files.get(id));
        let files: Vec<CatalogFile> = missing.map(|file| (*file).clone()).collect();
        let pins: Vec<Option<Pin>> = stream::iter(files)
            .map(|file| self.refer_to_file(file, referrer))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(pins.into_iter().flatten().collect())
    }

    /// Refers to a file, and stores it if necessary.
    async fn refer_to_file(
        &self,
        file: CatalogFile,
        referrer: &str,
    ) -> Result<Option<Pin>, CatalogError> {
        match self.blobs.reference(file.content, referrer).await {
            Ok(()) => return Ok(None),
            Err(BlobError::Missing(_) | BlobError::Damaged { .. }) => {}
            Err(other) => return Err(other.into()),
        }
        let mut source = open(&file.from).await?;
        let written = self.blobs.put(&mut source, Some(file.content)).await?;
        self.blobs.reference(file.content, referrer).await?;
        Ok(Some(written.pin))
    }

    /// Renews a stored catalog: restarts its grace period and repairs damaged content.
    async fn renew(
        &self,
        id: CatalogId,
        found: &Versioned<Record>,
        content: ContentId,
        new: &NewCatalog,
        files: &BTreeMap<ContentId, &CatalogFile>,
    ) -> Result<Option<ContentId>, CatalogError> {
        for file in files.values() {
            if !self.blobs.has(file.content).await? {
                self.refer_to_file((*file).clone(), &found.document.referrer(id))
                    .await?;
            }
        }
        let lost = !self.blobs.has(content).await?;
        if !lost && found.document.condemned.is_none() {
            return Ok(Some(content));
        }
        let state = if lost {
            State::Writing
        } else {
            found.document.state
        };
        let next = Record {
            state,
            ..found.document.reprieved()
        };
        let key = keys::catalog(id);
        let mut transaction = Transaction::new()
            .when_unchanged(&key, Some(&found.entry))
            .put(key, document::encode(&next));
        if lost {
            // The damaged text may have had other lines: its replacement is different
            // content.
            tracing::warn!(catalog = %id, node = %new.node, "the text of a catalog was corrupt; writing it again");
            let referrer = found.document.referrer(id);
            transaction = self.blobs.unreference_in(transaction, content, &referrer)?;
        }
        let committed = settle(&*self.store, transaction).await?.is_committed();
        Ok((committed && !lost).then_some(content))
    }
}

async fn open(from: &FileSource) -> Result<Box<dyn AsyncRead + Send + Unpin>, CatalogError> {
    Ok(match from {
        FileSource::Bytes(bytes) => Box::new(std::io::Cursor::new(bytes.clone())),
        FileSource::Path(path) => {
            let file = tokio::fs::File::open(path).await;
            Box::new(file.map_err(|source| CatalogError::File {
                path: path.clone(),
                source,
            })?)
        }
    })
}
