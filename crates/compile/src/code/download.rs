//! Downloads with the `curl` program, within limits.
//!
//! The machine's proxies and certificates work as users expect, as they do for
//! `git`. The bytes are returned whole; the caller verifies them.

use std::path::Path;
use std::time::Duration;

use bunraku_process::{CapturePart, OutputError, OutputLimits, Program};

use super::repository::masked;

/// Time limit for one download.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Maximum number of bytes kept of curl's messages.
const MOST_WORDS: usize = 8 << 10;

/// The limits of one download.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DownloadLimits {
    pub(crate) bytes: u64,
    /// Redirects that are followed. With 0, a redirect is refused, because its
    /// destination was never named.
    pub(crate) redirects: u8,
    /// The address of the host, if it was checked. Its name is not looked up again.
    pub(crate) pinned: Option<std::net::IpAddr>,
}

/// A secret that a server accepts instead of a password.
pub(crate) struct BearerToken(String);

impl BearerToken {
    /// Reads a token from a file. The file may end with a newline.
    pub(crate) fn read(path: &Path) -> std::io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let token = text.trim();
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        if token.is_empty() || token.len() > 4_096 || !token.bytes().all(is_plain) {
            return Err(std::io::Error::other("it does not contain a token"));
        }
        Ok(Self(token.to_owned()))
    }
}

/// The reason why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("`{0}` is not an address of the form https://, http:// or file:///")]
    Address(String),
    #[error("cannot start `curl`")]
    Start(#[source] std::io::Error),
    #[error("the download failed: {0}")]
    Failed(String),
    #[error("the server answered with status {0}")]
    Status(u16),
    #[error("the server redirects (status {0}); redirects are not followed")]
    Redirect(u16),
    #[error("it took longer than {} s", TIME_LIMIT.as_secs())]
    TimeOut,
    #[error("it exceeds the maximum size of {0} bytes")]
    TooLarge(u64),
}

impl DownloadError {
    /// Returns true if a retry would fail again.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Start(_) | Self::Failed(_) | Self::TimeOut => false,
            Self::Status(status) => (400..500).contains(status),
            _ => true,
        }
    }
}

/// Returns curl's rule that a host has this address, on any port.
fn pinned_host(url: &str, address: Option<std::net::IpAddr>) -> Option<String> {
    let address = address?;
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    // An address in brackets needs no rule.
    let (name, port) = match host.rsplit_once(':') {
        _ if host.starts_with('[') => return None,
        Some((name, port)) => (name, port),
        None if scheme == "https" => (host, "443"),
        None => (host, "80"),
    };
    let address = match address {
        std::net::IpAddr::V4(address) => address.to_string(),
        std::net::IpAddr::V6(address) => format!("[{address}]"),
    };
    Some(format!("{name}:{port}:{address}"))
}

/// Downloads the content of an address.
pub(crate) async fn download(url: &str, limits: DownloadLimits) -> Result<Vec<u8>, DownloadError> {
    download_with_token(url, limits, None).await
}

/// Downloads the content of an address, and shows a token to its host. Curl does
/// not show it to other hosts that the first one redirects to.
pub(crate) async fn download_with_token(
    url: &str,
    limits: DownloadLimits,
    token: Option<&BearerToken>,
) -> Result<Vec<u8>, DownloadError> {
    check_address(url)?;
    let header =
        token.map(|BearerToken(token)| format!("header = \"Authorization: Bearer {token}\"\n"));
    let curl = Program::new("curl")
        // No user settings, no patterns in addresses, no other protocols.
        .args(["-q", "--silent", "--show-error", "--globoff"])
        .args(["--proto", "=http,https", "--max-redirs"])
        .arg(limits.redirects.to_string())
        .args((limits.redirects > 0).then_some("--location"))
        .args(["--connect-timeout", "15", "--max-time"])
        .arg(TIME_LIMIT.as_secs().to_string())
        .arg("--max-filesize")
        .arg(limits.bytes.to_string())
        .args(["--write-out", "%{stderr}\nstatus %{http_code}\n"])
        .args(
            pinned_host(url, limits.pinned)
                .iter()
                .flat_map(|host| ["--resolve", host]),
        )
        // The address may contain a password, so neither is an argument.
        .args(["--output", "-", "--config", "-"])
        .input(format!("url = \"{url}\"\n{}", header.unwrap_or_default()))
        .env("LC_ALL", "C");
    let output_limits = OutputLimits {
        // Curl has the same limit; this one also ends a curl that ignores it.
        time: TIME_LIMIT + Duration::from_secs(10),
        stdout: CapturePart::AtMost(usize::try_from(limits.bytes).unwrap_or(usize::MAX)),
        stderr: CapturePart::First(MOST_WORDS),
    };
    let output = curl.output(output_limits).await;
    let output = output.map_err(|error| match error {
        OutputError::Start(error) | OutputError::Follow(error) => DownloadError::Start(error),
        OutputError::TimeOut(_) => DownloadError::TimeOut,
        OutputError::TooMuch => DownloadError::TooLarge(limits.bytes),
    })?;
    let outcome = Outcome {
        exit: output.status.code(),
        words: &output.stderr_text(),
        url,
        limit: limits.bytes,
    };
    outcome.judge().map(|()| output.stdout)
}

