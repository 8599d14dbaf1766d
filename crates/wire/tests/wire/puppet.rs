//! The installed Puppet: we sign its requests, pass its checks, and use its authority's
//! directory in a way that Puppet can continue to use it.

use std::path::{Path, PathBuf};

use bunraku_model::Role;
use bunraku_wire::authority::{Authority, PuppetError};
use bunraku_wire::certificate::Certificate;
use bunraku_wire::client::Client;
use bunraku_wire::request::{Request, SignedCertificate};
use bunraku_wire::revocation::RevocationList;
use bunraku_wire::tls::{Identity, ReloadableClientTls, client_config_pinned};
use jiff::Timestamp;
use serde_json::Value;

use crate::support::{
    DAY, TestServer, authority, client_tls, grant, issue, name, options, server_tls,
};
use crate::tools::{Workshop, run, try_run};

const MAKE_REQUEST: &str = include_str!("puppet/make_request.rb");

const CHECK: &str = include_str!("puppet/check.rb");

const MAKE_AUTHORITY: &str = include_str!("puppet/make_authority.rb");

struct PuppetRequest {
    key: String,
    request: Request,
}

fn request(workshop: &Workshop, who: &str, attributes: &str) -> PuppetRequest {
    workshop.write("csr_attributes.yaml", attributes);
    let root = workshop.path("");
    let text = run("ruby", &["-e", MAKE_REQUEST, &root, who]);
    let start = text.find("-----BEGIN CERTIFICATE REQUEST").unwrap();
    PuppetRequest {
        key: text[..start].to_owned(),
        request: Request::from_pem(&text[start..]).unwrap(),
    }
}

fn check(
    workshop: &Workshop,
    made: &PuppetRequest,
    signed: &SignedCertificate,
    trusted: &str,
    lists: &str,
) -> (bool, String) {
    let key = workshop.write("own.key", &made.key);
    let own = workshop.write("own.pem", &signed.pem);
    let trusted = workshop.write("trusted.pem", trusted);
    let lists = workshop.write("lists.pem", lists);
    let root = workshop.path("");
    try_run("ruby", &["-e", CHECK, &root, &key, &own, &trusted, &lists])
}

fn puppet_authority(workshop: &Workshop) -> PathBuf {
    let cadir = workshop.root().join("ca");
    std::fs::create_dir(&cadir).unwrap();
    run("ruby", &["-e", MAKE_AUTHORITY, cadir.to_str().unwrap()]);
    cadir
}

fn read(cadir: &Path, file: &str) -> String {
    std::fs::read_to_string(cadir.join(file)).unwrap()
}

#[test]
fn the_role_has_the_identifier_that_puppet_gives_it() {
    let script = "require 'puppet'; require 'puppet/ssl/oids'; \
        puts Puppet::SSL::Oids::PUPPET_OIDS.find { |oid| oid[1] == 'pp_auth_role' }[0]";
    assert_eq!(
        run("ruby", &["-e", script]).trim(),
        "1.3.6.1.4.1.34380.1.3.13"
    );
}

#[test]
fn puppet_requests_are_signed_and_puppet_accepts_the_result() {
    let attributes = "---\ncustom_attributes:\n  1.2.840.113549.1.9.7: secret\n\
        extension_requests:\n  pp_role: webserver\n  1.3.6.1.4.1.34380.1.2.1: private value\n  \
        pp_auth_role: bunraku:operator\n";
    let (authority, workshop) = (authority(), Workshop::new());
    let now = Timestamp::now();
    let made = request(&workshop, "web1.example.net", attributes);
    assert_eq!(*made.request.name(), name("web1.example.net"));
    let grant = grant("web1.example.net", Role::Node);
    let signed = authority.sign(&made.request, &grant, now).unwrap();
    assert_eq!(signed.role, Role::Node);
    let list = authority.revocation_list(&[], 1, now, DAY).unwrap();
    let trusted = authority.certificates_pem();
    let (accepted, text) = check(&workshop, &made, &signed, &trusted, &list.to_pem());
    assert!(accepted, "{text}");
    assert!(text.contains("pp_role=webserver"), "{text}");
    assert!(
        text.contains("1.3.6.1.4.1.34380.1.2.1=private value"),
        "{text}"
    );
    assert!(text.contains("pp_auth_role=bunraku:node"), "{text}");
    assert!(!text.contains("bunraku:operator"), "{text}");

    let revoked = [bunraku_wire::revocation::RevokedCertificate {
        serial: signed.serial.clone(),
        at: now,
    }];
    let list = authority.revocation_list(&revoked, 2, now, DAY).unwrap();
    let (accepted, text) = check(&workshop, &made, &signed, &trusted, &list.to_pem());
    assert!(!accepted && text.contains("revoked"), "{text}");
}

