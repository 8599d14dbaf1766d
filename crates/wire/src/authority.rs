//! The certificate authority: a key, its certificate, and what they sign.
//!
//! Rule: an authority never makes a new one of itself in silence. Missing
//! halves, a key that does not fit, or an expired certificate are errors.
//!
//! Absent: who may be signed. The caller decides, with a [`Grant`].

mod directory;
mod puppet;

use std::net::IpAddr;

use bunraku_model::{NodeName, Role};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
    SerialNumber, SubjectPublicKeyInfo, date_time_ymd,
};
use rustls::pki_types::CertificateDer;

pub use directory::DirectoryError;
pub use puppet::{PuppetDirectory, PuppetError};

use crate::certificate::{self, Certificate, CertificateError};
use crate::fingerprint::Fingerprint;
use crate::key::{KeyError, KeyKind, PrivateKey};
use crate::request::{Grant, Request, SignedCertificate};
use crate::serial::Serial;

/// Clocks differ: a certificate is valid from an hour before it was signed.
pub const BACK_DATE: SignedDuration = SignedDuration::from_hours(1);
/// How long our own authority lasts.
pub const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365 * 20);

/// A key and the certificates that make it an authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The signing certificate first, then those above it.
    chain: Vec<Certificate>,
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    key_pem: String,
    puppet: Option<PuppetDirectory>,
}

