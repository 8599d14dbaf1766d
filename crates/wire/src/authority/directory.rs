//! Our own authority on disk: `ca.pem` and `ca.key` in one private directory.
//!
//! The two files appear together or not at all. They are written as `.pending`, then moved,
//! the key first. A crash between the two moves leaves a key whose certificate is still
//! pending, and the next start finishes the move. Any other incomplete state is an error,
//! because a new authority would silently cut off every node.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

use super::{Authority, AuthorityError};

/// The reason why the authority's directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{present} exists but {missing} does not; restore it from a backup (no node would trust a new CA)"
    )]
    HalfMissing { present: PathBuf, missing: PathBuf },
    #[error("{path} can be read by others (mode {mode:o}); run `chmod 600` on it")]
    Exposed { path: PathBuf, mode: u32 },
    #[error("the CA in {path} is corrupt; restore ca.pem and ca.key from a backup")]
    Damaged {
        path: PathBuf,
        #[source]
        source: AuthorityError,
    },
    #[error("cannot create a CA")]
    Make(#[source] AuthorityError),
}

impl Authority {
    /// Loads the authority of this directory. The first caller creates it.
    pub fn load_or_create(directory: &Path, now: Timestamp) -> Result<Self, DirectoryError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { path, source }
        };
        bunraku_files::create_private_directory(directory).map_err(failed(directory))?;
        let _lock = lock(&directory.join("ca.lock")).map_err(failed(directory))?;
        let files = Files::of(directory);
        files.finish_pending().map_err(failed(directory))?;
        match (files.certificate.exists(), files.key.exists()) {
            (true, true) => files.load(directory),
            (false, false) => files.create(directory, now),
            (true, false) => Err(DirectoryError::HalfMissing {
                present: files.certificate,
                missing: files.key,
            }),
            (false, true) => Err(DirectoryError::HalfMissing {
                present: files.key,
                missing: files.certificate,
            }),
        }
    }
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    pending_certificate: PathBuf,
    pending_key: PathBuf,
}

impl Files {
    fn of(directory: &Path) -> Self {
        Self {
            certificate: directory.join("ca.pem"),
            key: directory.join("ca.key"),
            pending_certificate: directory.join("ca.pem.pending"),
            pending_key: directory.join("ca.key.pending"),
        }
    }

    /// Finishes an interrupted move. Only a moved key with a certificate that is not moved
    /// can be the trace of a crash, and the pair must match.
    fn finish_pending(&self) -> io::Result<()> {
        let interrupted =
            self.key.exists() && !self.certificate.exists() && self.pending_certificate.exists();
        if !interrupted {
            return Ok(());
        }
        let certificate = bunraku_files::read_text(&self.pending_certificate)?;
        let key = bunraku_files::read_text(&self.key)?;
        if Authority::from_pem(&certificate, &key).is_ok() {
            bunraku_files::move_into_place(&self.pending_certificate, &self.certificate)?;
        }
        Ok(())
    }

    fn load(&self, directory: &Path) -> Result<Authority, DirectoryError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { path, source }
        };
        let mode = self
            .key
            .metadata()
            .map_err(failed(&self.key))?
            .permissions()
            .mode();
        if mode & 0o077 != 0 {
            return Err(DirectoryError::Exposed {
                path: self.key.clone(),
                mode: mode & 0o777,
            });
        }
        let certificate =
            bunraku_files::read_text(&self.certificate).map_err(failed(&self.certificate))?;
        let key = bunraku_files::read_text(&self.key).map_err(failed(&self.key))?;
        Authority::from_pem(&certificate, &key).map_err(|source| DirectoryError::Damaged {
            path: directory.to_owned(),
            source,
        })
    }

    fn create(&self, directory: &Path, now: Timestamp) -> Result<Authority, DirectoryError> {
        let serial = crate::serial::Serial::fresh()
            .map_err(|_| DirectoryError::Make(AuthorityError::Randomness))?;
        // Two authorities with the same name confuse every tool that looks up an issuer by
        // name, so each name is unique.
        let name = format!("Bunraku CA {}", &serial.to_string()[..8]);
        let authority = Authority::create(&name, now).map_err(DirectoryError::Make)?;
        self.write(&authority)
            .map_err(|source| DirectoryError::Io {
                path: directory.to_owned(),
                source,
            })?;
        Ok(authority)
    }

    fn write(&self, authority: &Authority) -> io::Result<()> {
        let certificates = authority.certificates_pem();
        bunraku_files::replace(&self.pending_certificate, certificates.as_bytes(), 0o644)?;
        bunraku_files::replace(&self.pending_key, authority.key_pem.as_bytes(), 0o600)?;
        bunraku_files::move_into_place(&self.pending_key, &self.key)?;
        bunraku_files::move_into_place(&self.pending_certificate, &self.certificate)
    }
}

/// Waits until no other process uses the directory.
pub(super) fn lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
