//! Changes, in order and without gaps.

use std::pin::Pin;

use futures::Stream;

use crate::{KeyValue, Revision, StoreError};

/// The start of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchStart {
    /// Starts with the first change after the watch was accepted.
    Now,
    /// Starts with this revision, from history if needed. Fails with [`StoreError::Compacted`] if
    /// that is gone.
    At(Revision),
}

/// A change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(KeyValue),
    /// The key was deleted, or ended with its lease.
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

/// A stream of batches until it is dropped. It ends after an error.
///
/// It ends with [`StoreError::Compacted`] when the reader was away for longer than history is kept;
/// the stream recovers from all other recoverable errors internally.
pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchBatch, StoreError>> + Send>>;
