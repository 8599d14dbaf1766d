//! A parsed certificate: the name in it, its permissions, its lifetime.
//!
//! Reading does not mean trusting: nothing here checks the signature. TLS does that before an
//! identity is taken from a connection.

use std::collections::BTreeSet;

use bunraku_model::access::GroupName;
use bunraku_model::{InvalidName, NodeName, Role};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::fingerprint::Fingerprint;
use crate::groups::{self, GROUPS_OID};
use crate::serial::Serial;

/// Puppet's `pp_auth_role`, the extension that holds a certificate's role.
pub(crate) const ROLE_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 13];
/// Prefix of the role in `pp_auth_role`, so that it is never mistaken for another program's
/// role.
pub(crate) const ROLE_PREFIX: &str = "bunraku:";
/// Maximum length of a PEM text in bytes: enough for a list of about 500,000 revoked
/// certificates.
const LONGEST_PEM: usize = 32 << 20;
/// Maximum length of a certificate in bytes.
const LONGEST: usize = 64 << 10;

/// Time by which certificates are backdated, because clocks differ.
pub const BACK_DATE: SignedDuration = SignedDuration::from_hours(1);

/// The contents of a certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The common name, unchanged.
    pub common_name: String,
    /// The role. A certificate without a role is a node's.
    pub role: Role,
    /// The groups of an operator. Empty for others.
    pub groups: BTreeSet<GroupName>,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// `true` if it may sign other certificates.
    pub is_authority: bool,
    der: CertificateDer<'static>,
}

/// The reason why a certificate could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("it contains no certificate (PEM `CERTIFICATE`)")]
    Missing,
    #[error("it is too large to be a certificate")]
    TooLarge,
    #[error("the certificate is malformed: {0}")]
    Damaged(&'static str),
    #[error("the certificate's common name is not a valid node name")]
    Name(#[source] InvalidName),
}

impl Certificate {
    /// Reads one certificate in DER.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let parsed = parse(der)?;
        let common_name = single_common_name(parsed.subject()).ok_or(CertificateError::Damaged(
            "it needs exactly one common name",
        ))?;
        let role = role_of(&parsed)?;
        Ok(Self {
            common_name: common_name.to_owned(),
            role,
            groups: groups_of(&parsed, role)?,
            serial: Serial::from_bytes(parsed.raw_serial())
                .map_err(|_| CertificateError::Damaged("its serial number is not valid"))?,
            fingerprint: Fingerprint::of(der),
            not_before: timestamp(parsed.validity().not_before.timestamp())?,
            not_after: timestamp(parsed.validity().not_after.timestamp())?,
            is_authority: parsed.is_ca(),
            der: CertificateDer::from(der.to_vec()),
        })
    }

    /// Reads the first certificate of a PEM text.
    pub fn from_pem(text: &str) -> Result<Self, CertificateError> {
        let chain = chain_from_pem(text)?;
        Self::from_der(chain.first().ok_or(CertificateError::Missing)?)
    }

    /// Returns the node that the certificate names.
    pub fn name(&self) -> Result<NodeName, CertificateError> {
        NodeName::new(self.common_name.as_str()).map_err(CertificateError::Name)
    }

    /// Returns the certificate in DER.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Returns the certificate in PEM.
    pub fn to_pem(&self) -> String {
        to_pem("CERTIFICATE", &self.der)
    }

    /// Returns `true` if it is time to request a new certificate: two thirds of the lifetime
    /// have passed. `jitter`, between 0 and 1, spreads the renewals of a fleet whose
    /// certificates were all created on one day. It spreads them over a twelfth of the
    /// lifetime *before* that moment, so no renewal is later than two thirds.
    pub fn needs_renewal(&self, now: Timestamp, jitter: f64) -> bool {
        now >= self.renew_at(jitter)
    }

    /// Returns the time from which [`Certificate::needs_renewal`] returns `true`.
    pub fn renew_at(&self, jitter: f64) -> Timestamp {
        let jitter = if jitter.is_finite() {
            jitter.clamp(0.0, 1.0)
        } else {
            0.0
        };
        moment_of_life(self.not_before, self.not_after, 2.0 / 3.0 - jitter / 12.0)
    }

    /// Returns `true` if the holder of this certificate's key signed the message.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        use aws_lc_rs::signature as algorithms;
        use x509_parser::public_key::PublicKey;
        let Ok(parsed) = parse(&self.der) else {
            return false;
        };
        let key = parsed.public_key();
        let bytes = key.subject_public_key.data.as_ref();
        let algorithm: &dyn algorithms::VerificationAlgorithm = match key.parsed() {
            Ok(PublicKey::EC(point)) if point.key_size() == 256 => {
                &algorithms::ECDSA_P256_SHA256_ASN1
            }
            Ok(PublicKey::EC(point)) if point.key_size() == 384 => {
                &algorithms::ECDSA_P384_SHA384_ASN1
            }
            Ok(PublicKey::RSA(_)) => &algorithms::RSA_PKCS1_2048_8192_SHA256,
            _ => return false,
        };
        algorithms::UnparsedPublicKey::new(algorithm, bytes)
            .verify(message, signature)
            .is_ok()
    }

    /// Returns `true` if this authority signed the certificate.
    pub fn is_signed_by(&self, authority: &Self) -> bool {
        let (Ok(own), Ok(above)) = (parse(&self.der), parse(&authority.der)) else {
            return false;
        };
        own.issuer().as_raw() == above.subject().as_raw()
            && own.verify_signature(Some(above.public_key())).is_ok()
    }

    /// Returns `true` if the certificate has expired.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now > self.not_after
    }
}

