//! The keys of data that adds up, which a full store refuses.
//!
//! All other keys belong to coordination: presence, leases, locks, claims, commands, revocations,
//! the cluster itself. They are few, small, or replaced in place, and they have to be written to
//! free space.

use crate::keys;

/// The prefixes of these keys.
const DATA: [&str; 11] = [
    // Content: catalogs, files, fact sets, code, packages, release maps, finished reports.
    "blob-uploads/",
    "blob-chunks/",
    keys::FACT_QUEUE,
    keys::REPORT_EVENTS,
    keys::RUN_PLANS,
    keys::RUN_RECORDS,
    keys::ONCE_LOGS,
    keys::CODE,
    keys::MODULE_VERSIONS,
    keys::REQUESTS,
    keys::TOKENS,
];

/// Returns whether a key holds data that adds up.
pub fn adds_data(key: &str) -> bool {
    DATA.iter().any(|prefix| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordination_does_not_count_as_data() {
        for key in [
            "servers/1",
            "nodes/web-1/connection",
            "streams/commands/web-1/1",
            "locks/deploy/line",
            "compile-claims/web-1",
            "blobs/1",
            "catalogs/1",
            "cluster/plan",
            "certificates/web-1/1",
            keys::STORE_UPKEEP,
        ] {
            assert!(!adds_data(key), "{key}");
        }
        for key in [
            "blob-chunks/1/2",
            "report-events/web-1/1/0",
            "fact-queue/web-1",
        ] {
            assert!(adds_data(key), "{key}");
        }
    }
}
