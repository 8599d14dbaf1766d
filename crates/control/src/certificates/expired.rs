//! Deletion of certificates that ended long ago.
//!
//! A revoked certificate stays until it has ended, like all others: until then, every server must
//! refuse it. The margin covers clocks that differ, and gives operators time to look.

use bunraku_store::{SharedStore, Transaction, settle};
use jiff::{SignedDuration, Timestamp};

use super::inventory::StoredCertificate;
use crate::{ServiceError, document, keys, pages};

/// The time for which a certificate stays in the inventory after its end.
pub(super) const KEPT_AFTER_END: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The number of certificates that one transaction deletes.
const BATCH: usize = 50;

/// Deletes the certificates that ended long ago. Returns their number.
pub(super) async fn forget_expired(
    store: &SharedStore,
    now: Timestamp,
) -> Result<usize, ServiceError> {
    let mut expired = Vec::new();
    pages::read_some(&**store, keys::CERTIFICATES, None, |entry| {
        let stored: StoredCertificate = document::decode(&entry)?;
        if stored
            .not_after
            .saturating_add(KEPT_AFTER_END)
            .is_ok_and(|end| end < now)
        {
            expired.push(entry.key.clone());
        }
        Ok(true)
    })
    .await?;
    for batch in expired.chunks(BATCH) {
        // A certificate that has ended does not change any more, except by a revocation.
        let transaction = batch.iter().fold(Transaction::new(), Transaction::delete);
        settle(&**store, transaction).await?;
    }
    Ok(expired.len())
}
