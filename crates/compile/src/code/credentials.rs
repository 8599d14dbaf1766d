//! Credentials for private repositories.
//!
//! The operator names files on the server; their content is read for each fetch
//! and goes to git through a file that only the server's user can read. So no
//! secret is in the store, in an argument of a program, or in git's messages. A
//! password in an address is moved there as well.

use std::io::Write;
use std::path::{Path, PathBuf};

use bunraku_process::Program;
use tempfile::NamedTempFile;

use super::git::GitError;

/// The user name for a token, if none is given. GitLab expects it, others ignore it.
const TOKEN_USER: &str = "oauth2";

/// Access to the repositories below one address.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct GitCredential {
    /// Applies to addresses that begin with this: `https://git.example.com/infra/`,
    /// `git@git.example.com:`. The longest one counts.
    pub url: String,
    /// The user name for the token.
    pub user: Option<String>,
    /// A file with a token or password, for `https://`.
    pub token_file: Option<PathBuf>,
    /// A file with certificates of authorities that are trusted, for `https://`.
    pub ca_file: Option<PathBuf>,
    /// A private key, for SSH.
    pub ssh_key: Option<PathBuf>,
    /// The host keys that are trusted, for SSH.
    pub known_hosts: Option<PathBuf>,
}

/// An address without its secrets, and the secrets.
pub(super) struct GitAddress {
    pub(super) url: String,
    /// User and password, as they are in the address.
    login: Option<String>,
}

impl GitAddress {
    /// Splits user and password off an address of the web.
    pub(super) fn of(url: &str) -> Self {
        let rest = url.strip_prefix("https://");
        let login = rest.and_then(|rest| {
            let authority = rest.split('/').next().unwrap_or("");
            authority.rsplit_once('@').map(|(login, _)| login)
        });
        match login {
            None => Self {
                url: url.to_owned(),
                login: None,
            },
            Some(login) => Self {
                url: format!("https://{}", &url["https://".len() + login.len() + 1..]),
                login: Some(if login.contains(':') {
                    login.to_owned()
                } else {
                    // A token in the place of the user.
                    format!("{login}:")
                }),
            },
        }
    }

    /// Returns the credential that applies to the address.
    fn credential<'a>(&self, known: &'a [GitCredential]) -> Option<&'a GitCredential> {
        let applies = |credential: &&GitCredential| {
            let rest = self.url.strip_prefix(credential.url.as_str());
            // `https://git.example.com` is not `https://git.example.com.evil.example`.
            rest.is_some_and(|rest| {
                credential.url.ends_with(['/', ':']) || rest.is_empty() || rest.starts_with('/')
            })
        };
        let matching = known.iter().filter(applies);
        matching.max_by_key(|credential| credential.url.len())
    }
}

/// The access of one git program. Its files are removed when it is dropped.
#[derive(Default)]
pub(super) struct GitAccess {
    logins: Option<NamedTempFile>,
    ca_file: Option<PathBuf>,
    ssh_command: Option<String>,
}

impl GitAccess {
    /// Prepares the access to an address. `scratch` is a directory that only
    /// the server's user can read. Blocks.
    pub(super) fn prepare(
        address: &GitAddress,
        known: &[GitCredential],
        scratch: &Path,
    ) -> Result<Self, GitError> {
        let Some(credential) = address.credential(known) else {
            let logins = match &address.login {
                None => None,
                Some(login) => Some(write_login(&address.url, login, scratch)?),
            };
            return Ok(Self {
                logins,
                ..Self::default()
            });
        };
        let login = match (&address.login, &credential.token_file) {
            (Some(login), _) => Some(login.clone()),
            (None, None) => None,
            (None, Some(file)) => {
                let token = std::fs::read_to_string(file).map_err(unreadable(file))?;
                let user = credential.user.as_deref().unwrap_or(TOKEN_USER);
                Some(format!("{}:{}", encoded(user), encoded(token.trim())))
            }
        };
        let logins = match login.filter(|_| address.url.starts_with("https://")) {
            None => None,
            Some(login) => Some(write_login(&address.url, &login, scratch)?),
        };
        let files = [
            &credential.ca_file,
            &credential.ssh_key,
            &credential.known_hosts,
        ];
        for file in files.into_iter().flatten() {
            std::fs::File::open(file).map_err(unreadable(file))?;
        }
        Ok(Self {
            logins,
            ca_file: credential.ca_file.clone(),
            ssh_command: ssh_command(credential),
        })
    }

