//! Signing: turns a grant into a certificate, and nothing else.

use std::net::IpAddr;

use bunraku_model::access::MOST_GROUPS;
use bunraku_model::{NodeName, Role};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SubjectPublicKeyInfo, date_time_ymd,
};

use super::puppet::PuppetError;
use super::{Authority, after, before, since_1970};
use crate::certificate::{self, Certificate, CertificateError};
use crate::groups;
use crate::request::{Grant, Request, SignedCertificate};
use crate::serial::Serial;

/// The reason why a certificate was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("the request is for `{requested}`, but `{granted}` is permitted")]
    OtherName {
        requested: NodeName,
        granted: NodeName,
    },
    #[error("the request contains names that are not permitted: {}", .0.join(", "))]
    NamesNotGranted(Vec<String>),
    #[error("only operators have groups, and at most {MOST_GROUPS} of them")]
    Groups,
    #[error("the request is for a CA certificate")]
    WouldBeAuthority,
    #[error("`{0}` is not a valid name in a certificate")]
    InvalidName(String),
    #[error("the CA certificate expired at {0}")]
    AuthorityExpired(Timestamp),
    #[error("the certificate would expire before it becomes valid")]
    NoLifetime,
    #[error("cannot sign the key in the request")]
    Key(#[source] rcgen::Error),
    #[error("signing failed")]
    Signing(#[source] rcgen::Error),
    #[error("cannot get random bytes from the system")]
    Randomness,
    #[error("the signed certificate differs from the request")]
    Unexpected(#[source] CertificateError),
    #[error("cannot update the directory of the Puppet CA")]
    Puppet(#[source] PuppetError),
}

impl Authority {
    /// Signs what the grant allows, and nothing else that the request asks for.
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
        // Only a holder with a name to serve under may act as a server: a node's certificate
        // can never stand in for a server's.
        if !params.subject_alt_names.is_empty() {
            params
                .extended_key_usages
                .insert(0, ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.custom_extensions = extensions(request, grant);
        let made = params
            .signed_by(key, &self.issuer)
            .map_err(SignError::Signing)?;
        let certificate = self.check(made.der())?;
        Ok(SignedCertificate {
            name: grant.name.clone(),
            role: certificate.role,
            groups: certificate.groups.clone(),
            pem: certificate.to_pem(),
            serial: certificate.serial,
            fingerprint: certificate.fingerprint,
            not_before: certificate.not_before,
            not_after: certificate.not_after,
        })
    }

    /// Checks the issuer, because peers compare it byte by byte with the authority's subject.
    fn check(&self, der: &[u8]) -> Result<Certificate, SignError> {
        let parsed = certificate::parse(der).map_err(SignError::Unexpected)?;
        if parsed.issuer().as_raw() != self.subject() {
            return Err(SignError::Unexpected(CertificateError::Damaged(
                "its issuer differs from the CA name",
            )));
        }
        Certificate::from_der(der).map_err(SignError::Unexpected)
    }
}

fn check_grant(request: &Request, grant: &Grant) -> Result<(), SignError> {
    if *request.name() != grant.name {
        return Err(SignError::OtherName {
            requested: request.name().clone(),
            granted: grant.name.clone(),
        });
    }
    if !grant.groups.is_empty()
        && (grant.role != Role::Operator || grant.groups.len() > MOST_GROUPS)
    {
        return Err(SignError::Groups);
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

/// Returns the alternative names. A server also serves under its own name; a node serves
/// under no name unless one was granted.
fn alternative_names(grant: &Grant) -> Result<Vec<SanType>, SignError> {
    let mut dns: Vec<&str> = grant.dns_names.iter().map(String::as_str).collect();
    let serves = grant.role == Role::Server || !dns.is_empty() || !grant.ip_addresses.is_empty();
    if serves && !dns.contains(&grant.name.as_str()) {
        dns.insert(0, grant.name.as_str());
    }
    let mut names = Vec::new();
    for name in dns {
        // TLS matches a name that is an address as an address.
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

fn extensions(request: &Request, grant: &Grant) -> Vec<CustomExtension> {
    let role = format!("{}{}", certificate::ROLE_PREFIX, grant.role);
    let role = CustomExtension::from_oid_content(certificate::ROLE_OID, groups::der_text(&role));
    let groups = (!grant.groups.is_empty()).then(|| {
        let text = certificate::ROLE_PREFIX.to_owned() + &groups::to_text(&grant.groups);
        CustomExtension::from_oid_content(groups::GROUPS_OID, groups::der_text(&text))
    });
    let copied = request
        .extensions
        .iter()
        .map(|(oid, value)| CustomExtension::from_oid_content(oid, value.clone()));
    std::iter::once(role).chain(groups).chain(copied).collect()
}
