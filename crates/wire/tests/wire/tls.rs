//! Accepted and refused peers, and the errors that each side sees.

use bunraku_model::Role;
use bunraku_wire::client::{Client, ClientError, TlsRefusal};
use bunraku_wire::fingerprint::Fingerprint;
use bunraku_wire::key::{KeyKind, PrivateKey};
use bunraku_wire::revocation::RevokedCertificate;
use bunraku_wire::tls::{
    ClientTls, Identity, PinnedAuthority, ReloadableClientTls, client_config_pinned,
};
use bunraku_wire::{Authority, Request, Serial};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::support::{
    DAY, TestServer, authority, client_tls, grant, identity, issue, name, options, server_tls,
};
use crate::tools::{Workshop, run};

fn refusal_of(error: ClientError) -> TlsRefusal {
    match error {
        ClientError::Refused { refusal, .. } => refusal,
        other => panic!("not a refusal: {other:?}"),
    }
}

async fn who(server: &TestServer, tls: ReloadableClientTls) -> Result<Value, ClientError> {
    Client::new(options(&[server], tls)).get("/who").await
}

fn list(authority: &Authority, serials: &[&Serial]) -> String {
    let now = Timestamp::now();
    let revoked: Vec<_> = serials
        .iter()
        .map(|serial| RevokedCertificate {
            serial: (*serial).clone(),
            at: now,
        })
        .collect();
    let list = authority.revocation_list(&revoked, 1, now, DAY).unwrap();
    list.to_pem()
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_trusted() {
    let (ours, theirs) = (authority(), authority());
    let server = TestServer::start(&server_tls(&theirs)).await;
    let node = identity(&ours, "node1", Role::Node);
    let error = who(&server, client_tls(&ours, Some(node)))
        .await
        .unwrap_err();
    assert!(error.hint().unwrap().contains("fingerprint"));
    assert_eq!(refusal_of(error), TlsRefusal::ServerUnknown);
}

#[tokio::test]
async fn a_node_of_another_authority_gets_a_clear_error() {
    let ours = authority();
    let server = TestServer::start(&server_tls(&ours)).await;
    for their_name in ["Test CA", "Another CA"] {
        let theirs = Authority::create(their_name, Timestamp::now()).unwrap();
        let stranger = identity(&theirs, "node1", Role::Operator);
        let error = who(&server, client_tls(&ours, Some(stranger)))
            .await
            .unwrap_err();
        assert_eq!(refusal_of(error), TlsRefusal::OwnUnknown);
    }
    assert_eq!(server.requests(), 0);
}

/// Creates an authority below a root, with OpenSSL.
fn below_root(workshop: &Workshop, who: &str) -> Authority {
    let path = |name: &str| workshop.path(name);
    let extensions = workshop.write(
        "ca.ext",
        "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n",
    );
    let new_key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ];
    if !workshop.root().join("root.pem").exists() {
        let (key, out) = (path("root.key"), path("root.pem"));
        let fixed = ["req", "-x509", "-subj", "/CN=Root", "-days", "9"];
        let files = ["-keyout", &key, "-out", &out];
        run("openssl", &[&fixed[..], &new_key, &files].concat());
    }
    let (key, request) = (path(&format!("{who}.key")), path(&format!("{who}.csr")));
    let (subject, out) = (format!("/CN={who}"), path(&format!("{who}.pem")));
    let asked = ["req", "-subj", &subject, "-keyout", &key, "-out", &request];
    run("openssl", &[&asked[..], &new_key].concat());
    let (root, root_key) = (path("root.pem"), path("root.key"));
    let signed = [
        "x509", "-req", "-in", &request, "-CA", &root, "-CAkey", &root_key,
    ];
    let files = [
        "-CAcreateserial",
        "-days",
        "5",
        "-extfile",
        &extensions,
        "-out",
        &out,
    ];
    run("openssl", &[&signed[..], &files].concat());
    let text = |path: &str| std::fs::read_to_string(path).unwrap();
    Authority::from_pem(&(text(&out) + &text(&root)), &text(&key)).unwrap()
}

/// Puppet's bundle contains a root. Another authority below that root is not ours.
#[tokio::test]
async fn a_node_of_another_authority_below_the_same_root_is_refused() {
    let workshop = Workshop::new();
    let (ours, theirs) = (
        below_root(&workshop, "ours"),
        below_root(&workshop, "theirs"),
    );
    let server = TestServer::start(&server_tls(&ours)).await;
    let node = identity(&ours, "node1", Role::Node);
    who(&server, client_tls(&ours, Some(node)))
        .await
        .expect("a node of ours");
    // It presents the whole chain up to the common root.
    let key = PrivateKey::generate(KeyKind::EcdsaP256).unwrap();
    let request = Request::create(&name("node1"), &key).unwrap();
    let request = Request::from_pem(&request).unwrap();
    let wanted = grant("node1", Role::Node);
    let signed = theirs.sign(&request, &wanted, Timestamp::now()).unwrap();
    let chain = signed.pem + &theirs.certificates_pem();
    let stranger = Identity::from_pem(&chain, &key).unwrap();
    let refused = who(&server, client_tls(&ours, Some(stranger))).await;
    assert_eq!(refusal_of(refused.unwrap_err()), TlsRefusal::OwnUnknown);
}

