//! A request asks; the grant decides.

use bunraku_model::Role;
use bunraku_wire::authority::{Authority, SignError};
use bunraku_wire::certificate::Certificate;
use bunraku_wire::key::{KeyError, KeyKind, PrivateKey};
use bunraku_wire::request::{LONGEST_REQUEST, Request, RequestError};
use jiff::{SignedDuration, Timestamp};

use crate::support::{DAY, authority, grant, issue, name};
use crate::tools::{Workshop, run};

#[test]
fn a_certificate_holds_what_was_granted() {
    let authority = authority();
    let now = Timestamp::now();
    for role in [Role::Node, Role::Operator, Role::Server] {
        let (signed, identity) = issue(&authority, &grant("host1", role), now);
        let certificate = Certificate::from_pem(&signed.pem).unwrap();
        assert_eq!(certificate.role, role);
        assert_eq!(certificate.common_name, "host1");
        assert_eq!(certificate.serial, signed.serial);
        assert_eq!(certificate.fingerprint, signed.fingerprint);
        assert_eq!(identity.certificate().fingerprint, signed.fingerprint);
        assert!(!certificate.is_authority);
        assert!(certificate.not_before < now);
        assert_eq!(certificate.not_after.as_second(), (now + DAY).as_second());
    }
}

#[test]
fn operators_carry_the_groups_that_were_granted_and_others_none() {
    let (authority, now) = (authority(), Timestamp::now());
    // From a short text to the longest that is allowed: the length of the DER differs.
    for (count, length) in [(1, 1), (3, 40), (32, 64)] {
        let mut wanted = grant("alice", Role::Operator);
        let names = (0..count).map(|number| format!("{number:0>length$}"));
        wanted.groups = names.map(|name| name.parse().expect("a group")).collect();
        assert_eq!(wanted.groups.len(), count);
        let (signed, identity) = issue(&authority, &wanted, now);
        assert_eq!(signed.groups, wanted.groups);
        assert_eq!(identity.certificate().groups, wanted.groups);
        // Puppet code does not see them.
        let seen = bunraku_wire::trusted_extensions::trusted_extensions(&signed.pem);
        assert!(seen.expect("readable").is_empty());
    }
    for role in [Role::Node, Role::Server] {
        let (signed, _) = issue(&authority, &grant("host1", role), now);
        assert!(signed.groups.is_empty());
        let mut wanted = grant("host1", role);
        wanted.groups = ["dba".parse().expect("a group")].into();
        let key = PrivateKey::generate(KeyKind::EcdsaP256).unwrap();
        let request = Request::create(&name("host1"), &key).unwrap();
        let request = Request::from_pem(&request).unwrap();
        let refused = authority.sign(&request, &wanted, now).unwrap_err();
        assert!(matches!(refused, SignError::Groups), "{refused:?}");
    }
}

#[test]
fn nothing_outlives_its_authority() {
    let long_ago = Timestamp::now() - DAY * (365 * 20 - 10);
    let authority = Authority::create("Old CA", long_ago).unwrap();
    let mut grant = grant("node1", Role::Node);
    grant.lifetime = DAY * 365;
    let (signed, _) = issue(&authority, &grant, Timestamp::now());
    assert_eq!(signed.not_after, authority.certificate().not_after);

    let key = PrivateKey::generate(KeyKind::EcdsaP256).unwrap();
    let request = Request::from_pem(&Request::create(&grant.name, &key).unwrap()).unwrap();
    let too_late = Timestamp::now() + DAY * 11;
    let error = authority.sign(&request, &grant, too_late).unwrap_err();
    assert!(matches!(error, SignError::AuthorityExpired(_)), "{error:?}");
    grant.lifetime = SignedDuration::ZERO;
    let error = authority
        .sign(&request, &grant, Timestamp::now())
        .unwrap_err();
    assert!(matches!(error, SignError::NoLifetime), "{error:?}");
}

#[test]
fn a_grant_for_another_name_signs_nothing() {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).unwrap();
    let request = Request::from_pem(&Request::create(&name("node1"), &key).unwrap()).unwrap();
    let error = authority()
        .sign(&request, &grant("node2", Role::Node), Timestamp::now())
        .unwrap_err();
    assert!(matches!(error, SignError::OtherName { .. }), "{error:?}");
}

#[test]
fn the_given_serial_is_used_and_others_differ() {
    let authority = authority();
    let mut fixed = grant("node1", Role::Node);
    fixed.serial = Some(77.into());
    let (signed, _) = issue(&authority, &fixed, Timestamp::now());
    assert_eq!(signed.serial.to_string(), "4d");
    let free = grant("node1", Role::Node);
    let (one, _) = issue(&authority, &free, Timestamp::now());
    let (two, _) = issue(&authority, &free, Timestamp::now());
    assert_ne!(one.serial, two.serial);
}

#[test]
fn a_request_that_was_changed_after_it_was_signed_is_refused() {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).unwrap();
    let pem = Request::create(&name("node1"), &key).unwrap();
    let mut der = pem::parse(&pem).unwrap().into_contents();
    let position = der.windows(5).position(|bytes| bytes == b"node1").unwrap();
    der[position + 4] = b'2';
    let error = Request::from_der(&der).unwrap_err();
    assert!(matches!(error, RequestError::Signature), "{error:?}");
}

#[test]
fn requests_that_are_too_large_or_too_many_are_refused() {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).unwrap();
    let pem = Request::create(&name("node1"), &key).unwrap();
    let twice = format!("{pem}{pem}");
    assert!(matches!(
        Request::from_pem(&twice),
        Err(RequestError::Missing)
    ));
    let padded = format!("{}{pem}", "x\n".repeat(LONGEST_REQUEST));
    assert!(matches!(
        Request::from_pem(&padded),
        Err(RequestError::TooLarge)
    ));
    assert!(matches!(Request::from_pem(""), Err(RequestError::Missing)));
}

