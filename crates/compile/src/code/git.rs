//! Runs the `git` program within limits.
//!
//! It never prompts, runs no hooks, and uses only the allowed transports. Its
//! time is limited, and it is ended together with every process that it
//! started. The system's git is preferred to a library: repositories,
//! certificates and ssh settings work with it as users expect.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bunraku_process::{Keep, OutputError, OutputLimits, Program, describe};

use super::repository::masked;

/// The reason for a git failure.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("the `git` program cannot be started")]
    Start(#[source] std::io::Error),
    #[error("cannot use {}", path.display())]
    Directory {
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
    #[error("branch `{branch}` is not in {url}")]
    NoBranch { branch: String, url: String },
    #[error("commit {commit} is not in {url}")]
    NoCommit { commit: String, url: String },
    #[error("{url} has no commits")]
    Empty { url: String },
    #[error("there is no file {path} in {url} at {commit}")]
    NoFile {
        path: String,
        commit: String,
        url: String,
    },
    #[error("{path} has {size} bytes, and at most {limit} are taken")]
    TooLarge { path: String, size: u64, limit: u64 },
}

/// Maximum number of bytes kept of git's messages.
const MOST_WORDS: usize = 16 << 10;
/// Maximum number of bytes kept of git's output.
const MOST_OUTPUT: usize = 256 << 20;

/// A bare copy of one environment's repository.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub directory: PathBuf,
    pub time_limit: Duration,
}

/// The part of a repository to fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    DefaultBranch,
    Branch(String),
    Commit(String),
}

impl Mirror {
    /// Fetches, and returns the id of the wanted commit.
    pub async fn fetch(&self, url: &str, wanted: &Wanted) -> Result<String, GitError> {
        self.prepare().await?;
        let mut fetch = vec![
            "fetch",
            "--quiet",
            "--force",
            "--prune",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            "--",
            url,
            "+refs/heads/*:refs/heads/*",
            "+refs/tags/*:refs/tags/*",
        ];
        if *wanted == Wanted::DefaultBranch {
            fetch.push("+HEAD:refs/bunraku/default");
        }
        match self.run(&fetch).await {
            Err(GitError::Failed(text)) if text.contains("find remote ref HEAD") => {
                return Err(GitError::Empty { url: masked(url) });
            }
            other => other?,
        };
        self.resolve(url, wanted).await
    }

    async fn resolve(&self, url: &str, wanted: &Wanted) -> Result<String, GitError> {
        let name = match wanted {
            Wanted::DefaultBranch => "refs/bunraku/default".to_owned(),
            Wanted::Branch(branch) => format!("refs/heads/{branch}"),
            Wanted::Commit(commit) => commit.clone(),
        };
        if let Some(found) = self.find(&name).await? {
            return Ok(found);
        }
        let url_shown = masked(url);
        match wanted {
            Wanted::DefaultBranch => Err(GitError::Empty { url: url_shown }),
            Wanted::Branch(branch) => Err(GitError::NoBranch {
                branch: branch.clone(),
                url: url_shown,
            }),
            Wanted::Commit(commit) => {
                // The commit may no longer be on a branch; some servers still provide it.
                let exact = ["fetch", "--quiet", "--no-tags", "--", url, commit.as_str()];
                let _ = self.run(&exact).await;
                self.find(commit).await?.ok_or(GitError::NoCommit {
                    commit: commit.clone(),
                    url: url_shown,
                })
            }
        }
    }

    /// Reads one plain file of one commit, up to the allowed size.
    pub async fn file_at(
        &self,
        url: &str,
        commit: &str,
        path: &str,
        limit: u64,
    ) -> Result<Vec<u8>, GitError> {
        self.prepare().await?;
        if self.find(commit).await?.is_none() {
            // Fetch only this commit without its history, if the server supports it.
            let exact = [
                "fetch",
                "--quiet",
                "--no-tags",
                "--depth=1",
                "--no-write-fetch-head",
                "--",
                url,
                commit,
            ];
            if self.run(&exact).await.is_err() {
                self.fetch(url, &Wanted::Commit(commit.to_owned())).await?;
            }
        }
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

    async fn run(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        let limits = OutputLimits {
            time: self.time_limit,
            stdout: Keep::AtMost(MOST_OUTPUT),
            stderr: Keep::First(MOST_WORDS),
        };
        let program = command(&self.directory).args(arguments.iter().copied());
        let output = program.output(limits).await.map_err(|error| match error {
            OutputError::Start(error) | OutputError::Follow(error) => GitError::Start(error),
            OutputError::TimeOut(limit) => GitError::TimeOut(limit),
            OutputError::TooMuch => GitError::TooMuch,
        })?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(GitError::Failed(said(&output.stderr_text(), output.status))),
        }
    }
}

/// Returns git's message on one line, without addresses that contain a password.
fn said(words: &str, status: std::process::ExitStatus) -> String {
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