/// Accepts only a plain address, because it becomes an argument of a program.
fn check_address(url: &str) -> Result<(), DownloadError> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let good = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '-']))
        && url.len() <= 2_000
        && url
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\');
    if good {
        Ok(())
    } else {
        Err(DownloadError::Address(masked(url)))
    }
}

/// Curl's exit code and messages.
struct Outcome<'a> {
    exit: Option<i32>,
    words: &'a str,
    url: &'a str,
    limit: u64,
}

impl Outcome<'_> {
    fn judge(&self) -> Result<(), DownloadError> {
        let status = self.words.lines().rev().find_map(|line| {
            let status = line.strip_prefix("status ")?.parse::<u16>();
            status.ok().filter(|status| *status != 0)
        });
        match (self.exit, status) {
            (Some(63), _) => Err(DownloadError::TooLarge(self.limit)),
            (Some(28), _) => Err(DownloadError::TimeOut),
            (_, Some(status @ 300..400)) => Err(DownloadError::Redirect(status)),
            (Some(0), Some(200)) => Ok(()),
            (Some(0), Some(status)) => Err(DownloadError::Status(status)),
            _ => {
                let said: Vec<&str> = self
                    .words
                    .lines()
                    .map(str::trim)
                    .filter(|line| !line.is_empty() && !line.starts_with("status "))
                    .collect();
                let said = said.join("; ").replace(self.url, &masked(self.url));
                Err(DownloadError::Failed(said))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_of_the_web_become_input_of_a_program() {
        for url in ["https://h/x", "http://h:8080/x?y=1", "https://u:p@h/x"] {
            assert!(check_address(url).is_ok(), "{url}");
        }
        for url in [
            "",
            "-o/etc/passwd",
            "ftp://h/x",
            "https://",
            "https:///x",
            "https://-x",
            "https://h/a b",
            "https://h/\n",
            "https://h/\"\noutput=\"/etc/passwd",
            "https://h/\\",
            "gopher://h",
            "HTTPS://h/x",
        ] {
            assert!(check_address(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_redirect_is_refused_whatever_else_curl_says() {
        let shown = |exit, words| {
            let outcome = Outcome {
                exit: Some(exit),
                words,
                url: "https://u:p@h/",
                limit: 10,
            };
            outcome.judge().map_err(|error| error.to_string())
        };
        assert_eq!(shown(0, "\nstatus 200\n"), Ok(()));
        for words in [
            "\nstatus 302\n",
            "curl: (47) Maximum (0) redirects followed\nstatus 301\n",
        ] {
            assert!(shown(47, words).is_err_and(|said| said.contains("not followed")));
            assert!(shown(0, words).is_err_and(|said| said.contains("not followed")));
        }
        assert_eq!(
            shown(0, "\nstatus 404\n"),
            Err("the server answered with status 404".to_owned())
        );
        assert_eq!(
            shown(
                6,
                "curl: (6) Could not resolve https://u:p@h/\nstatus 000\n"
            ),
            Err("the download failed: curl: (6) Could not resolve https://u:***@h/".to_owned())
        );
        assert!(shown(63, "").is_err_and(|said| said.contains("exceeds")));
    }
}