#[test]
fn what_a_foreign_request_asks_for_is_in_the_grant_or_refused() {
    let authority = authority();
    let workshop = Workshop::new();
    let ask = |extensions: &str| {
        let text = workshop.request("web1", extensions);
        Request::from_pem(&text).unwrap()
    };
    let now = Timestamp::now();

    let request = ask("subjectAltName=DNS:web1,DNS:www.example.net,IP:192.0.2.7");
    let asked = ["DNS:web1", "DNS:www.example.net", "IP:192.0.2.7"];
    assert_eq!(request.requested_names(), asked);
    let mut grant = grant("web1", Role::Node);
    match authority.sign(&request, &grant, now).unwrap_err() {
        SignError::NamesNotGranted(names) => assert_eq!(names, asked[1..]),
        other => panic!("{other:?}"),
    }
    grant.dns_names = vec!["www.example.net".to_owned()];
    grant.ip_addresses = vec![[192, 0, 2, 7].into()];
    let signed = authority.sign(&request, &grant, now).unwrap();
    let text = workshop.describe(&signed.pem);
    assert!(
        text.contains("DNS:web1, DNS:www.example.net, IP Address:192.0.2.7"),
        "{text}"
    );

    let request = ask("basicConstraints=critical,CA:TRUE");
    let error = authority.sign(&request, &grant, now).unwrap_err();
    assert!(matches!(error, SignError::WouldBeAuthority), "{error:?}");

    // A role in a request is only a wish.
    let role = "1.3.6.1.4.1.34380.1.3.13=ASN1:UTF8String:bunraku:operator";
    let request = ask(role);
    let signed = authority.sign(&request, &grant, now).unwrap();
    assert_eq!(signed.role, Role::Node);
    assert_eq!(Certificate::from_pem(&signed.pem).unwrap().role, Role::Node);
    assert!(!workshop.describe(&signed.pem).contains("operator"));

    // So are groups.
    let groups = "1.3.6.1.4.1.34380.1.3.1=ASN1:UTF8String:bunraku:groups=administrators";
    let mut operator = grant.clone();
    operator.role = Role::Operator;
    let signed = authority.sign(&ask(groups), &operator, now).unwrap();
    assert!(signed.groups.is_empty());
    assert!(!workshop.describe(&signed.pem).contains("administrators"));

    // The same holds for key usages.
    let request = ask("extendedKeyUsage=serverAuth,codeSigning\nkeyUsage=keyCertSign");
    let mut plain = grant.clone();
    plain.dns_names.clear();
    plain.ip_addresses.clear();
    let signed = authority.sign(&request, &plain, now).unwrap();
    let text = workshop.describe(&signed.pem);
    assert!(!text.contains("Code Signing"), "{text}");
    assert!(!text.contains("Server Authentication"), "{text}");
    assert!(!text.contains("Certificate Sign"), "{text}");
}

#[test]
fn names_that_are_not_nodes_are_refused() {
    let workshop = Workshop::new();
    for subject in ["/CN=Web1", "/CN=a b", "/CN=..", "/O=x", "/CN=a/CN=b"] {
        let text = workshop.request_for(subject, "");
        assert!(Request::from_pem(&text).is_err(), "{subject}");
    }
}

#[test]
fn weak_and_unknown_keys_are_refused() {
    let workshop = Workshop::new();
    for key in [
        ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"].as_slice(),
        &[
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:secp224r1",
        ],
        &["-algorithm", "ED25519"],
    ] {
        let path = workshop.path("weak.key");
        run("openssl", &[&["genpkey", "-out", &path], key].concat());
        let text = run(
            "openssl",
            &["req", "-new", "-key", &path, "-subj", "/CN=node1"],
        );
        let error = Request::from_pem(&text).unwrap_err();
        assert!(
            matches!(error, RequestError::Key | RequestError::Signature),
            "{key:?}: {error:?}"
        );
    }
}

#[test]
fn keys_of_every_common_form_are_read_and_encrypted_ones_named() {
    let workshop = Workshop::new();
    let path = workshop.path("key.pem");
    run(
        "openssl",
        &["genrsa", "-traditional", "-out", &path, "2048"],
    );
    let traditional = std::fs::read_to_string(&path).unwrap();
    assert!(traditional.starts_with("-----BEGIN RSA PRIVATE KEY"));
    let key = PrivateKey::from_pem(&traditional).unwrap();
    assert_eq!(key.to_pem(), traditional);
    Request::from_pem(&Request::create(&name("node1"), &key).unwrap()).unwrap();

    let sec1 = run(
        "openssl",
        &["ecparam", "-name", "prime256v1", "-genkey", "-noout"],
    );
    PrivateKey::from_pem(&sec1).unwrap();

    for options in [["-traditional"].as_slice(), &[]] {
        let arguments = ["pkey", "-in", &path, "-aes256", "-passout", "pass:x"];
        let encrypted = run("openssl", &[&arguments, options].concat());
        let error = PrivateKey::from_pem(&encrypted).unwrap_err();
        assert!(matches!(error, KeyError::Encrypted), "{error:?}");
    }
}

#[test]
fn a_key_file_is_private_and_stays_when_it_is_there() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys/node.key");
    let first = PrivateKey::load_or_create(&path, KeyKind::EcdsaP256).unwrap();
    let again = PrivateKey::load_or_create(&path, KeyKind::Rsa2048).unwrap();
    assert_eq!(first.to_pem(), again.to_pem());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!format!("{first:?}").contains("BEGIN"));
}
