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

impl Authority {
    /// Makes this the authority of the directory, in place of the one that is there. A crash
    /// leaves the one or the other, never a mixture: the next load finishes the change.
    pub fn replace_in(&self, directory: &Path) -> Result<(), DirectoryError> {
        let failed = |source| DirectoryError::Io {
            path: directory.to_owned(),
            source,
        };
        let _lock = lock(&directory.join("ca.lock")).map_err(failed)?;
        let files = Files::of(directory);
        files.write_pending(self).map_err(failed)?;
        std::fs::remove_file(&files.certificate).map_err(failed)?;
        bunraku_files::sync_directory(directory).map_err(failed)?;
        files.move_pending().map_err(failed)
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

    /// Finishes an interrupted move. Only a key without a certificate, beside a pending
    /// certificate, can be the trace of a crash. The certificate must match the moved key, or
    /// the pending one.
    fn finish_pending(&self) -> io::Result<()> {
        let interrupted =
            self.key.exists() && !self.certificate.exists() && self.pending_certificate.exists();
        if !interrupted {
            return Ok(());
        }
        let certificate = bunraku_files::read_text(&self.pending_certificate)?;
        let matches = |key: &Path| {
            bunraku_files::read_text(key)
                .is_ok_and(|key| Authority::from_pem(&certificate, &key).is_ok())
        };
        if matches(&self.key) {
            bunraku_files::move_into_place(&self.pending_certificate, &self.certificate)?;
        } else if matches(&self.pending_key) {
            self.move_pending()?;
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
        self.write_pending(authority)?;
        self.move_pending()
    }

    fn write_pending(&self, authority: &Authority) -> io::Result<()> {
        let certificates = authority.certificates_pem();
        bunraku_files::replace(&self.pending_certificate, certificates.as_bytes(), 0o644)?;
        bunraku_files::replace(&self.pending_key, authority.key_pem.as_bytes(), 0o600)
    }

    fn move_pending(&self) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A crash at any point of a replacement leaves one of the two authorities.
    #[test]
    fn a_replacement_that_is_cut_off_is_finished_or_never_happened() {
        let now = Timestamp::now();
        for steps in 0..4 {
            let place = tempfile::tempdir().unwrap();
            let old = Authority::load_or_create(place.path(), now).unwrap();
            let new = Authority::create("new", now).unwrap();
            let files = Files::of(place.path());
            files.write_pending(&new).unwrap();
            if steps > 0 {
                std::fs::remove_file(&files.certificate).unwrap();
            }
            if steps > 1 {
                bunraku_files::move_into_place(&files.pending_key, &files.key).unwrap();
            }
            if steps > 2 {
                bunraku_files::move_into_place(&files.pending_certificate, &files.certificate)
                    .unwrap();
            }
            let found = Authority::load_or_create(place.path(), now).unwrap();
            let expected = if steps == 0 { &old } else { &new };
            assert_eq!(found.fingerprint(), expected.fingerprint(), "{steps}");
            assert_eq!(found.key_pem(), expected.key_pem(), "{steps}");
        }
    }
}