/// Why a key and certificates are not an authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("the authority's key is not usable")]
    Key(#[source] KeyError),
    #[error("the authority's certificate is not usable")]
    Certificate(#[source] CertificateError),
    #[error("the authority's key does not belong to its certificate")]
    Mismatch,
    #[error("the certificate `{0}` is not an authority's")]
    NotAnAuthority(String),
    #[error("the authority's name has a form that cannot be written back unchanged")]
    Subject,
    #[error("the authority's certificate could not be made")]
    Make(#[source] rcgen::Error),
    #[error("the system has no randomness")]
    Randomness,
}

/// Why a certificate was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("the request is for `{requested}`, the grant for `{granted}`")]
    OtherName {
        requested: NodeName,
        granted: NodeName,
    },
    #[error("the request asks for names that were not granted: {}", .0.join(", "))]
    NamesNotGranted(Vec<String>),
    #[error("the request asks to become an authority")]
    WouldBeAuthority,
    #[error("`{0}` cannot be a name in a certificate")]
    InvalidName(String),
    #[error("the authority's own certificate ended at {0}")]
    AuthorityExpired(Timestamp),
    #[error("the certificate would end before it starts")]
    NoLifetime,
    #[error("the request's key cannot be signed")]
    Key(#[source] rcgen::Error),
    #[error("signing failed")]
    Signing(#[source] rcgen::Error),
    #[error("the system has no randomness")]
    Randomness,
    #[error("the signed certificate is not what was meant")]
    Unexpected(#[source] CertificateError),
    #[error("the Puppet authority's directory could not be brought up to date")]
    Puppet(#[source] PuppetError),
}

impl Authority {
    /// A new authority, in memory.
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

    /// The authority that a PEM bundle and its key make. The certificate of
    /// the key may stand anywhere in the bundle.
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
        // rcgen cannot write a name part with no or several attributes.
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

    /// The certificate that signs.
    pub fn certificate(&self) -> &Certificate {
        &self.chain[0]
    }

    /// All certificates of the authority in PEM: what peers trust.
    pub fn certificates_pem(&self) -> String {
        self.chain.iter().map(Certificate::to_pem).collect()
    }

    /// What people pin: the fingerprint of the topmost certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.chain[self.chain.len() - 1].fingerprint
    }

    /// The Puppet directory behind it, if that is where it came from.
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

    /// Signs what the grant allows, and nothing else that the request asks.
    pub fn sign(
        &self,
        request: &Request,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<SignedCertificate, SignError> {
        check_grant(request, grant)?;
        let not_after = self.end_of(grant.lifetime, now)?;
        let key =
            SubjectPublicKeyInfo::from_der(&request.public_key_info).map_err(SignError::Key)?;
        match &self.puppet {
            None => {
                let serial = match &grant.serial {
                    Some(serial) => serial.clone(),
                    None => Serial::fresh().map_err(|_| SignError::Randomness)?,
                };
                self.sign_as(request, grant, &key, serial, now, not_after)
            }
            Some(directory) => directory
                .with_next_serial(|serial| {
                    self.sign_as(request, grant, &key, serial, now, not_after)
                })
                .map_err(SignError::Puppet)?,
        }
    }

    fn end_of(&self, lifetime: SignedDuration, now: Timestamp) -> Result<Timestamp, SignError> {
        let own_end = self.certificate().not_after;
        if now >= own_end {
            return Err(SignError::AuthorityExpired(own_end));
        }
        if lifetime <= SignedDuration::ZERO {
            return Err(SignError::NoLifetime);
        }
        Ok(after(now, lifetime).min(own_end))
    }

    fn sign_as(
        &self,
        request: &Request,
        grant: &Grant,
        key: &impl PublicKeyData,
        serial: Serial,
        now: Timestamp,
        not_after: Timestamp,
    ) -> Result<SignedCertificate, SignError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, grant.name.as_str());
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(before(now));
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(not_after);
        params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.subject_alt_names = alternative_names(grant)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        // Only who has a name to serve under may serve: a node's certificate
        // can never stand in for a server's.
        if !params.subject_alt_names.is_empty() {
            params
                .extended_key_usages
                .insert(0, ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.custom_extensions = extensions(request, grant.role);
        let made = params
            .signed_by(key, &self.issuer)
            .map_err(SignError::Signing)?;
        let certificate = self.check(made.der())?;
        Ok(SignedCertificate {
            name: grant.name.clone(),
            role: certificate.role,
            pem: certificate.to_pem(),
            serial: certificate.serial,
            fingerprint: certificate.fingerprint,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
        })
    }

    /// Peers compare the issuer byte by byte with the authority's subject.
    fn check(&self, der: &[u8]) -> Result<Certificate, SignError> {
        let parsed = certificate::parse(der).map_err(SignError::Unexpected)?;
        if parsed.issuer().as_raw() != self.subject() {
            return Err(SignError::Unexpected(CertificateError::Damaged(
                "its issuer is not written as the authority's name",
            )));
        }
        Certificate::from_der(der).map_err(SignError::Unexpected)
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

fn check_grant(request: &Request, grant: &Grant) -> Result<(), SignError> {
    if *request.name() != grant.name {
        return Err(SignError::OtherName {
            requested: request.name().clone(),
            granted: grant.name.clone(),
        });
    }
    if request.requests_authority() {
        return Err(SignError::WouldBeAuthority);
    }
    let mut granted = vec![format!("DNS:{}", grant.name)];
    granted.extend(grant.dns_names.iter().map(|name| format!("DNS:{name}")));
    granted.extend(grant.ip_addresses.iter().map(|ip| format!("IP:{ip}")));
    let refused: Vec<_> = request
        .requested_names()
        .iter()
        .filter(|name| !granted.iter().any(|known| known.eq_ignore_ascii_case(name)))
        .cloned()
        .collect();
    if refused.is_empty() {
        Ok(())
    } else {
        Err(SignError::NamesNotGranted(refused))
    }
}

/// A server serves under its own name too; a node under no name unless one
/// was granted.
fn alternative_names(grant: &Grant) -> Result<Vec<SanType>, SignError> {
    let mut dns: Vec<&str> = grant.dns_names.iter().map(String::as_str).collect();
    let serves = grant.role == Role::Server || !dns.is_empty() || !grant.ip_addresses.is_empty();
    if serves && !dns.contains(&grant.name.as_str()) {
        dns.insert(0, grant.name.as_str());
    }
    let mut names = Vec::new();
    for name in dns {
        // A name that is an address is matched as an address by TLS.
        if let Ok(address) = name.parse::<IpAddr>() {
            names.push(SanType::IpAddress(address));
            continue;
        }
        rustls::pki_types::DnsName::try_from(name.trim_start_matches("*."))
            .map_err(|_| SignError::InvalidName(name.to_owned()))?;
        let ascii = name
            .try_into()
            .map_err(|_| SignError::InvalidName(name.to_owned()))?;
        names.push(SanType::DnsName(ascii));
    }
    for address in &grant.ip_addresses {
        if !names.contains(&SanType::IpAddress(*address)) {
            names.push(SanType::IpAddress(*address));
        }
    }
    Ok(names)
}

fn extensions(request: &Request, role: Role) -> Vec<CustomExtension> {
    let word = format!("{}{role}", certificate::ROLE_PREFIX);
    let mut role = vec![
        0x0c,
        u8::try_from(word.len()).expect("a role is a short word"),
    ];
    role.extend_from_slice(word.as_bytes());
    let copied = request
        .extensions
        .iter()
        .map(|(oid, value)| CustomExtension::from_oid_content(oid, value.clone()));
    std::iter::once(CustomExtension::from_oid_content(
        certificate::ROLE_OID,
        role,
    ))
    .chain(copied)
    .collect()
}

fn before(now: Timestamp) -> Timestamp {
    after(now, -BACK_DATE)
}

/// `now` and a while, inside what a certificate can say (1970 to 9999).
pub(crate) fn after(now: Timestamp, while_: SignedDuration) -> Timestamp {
    let last = Timestamp::from_second(253_370_764_800).expect("the year 9998 is in range");
    now.saturating_add(while_)
        .expect("a signed duration has no calendar units")
        .clamp(Timestamp::UNIX_EPOCH, last)
}

pub(crate) fn since_1970(moment: Timestamp) -> std::time::Duration {
    std::time::Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or(0))
}
