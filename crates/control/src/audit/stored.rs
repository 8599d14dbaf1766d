//! How the chain is stored: the head, and keys with several lines each.
//!
//! New lines are plain text. Old ones are packed: many keys become one, compressed. The lines
//! themselves stay as they were, byte for byte.

use std::io::{Read, Write};

use bunraku_model::{AUDIT_CHAIN_START, AuditChainPlace, audit_line_hash};
use bunraku_store::{KeyValue, Store};
use bunraku_wire::api::{AuditEntry, AuditRecord};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::document::{self, Versioned};
use crate::{ServiceError, keys};

/// The most lines in one key.
pub(super) const MOST_LINES: usize = 1_000;
/// The first bytes of compressed data.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// More than the lines of a key ever have.
const LARGEST: u64 = 64 << 20;

/// The newest record, and where the log begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct StoredHead {
    pub(super) newest: AuditChainPlace,
    /// The number of the oldest record.
    pub(super) first: u64,
    /// The hash that it continues.
    pub(super) first_previous: String,
}

impl Default for StoredHead {
    fn default() -> Self {
        Self {
            newest: AuditChainPlace::start(),
            first: 1,
            first_previous: AUDIT_CHAIN_START.to_owned(),
        }
    }
}

impl StoredHead {
    /// Appends a record. Returns its line.
    pub(super) fn append(&mut self, entry: AuditEntry) -> String {
        let number = self.newest.number + 1;
        let record = AuditRecord {
            number: Some(number),
            previous: Some(self.newest.hash.clone()),
            entry,
        };
        let line =
            serde_json::to_string(&record).expect("records are plain data that JSON can hold");
        let hash = audit_line_hash(line.as_bytes());
        self.newest = AuditChainPlace { number, hash };
        line
    }
}

/// Reads the head. There is none before the first record.
pub(super) async fn read_head(
    store: &dyn Store,
) -> Result<Option<Versioned<StoredHead>>, ServiceError> {
    document::read(store, keys::AUDIT_HEAD).await
}

/// The lines of one key.
pub(super) struct StoredLines {
    pub(super) first: u64,
    pub(super) lines: Vec<Bytes>,
    pub(super) is_packed: bool,
}

impl StoredLines {
    pub(super) fn read(entry: &KeyValue) -> Result<Self, ServiceError> {
        let unreadable = |why: String| {
            ServiceError::internal(
                format!("cannot read the audit records at `{}`", entry.key),
                why,
            )
        };
        let first = keys::parse_audit_records(&entry.key)
            .ok_or_else(|| unreadable("the key has no number".to_owned()))?;
        let is_packed = entry.value.starts_with(&GZIP);
        let text = if is_packed {
            let mut text = Vec::new();
            GzDecoder::new(&entry.value[..])
                .take(LARGEST)
                .read_to_end(&mut text)
                .map_err(|error| unreadable(error.to_string()))?;
            Bytes::from(text)
        } else {
            entry.value.clone()
        };
        let lines = text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| text.slice_ref(line))
            .collect();
        Ok(Self {
            first,
            lines,
            is_packed,
        })
    }

    /// Returns the number of the last line.
    pub(super) fn last(&self) -> u64 {
        self.first + (self.lines.len() as u64).saturating_sub(1)
    }
}

/// Returns the compressed form of lines.
pub(super) fn pack<'a>(lines: impl Iterator<Item = &'a Bytes>) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    for line in lines {
        packed.write_all(line).expect("a Vec takes everything");
        packed.write_all(b"\n").expect("a Vec takes everything");
    }
    packed.finish().expect("a Vec takes everything")
}
