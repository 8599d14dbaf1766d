//! The certificate authority: a key, its certificate, and the certificates they sign.
//!
//! Rule: an authority never silently replaces itself with a new one. A missing half, a key
//! that does not match, or an expired certificate is an error.
//!
//! Absent: the decision on what may be signed. The caller makes it, with a
//! [`Grant`](crate::request::Grant).

mod directory;
mod puppet;
mod revocation_lists;
mod sealed;
mod signing;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateDer;

pub use directory::DirectoryError;
pub use puppet::{PuppetDirectory, PuppetError};
pub use signing::SignError;

use crate::certificate::{self, BACK_DATE, Certificate, CertificateError};
use crate::fingerprint::Fingerprint;
use crate::key::{KeyError, KeyKind, PrivateKey};
use crate::serial::Serial;

/// Lifetime of our own authority.
pub const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 20);

/// A key and the certificates that make it an authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The signing certificate first, then the certificates above it.
    chain: Vec<Certificate>,
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    key_pem: String,
    puppet: Option<PuppetDirectory>,
}

/// The reason why a key and certificates do not form an authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("cannot use the CA key")]
    Key(#[source] KeyError),
    #[error("cannot use the CA certificate")]
    Certificate(#[source] CertificateError),
    #[error("the CA key does not belong to the CA certificate")]
    Mismatch,
    #[error("the certificate `{0}` is not a CA certificate")]
    NotAnAuthority(String),
    #[error("the CA name has an unsupported encoding")]
    Subject,
    #[error("cannot create the CA certificate")]
    Make(#[source] rcgen::Error),
    #[error("cannot get random bytes from the system")]
    Randomness,
    #[error("the encrypted CA was not created by a holder of this CA's key")]
    Sealed,
}

impl Authority {
    /// Creates a new authority in memory.
    pub fn create(name: &str, now: Timestamp) -> Result<Self, AuthorityError> {
        let key = PrivateKey::generate(KeyKind::EcdsaP256).map_err(AuthorityError::Key)?;
        let serial = Serial::fresh().map_err(|_| AuthorityError::Randomness)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(before(now));
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(after(now, AUTHORITY_LIFETIME));
        params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let made = params
            .self_signed(&key.pair)
            .map_err(AuthorityError::Make)?;
        Self::from_parts(vec![made.der().clone()], key)
    }

    /// Reads an authority from a PEM bundle and its key. The key's certificate may be
    /// anywhere in the bundle.
    pub fn from_pem(certificates: &str, key: &str) -> Result<Self, AuthorityError> {
        let chain =
            certificate::chain_from_pem(certificates).map_err(AuthorityError::Certificate)?;
        let key = PrivateKey::from_pem(key).map_err(AuthorityError::Key)?;
        Self::from_parts(chain, key)
    }

    fn from_parts(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKey,
    ) -> Result<Self, AuthorityError> {
        let mut certificates = Vec::with_capacity(chain.len());
        for der in &chain {
            let one = Certificate::from_der(der).map_err(AuthorityError::Certificate)?;
            if !one.is_authority {
                return Err(AuthorityError::NotAnAuthority(one.common_name));
            }
            certificates.push(one);
        }
        let own = position_of_key(&chain, &key)?;
        let signer = certificates.remove(own);
        certificates.insert(0, signer);
        let parsed = certificate::parse(&chain[own]).map_err(AuthorityError::Certificate)?;
        let subject = parsed.subject();
        // rcgen cannot write a name part with zero or several attributes.
        if subject.iter().any(|part| part.iter().count() != 1) {
            return Err(AuthorityError::Subject);
        }
        let (subject, key_id) = (subject.as_raw().to_vec(), key_id_of(&parsed));
        let key_pem = key.to_pem();
        let issuer =
            Issuer::from_ca_cert_der(&chain[own], key.pair).map_err(AuthorityError::Make)?;
        Ok(Self {
            issuer,
            chain: certificates,
            subject,
            key_id,
            key_pem,
            puppet: None,
        })
    }

    /// Returns the signing certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.chain[0]
    }

    /// Returns all certificates of the authority in PEM. Peers trust these.
    pub fn certificates_pem(&self) -> String {
        self.chain.iter().map(Certificate::to_pem).collect()
    }

    /// Returns the key itself, for a joining server. Its holder can sign certificates.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Returns the fingerprint of the topmost certificate, which people pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.chain[self.chain.len() - 1].fingerprint
    }

    /// Returns the Puppet directory that the authority comes from, if any.
    pub fn puppet_directory(&self) -> Option<&PuppetDirectory> {
        self.puppet.as_ref()
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    pub(crate) fn key_id(&self) -> Option<&[u8]> {
        self.key_id.as_deref()
    }

    pub(crate) fn subject(&self) -> &[u8] {
        &self.subject
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.certificate().common_name)
    }
}

fn position_of_key(
    chain: &[CertificateDer<'_>],
    key: &PrivateKey,
) -> Result<usize, AuthorityError> {
    let own = key.public_key_info();
    for (position, der) in chain.iter().enumerate() {
        let parsed = certificate::parse(der).map_err(AuthorityError::Certificate)?;
        if parsed.public_key().raw == own {
            return Ok(position);
        }
    }
    Err(AuthorityError::Mismatch)
}

fn key_id_of(parsed: &x509_parser::certificate::X509Certificate<'_>) -> Option<Vec<u8>> {
    parsed
        .iter_extensions()
        .find_map(|extension| match extension.parsed_extension() {
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => {
                Some(id.0.to_vec())
            }
            _ => None,
        })
}

fn before(now: Timestamp) -> Timestamp {
    after(now, -BACK_DATE)
}

/// Adds a duration to `now`, within the range that a certificate can express (1970 to 9999).
pub(crate) fn after(now: Timestamp, while_: SignedDuration) -> Timestamp {
    let last = Timestamp::from_second(253_370_764_800).expect("the year 9998 is in range");
    now.saturating_add(while_)
        .expect("a signed duration has no calendar units")
        .clamp(Timestamp::UNIX_EPOCH, last)
}

pub(crate) fn since_1970(moment: Timestamp) -> std::time::Duration {
    std::time::Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or(0))
}
