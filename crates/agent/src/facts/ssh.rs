//! The SSH host keys with their fingerprints as SSHFP records.

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::group::{Facts, GroupError, single};
use super::machine::Machine;
use super::warning::FactWarning;

const DIRECTORIES: [&str; 5] = [
    "/etc/ssh",
    "/usr/local/etc/ssh",
    "/etc",
    "/usr/local/etc",
    "/etc/opt/ssh",
];
const FILES: [&str; 4] = [
    "ssh_host_rsa_key.pub",
    "ssh_host_dsa_key.pub",
    "ssh_host_ecdsa_key.pub",
    "ssh_host_ed25519_key.pub",
];

pub(super) fn collect(
    machine: &Machine,
    warnings: &mut Vec<FactWarning>,
) -> Result<Facts, GroupError> {
    let mut keys = Facts::new();
    for directory in DIRECTORIES {
        for file in FILES {
            let path = format!("{directory}/{file}");
            let Some(text) = machine.optional(&path) else {
                continue;
            };
            match parse(&text) {
                Some((name, key)) => {
                    keys.insert(name.to_owned(), key);
                }
                None => warnings.push(FactWarning::in_group(
                    "ssh",
                    format!("{path} does not contain a public key of a known type"),
                )),
            }
        }
    }
    Ok(if keys.is_empty() {
        Facts::new()
    } else {
        single("ssh", Value::Object(keys))
    })
}

/// Parses a line such as `ssh-ed25519 AAAA… comment` into Facter's name and the fact.
fn parse(text: &str) -> Option<(&'static str, Value)> {
    let mut words = text.split_whitespace();
    let (kind, key) = (words.next()?, words.next()?);
    let (name, number) = match kind {
        "ssh-rsa" => ("rsa", 1),
        "ssh-dss" => ("dsa", 2),
        "ecdsa-sha2-nistp256" => ("ecdsa", 3),
        "ssh-ed25519" => ("ed25519", 4),
        _ => return None,
    };
    let bytes = STANDARD.decode(key).ok()?;
    let record = |hash: u8, algorithm: &'static Algorithm| {
        format!(
            "SSHFP {number} {hash} {}",
            hex::encode(digest(algorithm, &bytes))
        )
    };
    // SSHFP records still have a SHA-1 form (RFC 4255). It identifies the key and protects nothing.
    let fingerprints = json!({
        "sha1": record(1, &SHA1_FOR_LEGACY_USE_ONLY),
        "sha256": record(2, &SHA256),
    });
    Some((
        name,
        json!({"fingerprints": fingerprints, "key": key, "type": kind}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_key_has_its_sshfp_records() {
        let line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBerYr75HaoyUOtDLWphaZrhBfkXILa0MJTazg9lyN+9 root@host\n";
        let (name, key) = parse(line).unwrap();
        // The format is that of `ssh-keygen -r`.
        expect![[r#"ed25519 {"sha1":"SSHFP 4 1 d7d4cd44569a010025bd62cd7c594189b9e6124d","sha256":"SSHFP 4 2 08a5ef0d28a73d983b5966c03b13d5adf21a0f259174039a75528f4edd9a1b01"}"#]]
            .assert_eq(&format!("{name} {}", key["fingerprints"]));
    }

    #[test]
    fn an_invalid_key_is_refused() {
        for text in ["", "ssh-rsa", "ssh-rsa ???", "ssh-new AAAA"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(ssh-rsa |ssh-dss )?[A-Za-z0-9+/= ]{0,40}.{0,9}") {
            parse(&text);
        }
    }
}
