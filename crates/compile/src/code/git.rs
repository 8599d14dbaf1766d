//! Runs the `git` program within limits.
//!
//! It never prompts, runs no hooks, and uses only the allowed transports. Its
//! time is limited, and it is ended together with every process that it
//! started. The system's git is preferred to a library: repositories,
//! certificates and ssh settings work with it as users expect.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bunraku_process::{CapturePart, OutputError, OutputLimits, Program, describe};

use super::credentials::{GitAccess, GitAddress, GitCredential};
use super::repository::masked;

/// The reason for a git failure.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("cannot start `git`")]
    Start(#[source] std::io::Error),
    #[error("cannot use {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read {}, which the server's settings name for this repository", path.display())]
    Credential {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("git took longer than {} s", .0.as_secs())]
    TimeOut(Duration),
    #[error("git printed more than {} MiB", MOST_OUTPUT >> 20)]
    TooMuch,
    #[error("git failed: {0}")]
    Failed(String),
    #[error("{url} has no branch `{branch}`")]
    NoBranch { branch: String, url: String },
    #[error("`{reference}` is not in {url}: there is no such tag, branch or commit")]
    NoReference { reference: String, url: String },
    #[error("{url} has no commits")]
    Empty { url: String },
    #[error("{url} has no file {path} at {commit}")]
    NoFile {
        path: String,
        commit: String,
        url: String,
    },
    #[error("{path} has {size} bytes, which exceeds the limit of {limit}")]
    TooLarge { path: String, size: u64, limit: u64 },
}

/// Maximum number of bytes kept of git's messages.
const MOST_WORDS: usize = 16 << 10;
/// Maximum number of bytes kept of git's output.
const MOST_OUTPUT: usize = 256 << 20;

/// A plain file in a commit, and the largest size that may be read.
#[derive(Clone, Copy, Debug)]
pub struct CommittedFile<'a> {
    pub url: &'a str,
    pub commit: &'a str,
    pub path: &'a str,
    pub limit: u64,
}

/// A bare copy of a repository.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub directory: PathBuf,
    /// A directory for files that exist while a program runs.
    pub scratch: PathBuf,
    pub time_limit: Duration,
    pub credentials: Arc<[GitCredential]>,
}

/// The branches of a repository, without a copy of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemoteBranches {
    /// The default branch.
    pub default: Option<String>,
    /// The newest commit of each branch, by the name of the branch.
    pub heads: BTreeMap<String, String>,
}

/// The part of a repository to fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FetchScope {
    DefaultBranch,
    Branch(String),
    /// A full commit id, a tag, a branch or the beginning of a commit id: the first that exists.
    Reference(String),
}

impl Mirror {
    /// Fetches, and returns the id of the wanted commit.
    pub async fn fetch(&self, url: &str, wanted: &FetchScope) -> Result<String, GitError> {
        self.prepare().await?;
        let address = GitAddress::of(url);
        let mut fetch = vec![
            "fetch",
            "--quiet",
            "--force",
            "--prune",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            "--",
            address.url.as_str(),
            "+refs/heads/*:refs/heads/*",
            "+refs/tags/*:refs/tags/*",
        ];
        if *wanted == FetchScope::DefaultBranch {
            fetch.push("+HEAD:refs/bunraku/default");
        }
        match self.run_remote(&address, &fetch).await {
            Err(GitError::Failed(text)) if text.contains("find remote ref HEAD") => {
                return Err(GitError::Empty { url: masked(url) });
            }
            other => other?,
        };
        self.resolve(&address, wanted).await
    }

    /// Returns the branches that the repository has now.
    pub async fn branches(&self, url: &str) -> Result<RemoteBranches, GitError> {
        self.prepare().await?;
        let address = GitAddress::of(url);
        let list = [
            "ls-remote",
            "--symref",
            "--",
            &address.url,
            "HEAD",
            "refs/heads/*",
        ];
        let output = self.run_remote(&address, &list).await?;
        let mut branches = RemoteBranches::default();
        for line in String::from_utf8_lossy(&output).lines() {
            match line.split_once('\t') {
                Some((target, "HEAD")) => {
                    if let Some(branch) = target.strip_prefix("ref: refs/heads/") {
                        branches.default = Some(branch.to_owned());
                    }
                }
                Some((commit, name)) => {
                    if let Some(branch) = name.strip_prefix("refs/heads/") {
                        branches.heads.insert(branch.to_owned(), commit.to_owned());
                    }
                }
                None => {}
            }
        }
        Ok(branches)
    }

