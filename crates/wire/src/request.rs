//! Certificate requests: created on a node, checked critically on a server.
//!
//! A request asks; it never decides. The name must be a node's name, and the request must
//! prove that its sender holds the key. Anything else that it asks for (names, roles, being
//! an authority) is in the certificate only if it is in the signer's [`Grant`]. Puppet's
//! registration and private extensions are copied, as Puppet's own authority does: they are
//! facts that a person put on the machine, and grant nothing here.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bunraku_model::access::GroupName;
use bunraku_model::{InvalidName, NodeName, Role};
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DistinguishedName, DnType};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;

use crate::certificate::{self, BlockError};
use crate::fingerprint::Fingerprint;
use crate::key::PrivateKey;
use crate::serial::Serial;

/// Maximum length of a request, in bytes of PEM.
pub const LONGEST_REQUEST: usize = 64 << 10;

/// `ppRegCertExt` and `ppPrivCertExt`: the extensions that Puppet's authority copies.
const COPIED: [&[u64]; 2] = [
    &[1, 3, 6, 1, 4, 1, 34380, 1, 1],
    &[1, 3, 6, 1, 4, 1, 34380, 1, 2],
];

/// A request with a verified self-signature and name.
#[derive(Clone, Debug)]
pub struct Request {
    name: NodeName,
    requested_names: Vec<String>,
    requests_authority: bool,
    pub(crate) extensions: Vec<(Vec<u64>, Vec<u8>)>,
    pub(crate) public_key_info: Vec<u8>,
    der: Vec<u8>,
}

/// The permissions that a signer grants for one request.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The name, which must match the name in the request.
    pub name: NodeName,
    pub role: Role,
    /// The groups of an operator. Must be empty for other roles.
    pub groups: BTreeSet<GroupName>,
    /// Lifetime from now, limited by the end of the authority's own certificate.
    pub lifetime: SignedDuration,
    /// Names that the holder may serve under, besides its own.
    pub dns_names: Vec<String>,
    /// Addresses that the holder may serve under.
    pub ip_addresses: Vec<IpAddr>,
    /// The serial. `None`: 128 random bits, or the next number of a Puppet authority.
    pub serial: Option<Serial>,
}

