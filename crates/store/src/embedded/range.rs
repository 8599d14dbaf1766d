//! Pages of keys.

use rusqlite::Connection;

use super::failure::Failure;
use super::rows;
use crate::{Range, RangePage, Revision};

/// A page ends when it reaches one of these limits.
const PAGE_KEYS: usize = 1000;
const PAGE_BYTES: usize = 2 << 20;

pub(super) fn read_page(connection: &Connection, range: &Range) -> Result<RangePage, Failure> {
    let revision = Revision(rows::newest_revision(connection)?);
    let limit = match range.limit {
        0 => PAGE_KEYS,
        limit => limit,
    };
    let (start, end) = rows::bounds(&range.prefix);
    let after = range.after.as_deref().unwrap_or_default().as_bytes();
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {} FROM keys WHERE key >= ?1 AND key < ?2 AND key > ?3 ORDER BY key",
        rows::KEY_COLUMNS
    ))?;
    // The later of the two starts, so that no skipped key is read.
    let start = start.max(after.to_vec());
    let mut found = statement.query((start, end, after))?;
    let mut page = RangePage {
        items: Vec::new(),
        more: false,
        revision,
    };
    let mut bytes = 0;
    while let Some(row) = found.next()? {
        if page.items.len() >= limit || bytes >= PAGE_BYTES {
            page.more = true;
            break;
        }
        let mut entry = rows::read_key(row)?;
        if range.keys_only {
            entry.value.clear();
        }
        bytes += entry.key.len() + entry.value.len();
        page.items.push(entry);
    }
    Ok(page)
}
