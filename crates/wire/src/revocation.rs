//! Revoked certificates: lists that others can check, and a set that the
//! server asks on every request.
//!
//! A list (CRL) stops new connections. It cannot stop those that are open:
//! TLS looks at it once, at the handshake. So the server asks
//! [`Revocations`] for each request as well.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::certificate::{self, BlockError, Certificate, CertificateError};
use crate::serial::Serial;

/// One certificate that is valid no more.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Revoked {
    pub serial: Serial,
    pub at: Timestamp,
}

/// A revocation list, read.
#[derive(Clone, Debug)]
pub struct RevocationList {
    /// The issuer's name as it stands there, in DER.
    pub issuer: Vec<u8>,
    /// Grows with each list of one issuer.
    pub number: u64,
    pub this_update: Timestamp,
    pub next_update: Option<Timestamp>,
    pub revoked: Vec<Revoked>,
    pub(crate) der: Vec<u8>,
}

/// Why a list could not be read or made.
#[derive(Debug, thiserror::Error)]
pub enum RevocationError {
    #[error("it is too large to be a revocation list")]
    TooLarge,
    #[error("there is no revocation list in it (PEM `X509 CRL`)")]
    Missing,
    #[error("the revocation list is damaged: {0}")]
    Damaged(&'static str),
    #[error("the revocation list was not signed by `{0}`")]
    Signature(String),
    #[error("no revocation list could be made")]
    Make(#[source] rcgen::Error),
    #[error("the authority's certificate cannot be read")]
    Authority(#[source] CertificateError),
}

impl RevocationList {
    /// All lists of a PEM text.
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

    /// One list in DER.
    pub fn from_der(der: &[u8]) -> Result<Self, RevocationError> {
        let parsed = parse(der)?;
        let revoked = parsed
            .iter_revoked_certificates()
            .map(|entry| {
                Ok(Revoked {
                    serial: Serial::from_bytes(entry.raw_serial())
                        .map_err(|_| RevocationError::Damaged("a serial number is not valid"))?,
                    at: timestamp(entry.revocation_date.timestamp())?,
                })
            })
            .collect::<Result<_, RevocationError>>()?;
        // A list without a number, or with one that is absurdly large, is
        // followed by number 1: nobody but the next list reads it.
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

    /// Checks that the owner of this certificate signed it.
    pub fn check_signature(&self, signer: &Certificate) -> Result<(), RevocationError> {
        let signer_parsed = certificate::parse(signer.der()).map_err(RevocationError::Authority)?;
        parse(&self.der)?
            .verify_signature(signer_parsed.public_key())
            .map_err(|_| RevocationError::Signature(signer.common_name.clone()))
    }

    /// The list as people keep it.
    pub fn to_pem(&self) -> String {
        certificate::to_pem("X509 CRL", &self.der)
    }
}

fn parse(der: &[u8]) -> Result<CertificateRevocationList<'_>, RevocationError> {
    let (rest, parsed) = CertificateRevocationList::from_der(der)
        .map_err(|_| RevocationError::Damaged("it is not an X.509 revocation list"))?;
    if !rest.is_empty() {
        return Err(RevocationError::Damaged("bytes follow its end"));
    }
    Ok(parsed)
}

fn timestamp(seconds: i64) -> Result<Timestamp, RevocationError> {
    Timestamp::from_second(seconds)
        .map_err(|_| RevocationError::Damaged("a date in it is out of range"))
}

/// The serials that are valid no more, shared by everyone who asks.
///
/// Cloning shares the set; asking costs a read lock and a hash.
#[derive(Clone, Debug, Default)]
pub struct Revocations {
    serials: Arc<RwLock<HashSet<Serial>>>,
}

impl Revocations {
    /// A set of these.
    pub fn new(serials: impl IntoIterator<Item = Serial>) -> Self {
        let revocations = Self::default();
        revocations.replace(serials);
        revocations
    }

    /// Whether the certificate with this serial is valid no more.
    pub fn contains(&self, serial: &Serial) -> bool {
        self.serials
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(serial)
    }

    /// Adds one, at once, for all who share the set.
    pub fn add(&self, serial: Serial) {
        self.serials
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(serial);
    }

    /// Takes these instead.
    pub fn replace(&self, serials: impl IntoIterator<Item = Serial>) {
        let fresh = serials.into_iter().collect();
        *self.serials.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.serials
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
