//! The use and lifetime of connections.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{TestServer, authority, client, client_tls, identity, options, server_tls};
use bunraku_model::Role;
use bunraku_wire::Authority;
use bunraku_wire::client::{Client, ClientError, TlsRefusal};
use serde_json::Value;

fn hasty(authority: &Authority, servers: &[&TestServer]) -> Client {
    let node = identity(authority, "node1", Role::Node);
    let mut options = options(servers, client_tls(authority, Some(node)));
    options.idle_close = Some(Duration::from_millis(50));
    Client::new(options)
}

#[tokio::test]
async fn a_stream_is_http_1_and_a_request_is_http_2() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    let mut lines = client.stream::<String>("/version").await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap(), "HTTP/1.1");
    assert_eq!(client.get::<String>("/version").await.unwrap(), "HTTP/2.0");
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_shared_connection_closes_when_unused_and_opens_for_the_next_request() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = hasty(&authority, &[&server]);
    for round in 1..=3 {
        client.get::<Value>("/who").await.unwrap();
        server.has_open(0).await;
        assert_eq!(client.server().await, None);
        assert_eq!(server.connections.load(Ordering::SeqCst), round);
    }
}

#[tokio::test]
async fn an_idle_client_with_a_stream_has_one_connection() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = hasty(&authority, &[&server]);
    let mut lines = client.stream::<Value>("/silent").await.unwrap();
    lines.next().await.unwrap().unwrap();
    client.get::<Value>("/who").await.unwrap();
    server.has_open(1).await;
    // The connection belongs to the stream, so the next request needs a new one.
    client.get::<Value>("/who").await.unwrap();
    assert_eq!(server.connections.load(Ordering::SeqCst), 3);
}

/// Waits longer than an unused connection is kept.
async fn unused_ones_close(authority: &Authority) {
    let server = TestServer::start(&server_tls(authority)).await;
    let client = hasty(authority, &[&server]);
    client.get::<Value>("/who").await.unwrap();
    server.has_open(0).await;
}

#[tokio::test]
async fn a_request_in_progress_keeps_the_shared_connection_open() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = hasty(&authority, &[&server]);
    // One request that waits for its reply, and one whose reply is read slowly.
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.get::<Value>("/slow").await }
    });
    server.arrived(1).await;
    let mut download = client.download("/large").await.unwrap();
    unused_ones_close(&authority).await;
    slow.abort();
    let _ = slow.await;
    unused_ones_close(&authority).await;
    let mut received = 0;
    while let Some(piece) = download.next().await {
        received += piece.unwrap().len();
    }
    assert_eq!(received, 16 << 20);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    drop(download);
    server.has_open(0).await;
}

#[tokio::test]
async fn the_connection_of_a_stream_ends_when_the_stream_is_dropped() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    let mut lines = client.stream::<Value>("/silent").await.unwrap();
    lines.next().await.unwrap().unwrap();
    server.has_open(1).await;
    drop(lines);
    server.has_open(0).await;
}

#[tokio::test]
async fn a_stream_that_is_refused_says_why() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let unknown = Authority::create("Other CA", jiff::Timestamp::now()).unwrap();
    let stranger = identity(&unknown, "node1", Role::Node);
    let client = Client::new(options(&[&server], client_tls(&authority, Some(stranger))));
    let error = client.stream::<Value>("/silent").await.unwrap_err();
    let ClientError::Refused { refusal, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(refusal, TlsRefusal::OwnUnknown);

    let client = Client::new(options(&[&server], client_tls(&authority, None)));
    let error = client.stream::<Value>("/silent").await.unwrap_err();
    assert_eq!(error.status(), Some(401));
    assert_eq!(error.hint().as_deref(), Some("join first"));
}

#[tokio::test]
async fn a_stream_moves_on_when_its_server_dies_before_it_answers() {
    let authority = authority();
    let mut first = TestServer::start(&server_tls(&authority)).await;
    let second = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&first, &second]);
    first.hangs.store(true, Ordering::SeqCst);
    let opening = tokio::spawn(async move {
        let mut lines = client.stream::<Value>("/silent").await.unwrap();
        lines.next().await.unwrap().unwrap();
        lines.server().clone()
    });
    first.arrived(1).await;
    first.die().await;
    assert_eq!(opening.await.unwrap(), second.address());
}
