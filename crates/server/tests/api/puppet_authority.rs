//! A server whose authority is a Puppet CA directory.

use std::path::Path;
use std::sync::Arc;

use bunraku_model::Role;
use bunraku_store::Store;
use bunraku_wire::api::{NodeSummary, RevokeRequest, StreamMessage};
use bunraku_wire::certificate::Certificate;
use bunraku_wire::revocation::RevocationList;
use bunraku_wire::{Authority, Client, Grant, Request, SignedCertificate};
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use crate::support::{TestServer, name, open_stream, opened, options, request, soon};

/// Creates the files that `puppetserver ca setup` leaves, as far as they matter here.
fn make_directory(path: &Path) {
    let now = Timestamp::now();
    let own = path.parent().expect("a parent").join("made-by-puppet");
    let authority = Authority::load_or_create(&own, now).expect("an authority");
    let list = authority.revocation_list(&[], 1, now, SignedDuration::from_hours(24));
    std::fs::create_dir_all(path).expect("a directory");
    let write = |file: &str, text: &str| std::fs::write(path.join(file), text).expect("written");
    write("ca_crt.pem", &authority.certificates_pem());
    write(
        "ca_key.pem",
        &std::fs::read_to_string(own.join("ca.key")).expect("its key"),
    );
    write("ca_crl.pem", &list.expect("a list").to_pem());
    write("serial", "0003");
    write("inventory.txt", "");
}

async fn start() -> (TestServer, Authority) {
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let puppet = directory.path().join("puppet");
    make_directory(&puppet);
    let options = options(directory.path());
    let server = TestServer::open(directory, options).await;
    (
        server,
        Authority::from_puppet(&puppet).expect("Puppet's authority"),
    )
}

/// Returns a node whose certificate the Puppet CA signed without this server.
fn signed_by_puppet(
    server: &TestServer,
    authority: &Authority,
    now: Timestamp,
) -> (Client, SignedCertificate) {
    let (key, pem) = request("old-node");
    let grant = Grant {
        name: name("old-node"),
        role: Role::Node,
        groups: std::collections::BTreeSet::new(),
        lifetime: SignedDuration::from_hours(1),
        dns_names: Vec::new(),
        ip_addresses: Vec::new(),
        serial: None,
    };
    let parsed = Request::from_pem(&pem).expect("a request");
    let signed = authority.sign(&parsed, &grant, now).expect("signed");
    (server.client_with(&signed.pem, &key), signed)
}

#[tokio::test]
async fn a_node_whose_certificate_puppet_signed_is_accepted() {
    let (mut server, authority) = start().await;
    let (node, signed) = signed_by_puppet(&server, &authority, Timestamp::now());
    let mut stream = node
        .stream::<StreamMessage>("/v1/nodes/old-node/stream")
        .await
        .expect("let in");
    opened(&mut stream).await;
    let revoke = RevokeRequest {
        reason: "gone".to_owned(),
        serial: Some(signed.serial.to_string()),
    };
    let path = "/v1/certificates/old-node/revoke";
    server
        .operator
        .post::<_, ()>(path, &revoke)
        .await
        .expect("revoked by its serial");
    assert!(
        node.get::<NodeSummary>("/v1/nodes/old-node").await.is_err(),
        "it is out"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_certificate_that_puppet_revokes_is_refused_by_a_running_server() {
    let (mut server, authority) = start().await;
    let now = Timestamp::now();
    let (node, signed) = signed_by_puppet(&server, &authority, now);
    let mut stream = open_stream(&node, "old-node").await;
    // `puppetserver ca revoke` only writes the list.
    let directory = authority.puppet_directory().expect("Puppet's directory");
    directory
        .revoke(&authority, std::slice::from_ref(&signed.serial), now)
        .expect("revoked by Puppet");
    while let Some(Ok(_)) = soon(stream.next()).await {}
    let refused = node.get::<NodeSummary>("/v1/nodes/old-node").await;
    assert!(refused.is_err(), "{refused:?}");
    let key = bunraku_control::keys::revoked_serial(&signed.serial.to_string());
    let stored = server.store().get(&key).await.expect("readable");
    assert!(stored.is_some(), "other servers read it from the store");
    server.shutdown().await;
}

#[tokio::test]
async fn signatures_and_revocations_are_written_to_puppets_own_files() {
    let (mut server, _) = start().await;
    server.node("new-node").await;
    let puppet = server.directory().path().join("puppet");
    let inventory = std::fs::read_to_string(puppet.join("inventory.txt")).expect("an inventory");
    assert!(inventory.contains("/CN=new-node"), "{inventory}");
    let revoke = RevokeRequest {
        reason: "gone".to_owned(),
        serial: None,
    };
    server
        .operator
        .post::<_, ()>("/v1/certificates/new-node/revoke", &revoke)
        .await
        .expect("revoked");
    let text = std::fs::read_to_string(puppet.join("ca_crl.pem")).expect("a list");
    let lists = RevocationList::from_pem(&text).expect("lists");
    assert_eq!(
        lists.iter().map(|list| list.revoked.len()).sum::<usize>(),
        1
    );
    let authority = std::fs::read_to_string(puppet.join("ca_crt.pem")).expect("its certificate");
    Certificate::from_pem(&authority).expect("still a certificate");
    server.shutdown().await;
}
