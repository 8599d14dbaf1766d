//! The directory of an existing Puppet authority, used in a way that Puppet can continue to
//! use it.
//!
//! Serials come from Puppet's `serial` file, each certificate is a line of
//! `inventory.txt` and a file in `signed`, and `ca_crl.pem` holds the
//! revocations. Files keep their owner and mode: Puppet's server runs as
//! `puppet`, we may run as root.
//!
//! Order within one signing: the serial is consumed on disk before it is in a certificate, so
//! a crash wastes a number but never repeats one. Our own processes exclude each other with a
//! lock. A Puppet server takes no lock that others could see, so only one of the two programs
//! should sign at a time.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use super::directory::lock;
use super::{Authority, AuthorityError, SignError};
use crate::request::SignedCertificate;
use crate::revocation::{RevocationError, RevocationList, RevokedCertificate};
use crate::serial::Serial;

/// Lifetime of a revocation list: five years, as in Puppet.
const LIST_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 5);

/// The directory of a Puppet authority (`puppet config print cadir`).
#[derive(Clone, Debug)]
pub struct PuppetDirectory {
    path: PathBuf,
}

/// The reason why a Puppet authority's directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PuppetError {
    #[error("cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{0} does not contain a hexadecimal serial number")]
    Serial(PathBuf),
    #[error("cannot use the Puppet CA in {path}")]
    Authority {
        path: PathBuf,
        #[source]
        source: AuthorityError,
    },
    #[error("cannot use {path}")]
    RevocationList {
        path: PathBuf,
        #[source]
        source: RevocationError,
    },
    #[error("{0} has no revocation list of the CA's signing certificate")]
    NoOwnList(PathBuf),
}

impl Authority {
    /// Loads the authority in a Puppet `cadir`.
    pub fn from_puppet(cadir: &Path) -> Result<Self, PuppetError> {
        let directory = PuppetDirectory {
            path: cadir.to_owned(),
        };
        let certificates = directory.read("ca_crt.pem")?;
        let key = directory.read("ca_key.pem")?;
        let mut authority =
            Self::from_pem(&certificates, &key).map_err(|source| PuppetError::Authority {
                path: cadir.to_owned(),
                source,
            })?;
        // Detect errors now, not when the first node asks.
        directory.next_serial()?;
        directory.own_list(&authority)?;
        authority.puppet = Some(directory);
        Ok(authority)
    }
}

impl PuppetDirectory {
    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file with the revocation lists.
    pub fn revocation_list_path(&self) -> PathBuf {
        self.path.join("ca_crl.pem")
    }

    /// Returns all revocation lists in PEM: one for each certificate of the chain.
    pub fn revocation_lists_pem(&self) -> Result<String, PuppetError> {
        self.read("ca_crl.pem")
    }

    /// Returns every certificate that this authority has revoked.
    pub fn revoked(&self, authority: &Authority) -> Result<Vec<RevokedCertificate>, PuppetError> {
        let (lists, own) = self.own_list(authority)?;
        Ok(lists[own].revoked.clone())
    }

    /// Adds a certificate to the authority's list, and keeps the lists of the authorities
    /// above it. Revoking twice keeps the first date.
    pub fn revoke(
        &self,
        authority: &Authority,
        serials: &[Serial],
        now: Timestamp,
    ) -> Result<(), PuppetError> {
        let path = self.revocation_list_path();
        let _lock = self.lock()?;
        let (mut lists, own) = self.own_list(authority)?;
        let mut revoked = lists[own].revoked.clone();
        for serial in serials {
            if !revoked.iter().any(|entry| entry.serial == *serial) {
                revoked.push(RevokedCertificate {
                    serial: serial.clone(),
                    at: now,
                });
            }
        }
        let number = lists[own].number.saturating_add(1);
        lists[own] = authority
            .revocation_list(&revoked, number, now, LIST_LIFETIME)
            .map_err(|source| PuppetError::RevocationList {
                path: path.clone(),
                source,
            })?;
        let text: String = lists.iter().map(RevocationList::to_pem).collect();
        self.replace("ca_crl.pem", text.as_bytes())
    }