#[tokio::test]
async fn an_expired_node_gets_a_clear_error() {
    let authority = Authority::create("Old CA", Timestamp::now() - DAY * 100).unwrap();
    let server = TestServer::start(&server_tls(&authority)).await;
    let long_ago = Timestamp::now() - DAY * 2;
    let (_, expired) = issue(&authority, &grant("node1", Role::Node), long_ago);
    let error = who(&server, client_tls(&authority, Some(expired)))
        .await
        .unwrap_err();
    assert_eq!(refusal_of(error), TlsRefusal::OwnExpired);
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn an_expired_server_or_one_from_the_future_is_not_trusted() {
    let authority = Authority::create("Old CA", Timestamp::now() - DAY * 100).unwrap();
    for (shift, expected) in [
        (-(DAY * 2), TlsRefusal::ServerExpired),
        (DAY * 2, TlsRefusal::ServerNotYetValid),
    ] {
        let mut tls = server_tls(&authority);
        let then = Timestamp::now() + shift;
        tls.identity = issue(&authority, &grant("server1", Role::Server), then).1;
        let server = TestServer::start(&tls).await;
        let error = who(&server, client_tls(&authority, None))
            .await
            .unwrap_err();
        assert_eq!(refusal_of(error), expected);
    }
}

#[tokio::test]
async fn a_server_under_another_name_is_not_trusted() {
    let authority = authority();
    let mut tls = server_tls(&authority);
    let mut elsewhere = grant("server1", Role::Server);
    elsewhere.ip_addresses = vec![[192, 0, 2, 1].into()];
    tls.identity = issue(&authority, &elsewhere, Timestamp::now()).1;
    let server = TestServer::start(&tls).await;
    let error = who(&server, client_tls(&authority, None))
        .await
        .unwrap_err();
    assert_eq!(refusal_of(error), TlsRefusal::ServerOtherName);
}

#[tokio::test]
async fn a_node_cannot_stand_in_for_a_server() {
    let authority = authority();
    let mut tls = server_tls(&authority);
    tls.identity = identity(&authority, "node1", Role::Node);
    let server = TestServer::start(&tls).await;
    let error = who(&server, client_tls(&authority, None))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error:?}");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_revoked_node_gets_no_connection_after_a_reload() {
    let authority = authority();
    let mut tls = server_tls(&authority);
    let server = TestServer::start(&tls).await;
    let (signed, node) = issue(&authority, &grant("node1", Role::Node), Timestamp::now());
    let node = client_tls(&authority, Some(node));
    who(&server, node.clone()).await.unwrap();

    tls.revocation_lists_pem = list(&authority, &[&signed.serial]);
    server.tls.reload(&tls).unwrap();
    let error = who(&server, node).await.unwrap_err();
    assert_eq!(refusal_of(error), TlsRefusal::OwnRevoked);
    // Other certificates are not affected.
    let other = identity(&authority, "node2", Role::Node);
    who(&server, client_tls(&authority, Some(other)))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_revoked_node_is_stopped_on_its_open_connection() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let (signed, node) = issue(&authority, &grant("node1", Role::Node), Timestamp::now());
    let client = Client::new(options(&[&server], client_tls(&authority, Some(node))));
    client.get::<Value>("/who").await.unwrap();
    server.revocations.add(signed.serial);
    let error = client.get::<Value>("/who").await.unwrap_err();
    assert_eq!(error.status(), Some(403));
}

#[tokio::test]
async fn a_revoked_server_is_not_trusted_by_a_client_with_the_list() {
    let authority = authority();
    let mut tls = server_tls(&authority);
    let (signed, own) = issue(
        &authority,
        &grant("server1", Role::Server),
        Timestamp::now(),
    );
    tls.identity = own;
    let server = TestServer::start(&tls).await;
    let informed = ClientTls {
        authority_pem: authority.certificates_pem(),
        revocation_lists_pem: list(&authority, &[&signed.serial]),
        identity: None,
    };
    let error = who(&server, ReloadableClientTls::new(&informed).unwrap())
        .await
        .unwrap_err();
    assert_eq!(refusal_of(error), TlsRefusal::ServerRevoked);
}

#[tokio::test]
async fn a_renewed_certificate_is_used_from_the_next_connection_on() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let tls = client_tls(&authority, Some(identity(&authority, "node1", Role::Node)));
    let client = Client::new(options(&[&server], tls.clone()));
    client.get::<Value>("/who").await.unwrap();
    tls.reload(&ClientTls {
        authority_pem: authority.certificates_pem(),
        revocation_lists_pem: String::new(),
        identity: Some(identity(&authority, "node2", Role::Node)),
    })
    .unwrap();
    assert_eq!(client.get::<Value>("/who").await.unwrap()["name"], "node1");
    client.reconnect().await;
    assert_eq!(client.get::<Value>("/who").await.unwrap()["name"], "node2");
}

