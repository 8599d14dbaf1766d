//! Revoked certificates: lists that others can check, and a set that the server checks on
//! every request.
//!
//! A list (CRL) prevents new connections. It cannot end open ones, because TLS checks it only
//! once, at the handshake. The server therefore also checks [`Revocations`] on each request.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::certificate::{self, BlockError, Certificate, CertificateError};
use crate::serial::Serial;

/// A revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RevokedCertificate {
    pub serial: Serial,
    pub at: Timestamp,
}

/// A parsed revocation list.
#[derive(Clone, Debug)]
pub struct RevocationList {
    /// The issuer's name, unchanged, in DER.
    pub issuer: Vec<u8>,
    /// The number of the list. It increases with each list of an issuer.
    pub number: u64,
    pub this_update: Timestamp,
    pub next_update: Option<Timestamp>,
    pub revoked: Vec<RevokedCertificate>,
    pub(crate) der: Vec<u8>,
}

/// The reason why a list could not be read or created.
#[derive(Debug, thiserror::Error)]
pub enum RevocationError {
    #[error("it is too large to be a revocation list")]
    TooLarge,
    #[error("it contains no revocation list (PEM `X509 CRL`)")]
    Missing,
    #[error("the revocation list is malformed: {0}")]
    Damaged(&'static str),
    #[error("the revocation list was not signed by `{0}`")]
    Signature(String),
    #[error("cannot create the revocation list")]
    Make(#[source] rcgen::Error),
    #[error("cannot read the CA certificate")]
    Authority(#[source] CertificateError),
}

impl RevocationList {
    /// Reads all lists of a PEM text.
    pub fn from_pem(text: &str) -> Result<Vec<Self>, RevocationError> {
        let found = certificate::blocks(text, "X509 CRL").map_err(|why| match why {
            BlockError::TooLarge => RevocationError::TooLarge,
            BlockError::NotPem => RevocationError::Missing,
        })?;
        if found.is_empty() {
            return Err(RevocationError::Missing);
        }
        found.iter().map(|der| Self::from_der(der)).collect()
    }

    /// Reads one list in DER.
    pub fn from_der(der: &[u8]) -> Result<Self, RevocationError> {
        let parsed = parse(der)?;
        let revoked = parsed
            .iter_revoked_certificates()
            .map(|entry| {
                Ok(RevokedCertificate {
                    serial: Serial::from_bytes(entry.raw_serial())
                        .map_err(|_| RevocationError::Damaged("a serial number is not valid"))?,
                    at: timestamp(entry.revocation_date.timestamp())?,
                })
            })
            .collect::<Result<_, RevocationError>>()?;
        // A list without a number, or with an absurdly large one, is followed by number 1,
        // because only the next list reads it.
        let number = parsed
            .crl_number()
            .and_then(|number| u64::try_from(number).ok())
            .unwrap_or(0);
        Ok(Self {
            issuer: parsed.issuer().as_raw().to_vec(),
            number,
            this_update: timestamp(parsed.last_update().timestamp())?,
            next_update: parsed
                .next_update()
                .map(|time| timestamp(time.timestamp()))
                .transpose()?,
            revoked,
            der: der.to_vec(),
        })
    }

    /// Checks that the owner of this certificate signed the list.
    pub fn check_signature(&self, signer: &Certificate) -> Result<(), RevocationError> {
        let signer_parsed = certificate::parse(signer.der()).map_err(RevocationError::Authority)?;
        parse(&self.der)?
            .verify_signature(signer_parsed.public_key())
            .map_err(|_| RevocationError::Signature(signer.common_name.clone()))
    }

    /// Returns the list in PEM.
    pub fn to_pem(&self) -> String {
        certificate::to_pem("X509 CRL", &self.der)
    }
}

fn parse(der: &[u8]) -> Result<CertificateRevocationList<'_>, RevocationError> {
    let (rest, parsed) = CertificateRevocationList::from_der(der)
        .map_err(|_| RevocationError::Damaged("it is not an X.509 revocation list"))?;
    if !rest.is_empty() {
        return Err(RevocationError::Damaged("it has trailing bytes"));
    }
    Ok(parsed)
}

fn timestamp(seconds: i64) -> Result<Timestamp, RevocationError> {
    Timestamp::from_second(seconds)
        .map_err(|_| RevocationError::Damaged("a date in it is out of range"))
}

/// The serials of revoked certificates, shared by all users of the set.
///
/// Cloning shares the set. A lookup costs a read lock and a hash.
#[derive(Clone, Debug, Default)]
pub struct Revocations {
    serials: Arc<RwLock<HashSet<Serial>>>,
    /// All certificates of the inventory, if no others count.
    known: Arc<RwLock<Option<HashSet<Serial>>>>,
}

impl Revocations {
    /// Creates a set of these serials.
    pub fn new(serials: impl IntoIterator<Item = Serial>) -> Self {
        let revocations = Self::default();
        revocations.replace(serials);
        revocations
    }

    /// Returns `true` if the certificate with this serial is revoked, or not known although only
    /// known ones count.
    pub fn contains(&self, serial: &Serial) -> bool {
        self.is_revoked(serial) || self.is_unknown(serial)
    }

    /// Returns `true` if only known certificates count, and this is not one of them.
    pub fn is_unknown(&self, serial: &Serial) -> bool {
        self.known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_some_and(|known| !known.contains(serial))
    }

    /// From now on, only these certificates and those that are [learned](Self::learn) count.
    pub fn require_known(&self, serials: impl IntoIterator<Item = Serial>) {
        let fresh = serials.into_iter().collect();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
    }

    /// Adds a certificate to the known ones.
    pub fn learn(&self, serial: &Serial) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_mut() {
            known.insert(serial.clone());
        }
    }

    /// Returns `true` if the certificate with this serial is revoked.
    pub fn is_revoked(&self, serial: &Serial) -> bool {
        self.serials
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(serial)
    }

    /// Adds a serial, effective immediately for all users of the set.
    pub fn add(&self, serial: Serial) {
        self.serials
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(serial);
    }

    /// Replaces the contents of the set.
    pub fn replace(&self, serials: impl IntoIterator<Item = Serial>) {
        let fresh = serials.into_iter().collect();
        *self.serials.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    /// Returns the number of serials.
    pub fn len(&self) -> usize {
        self.serials
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Returns `true` if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
