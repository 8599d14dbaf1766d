//! OpenSSL agrees with what was signed and revoked.

use bunraku_model::Role;
use bunraku_wire::Authority;
use bunraku_wire::revocation::{RevocationList, RevokedCertificate};
use jiff::Timestamp;

use crate::support::{DAY, authority, grant, issue};
use crate::tools::{Workshop, run, try_run};

fn verify(workshop: &Workshop, trusted: &str, certificate: &str, purpose: &str) -> (bool, String) {
    let certificate = workshop.write("checked.pem", certificate);
    try_run(
        "openssl",
        &[
            "verify",
            "-x509_strict",
            "-crl_check",
            "-purpose",
            purpose,
            "-CAfile",
            trusted,
            &certificate,
        ],
    )
}

fn trusted(workshop: &Workshop, authority: &Authority, list: &RevocationList) -> String {
    let bundle = format!("{}{}", authority.certificates_pem(), list.to_pem());
    workshop.write("trusted.pem", &bundle)
}

#[test]
fn openssl_accepts_our_certificates_and_list() {
    let (authority, workshop) = (authority(), Workshop::new());
    let now = Timestamp::now();
    let list = authority.revocation_list(&[], 1, now, DAY).unwrap();
    let trusted = trusted(&workshop, &authority, &list);
    for (role, client, server) in [
        (Role::Node, true, false),
        (Role::Operator, true, false),
        (Role::Server, true, true),
    ] {
        let (signed, _) = issue(&authority, &grant("host1", role), now);
        let as_client = verify(&workshop, &trusted, &signed.pem, "sslclient");
        let as_server = verify(&workshop, &trusted, &signed.pem, "sslserver");
        assert_eq!(as_client.0, client, "{role}: {}", as_client.1);
        assert_eq!(as_server.0, server, "{role}: {}", as_server.1);
        let text = workshop.describe(&signed.pem);
        assert!(text.contains("1.3.6.1.4.1.34380.1.3.13"), "{text}");
        assert!(text.contains(&format!("bunraku:{role}")), "{text}");
    }
}

#[test]
fn openssl_sees_what_was_revoked_and_only_that() {
    let (authority, workshop) = (authority(), Workshop::new());
    let now = Timestamp::now();
    let (good, _) = issue(&authority, &grant("good", Role::Node), now);
    let (bad, _) = issue(&authority, &grant("bad", Role::Node), now);
    let revoked = [RevokedCertificate {
        serial: bad.serial.clone(),
        at: now,
    }];
    let list = authority.revocation_list(&revoked, 7, now, DAY).unwrap();
    let trusted = trusted(&workshop, &authority, &list);
    let (accepted, text) = verify(&workshop, &trusted, &good.pem, "sslclient");
    assert!(accepted, "{text}");
    let (accepted, text) = verify(&workshop, &trusted, &bad.pem, "sslclient");
    assert!(!accepted && text.contains("certificate revoked"), "{text}");

    let path = workshop.write("list.pem", &list.to_pem());
    let text = run("openssl", &["crl", "-in", &path, "-noout", "-text"]);
    assert!(
        text.contains(&bad.serial.to_string().to_uppercase()),
        "{text}"
    );
    assert!(text.contains("X509v3 CRL Number"), "{text}");

    let read = &RevocationList::from_pem(&list.to_pem()).unwrap()[0];
    assert_eq!(read.number, 7);
    assert_eq!(read.revoked[0].serial, bad.serial);
    assert_eq!(read.revoked[0].at.as_second(), now.as_second());
    read.check_signature(authority.certificate()).unwrap();
    assert!(
        read.check_signature(crate::support::authority().certificate())
            .is_err()
    );
}

#[test]
fn openssl_reads_our_fingerprints() {
    let (authority, workshop) = (authority(), Workshop::new());
    let path = workshop.write("ca.pem", &authority.certificates_pem());
    let text = run(
        "openssl",
        &["x509", "-in", &path, "-noout", "-fingerprint", "-sha256"],
    );
    let (_, theirs) = text.trim().split_once('=').unwrap();
    assert_eq!(theirs.parse(), Ok(authority.fingerprint()));
}

#[test]
fn a_list_made_by_openssl_is_read() {
    let workshop = Workshop::new();
    let (certificate, key) = (workshop.path("ca.pem"), workshop.path("ca.key"));
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 10 -subj /CN=CA";
    let mut arguments: Vec<&str> = make.split(' ').collect();
    arguments.extend(["-keyout", &key, "-out", &certificate]);
    run("openssl", &arguments);
    let index = "R\t301231235959Z\t260101000000Z,keyCompromise\t0A1B\tunknown\t/CN=gone\n";
    let (index, number) = (
        workshop.write("index.txt", index),
        workshop.write("number", "0F\n"),
    );
    let config = workshop.write(
        "ca.cnf",
        &format!("[ca]\ndefault_ca=d\n[d]\ndatabase={index}\ncrlnumber={number}\ndefault_md=sha256\ndefault_crl_days=5\n"),
    );
    let text = run(
        "openssl",
        &[
            "ca",
            "-gencrl",
            "-config",
            &config,
            "-cert",
            &certificate,
            "-keyfile",
            &key,
        ],
    );
    let lists = RevocationList::from_pem(&text).unwrap();
    assert_eq!(lists[0].number, 15);
    assert_eq!(lists[0].revoked[0].serial, "0a1b".parse().unwrap());
    let authority = Authority::from_pem(
        &std::fs::read_to_string(&certificate).unwrap(),
        &std::fs::read_to_string(&key).unwrap(),
    )
    .unwrap();
    lists[0].check_signature(authority.certificate()).unwrap();
}