#[tokio::test]
async fn a_server_changes_its_certificate_without_dropping_anyone() {
    let (old, new) = (authority(), authority());
    let server = TestServer::start(&server_tls(&old)).await;
    let node = client_tls(&old, Some(identity(&old, "node1", Role::Node)));
    let client = Client::new(options(&[&server], node));
    client.get::<Value>("/who").await.unwrap();
    server.tls.reload(&server_tls(&new)).unwrap();
    client.get::<Value>("/who").await.unwrap();
    let newcomer = identity(&new, "node2", Role::Node);
    who(&server, client_tls(&new, Some(newcomer)))
        .await
        .unwrap();

    // An unusable configuration changes nothing.
    let mut damaged = server_tls(&new);
    damaged.authority_pem = "nonsense".to_owned();
    assert!(server.tls.reload(&damaged).is_err());
    let newcomer = identity(&new, "node3", Role::Node);
    who(&server, client_tls(&new, Some(newcomer)))
        .await
        .unwrap();
}

#[tokio::test]
async fn with_the_right_pin_a_newcomer_learns_the_authority() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let (client, learned) = pinned(&server, authority.fingerprint());
    assert_eq!(learned.pem(), None);
    assert_eq!(client.get::<String>("/open").await.unwrap(), "welcome");
    assert_eq!(learned.pem(), Some(authority.certificates_pem().as_str()));
}

/// Returns a client that knows only this fingerprint, and the authority that it learns.
fn pinned(server: &TestServer, fingerprint: Fingerprint) -> (Client, PinnedAuthority) {
    let (config, learned) = client_config_pinned(fingerprint).unwrap();
    let tls = ReloadableClientTls::from_config(config);
    (Client::new(options(&[server], tls)), learned)
}

async fn sends_nothing(server: &TestServer, fingerprint: Fingerprint) {
    let (client, learned) = pinned(server, fingerprint);
    let error = client.get::<String>("/open").await.unwrap_err();
    assert_eq!(refusal_of(error), TlsRefusal::ServerUnknown);
    assert_eq!(learned.pem(), None);
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn with_a_wrong_pin_nothing_is_sent() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    sends_nothing(&server, Fingerprint::of(b"other")).await;
}

#[tokio::test]
async fn showing_the_pinned_certificate_is_not_enough() {
    // An impostor also sends the real authority's public certificate.
    let (real, impostor) = (authority(), authority());
    let mut tls = server_tls(&impostor);
    tls.authority_pem.push_str(&real.certificates_pem());
    let server = TestServer::start(&tls).await;
    sends_nothing(&server, real.fingerprint()).await;
}

#[tokio::test]
async fn a_node_with_the_pinned_authority_cannot_pose_as_its_server() {
    let authority = authority();
    let mut tls = server_tls(&authority);
    tls.identity = identity(&authority, "node1", Role::Node);
    let server = TestServer::start(&tls).await;
    let (client, learned) = pinned(&server, authority.fingerprint());
    assert!(client.get::<String>("/open").await.is_err());
    assert_eq!(learned.pem(), None);
}

#[tokio::test]
async fn old_puppet_agents_connect_with_tls_1_2() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let tls = client_tls(&authority, Some(identity(&authority, "node1", Role::Node)));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate().der().clone()).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(tls.config().client_auth_cert_resolver.clone());
    config.alpn_protocols = tls.config().alpn_protocols.clone();
    let reply = who(&server, ReloadableClientTls::from_config(config)).await;
    assert_eq!(reply.unwrap()["name"], "node1");
}

#[test]
fn a_key_of_another_certificate_is_not_an_identity() {
    let authority = authority();
    let (signed, _) = issue(&authority, &grant("node1", Role::Node), Timestamp::now());
    let other = bunraku_wire::PrivateKey::generate(Default::default()).unwrap();
    assert!(Identity::from_pem(&signed.pem, &other).is_err());
}

#[test]
fn a_certificate_is_renewed_after_two_thirds_of_its_life_or_a_little_earlier() {
    let authority = authority();
    let now = Timestamp::now();
    let mut grant = grant("node1", Role::Node);
    grant.lifetime = SignedDuration::from_hours(360);
    let (_, identity) = issue(&authority, &grant, now);
    let certificate = identity.certificate();
    assert_eq!(certificate.name().unwrap(), name("node1"));
    let start = certificate.not_before + bunraku_wire::certificate::BACK_DATE;
    let at = |hours| start + SignedDuration::from_hours(hours);
    assert!(!certificate.needs_renewal(at(239), 0.0));
    assert!(certificate.needs_renewal(at(240), 0.0));
    assert!(!certificate.needs_renewal(at(209), 1.0));
    assert!(certificate.needs_renewal(at(210), 1.0));
    assert!(certificate.needs_renewal(at(240), f64::NAN));
    assert!(certificate.is_expired(at(361)));
}