    /// Adds the access to a git program. Only paths become arguments.
    pub(super) fn add_to(&self, mut program: Program) -> Program {
        if let Some(logins) = &self.logins {
            let file = quoted(&logins.path().display().to_string());
            program = program
                .args(["-c", "credential.helper=", "-c"])
                .arg(format!("credential.helper=store --file={file}"));
        }
        if let Some(ca_file) = &self.ca_file {
            // The variable comes before the settings of the machine.
            program = program.env("GIT_SSL_CAINFO", ca_file);
        }
        match &self.ssh_command {
            None => program,
            Some(command) => program.env("GIT_SSH_COMMAND", command),
        }
    }
}

/// Writes the login in the format of `git credential-store`, which gives it to
/// this host only.
fn write_login(url: &str, login: &str, scratch: &Path) -> Result<NamedTempFile, GitError> {
    let host = url.strip_prefix("https://").unwrap_or(url);
    let host = host.split('/').next().unwrap_or(host);
    let write = || {
        std::fs::create_dir_all(scratch)?;
        // Only its owner can read such a file.
        let mut file = NamedTempFile::with_prefix_in("login-", scratch)?;
        writeln!(file, "https://{login}@{host}")?;
        file.flush()?;
        Ok(file)
    };
    write().map_err(|source| GitError::Directory {
        path: scratch.to_owned(),
        source,
    })
}

fn unreadable(file: &Path) -> impl FnOnce(std::io::Error) -> GitError {
    let path = file.to_owned();
    move |source| GitError::Credential { path, source }
}

fn ssh_command(credential: &GitCredential) -> Option<String> {
    if credential.ssh_key.is_none() && credential.known_hosts.is_none() {
        return None;
    }
    let mut command = "ssh -o BatchMode=yes -o ConnectTimeout=15".to_owned();
    if let Some(key) = &credential.ssh_key {
        command.push_str(" -o IdentitiesOnly=yes -i ");
        command.push_str(&quoted(&key.display().to_string()));
    }
    if let Some(known) = &credential.known_hosts {
        let known = quoted(&format!("UserKnownHostsFile=\"{}\"", known.display()));
        command.push_str(" -o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=/dev/null -o ");
        command.push_str(&known);
    }
    Some(command)
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Encodes a part of an address.
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(url: &str) -> GitCredential {
        GitCredential {
            url: url.to_owned(),
            ..GitCredential::default()
        }
    }

    #[test]
    fn the_longest_address_counts_and_other_hosts_get_nothing() {
        let known = [
            credential("https://git.example.com"),
            credential("https://git.example.com/infra/"),
            credential("git@git.example.com:"),
        ];
        let found = |url: &str| {
            let address = GitAddress::of(url);
            address.credential(&known).map(|found| found.url.clone())
        };
        for (url, expected) in [
            (
                "https://git.example.com/a.git",
                Some("https://git.example.com"),
            ),
            (
                "https://me:x@git.example.com/infra/a.git",
                Some("https://git.example.com/infra/"),
            ),
            ("https://git.example.com.evil.example/a.git", None),
            ("https://git.example.com:8443/a.git", None),
            (
                "git@git.example.com:infra/a.git",
                Some("git@git.example.com:"),
            ),
            ("git@other.example.com:infra/a.git", None),
            ("https://evil.example/https://git.example.com/", None),
        ] {
            assert_eq!(found(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn secrets_leave_the_address_and_reach_only_a_private_file() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().expect("a directory");
        for (url, shown, line) in [
            ("https://u:p@h:1/x", "https://h:1/x", "https://u:p@h:1\n"),
            ("https://token@h/x", "https://h/x", "https://token:@h\n"),
        ] {
            let address = GitAddress::of(url);
            assert_eq!(address.url, shown);
            let access = GitAccess::prepare(&address, &[], scratch.path()).expect("prepared");
            let file = access.logins.as_ref().expect("a file").path().to_owned();
            assert_eq!(std::fs::read_to_string(&file).expect("text"), line);
            let mode = std::fs::metadata(&file)
                .expect("there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
            drop(access);
            assert!(!file.exists(), "removed");
        }
        let token = scratch.path().join("token");
        std::fs::write(&token, "a b/c\n").expect("a file");
        let known = [GitCredential {
            token_file: Some(token),
            ..credential("https://h/")
        }];
        let address = GitAddress::of("https://h/x");
        let access = GitAccess::prepare(&address, &known, scratch.path()).expect("prepared");
        let file = access.logins.as_ref().expect("a file").path();
        let text = std::fs::read_to_string(file).expect("text");
        assert_eq!(text, "https://oauth2:a%20b%2Fc@h\n");
        let missing = [GitCredential {
            token_file: Some(scratch.path().join("missing")),
            ..credential("https://h/")
        }];
        assert!(GitAccess::prepare(&address, &missing, scratch.path()).is_err());
    }
}
