//! The extensions of a certificate that Puppet code sees as `$trusted['extensions']`.
//!
//! Puppet's authority copies extensions below its own object identifiers from the request
//! into the certificate, and so does ours. Their names are Puppet's names (`pp_role`), or the
//! numeric identifier if Puppet has none.

use std::collections::BTreeMap;

use crate::certificate::{self, CertificateError, ROLE_PREFIX, utf8_string};

/// Prefix of registered, private and authorisation extensions.
const PUPPET: &str = "1.3.6.1.4.1.34380.1.";

const REGISTERED: [&str; 26] = [
    "pp_uuid",
    "pp_instance_id",
    "pp_image_name",
    "pp_preshared_key",
    "pp_cost_center",
    "pp_product",
    "pp_project",
    "pp_application",
    "pp_service",
    "pp_employee",
    "pp_created_by",
    "pp_environment",
    "pp_role",
    "pp_software_version",
    "pp_department",
    "pp_cluster",
    "pp_provisioner",
    "pp_region",
    "pp_datacenter",
    "pp_zone",
    "pp_network",
    "pp_securitypolicy",
    "pp_cloudplatform",
    "pp_apptier",
    "pp_hostname",
    "pp_owner",
];

/// Returns the Puppet extensions of a certificate in PEM, by name.
pub fn trusted_extensions(pem: &str) -> Result<BTreeMap<String, String>, CertificateError> {
    let chain = certificate::chain_from_pem(pem)?;
    extensions_of(chain.first().ok_or(CertificateError::Missing)?)
}

/// Returns the Puppet extensions of a certificate in DER, by name.
pub(crate) fn extensions_of(der: &[u8]) -> Result<BTreeMap<String, String>, CertificateError> {
    let parsed = certificate::parse(der)?;
    let mut found = BTreeMap::new();
    for extension in parsed.extensions() {
        let oid = extension.oid.to_id_string();
        let Some(below) = oid.strip_prefix(PUPPET) else {
            continue;
        };
        let text = match utf8_string(extension.value) {
            Some(text) => text.to_owned(),
            None => String::from_utf8_lossy(extension.value).into_owned(),
        };
        // Puppet code must not make decisions based on our own role.
        if !text.starts_with(ROLE_PREFIX) {
            found.insert(name(below).unwrap_or(oid), text);
        }
    }
    Ok(found)
}

fn name(below: &str) -> Option<String> {
    let name = match below.split_once('.')? {
        ("1", number) => {
            let number: usize = number.parse().ok()?;
            REGISTERED.get(number.checked_sub(1)?)?
        }
        ("3", "1") => "pp_authorization",
        ("3", "13") => "pp_auth_role",
        ("3", "39") => "pp_cli_auth",
        _ => return None,
    };
    Some((*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_shows_its_extensions_and_not_our_role() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        let extension = |oid: &[u64], text: &str| {
            let mut der = vec![0x0c, u8::try_from(text.len()).expect("short")];
            der.extend_from_slice(text.as_bytes());
            rcgen::CustomExtension::from_oid_content(oid, der)
        };
        let puppet = |tail: &[u64]| [&[1, 3, 6, 1, 4, 1, 34380, 1], tail].concat();
        params.custom_extensions = vec![
            extension(&puppet(&[1, 13]), "web"),
            extension(&puppet(&[2, 7]), "own"),
            extension(certificate::ROLE_OID, "bunraku:node"),
        ];
        let pem = params.self_signed(&key).expect("signed").pem();
        let found = trusted_extensions(&pem).expect("readable");
        let found: Vec<_> = found
            .iter()
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        assert_eq!(found, ["1.3.6.1.4.1.34380.1.2.7=own", "pp_role=web"]);
    }

    #[test]
    fn extensions_have_puppets_names() {
        for (below, expected) in [
            ("1.13", Some("pp_role")),
            ("1.1", Some("pp_uuid")),
            ("1.26", Some("pp_owner")),
            ("1.27", None),
            ("1.0", None),
            ("3.1", Some("pp_authorization")),
            ("2.5", None),
        ] {
            assert_eq!(name(below).as_deref(), expected, "{below}");
        }
    }
}
