//! Reads many keys at once, for what one request per key would make slow.

use std::collections::BTreeSet;

use crate::{Range, Store, StoreError};

/// Returns the next part of every key below `prefix` that begins with `share`: for
/// `blob-refs/<id>/<referrer>`, the ids.
pub(super) async fn first_parts(
    store: &dyn Store,
    prefix: &str,
    share: &str,
) -> Result<BTreeSet<String>, StoreError> {
    let mut parts = BTreeSet::new();
    let mut range = Range {
        keys_only: true,
        ..Range::prefix(format!("{prefix}{share}"))
    };
    loop {
        let page = store.range(range.clone()).await?;
        let mut last = None;
        for item in &page.items {
            let part = item.key[prefix.len()..].split('/').next().unwrap_or("");
            if last != Some(part) {
                parts.insert(part.to_owned());
                last = Some(part);
            }
        }
        let (Some(part), Some(item), true) = (last, page.items.last(), page.more) else {
            return Ok(parts);
        };
        // The rest of this part has nothing new: `~` sorts after every letter.
        range.after = Some(format!("{prefix}{part}/~").max(item.key.clone()));
    }
}