    /// Returns a commit or tag that is here already.
    pub(super) async fn find_fixed(&self, wanted: &FetchScope) -> Result<Option<String>, GitError> {
        let FetchScope::Reference(reference) = wanted else {
            return Ok(None);
        };
        if !self.directory.join("HEAD").exists() {
            return Ok(None);
        }
        if is_commit(reference) {
            return self.find(reference).await;
        }
        self.find(&format!("refs/tags/{reference}")).await
    }

    /// Returns what is wanted, if it is here.
    pub(super) async fn find_wanted(
        &self,
        wanted: &FetchScope,
    ) -> Result<Option<String>, GitError> {
        for name in names(wanted) {
            if let Some(found) = self.find(&name).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn resolve(&self, address: &GitAddress, wanted: &FetchScope) -> Result<String, GitError> {
        if let Some(found) = self.find_wanted(wanted).await? {
            return Ok(found);
        }
        let url = address.url.as_str();
        let url_shown = masked(url);
        match wanted {
            FetchScope::DefaultBranch => Err(GitError::Empty { url: url_shown }),
            FetchScope::Branch(branch) => Err(GitError::NoBranch {
                branch: branch.clone(),
                url: url_shown,
            }),
            FetchScope::Reference(reference) => {
                if is_commit(reference) {
                    // The commit may no longer be on a branch; some servers still provide it.
                    let exact = [
                        "fetch",
                        "--quiet",
                        "--no-tags",
                        "--",
                        url,
                        reference.as_str(),
                    ];
                    let _ = self.run_remote(address, &exact).await;
                    if let Some(found) = self.find(reference).await? {
                        return Ok(found);
                    }
                }
                Err(GitError::NoReference {
                    reference: reference.clone(),
                    url: url_shown,
                })
            }
        }
    }

    /// Reads one plain file of one commit, up to the allowed size. Fetches the commit first if
    /// necessary.
    pub async fn file_at(&self, file: CommittedFile<'_>) -> Result<Vec<u8>, GitError> {
        let CommittedFile { url, commit, .. } = file;
        self.prepare().await?;
        if self.find(commit).await?.is_none() {
            // Fetch only this commit without its history, if the server supports it.
            let address = GitAddress::of(url);
            let exact = [
                "fetch",
                "--quiet",
                "--no-tags",
                "--depth=1",
                "--no-write-fetch-head",
                "--",
                &address.url,
                commit,
            ];
            if self.run_remote(&address, &exact).await.is_err() {
                self.fetch(url, &FetchScope::Reference(commit.to_owned()))
                    .await?;
            }
        }
        self.read_file(file).await
    }

    /// Reads one plain file of a commit that is here, up to the allowed size.
    pub(super) async fn read_file(&self, file: CommittedFile<'_>) -> Result<Vec<u8>, GitError> {
        let CommittedFile {
            url,
            commit,
            path,
            limit,
        } = file;
        let no_file = || GitError::NoFile {
            path: path.to_owned(),
            commit: commit.to_owned(),
            url: masked(url),
        };
        let name = format!("{commit}:{path}");
        let size = match self.run(&["cat-file", "-s", &name]).await {
            Ok(size) => String::from_utf8_lossy(&size).trim().parse::<u64>(),
            Err(GitError::Failed(_)) => return Err(no_file()),
            Err(other) => return Err(other),
        };
        let size = size.map_err(|_| no_file())?;
        if size > limit {
            let path = path.to_owned();
            return Err(GitError::TooLarge { path, size, limit });
        }
        match self.run(&["cat-file", "blob", &name]).await {
            Err(GitError::Failed(_)) => Err(no_file()),
            other => other,
        }
    }

    async fn find(&self, name: &str) -> Result<Option<String>, GitError> {
        let wanted = format!("{name}^{{commit}}");
        match self
            .run(&[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &wanted,
            ])
            .await
        {
            Ok(output) => Ok(Some(String::from_utf8_lossy(&output).trim().to_owned())),
            Err(GitError::Failed(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    async fn prepare(&self) -> Result<(), GitError> {
        let unusable = |source| GitError::Directory {
            path: self.directory.clone(),
            source,
        };
        tokio::fs::create_dir_all(&self.directory)
            .await
            .map_err(unusable)?;
        if !self.directory.join("HEAD").exists() {
            self.run(&["init", "--quiet", "--bare", "--template=", "."])
                .await?;
        }
        Ok(())
    }

    /// Runs a command that reaches the repository, with its credentials.
    async fn run_remote(
        &self,
        address: &GitAddress,
        arguments: &[&str],
    ) -> Result<Vec<u8>, GitError> {
        let access = GitAccess::prepare(address, &self.credentials, &self.scratch)?;
        let program = access.add_to(command(&self.directory));
        self.output(program, arguments).await
    }

    pub(super) async fn run(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        self.output(command(&self.directory), arguments).await
    }

    async fn output(&self, program: Program, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        let limits = OutputLimits {
            time: self.time_limit,
            stdout: CapturePart::AtMost(MOST_OUTPUT),
            stderr: CapturePart::First(MOST_WORDS),
        };
        let program = program.args(arguments.iter().copied());
        let output = program.output(limits).await.map_err(|error| match error {
            OutputError::Start(error) | OutputError::Follow(error) => GitError::Start(error),
            OutputError::TimeOut(limit) => GitError::TimeOut(limit),
            OutputError::TooMuch => GitError::TooMuch,
        })?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(GitError::Failed(error_text(
                &output.stderr_text(),
                output.status,
            )))
        }
    }
}

/// Returns the names under which git may know what is wanted, in order.
fn names(wanted: &FetchScope) -> Vec<String> {
    match wanted {
        FetchScope::DefaultBranch => vec!["refs/bunraku/default".to_owned()],
        FetchScope::Branch(branch) => vec![format!("refs/heads/{branch}")],
        FetchScope::Reference(reference) if is_commit(reference) => vec![reference.clone()],
        FetchScope::Reference(reference) => {
            let mut names = vec![
                format!("refs/tags/{reference}"),
                format!("refs/heads/{reference}"),
            ];
            if is_hexadecimal(reference) && reference.len() >= 7 {
                names.push(reference.clone());
            }
            names
        }
    }
}

/// Returns whether the text is a full commit id.
pub(super) fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && is_hexadecimal(text)
}

fn is_hexadecimal(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.bytes().all(digit)
}

/// Returns git's message on one line, without addresses that contain a password.
fn error_text(words: &str, status: std::process::ExitStatus) -> String {
    let lines: Vec<String> = words
        .lines()
        .map(|line| line.trim().trim_start_matches("fatal: "))
        .filter(|line| !line.is_empty())
        .map(|line| {
            let words = line.split(' ').map(|word| {
                let inner = word.trim_matches(['\'', ':', '"']);
                word.replace(inner, &masked(inner))
            });
            words.collect::<Vec<_>>().join(" ")
        })
        .collect();
    if lines.is_empty() {
        describe(status)
    } else {
        lines.join("; ")
    }
}

/// Creates a git command in a bare directory, with all surprising features turned off.
pub(crate) fn command(directory: &Path) -> Program {
    let program = Program::new("git")
        .current_dir(directory)
        .env("GIT_DIR", ".")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "/bin/false")
        .env("SSH_ASKPASS", "/bin/false")
        .env("GIT_ALLOW_PROTOCOL", "file:https:ssh")
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        .env("LC_ALL", "C")
        .env_remove("GIT_INDEX_FILE")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_OBJECT_DIRECTORY")
        .args(["-c", "core.hooksPath=/dev/null"])
        .args(["-c", "core.fsmonitor=false"])
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
    if std::env::var_os("GIT_SSH_COMMAND").is_some() {
        return program;
    }
    program.env(
        "GIT_SSH_COMMAND",
        "ssh -o BatchMode=yes -o ConnectTimeout=15",
    )
}
