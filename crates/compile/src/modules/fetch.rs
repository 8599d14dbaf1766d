//! Packages from other sources: an address with a hash, or a file in a git
//! commit.
//!
//! A fetch returns bytes, at most as many as a module may have. Nothing is
//! unpacked here: the caller verifies the bytes first. A redirect is refused,
//! because its destination was never named.
//!
//! Absent here: how a download works (`code::download`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bunraku_model::ContentId;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use super::LARGEST_PACKAGE;
use super::reach::{ModuleReach, OutOfReach};
use crate::code::{
    CommittedFile, DownloadError, DownloadLimits, GitError, Mirror, TIME_LIMIT, download, masked,
};

/// The limits for the download of one package.
const LIMITS: DownloadLimits = DownloadLimits {
    bytes: LARGEST_PACKAGE,
    redirects: 0,
    pinned: None,
};

/// The location of a package.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ModuleSource {
    /// `https://…`, `http://…` or `file:///…`, and the hash of the content.
    Url { url: String, sha256: ContentId },
    /// A file in a repository, at a full commit id.
    Git {
        url: String,
        commit: String,
        path: String,
    },
}

impl std::fmt::Display for ModuleSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url { url, .. } => f.write_str(&masked(url)),
            Self::Git { url, commit, path } => {
                write!(f, "{path} in {} at {commit}", masked(url))
            }
        }
    }
}

/// The reason why a package is not available.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("`{0}` is not a valid address of the form https://, http:// or file:///")]
    Address(String),
    #[error("`{0}` is not a full commit id of 40 or 64 hexadecimal digits")]
    Commit(String),
    #[error("`{0}` is not a path in a repository")]
    Path(String),
    #[error(transparent)]
    OutOfReach(#[from] OutOfReach),
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error("it exceeds the maximum module size of {LARGEST_PACKAGE} bytes")]
    TooLarge,
    #[error("its hash is {found}, expected {expected}")]
    Hash {
        expected: ContentId,
        found: ContentId,
    },
    #[error("cannot read {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("cannot get it from git")]
    Git(#[from] GitError),
}

impl FetchError {
    /// Returns true if a retry would fail again.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::File { .. } => false,
            Self::Download(error) => error.is_lasting(),
            Self::Git(error) => matches!(
                error,
                GitError::NoReference { .. } | GitError::NoFile { .. } | GitError::TooLarge { .. }
            ),
            _ => true,
        }
    }
}

/// Fetches a package. `scratch` is a directory of the caller, which keeps
/// repositories between two calls. Addresses that are out of `reach` are refused.
pub async fn fetch(
    source: &ModuleSource,
    scratch: &Path,
    reach: ModuleReach,
) -> Result<Vec<u8>, FetchError> {
    match source {
        ModuleSource::Url { url, sha256 } => {
            let address = reach.check(url).await?;
            let package = match url.strip_prefix("file://") {
                Some(path) => file(Path::new(path)).await?,
                None => {
                    let pinned = address.map(|address| address.ip());
                    download(url, DownloadLimits { pinned, ..LIMITS }).await?
                }
            };
            let found = ContentId::of(&package);
            if found == *sha256 {
                Ok(package)
            } else {
                Err(FetchError::Hash {
                    expected: *sha256,
                    found,
                })
            }
        }
        ModuleSource::Git { url, commit, path } => {
            reach.check(url).await?;
            from_git(url, commit, path, scratch).await
        }
    }
}

async fn file(path: &Path) -> Result<Vec<u8>, FetchError> {
    if !path.is_absolute() {
        return Err(FetchError::Address(format!("file://{}", path.display())));
    }
    let failed = |source| FetchError::File {
        path: path.to_owned(),
        source,
    };
    // Check before opening: a pipe would block forever.
    if !tokio::fs::metadata(path).await.map_err(failed)?.is_file() {
        return Err(FetchError::NotAFile(path.to_owned()));
    }
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut package = Vec::new();
    let mut limited = file.take(LARGEST_PACKAGE + 1);
    limited.read_to_end(&mut package).await.map_err(failed)?;
    if package.len() as u64 > LARGEST_PACKAGE {
        Err(FetchError::TooLarge)
    } else {
        Ok(package)
    }
}

async fn from_git(
    url: &str,
    commit: &str,
    path: &str,
    scratch: &Path,
) -> Result<Vec<u8>, FetchError> {
    let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if !matches!(commit.len(), 40 | 64) || !commit.bytes().all(hexadecimal) {
        return Err(FetchError::Commit(commit.to_owned()));
    }
    if !crate::code::is_below(Path::new(path)) || path.contains(['\0', '\n']) {
        return Err(FetchError::Path(path.to_owned()));
    }
    crate::code::check_url(url).map_err(|_| FetchError::Address(masked(url)))?;
    let mirror = Mirror {
        directory: scratch.join(format!("git-{}", ContentId::of(url.as_bytes()).short())),
        scratch: scratch.to_owned(),
        time_limit: TIME_LIMIT,
        credentials: Arc::from([]),
    };
    let file = CommittedFile {
        url,
        commit,
        path,
        limit: LARGEST_PACKAGE,
    };
    Ok(mirror.file_at(file).await?)
}

#[cfg(test)]
mod tests;