#[test]
fn names_that_a_puppet_node_wants_are_refused_unless_granted() {
    let workshop = Workshop::new();
    let script = MAKE_REQUEST
        .replace(
            "\"--vardir\"",
            "\"--dns_alt_names\", \"puppet,web1\", \"--vardir\"",
        )
        .replace("/csr_attributes.yaml", "/none.yaml");
    let root = workshop.path("");
    let text = run("ruby", &["-e", &script, &root, "web1"]);
    let start = text.find("-----BEGIN CERTIFICATE REQUEST").unwrap();
    let request = Request::from_pem(&text[start..]).unwrap();
    let mut wanted = request.requested_names().to_vec();
    wanted.sort();
    assert_eq!(wanted, ["DNS:puppet", "DNS:web1"]);
    let error = authority()
        .sign(&request, &grant("web1", Role::Node), Timestamp::now())
        .unwrap_err();
    assert!(error.to_string().ends_with("DNS:puppet"), "{error}");
}

#[test]
fn a_puppet_authority_continues_where_puppet_stopped() {
    let workshop = Workshop::new();
    let cadir = puppet_authority(&workshop);
    let authority = Authority::from_puppet(&cadir).unwrap();
    assert_eq!(
        authority.certificate().common_name,
        "Puppet CA: puppet.example.net"
    );
    let made = request(&workshop, "web1.example.net", "--- {}\n");
    let now = Timestamp::now();
    let grant = grant("web1.example.net", Role::Node);
    let signed = authority.sign(&made.request, &grant, now).unwrap();
    assert_eq!(signed.serial, 9.into());
    assert_eq!(read(&cadir, "serial"), "000A");
    assert_eq!(read(&cadir, "signed/web1.example.net.pem"), signed.pem);
    let inventory = read(&cadir, "inventory.txt");
    let expected = format!(
        "0x0008 2025-01-01T00:00:00UTC 2030-01-01T00:00:00UTC /CN=older\n0x0009 {} {} /CN=web1.example.net\n",
        signed.not_before.strftime("%Y-%m-%dT%H:%M:%SUTC"),
        signed.not_after.strftime("%Y-%m-%dT%H:%M:%SUTC"),
    );
    assert_eq!(inventory, expected);

    let trusted = read(&cadir, "ca_crt.pem");
    let check_now = || {
        let lists = read(&cadir, "ca_crl.pem");
        check(&workshop, &made, &signed, &trusted, &lists)
    };
    let (accepted, text) = check_now();
    assert!(accepted, "{text}");

    let directory = authority.puppet_directory().unwrap();
    directory
        .revoke(&authority, std::slice::from_ref(&signed.serial), now)
        .unwrap();
    directory
        .revoke(&authority, std::slice::from_ref(&signed.serial), now)
        .unwrap();
    let lists = RevocationList::from_pem(&read(&cadir, "ca_crl.pem")).unwrap();
    assert_eq!(lists.len(), 2, "the root's list must stay");
    assert_eq!((lists[0].number, lists[0].revoked.len()), (2, 1));
    assert_eq!(
        directory.revoked(&authority).unwrap()[0].serial,
        signed.serial
    );
    let (accepted, text) = check_now();
    assert!(!accepted && text.contains("revoked"), "{text}");
}