/// Returns the time before which a server refuses to renew a certificate: half its lifetime.
/// Agents ask later (see [`Certificate::renew_at`]).
pub fn earliest_renewal(not_before: Timestamp, not_after: Timestamp) -> Timestamp {
    moment_of_life(not_before, not_after, 0.5)
}

/// Returns the moment at which this share of the lifetime has passed. The lifetime starts when
/// the certificate was issued, not at the backdated `not_before`.
fn moment_of_life(not_before: Timestamp, not_after: Timestamp, share: f64) -> Timestamp {
    let later = |moment: Timestamp, by: SignedDuration| {
        moment
            .saturating_add(by)
            .expect("a signed duration has no calendar units")
    };
    let issued = later(not_before, BACK_DATE).min(not_after);
    later(issued, not_after.duration_since(issued).mul_f64(share))
}

/// Returns all certificates of a PEM text, in order. Skips other blocks.
pub fn chain_from_pem(text: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Vec<_> = blocks(text, "CERTIFICATE")
        .map_err(|why| match why {
            BlockError::TooLarge => CertificateError::TooLarge,
            BlockError::NotPem => CertificateError::Missing,
        })?
        .into_iter()
        .map(CertificateDer::from)
        .collect();
    if chain.is_empty() {
        return Err(CertificateError::Missing);
    }
    Ok(chain)
}

pub(crate) enum BlockError {
    TooLarge,
    NotPem,
}

/// Returns the contents of every PEM block with this label.
pub(crate) fn blocks(text: &str, label: &str) -> Result<Vec<Vec<u8>>, BlockError> {
    if text.len() > LONGEST_PEM {
        return Err(BlockError::TooLarge);
    }
    Ok(pem::parse_many(text)
        .map_err(|_| BlockError::NotPem)?
        .into_iter()
        .filter(|block| block.tag() == label)
        .map(pem::Pem::into_contents)
        .collect())
}

pub(crate) fn to_pem(label: &str, der: &[u8]) -> String {
    pem::encode_config(
        &pem::Pem::new(label, der),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}

pub(crate) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateError> {
    if der.len() > LONGEST {
        return Err(CertificateError::TooLarge);
    }
    let (rest, parsed) = X509Certificate::from_der(der)
        .map_err(|_| CertificateError::Damaged("it is not an X.509 certificate"))?;
    if !rest.is_empty() {
        return Err(CertificateError::Damaged("it has trailing bytes"));
    }
    Ok(parsed)
}

/// Returns whether a certificate names another one as its issuer.
pub(crate) fn names_as_issuer(below: &[u8], above: &[u8]) -> Result<bool, CertificateError> {
    let (below, above) = (parse(below)?, parse(above)?);
    Ok(below.issuer().as_raw() == above.subject().as_raw())
}

/// Returns the common name if there is exactly one.
pub(crate) fn single_common_name<'a>(name: &'a x509_parser::x509::X509Name<'_>) -> Option<&'a str> {
    let mut names = name.iter_common_name();
    let first = names.next()?.as_str().ok()?;
    names.next().is_none().then_some(first)
}

pub(crate) fn timestamp(seconds: i64) -> Result<Timestamp, CertificateError> {
    Timestamp::from_second(seconds)
        .map_err(|_| CertificateError::Damaged("a date in it is out of range"))
}

/// Returns the role. Two roles, or one that cannot be read, are an error, because nobody
/// should guess about such a certificate.
fn role_of(parsed: &X509Certificate<'_>) -> Result<Role, CertificateError> {
    let oid = x509_parser::der_parser::oid::Oid::from(ROLE_OID)
        .expect("the role's object identifier is well formed");
    let extension = parsed
        .tbs_certificate
        .get_extension_unique(&oid)
        .map_err(|_| CertificateError::Damaged("it has two roles"))?;
    let Some(extension) = extension else {
        return Ok(Role::Node);
    };
    let text = utf8_string(extension.value).unwrap_or_default();
    match text.strip_prefix(ROLE_PREFIX) {
        Some(word) => word
            .parse()
            .map_err(|_| CertificateError::Damaged("its role is unknown")),
        None => Ok(Role::Node),
    }
}

/// Returns the groups in a certificate of this role. Groups that cannot be read are an error,
/// because nobody should guess what such a certificate allows.
fn groups_of(
    parsed: &X509Certificate<'_>,
    role: Role,
) -> Result<BTreeSet<GroupName>, CertificateError> {
    let oid = x509_parser::der_parser::oid::Oid::from(GROUPS_OID)
        .expect("the object identifier is well formed");
    let extension = parsed
        .tbs_certificate
        .get_extension_unique(&oid)
        .map_err(|_| CertificateError::Damaged("it has two lists of groups"))?;
    let text = extension.and_then(|extension| utf8_string(extension.value));
    let Some(text) = text.and_then(|text| text.strip_prefix(ROLE_PREFIX)) else {
        // The extension of another program.
        return Ok(BTreeSet::new());
    };
    if role != Role::Operator {
        return Err(CertificateError::Damaged("only operators have groups"));
    }
    groups::from_text(text).ok_or(CertificateError::Damaged("its groups are malformed"))
}

/// Returns the text of a DER `UTF8String` with nothing after it.
pub(crate) fn utf8_string(der: &[u8]) -> Option<&str> {
    let (rest, any) = x509_parser::der_parser::asn1_rs::Any::from_der(der).ok()?;
    let text = any.tag() == x509_parser::der_parser::asn1_rs::Tag::Utf8String;
    (rest.is_empty() && text)
        .then(|| std::str::from_utf8(any.data).ok())
        .flatten()
}
