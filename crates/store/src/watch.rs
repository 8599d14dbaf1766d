//! What changes, in order, without gaps.

use std::pin::Pin;

use futures::Stream;

use crate::{KeyValue, Revision, StoreError};

/// Where a watch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchStart {
    /// With the first change after the watch was accepted.
    Now,
    /// With this revision, from history if need be:
    /// [`StoreError::Compacted`] if that is gone.
    At(Revision),
}

/// What happened to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(KeyValue),
    /// Deleted, or gone with its lease.
    Delete {
        key: String,
    },
}

/// All changes of one revision under the prefix, in the order of the operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchBatch {
    pub revision: Revision,
    pub changes: Vec<Change>,
}

/// Batches until the stream is dropped. After an error it ends.
///
/// It ends with [`StoreError::Compacted`] when the reader was away for longer
/// than history is kept; everything else that can be mended is mended inside.
pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchBatch, StoreError>> + Send>>;