#[test]
fn many_at_once_never_get_the_same_puppet_serial() {
    let workshop = Workshop::new();
    let cadir = puppet_authority(&workshop);
    let mut serials: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let cadir = &cadir;
                scope.spawn(move || {
                    // One authority each, as separate processes have.
                    let authority = Authority::from_puppet(cadir).unwrap();
                    (0..5)
                        .map(|number| {
                            let grant = grant(&format!("node{thread}-{number}"), Role::Node);
                            issue(&authority, &grant, Timestamp::now()).0.serial
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    serials.sort();
    let expected: Vec<_> = (9..29_u64).map(bunraku_wire::Serial::from).collect();
    assert_eq!(serials, expected);
    assert_eq!(read(&cadir, "inventory.txt").lines().count(), 21);
    assert_eq!(read(&cadir, "serial"), "001D");
}

#[test]
fn a_refused_request_wastes_a_number_and_records_nothing() {
    let workshop = Workshop::new();
    let cadir = puppet_authority(&workshop);
    let authority = Authority::from_puppet(&cadir).unwrap();
    let before = read(&cadir, "inventory.txt");
    let request = Request::from_pem(&workshop.request("web1", "")).unwrap();
    let mut impossible = grant("web1", Role::Server);
    impossible.dns_names = vec!["not a name".to_owned()];
    authority
        .sign(&request, &impossible, Timestamp::now())
        .unwrap_err();
    assert_eq!(read(&cadir, "inventory.txt"), before);
    assert!(!cadir.join("signed/web1.pem").exists());
}

#[test]
fn a_half_written_last_line_of_the_inventory_is_not_joined() {
    let workshop = Workshop::new();
    let cadir = puppet_authority(&workshop);
    std::fs::write(cadir.join("inventory.txt"), "0x0008 torn").unwrap();
    let authority = Authority::from_puppet(&cadir).unwrap();
    issue(&authority, &grant("web1", Role::Node), Timestamp::now());
    let inventory = read(&cadir, "inventory.txt");
    assert!(inventory.starts_with("0x0008 torn\n0x0009 "), "{inventory}");
}

#[test]
fn a_puppet_directory_that_cannot_be_used_says_why() {
    let workshop = Workshop::new();
    let cadir = puppet_authority(&workshop);
    let key = cadir.join("ca_key.pem");
    let good = read(&cadir, "ca_key.pem");
    let path = key.to_str().unwrap();
    let encrypt = "pkey -traditional -aes256 -passout pass:x -in";
    let mut arguments: Vec<&str> = encrypt.split(' ').collect();
    arguments.push(path);
    let encrypted = run("openssl", &arguments);
    let chain = |error: PuppetError| bunraku_model::error_chain(&error);
    for (file, content, expected) in [
        ("ca_key.pem", encrypted.as_str(), "encrypted"),
        ("ca_key.pem", &workshop.request("x", ""), "no private key"),
        ("serial", "", "serial"),
        ("serial", "xyz", "serial"),
        ("serial", "-1", "serial"),
        ("ca_crl.pem", "", "ca_crl.pem"),
        ("ca_crt.pem", "", "no certificate"),
    ] {
        let before = read(&cadir, file);
        std::fs::write(cadir.join(file), content).unwrap();
        let text = chain(Authority::from_puppet(&cadir).unwrap_err());
        assert!(text.contains(expected), "{file}: {text}");
        std::fs::write(cadir.join(file), before).unwrap();
    }
    std::fs::write(&key, good).unwrap();
    std::fs::remove_file(cadir.join("serial")).unwrap();
    let error = Authority::from_puppet(&cadir).unwrap_err();
    assert!(matches!(error, PuppetError::Io { .. }), "{error:?}");
}

#[tokio::test]
async fn nodes_of_a_puppet_authority_are_nodes_and_its_root_can_be_pinned() {
    let workshop = Workshop::new();
    let cadir = puppet_authority(&workshop);
    let authority = Authority::from_puppet(&cadir).unwrap();
    let mut tls = server_tls(&authority);
    tls.revocation_lists_pem = read(&cadir, "ca_crl.pem");
    let server = TestServer::start(&tls).await;

    // Signed by Puppet's own tools: no role, and only the leaf is sent.
    let old = workshop.path("old.key");
    let csr = workshop.write("old.csr", &workshop.request("old1", ""));
    std::fs::copy(workshop.path("request.key"), &old).unwrap();
    let extensions = workshop.write("leaf.cnf", "basicConstraints=critical,CA:FALSE\n");
    let sign = "x509 -req -days 10 -set_serial 4660 -extfile";
    let mut arguments: Vec<&str> = sign.split(' ').collect();
    let (ca, key) = (
        cadir.join("ca_crt.pem").display().to_string(),
        cadir.join("ca_key.pem").display().to_string(),
    );
    arguments.extend([&extensions, "-in", &csr, "-CA", &ca, "-CAkey", &key]);
    let certificate = run("openssl", &arguments);
    assert_eq!(
        Certificate::from_pem(&certificate).unwrap().role,
        Role::Node
    );
    let key = bunraku_wire::PrivateKey::load(Path::new(&old)).unwrap();
    let identity = Identity::from_pem(&certificate, &key).unwrap();
    let client = Client::new(options(&[&server], client_tls(&authority, Some(identity))));
    let reply: Value = client.get("/who").await.unwrap();
    assert_eq!(reply, serde_json::json!({"name": "old1", "role": "node"}));

    for pinned in [authority.fingerprint(), authority.certificate().fingerprint] {
        let (config, learned) = client_config_pinned(pinned).unwrap();
        let newcomer = ReloadableClientTls::from_config(config);
        let client = Client::new(options(&[&server], newcomer));
        assert_eq!(client.get::<String>("/open").await.unwrap(), "welcome");
        let learned = learned.pem().unwrap().to_owned();
        if pinned == authority.fingerprint() {
            assert_eq!(learned, authority.certificates_pem());
        } else {
            assert_eq!(learned, authority.certificate().to_pem());
        }
    }
}
