//! The groups in an operator's certificate.
//!
//! They are in Puppet's `pp_authorization` extension, which no authority copies from a request:
//! `bunraku:groups=ops,dba`. A certificate with groups that cannot be read is not valid, because
//! nobody should guess what its holder may do.

use std::collections::BTreeSet;

use bunraku_model::Role;
use bunraku_model::access::{GroupName, MOST_GROUPS};
use x509_parser::prelude::X509Certificate;

use crate::certificate::{CertificateError, ROLE_PREFIX, utf8_string};

/// Puppet's `pp_authorization`.
pub(crate) const GROUPS_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 1];
/// What follows [`ROLE_PREFIX`] in our own extension.
const WORD: &str = "groups=";

/// Returns the extension's content, in DER.
pub(crate) fn to_der(groups: &BTreeSet<GroupName>) -> Vec<u8> {
    let names: Vec<&str> = groups.iter().map(GroupName::as_str).collect();
    der_text(&format!("{ROLE_PREFIX}{WORD}{}", names.join(",")))
}

/// Returns a text as a DER `UTF8String`.
pub(crate) fn der_text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("names and groups are short");
    let mut der = vec![0x0c];
    match u8::try_from(length) {
        Ok(length) if length < 0x80 => der.push(length),
        Ok(length) => der.extend([0x81, length]),
        Err(_) => {
            der.push(0x82);
            der.extend(length.to_be_bytes());
        }
    }
    der.extend_from_slice(text.as_bytes());
    der
}

/// Returns the groups in a certificate of this role.
pub(crate) fn groups_of(
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
    let Some(names) = text.and_then(|text| text.strip_prefix(ROLE_PREFIX)) else {
        // The extension of another program.
        return Ok(BTreeSet::new());
    };
    let names = names
        .strip_prefix(WORD)
        .ok_or(CertificateError::Damaged("its groups are malformed"))?;
    if role != Role::Operator {
        return Err(CertificateError::Damaged("only operators have groups"));
    }
    let groups: Result<BTreeSet<GroupName>, _> = names.split(',').map(str::parse).collect();
    match groups {
        Ok(groups) if groups.len() <= MOST_GROUPS => Ok(groups),
        _ => Err(CertificateError::Damaged("its groups are malformed")),
    }
}
