//! Pages of what is under a prefix, read from the store without reading all of it.

use bunraku_store::{KeyValue, Range, Store};
use bunraku_wire::api::PageQuery;

use crate::ServiceError;

/// The number of keys that one request for a page reads at most. A filter that matches little may
/// therefore return a short page with a cursor.
pub const MOST_KEYS: usize = 20_000;

/// Returns the key that a page begins after.
pub fn after_key(query: &PageQuery) -> Result<Option<String>, ServiceError> {
    (query.after_key()).map_err(|error| ServiceError::invalid(error.to_string()))
}

/// Reads entries under a prefix in order, request by request, and passes each to `each` until it
/// returns false. Returns true if nothing is left.
pub async fn read_some(
    store: &dyn Store,
    prefix: &str,
    after: Option<String>,
    mut each: impl FnMut(KeyValue) -> Result<bool, ServiceError>,
) -> Result<bool, ServiceError> {
    let mut range = Range {
        after,
        ..Range::prefix(prefix)
    };
    loop {
        let page = store.range(range.clone()).await?;
        range.after = page.items.last().map(|entry| entry.key.clone());
        for entry in page.items {
            if !each(entry)? {
                return Ok(false);
            }
        }
        if !page.more || range.after.is_none() {
            return Ok(true);
        }
    }
}
