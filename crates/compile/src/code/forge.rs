//! Releases of modules from the Puppet Forge, or from a mirror of it.
//!
//! The operator selects the Forge; a Puppetfile cannot. An archive counts only
//! if it has the hash that the Forge names. It is kept by its SHA-256, and
//! verified again each time it is used.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bunraku_control::Clock;
use bunraku_model::ContentId;
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};

use super::download::{BearerToken, DownloadError, DownloadLimits, download_with_token};

/// The public Forge.
pub(crate) const PUBLIC_FORGE: &str = "https://forgeapi.puppet.com";
/// Maximum size of one archive in bytes.
const LARGEST_ARCHIVE: u64 = 128 << 20;
/// Maximum size of the description of a release in bytes.
const LARGEST_DESCRIPTION: u64 = 16 << 20;
/// Redirects that are followed: the operator trusts the Forge, and archives have a hash.
const REDIRECTS: u8 = 3;

/// The reason why a release is not available.
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    #[error("cannot fetch {what} from {forge}")]
    Download {
        what: String,
        forge: String,
        #[source]
        source: DownloadError,
    },
    #[error("{forge} has no {what}")]
    Missing { what: String, forge: String },
    #[error("{forge} describes {what} in an unknown form: {why}")]
    Description {
        what: String,
        forge: String,
        why: String,
    },
    #[error("the archive of {what} has the hash {found}, and {forge} names {expected}")]
    Hash {
        what: String,
        forge: String,
        expected: String,
        found: String,
    },
    #[error("cannot read the token for {forge} in {}", file.display())]
    Token {
        forge: String,
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{forge} needs https:// in its address: it gets a token")]
    Unprotected { forge: String },
    #[error("cannot keep the archive of {what}")]
    Keep {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

/// A release whose archive is on this server.
#[derive(Clone, Debug)]
pub(super) struct ForgeRelease {
    pub(super) version: String,
    pub(super) sha256: ContentId,
    pub(super) archive: PathBuf,
}

/// A Forge and the archives that came from it.
#[derive(Clone)]
pub(super) struct Forge {
    url: String,
    /// A file with the token for a private Forge.
    token_file: Option<PathBuf>,
    directory: PathBuf,
    clock: Clock,
}

/// The part of the Forge's description that matters.
#[derive(Deserialize)]
struct Release {
    version: String,
    file_uri: String,
    file_sha256: Option<String>,
    file_md5: Option<String>,
}

#[derive(Deserialize)]
struct Module {
    current_release: Option<Release>,
}

/// What is remembered of a release.
#[derive(Serialize, Deserialize)]
struct KnownRelease {
    sha256: ContentId,
}

impl Forge {
    pub(super) fn new(
        url: &str,
        token_file: Option<&Path>,
        directory: PathBuf,
        clock: Clock,
    ) -> Self {
        Self {
            url: url.trim_end_matches('/').to_owned(),
            token_file: token_file.map(Path::to_owned),
            directory,
            clock,
        }
    }

    /// Returns a release, the newest one without a version.
    pub(super) async fn release(
        &self,
        owner: &str,
        name: &str,
        version: Option<&str>,
    ) -> Result<ForgeRelease, ForgeError> {
        if let Some(version) = version
            && let Some(known) = self.known(owner, name, version).await
        {
            return Ok(known);
        }
        let release = self.describe(owner, name, version).await?;
        if let Some(known) = self.known(owner, name, &release.version).await {
            return Ok(known);
        }
        let what = format!("{owner}-{name} {}", release.version);
        if !is_plain(&release.version) {
            return Err(self.unknown_form(&what, "its version is not one".to_owned()));
        }
        let address = if release.file_uri.starts_with('/') {
            format!("{}{}", self.url, release.file_uri)
        } else {
            release.file_uri.clone()
        };
        let bytes = self.get(&address, &what, LARGEST_ARCHIVE).await?;
        self.verify(&bytes, &release, &what)?;
        let sha256 = ContentId::of(&bytes);
        let record = self.record(owner, name, &release.version);
        let archive = self.archive(sha256);
        let kept = archive.clone();
        let keep = move || {
            let known = serde_json::to_vec(&KnownRelease { sha256 })?;
            std::fs::create_dir_all(record.parent().unwrap_or(&record))?;
            bunraku_files::replace(&kept, &bytes, 0o644)?;
            bunraku_files::replace(&record, &known, 0o644)
        };
        let kept = tokio::task::spawn_blocking(keep).await;
        let kept = kept.unwrap_or_else(|stopped| Err(stopped.into()));
        kept.map_err(|source| ForgeError::Keep { what, source })?;
        Ok(ForgeRelease {
            version: release.version,
            sha256,
            archive,
        })
    }

    async fn describe(
        &self,
        owner: &str,
        name: &str,
        version: Option<&str>,
    ) -> Result<Release, ForgeError> {
        let (what, address) = match version {
            Some(version) => (
                format!("{owner}-{name} {version}"),
                format!("{}/v3/releases/{owner}-{name}-{version}", self.url),
            ),
            None => (
                format!("{owner}-{name}"),
                format!("{}/v3/modules/{owner}-{name}", self.url),
            ),
        };
        let text = self.get(&address, &what, LARGEST_DESCRIPTION).await?;
        let wrong = |error: serde_json::Error| self.unknown_form(&what, error.to_string());
        if version.is_some() {
            return serde_json::from_slice(&text).map_err(wrong);
        }
        let module: Module = serde_json::from_slice(&text).map_err(wrong)?;
        module.current_release.ok_or_else(|| ForgeError::Missing {
            what: format!("release of {what}"),
            forge: self.url.clone(),
        })
    }

    async fn get(&self, address: &str, what: &str, bytes: u64) -> Result<Vec<u8>, ForgeError> {
        let limits = DownloadLimits {
            bytes,
            pinned: None,
            redirects: REDIRECTS,
        };
        let (what, forge) = (what.to_owned(), self.url.clone());
        let token = self.token_for(address)?;
        match download_with_token(address, limits, token.as_ref()).await {
            Ok(bytes) => Ok(bytes),
            Err(DownloadError::Status(404)) => Err(ForgeError::Missing { what, forge }),
            Err(source) => Err(ForgeError::Download {
                what,
                forge,
                source,
            }),
        }
    }

    /// Returns the token if the address belongs to the Forge itself. The file is
    /// read each time, so a new token needs no restart.
    fn token_for(&self, address: &str) -> Result<Option<BearerToken>, ForgeError> {
        let Some(file) = &self.token_file else {
            return Ok(None);
        };
        let forge = || self.url.clone();
        if !is_protected(&self.url) {
            return Err(ForgeError::Unprotected { forge: forge() });
        }
        if origin(address) != origin(&self.url) {
            return Ok(None);
        }
        let token = BearerToken::read(file);
        token.map(Some).map_err(|source| ForgeError::Token {
            forge: forge(),
            file: file.clone(),
            source,
        })
    }

    /// Removes the archives that were last used before this time, and returns
    /// their number. They are copies: a deploy that needs one fetches it again.
    pub(super) fn remove_unused(&self, before: SystemTime) -> std::io::Result<usize> {
        let mut removed = 0;
        for path in super::entries_of(&self.directory)? {
            let metadata = std::fs::symlink_metadata(&path)?;
            if metadata.is_file() && metadata.modified()? < before {
                std::fs::remove_file(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn verify(&self, bytes: &[u8], release: &Release, what: &str) -> Result<(), ForgeError> {
        let (expected, found) = match (&release.file_sha256, &release.file_md5) {
            (Some(sha256), _) => (sha256, ContentId::of(bytes).to_string()),
            (None, Some(md5)) => (md5, hex::encode(Md5::digest(bytes))),
            (None, None) => {
                return Err(self.unknown_form(what, "it names no hash".to_owned()));
            }
        };
        if expected.eq_ignore_ascii_case(&found) {
            return Ok(());
        }
        Err(ForgeError::Hash {
            what: what.to_owned(),
            forge: self.url.clone(),
            expected: expected.clone(),
            found,
        })
    }

    fn unknown_form(&self, what: &str, why: String) -> ForgeError {
        ForgeError::Description {
            what: what.to_owned(),
            forge: self.url.clone(),
            why,
        }
    }

    /// Returns a release that is here already, if its archive is undamaged.
    async fn known(&self, owner: &str, name: &str, version: &str) -> Option<ForgeRelease> {
        let record = self.record(owner, name, version);
        let forge = self.clone();
        let read = move || -> Option<(ContentId, PathBuf)> {
            let known = std::fs::read(record).ok()?;
            let known: KnownRelease = serde_json::from_slice(&known).ok()?;
            let archive = forge.archive(known.sha256);
            let bytes = std::fs::read(&archive).ok()?;
            // A mark that cannot be written only makes the archive look older.
            let used = std::fs::File::options().write(true).open(&archive);
            let _ = used.and_then(|file| file.set_modified(forge.clock.now().into()));
            (ContentId::of(&bytes) == known.sha256).then_some((known.sha256, archive))
        };
        let (sha256, archive) = tokio::task::spawn_blocking(read).await.ok()??;
        Some(ForgeRelease {
            version: version.to_owned(),
            sha256,
            archive,
        })
    }

    fn record(&self, owner: &str, name: &str, version: &str) -> PathBuf {
        // Two Forges may have different archives of one version.
        let forge = ContentId::of(self.url.as_bytes());
        let below = self.directory.join(forge.short());
        below.join(format!("{owner}-{name}-{version}.json"))
    }

    fn archive(&self, sha256: ContentId) -> PathBuf {
        self.directory.join(format!("{sha256}.tar.gz"))
    }
}

/// Returns whether a text can be part of a file name.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+-_".contains(&byte);
    !text.is_empty() && text.bytes().all(plain) && super::is_below(Path::new(text))
}

/// Returns scheme, host and port of an address.
fn origin(address: &str) -> &str {
    let host = address.find("://").map_or(0, |at| at + 3);
    let end = address[host..]
        .find('/')
        .map_or(address.len(), |at| host + at);
    &address[..end]
}

/// Returns whether others on the network cannot read what is sent to an address.
fn is_protected(address: &str) -> bool {
    let local = ["http://127.0.0.1:", "http://127.0.0.1/", "http://[::1]:"];
    address.starts_with("https://") || local.iter().any(|start| address.starts_with(start))
}
