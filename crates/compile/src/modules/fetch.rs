//! Packages from other sources: an address with a hash, or a file in a git
//! commit.
//!
//! A fetch returns bytes, at most as many as a module may have. Nothing is
//! unpacked here: the caller verifies the bytes first. A redirect is refused,
//! because its destination was never named.
//!
//! Downloads go through the `curl` program, as code goes through `git`: the
//! machine's proxies and certificates work as users expect.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bunraku_model::ContentId;
use bunraku_process::{Keep, OutputError, OutputLimits, Program};
use tokio::io::AsyncReadExt;

use super::LARGEST_PACKAGE;
use crate::code::{GitError, Mirror, masked};

/// Time limit for the download of one package.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Maximum number of bytes kept of curl's messages.
const MOST_WORDS: usize = 8 << 10;

/// The location of a package.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    #[error("`{0}` is not an address of the form https://, http:// or file:///")]
    Address(String),
    #[error("`{0}` is not a full commit id of 40 or 64 hexadecimal digits")]
    Commit(String),
    #[error("`{0}` is not a path in a repository")]
    Path(String),
    #[error("the `curl` program cannot be started")]
    Start(#[source] std::io::Error),
    #[error("the download failed: {0}")]
    Failed(String),
    #[error("the server answers {0}")]
    Status(u16),
    #[error("the server sends elsewhere (status {0}), which is not followed")]
    Redirect(u16),
    #[error("it took longer than {} s", TIME_LIMIT.as_secs())]
    TimeOut,
    #[error("it is larger than the {LARGEST_PACKAGE} bytes that a module may have")]
    TooLarge,
    #[error("it has the hash {found}, and {expected} is wanted")]
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
    #[error("{} is not a plain file", .0.display())]
    NotAFile(PathBuf),
    #[error("it cannot be had from git")]
    Git(#[from] GitError),
}

impl FetchError {
    /// Returns true if a retry would fail again.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Start(_) | Self::Failed(_) | Self::TimeOut | Self::File { .. } => false,
            Self::Status(status) => (400..500).contains(status),
            Self::Git(error) => matches!(
                error,
                GitError::NoCommit { .. } | GitError::NoFile { .. } | GitError::TooLarge { .. }
            ),
            _ => true,
        }
    }
}

/// Fetches a package. `scratch` is a directory of the caller, which keeps
/// repositories between two calls.
pub async fn fetch(source: &ModuleSource, scratch: &Path) -> Result<Vec<u8>, FetchError> {
    match source {
        ModuleSource::Url { url, sha256 } => {
            let package = match url.strip_prefix("file://") {
                Some(path) => file(Path::new(path)).await?,
                None => download(url).await?,
            };
            let found = ContentId::of(&package);
            match found == *sha256 {
                true => Ok(package),
                false => Err(FetchError::Hash {
                    expected: *sha256,
                    found,
                }),
            }
        }
        ModuleSource::Git { url, commit, path } => from_git(url, commit, path, scratch).await,
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
    match package.len() as u64 > LARGEST_PACKAGE {
        true => Err(FetchError::TooLarge),
        false => Ok(package),
    }
}

/// Accepts only a plain address, because it becomes an argument of a program.
fn check_address(url: &str) -> Result<(), FetchError> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let good = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '-']))
        && url.len() <= 2_000
        && url.bytes().all(|byte| byte.is_ascii_graphic());
    match good {
        true => Ok(()),
        false => Err(FetchError::Address(masked(url))),
    }
}

async fn download(url: &str) -> Result<Vec<u8>, FetchError> {
    check_address(url)?;
    let curl = Program::new("curl")
        // No user settings, no patterns in addresses, no other protocols.
        .args(["-q", "--silent", "--show-error", "--globoff"])
        .args(["--proto", "=http,https", "--max-redirs", "0"])
        .args(["--connect-timeout", "15", "--max-time"])
        .arg(TIME_LIMIT.as_secs().to_string())
        .arg("--max-filesize")
        .arg(LARGEST_PACKAGE.to_string())
        .args(["--write-out", "%{stderr}\nstatus %{http_code}\n"])
        .args(["--output", "-", "--url", url])
        .env("LC_ALL", "C");
    let limits = OutputLimits {
        // Curl has the same limit; this one also ends a curl that ignores it.
        time: TIME_LIMIT + Duration::from_secs(10),
        stdout: Keep::AtMost(usize::try_from(LARGEST_PACKAGE).unwrap_or(usize::MAX)),
        stderr: Keep::First(MOST_WORDS),
    };
    let output = curl.output(limits).await.map_err(|error| match error {
        OutputError::Start(error) | OutputError::Follow(error) => FetchError::Start(error),
        OutputError::TimeOut(_) => FetchError::TimeOut,
        OutputError::TooMuch => FetchError::TooLarge,
    })?;
    judged(output.status.code(), &output.stderr_text(), url).map(|()| output.stdout)
}

/// Interprets curl's exit code and messages.
fn judged(exit: Option<i32>, words: &str, url: &str) -> Result<(), FetchError> {
    let status = words.lines().rev().find_map(|line| {
        let status = line.strip_prefix("status ")?.parse::<u16>();
        status.ok().filter(|status| *status != 0)
    });
    match (exit, status) {
        (Some(63), _) => Err(FetchError::TooLarge),
        (Some(28), _) => Err(FetchError::TimeOut),
        (_, Some(status @ 300..400)) => Err(FetchError::Redirect(status)),
        (Some(0), Some(200)) => Ok(()),
        (Some(0), Some(status)) => Err(FetchError::Status(status)),
        _ => {
            let said: Vec<&str> = words
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with("status "))
                .collect();
            Err(FetchError::Failed(
                said.join("; ").replace(url, &masked(url)),
            ))
        }
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
        time_limit: TIME_LIMIT,
    };
    Ok(mirror.file_at(url, commit, path, LARGEST_PACKAGE).await?)
}

#[cfg(test)]
mod tests;