    /// Consumes one serial, and records the certificate signed with it.
    pub(super) fn with_next_serial(
        &self,
        sign: impl FnOnce(Serial) -> Result<SignedCertificate, SignError>,
    ) -> Result<Result<SignedCertificate, SignError>, PuppetError> {
        let _lock = self.lock()?;
        let number = self.next_serial()?;
        let after = format!("{:04X}", number + 1);
        self.replace("serial", after.as_bytes())?;
        let bytes = number.to_be_bytes();
        let serial = Serial::from_bytes(&bytes)
            .map_err(|_| PuppetError::Serial(self.path.join("serial")))?;
        match sign(serial) {
            Ok(signed) => {
                self.record(number, &signed)?;
                Ok(Ok(signed))
            }
            Err(refused) => Ok(Err(refused)),
        }
    }

    fn record(&self, number: u128, signed: &SignedCertificate) -> Result<(), PuppetError> {
        let line = format!(
            "0x{number:04x} {} {} /CN={}\n",
            signed.not_before.strftime("%Y-%m-%dT%H:%M:%SUTC"),
            signed.not_after.strftime("%Y-%m-%dT%H:%M:%SUTC"),
            signed.name,
        );
        self.append_line("inventory.txt", &line)?;
        let directory = self.path.join("signed");
        if !directory.is_dir() {
            std::fs::create_dir(&directory).map_err(self.failed("signed"))?;
            self.give_away(&directory)?;
        }
        self.replace(
            &format!("signed/{}.pem", signed.name),
            signed.pem.as_bytes(),
        )
    }

    /// Appends a complete line, after a complete line.
    fn append_line(&self, name: &str, line: &str) -> Result<(), PuppetError> {
        let path = self.path.join(name);
        let existed = path.exists();
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .read(true)
            .mode(0o644)
            .open(&path)
            .map_err(self.failed(name))?;
        if !existed {
            self.give_away(&path)?;
        }
        let torn = ends_inside_a_line(&mut file).map_err(self.failed(name))?;
        let text = if torn {
            format!("\n{line}")
        } else {
            line.to_owned()
        };
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(self.failed(name))
    }

    fn next_serial(&self) -> Result<u128, PuppetError> {
        let text = self.read("serial")?;
        let digits = text.trim();
        let plausible = !digits.is_empty()
            && digits.len() <= 30
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(digits, 16) {
            Ok(number) if plausible && number > 0 => Ok(number),
            _ => Err(PuppetError::Serial(self.path.join("serial"))),
        }
    }

    fn own_list(&self, authority: &Authority) -> Result<(Vec<RevocationList>, usize), PuppetError> {
        let path = self.path.join("ca_crl.pem");
        let failed = |source| PuppetError::RevocationList {
            path: path.clone(),
            source,
        };
        let lists = RevocationList::from_pem(&self.read("ca_crl.pem")?).map_err(failed)?;
        let own = lists
            .iter()
            .position(|list| list.issuer == authority.subject())
            .ok_or_else(|| PuppetError::NoOwnList(path.clone()))?;
        lists[own]
            .check_signature(authority.certificate())
            .map_err(failed)?;
        Ok((lists, own))
    }

    fn lock(&self) -> Result<std::fs::File, PuppetError> {
        lock(&self.path.join("bunraku.lock")).map_err(self.failed("bunraku.lock"))
    }

    fn read(&self, name: &str) -> Result<String, PuppetError> {
        bunraku_files::read_text(&self.path.join(name)).map_err(self.failed(name))
    }

    /// Replaces a file atomically. Owner and mode stay the same.
    fn replace(&self, name: &str, content: &[u8]) -> Result<(), PuppetError> {
        let path = self.path.join(name);
        let (mode, model) = match path.metadata() {
            Ok(metadata) => (metadata.mode() & 0o7777, path.clone()),
            Err(_) => (0o644, self.path.clone()),
        };
        let owner = model.metadata().map_err(self.failed(name))?;
        bunraku_files::replace_for(&path, content, mode, Some((owner.uid(), owner.gid())))
            .map_err(self.failed(name))
    }

    /// Gives a file that we add the same owner as the directory.
    fn give_away(&self, path: &Path) -> Result<(), PuppetError> {
        let owner = self.path.metadata().map_err(self.failed(""))?;
        std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid()))
            .map_err(self.failed(""))
    }

    fn failed(&self, name: &str) -> impl FnOnce(io::Error) -> PuppetError + use<> {
        let path = self.path.join(name);
        move |source| PuppetError::Io { path, source }
    }
}

fn ends_inside_a_line(file: &mut std::fs::File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt;
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last != [b'\n'])
}
