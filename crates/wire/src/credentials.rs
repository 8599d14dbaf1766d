//! A directory with `ca.pem`, `cert.pem` and `key.pem`: everything that one party needs to
//! communicate with the others.
//!
//! The three files can be copied elsewhere unchanged. Absent: signing, and the decision when
//! to request a new certificate.

use std::path::{Path, PathBuf};

use bunraku_files::FileError;
use x509_parser::extensions::GeneralName;

use crate::certificate::{self, Certificate};
use crate::key::{KeyError, KeyKind, PrivateKey};
use crate::tls::{Identity, IdentityError};

/// The directory of a party's certificate and key.
#[derive(Clone, Debug)]
pub struct Credentials {
    directory: PathBuf,
}

/// The reason why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot use the key in {}", directory.display())]
    Key {
        directory: PathBuf,
        #[source]
        source: KeyError,
    },
    #[error("cannot use the certificate in {}", directory.display())]
    Identity {
        directory: PathBuf,
        #[source]
        source: IdentityError,
    },
    #[error(transparent)]
    File(#[from] FileError),
}

impl Credentials {
    /// Creates a handle. Does not read or write anything yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn certificate_path(&self) -> PathBuf {
        self.directory.join("cert.pem")
    }

    pub fn key_path(&self) -> PathBuf {
        self.directory.join("key.pem")
    }

    pub fn authority_path(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// Returns the key. Creates it, with the directory, if it does not exist.
    pub fn load_or_create_key(&self) -> Result<PrivateKey, CredentialsError> {
        bunraku_files::create_private_directory(&self.directory)
            .map_err(FileError::when("create", &self.directory))?;
        PrivateKey::load_or_create(&self.key_path(), KeyKind::default()).map_err(|source| {
            CredentialsError::Key {
                directory: self.directory.clone(),
                source,
            }
        })
    }

    /// Returns the certificate and key, or `None` if there is no certificate yet.
    pub fn identity(&self) -> Result<Option<Identity>, CredentialsError> {
        if !self.certificate_path().exists() {
            return Ok(None);
        }
        Identity::load(&self.certificate_path(), &self.key_path())
            .map(Some)
            .map_err(|source| CredentialsError::Identity {
                directory: self.directory.clone(),
                source,
            })
    }

    /// Returns the authority's certificates, or `None` if there are none yet.
    pub fn authority_pem(&self) -> Result<Option<String>, CredentialsError> {
        let path = self.authority_path();
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::when("read", &path)(error).into()),
        }
    }

    /// Returns the certificate and key. If there is none, creates a certificate that signs
    /// itself, for peers that know its fingerprint.
    pub fn load_or_create_self_signed(&self, name: &str) -> Result<Identity, CredentialsError> {
        if let Some(identity) = self.identity()? {
            return Ok(identity);
        }
        let key = self.load_or_create_key()?;
        let pem = key
            .self_signed(name)
            .map_err(|source| CredentialsError::Key {
                directory: self.directory.clone(),
                source,
            })?;
        let path = self.certificate_path();
        bunraku_files::replace(&path, pem.as_bytes(), 0o644)
            .map_err(FileError::when("write", &path))?;
        Identity::from_pem(&pem, &key).map_err(|source| CredentialsError::Identity {
            directory: self.directory.clone(),
            source,
        })
    }

    /// Returns the path of the revocation lists.
    pub fn revocation_lists_path(&self) -> PathBuf {
        self.directory.join("crl.pem")
    }

    /// Returns the stored revocation lists, or an empty text if there are none.
    pub fn revocation_lists_pem(&self) -> String {
        std::fs::read_to_string(self.revocation_lists_path()).unwrap_or_default()
    }

    /// Saves revocation lists.
    pub fn save_revocation_lists(&self, pem: &str) -> Result<(), CredentialsError> {
        let path = self.revocation_lists_path();
        bunraku_files::replace(&path, pem.as_bytes(), 0o644)
            .map_err(FileError::when("write", &path))?;
        Ok(())
    }

    /// Returns the epoch of the servers' data that this party saw last.
    pub fn epoch(&self) -> u64 {
        let text = std::fs::read_to_string(self.directory.join("epoch")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Saves the epoch of the servers' data.
    pub fn save_epoch(&self, epoch: u64) -> Result<(), CredentialsError> {
        let path = self.directory.join("epoch");
        bunraku_files::replace(&path, epoch.to_string().as_bytes(), 0o644)
            .map_err(FileError::when("write", &path))?;
        Ok(())
    }

    /// Saves the authorities to trust.
    pub fn save_authority(&self, authority: &str) -> Result<(), CredentialsError> {
        let path = self.authority_path();
        bunraku_files::replace(&path, authority.as_bytes(), 0o644)
            .map_err(FileError::when("write", &path))?;
        Ok(())
    }

    /// Saves a signed certificate. Writes the authority first, so that a certificate never
    /// exists without it.
    pub fn save(&self, certificate: &str, authority: &str) -> Result<(), CredentialsError> {
        for (path, text) in [
            (self.authority_path(), authority),
            (self.certificate_path(), certificate),
        ] {
            bunraku_files::replace(&path, text.as_bytes(), 0o644)
                .map_err(FileError::when("write", &path))?;
        }
        Ok(())
    }
}

/// Returns `true` if the holder may serve under this name or address.
pub fn serves(certificate: &Certificate, name: &str) -> bool {
    let Ok(parsed) = certificate::parse(certificate.der()) else {
        return false;
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return false;
    };
    let address = name
        .parse::<std::net::IpAddr>()
        .ok()
        .map(|address| match address {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        });
    names
        .value
        .general_names
        .iter()
        .any(|general| match (general, &address) {
            (GeneralName::IPAddress(bytes), Some(address)) => *bytes == address.as_slice(),
            (GeneralName::DNSName(known), None) => known.eq_ignore_ascii_case(name),
            _ => false,
        })
}
