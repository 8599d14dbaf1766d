//! The history of reports: where it is, and for how long it is kept.

use std::path::PathBuf;

use serde::Deserialize;

use crate::duration::HumanDuration;

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HistoryKind {
    /// In the data directory beside an embedded store, or in etcd.
    #[default]
    Default,
    Postgresql,
}

/// The place and the retention of history.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HistorySection {
    /// Where a new fleet keeps its history. An existing one moves it with `bunraku store move`.
    pub(crate) kind: HistoryKind,
    /// The host of PostgreSQL. Without one, PostgreSQL is not configured.
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
    pub(crate) database: String,
    pub(crate) user: String,
    /// A file with the password.
    pub(crate) password_file: Option<PathBuf>,
    /// The authorities that sign the certificate of PostgreSQL.
    pub(crate) ca: Option<PathBuf>,
    /// A client certificate and its key.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// Allow connections without TLS to another machine.
    pub(crate) plaintext: bool,
    /// The most connections of this server.
    pub(crate) connections: usize,
    /// The time limit for one statement.
    pub(crate) statement_timeout: HumanDuration,
    /// The age at which events are deleted.
    pub(crate) events_kept_for: HumanDuration,
    /// The age at which reports are deleted.
    pub(crate) reports_kept_for: HumanDuration,
}

impl Default for HistorySection {
    fn default() -> Self {
        const DAY: u64 = 24 * 3_600;
        Self {
            kind: HistoryKind::Default,
            host: None,
            port: 5432,
            database: "bunraku".to_owned(),
            user: "bunraku".to_owned(),
            password_file: None,
            ca: None,
            certificate: None,
            key: None,
            plaintext: false,
            connections: 8,
            statement_timeout: HumanDuration::from_secs(10),
            events_kept_for: HumanDuration::from_secs(14 * DAY),
            reports_kept_for: HumanDuration::from_secs(90 * DAY),
        }
    }
}
