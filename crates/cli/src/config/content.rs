//! The place of content.

use std::path::PathBuf;

use serde::Deserialize;

use crate::duration::HumanDuration;

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ContentKind {
    /// A directory beside an embedded store; chunks in etcd otherwise.
    #[default]
    Default,
    /// An S3-compatible object store.
    S3,
}

/// The place of content: catalogs, files, fact sets, code, packages.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContentSection {
    pub(crate) kind: ContentKind,
    /// `https://…` or `http://…`; AWS's endpoint for the region by default.
    pub(crate) endpoint: Option<String>,
    pub(crate) bucket: Option<String>,
    pub(crate) region: String,
    /// The beginning of the names of all objects.
    pub(crate) prefix: String,
    /// `ENDPOINT/BUCKET/OBJECT` instead of `BUCKET.ENDPOINT/OBJECT`; `true` by default with an
    /// `endpoint`.
    pub(crate) path_style: Option<bool>,
    /// A file in the format of `~/.aws/credentials`.
    pub(crate) credentials_file: Option<PathBuf>,
    /// The CAs that may sign the endpoint's certificate; the system's by default.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) request_timeout: HumanDuration,
    /// The time for which a failing request is repeated.
    pub(crate) retry_for: HumanDuration,
}

impl Default for ContentSection {
    fn default() -> Self {
        Self {
            kind: ContentKind::Default,
            endpoint: None,
            bucket: None,
            region: "us-east-1".to_owned(),
            prefix: "bunraku".to_owned(),
            path_style: None,
            credentials_file: None,
            ca: None,
            request_timeout: HumanDuration::from_secs(30),
            retry_for: HumanDuration::from_secs(20),
        }
    }
}
