//! Files on the web that a catalog refers to.
//!
//! The content of an address may change at any time, so a static catalog either
//! refuses it or stores a copy. The server fetches only from hosts that its
//! operator names, because addresses come from repositories.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bunraku_process::{OutputLimits, Program};
use tempfile::TempDir;

/// Time limit for one file.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Maximum size of one file in bytes.
const LARGEST: &str = "268435456";

/// The handling of addresses on the web.
pub(super) enum HttpSourcePolicy {
    /// The addresses stay as they are for the agent that applies the catalog.
    Ignore,
    Refuse,
    Pin(HttpFetcher),
}

/// Fetches each address once.
pub(super) struct HttpFetcher {
    hosts: Vec<String>,
    fetched: Mutex<FetchedFile>,
}

#[derive(Default)]
struct FetchedFile {
    directory: Option<TempDir>,
    files: HashMap<String, PathBuf>,
}

impl HttpFetcher {
    pub(super) fn new(hosts: &[String]) -> Self {
        Self {
            hosts: hosts.to_vec(),
            fetched: Mutex::default(),
        }
    }

    /// Returns the path of a file with the content of the address. Blocks.
    pub(super) fn fetch(&self, address: &str) -> Result<PathBuf, String> {
        self.check_host(address)?;
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = fetched.files.get(address) {
            return Ok(known.clone());
        }
        if fetched.directory.is_none() {
            let made = TempDir::with_prefix("bunraku-http-");
            fetched.directory = Some(made.map_err(|error| error.to_string())?);
        }
        let directory = fetched.directory.as_ref().expect("made above");
        let file = directory.path().join(fetched.files.len().to_string());
        download(address, &file)?;
        fetched.files.insert(address.to_owned(), file.clone());
        Ok(file)
    }

    fn check_host(&self, address: &str) -> Result<(), String> {
        let host = host(address).ok_or_else(|| format!("{address} is not a valid address"))?;
        let name = host.split(':').next().unwrap_or(host);
        if self.hosts.iter().any(|one| one == host || one == name) {
            return Ok(());
        }
        Err(format!(
            "the server may not fetch from {host}: add it to `http_hosts` under [server.compile.puppet]"
        ))
    }
}

/// Returns host and port, or nothing for an address that contains a user.
fn host(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    (!host.is_empty() && !host.contains('@')).then_some(host)
}

/// Downloads a file. Does not follow redirects: they could lead to any host.
fn download(address: &str, to: &Path) -> Result<(), String> {
    let output = Program::new("curl")
        .args(["--silent", "--show-error", "--proto", "=http,https"])
        .args(["--max-filesize", LARGEST])
        .args(["--write-out", "%{http_code}", "--output"])
        .arg(to)
        .arg("--")
        .arg(address)
        .output_blocking(OutputLimits::with_timeout(TIME_LIMIT))
        .map_err(|error| format!("cannot fetch {address}: curl {error}"))?;
    let code = output.stdout_text();
    match (output.status.success(), code.trim()) {
        (true, "200") => Ok(()),
        (true, code) => Err(format!("cannot fetch {address}: HTTP status {code}")),
        (false, _) => {
            let words = output.stderr_text();
            Err(format!("cannot fetch {address}: {}", words.trim()))
        }
    }
}

pub(super) fn is_http(address: &str) -> bool {
    address.starts_with("http://") || address.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_hosts_are_fetched_from() {
        let fetcher = HttpFetcher::new(&["files.example.com".to_owned(), "a:8080".to_owned()]);
        for (address, allowed) in [
            ("https://files.example.com/x", true),
            ("https://files.example.com:8443/x", true),
            ("http://a:8080/x", true),
            ("http://a/x", false),
            ("http://169.254.169.254/latest", false),
            ("http://files.example.com@evil.example.com/x", false),
            ("https://files.example.com.evil.example.com/x", false),
        ] {
            assert_eq!(fetcher.check_host(address).is_ok(), allowed, "{address}");
        }
    }
}