/// A newly signed certificate.
#[derive(Clone, Debug)]
pub struct SignedCertificate {
    pub name: NodeName,
    pub role: Role,
    pub groups: BTreeSet<GroupName>,
    /// The certificate alone, without its authority's.
    pub pem: String,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// The reason why a request was refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the request is larger than {LONGEST_REQUEST} bytes")]
    TooLarge,
    #[error("it must contain exactly one certificate request (PEM `CERTIFICATE REQUEST`)")]
    Missing,
    #[error("the request is malformed: {0}")]
    Damaged(&'static str),
    #[error("the request is not signed with its own key")]
    Signature,
    #[error("the requested name is not a valid node name")]
    Name(#[source] InvalidName),
    #[error(
        "the key is too weak or of an unknown type (use ECDSA P-256 or P-384, or RSA with 2048 to 8192 bits)"
    )]
    Key,
    #[error("cannot create the request")]
    Make(#[source] rcgen::Error),
}

impl Request {
    /// Creates a request for this key, in PEM.
    pub fn create(name: &NodeName, key: &PrivateKey) -> Result<String, RequestError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, name.as_str());
        params
            .serialize_request(&key.pair)
            .and_then(|request| request.pem())
            .map_err(RequestError::Make)
    }

    /// Reads and checks a request in PEM.
    pub fn from_pem(text: &str) -> Result<Self, RequestError> {
        if text.len() > LONGEST_REQUEST {
            return Err(RequestError::TooLarge);
        }
        let mut found = Vec::new();
        for label in ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"] {
            found.extend(certificate::blocks(text, label).map_err(|why| match why {
                BlockError::TooLarge => RequestError::TooLarge,
                BlockError::NotPem => RequestError::Missing,
            })?);
        }
        match found.as_slice() {
            [der] => Self::from_der(der),
            _ => Err(RequestError::Missing),
        }
    }

    /// Reads and checks a request in DER.
    pub fn from_der(der: &[u8]) -> Result<Self, RequestError> {
        if der.len() > LONGEST_REQUEST {
            return Err(RequestError::TooLarge);
        }
        let (rest, parsed) = X509CertificationRequest::from_der(der)
            .map_err(|_| RequestError::Damaged("it is not a PKCS#10 request"))?;
        if !rest.is_empty() {
            return Err(RequestError::Damaged("it has trailing bytes"));
        }
        let info = &parsed.certification_request_info;
        check_key(&info.subject_pki)?;
        parsed
            .verify_signature()
            .map_err(|_| RequestError::Signature)?;
        let name = certificate::single_common_name(&info.subject)
            .ok_or(RequestError::Damaged("it needs exactly one common name"))?;
        let mut request = Self {
            name: NodeName::new(name).map_err(RequestError::Name)?,
            requested_names: Vec::new(),
            requests_authority: false,
            extensions: Vec::new(),
            public_key_info: info.subject_pki.raw.to_vec(),
            der: der.to_vec(),
        };
        for extension in requested_extensions(&parsed) {
            request.note(extension)?;
        }
        Ok(request)
    }

    fn note(&mut self, extension: &X509Extension<'_>) -> Result<(), RequestError> {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => {
                let names = names.general_names.iter().map(describe);
                self.requested_names.extend(names);
            }
            ParsedExtension::BasicConstraints(constraints) if constraints.ca => {
                self.requests_authority = true;
            }
            _ => {}
        }
        let Some(oid) = extension.oid.iter().map(Iterator::collect::<Vec<u64>>) else {
            return Err(RequestError::Damaged("it has an invalid extension"));
        };
        if COPIED
            .iter()
            .any(|arc| oid.starts_with(arc) && oid.len() > arc.len())
        {
            if self.extensions.iter().any(|(earlier, _)| *earlier == oid) {
                return Err(RequestError::Damaged("it has an extension twice"));
            }
            self.extensions.push((oid, extension.value.to_vec()));
        }
        Ok(())
    }

    /// Returns the public key that the certificate is requested for (DER
    /// SubjectPublicKeyInfo).
    pub fn public_key_info(&self) -> &[u8] {
        &self.public_key_info
    }

    /// Returns the node that sends the request.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Returns the names that the request asks for besides its own: `DNS:web1`,
    /// `IP:192.0.2.1`. A certificate contains them only if they are granted.
    pub fn requested_names(&self) -> &[String] {
        &self.requested_names
    }

    /// Returns `true` if it asks to become an authority, which is never granted.
    pub fn requests_authority(&self) -> bool {
        self.requests_authority
    }

    /// Returns the hash of the request, which both sides show before it is signed.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.der)
    }

    /// Returns `true` if the certificate is for the same key.
    pub fn has_key_of(&self, certificate: &certificate::Certificate) -> bool {
        certificate::parse(certificate.der())
            .is_ok_and(|parsed| parsed.public_key().raw == self.public_key_info)
    }

    /// Returns the request in PEM.
    pub fn to_pem(&self) -> String {
        certificate::to_pem("CERTIFICATE REQUEST", &self.der)
    }
}

fn requested_extensions<'a>(
    parsed: &'a X509CertificationRequest<'_>,
) -> impl Iterator<Item = &'a X509Extension<'a>> {
    parsed
        .certification_request_info
        .iter_attributes()
        .filter_map(|attribute| match attribute.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(request) => Some(request.extensions.iter()),
            _ => None,
        })
        .flatten()
}

fn check_key(key: &x509_parser::x509::SubjectPublicKeyInfo<'_>) -> Result<(), RequestError> {
    let strong = match key.parsed().map_err(|_| RequestError::Key)? {
        PublicKey::RSA(key) => (2048..=8192).contains(&key.key_size()),
        PublicKey::EC(point) => matches!(point.key_size(), 256 | 384),
        _ => false,
    };
    if strong {
        Ok(())
    } else {
        Err(RequestError::Key)
    }
}

fn describe(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => format!("DNS:{name}"),
        GeneralName::IPAddress([a, b, c, d]) => format!("IP:{}", IpAddr::from([*a, *b, *c, *d])),
        GeneralName::IPAddress(bytes) => match <[u8; 16]>::try_from(*bytes) {
            Ok(bytes) => format!("IP:{}", IpAddr::from(bytes)),
            Err(_) => "IP:?".to_owned(),
        },
        GeneralName::URI(uri) => format!("URI:{uri}"),
        GeneralName::RFC822Name(address) => format!("email:{address}"),
        other => format!("{other:?}"),
    }
}
