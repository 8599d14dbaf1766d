//! Limits, slow clients, shutdown, health.

use std::time::Duration;

use bunraku_wire::api::{JoinReply, JoinRequest, NodeSummary, ServerStatus, StreamMessage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{TestServer, eventually, open_stream, request, soon};

#[tokio::test]
async fn a_shutdown_says_goodbye_and_cuts_no_request_in_half() {
    // Ends because all clients were notified, not because the time is up.
    let mut server = TestServer::start_with(|options| {
        options.accept.drain = Duration::from_secs(3600);
    })
    .await;
    let node = server.node("web-1").await;
    let mut stream = open_stream(&node, "web-1").await;
    let stranger = server.stranger();
    let (_, pem) = request("web-2");
    let long = JoinRequest {
        certificate_request: pem.clone(),
        token: None,
        wait_seconds: 50,
    };
    let waiting =
        tokio::spawn(async move { stranger.post::<_, JoinReply>("/v1/join", &long).await });
    // The request is queued before the shutdown begins.
    eventually(|| async {
        !server
            .operator
            .get::<Vec<serde_json::Value>>("/v1/certificate-requests")
            .await
            .expect("a list")
            .is_empty()
    })
    .await;
    server.shutdown().await;
    assert!(matches!(
        soon(stream.next()).await,
        Some(Ok(StreamMessage::Goodbye))
    ));
    let answer = soon(waiting)
        .await
        .expect("no panic")
        .expect_err("the server is shutting down");
    assert_eq!(
        answer.status(),
        Some(429),
        "a whole reply, not a broken connection: {answer}"
    );
}

#[tokio::test]
async fn a_client_that_says_nothing_is_cut() {
    let mut server = TestServer::start_with(|options| {
        options.accept.handshake_timeout = Duration::from_millis(300);
    })
    .await;
    let mut silent = TcpStream::connect(server.address())
        .await
        .expect("connected");
    let mut buffer = [0; 16];
    let read = soon(silent.read(&mut buffer)).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_cut() {
    let mut server = TestServer::start().await;
    let mut plain = TcpStream::connect(server.address())
        .await
        .expect("connected");
    plain
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .expect("written");
    let mut reply = Vec::new();
    let _ = soon(plain.read_to_end(&mut reply)).await;
    assert!(!reply.starts_with(b"HTTP/"), "{reply:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_and_the_others_continue() {
    let mut server = TestServer::start_with(|options| options.accept.most_connections = 2).await;
    let _: ServerStatus = server
        .operator
        .get("/v1/server")
        .await
        .expect("the first one");
    let _second = TcpStream::connect(server.address())
        .await
        .expect("the second one");
    // Accepted connections are counted. Wait until the second one is counted.
    eventually(|| async {
        let mut third = TcpStream::connect(server.address())
            .await
            .expect("reaches the listener");
        let mut buffer = [0; 1];
        matches!(
            tokio::time::timeout(Duration::from_millis(200), third.read(&mut buffer)).await,
            Ok(Ok(0) | Err(_))
        )
    })
    .await;
    let _: ServerStatus = server
        .operator
        .get("/v1/server")
        .await
        .expect("the first one goes on");
    server.shutdown().await;
}

/// Strangers have places of their own, and few of them.
#[tokio::test]
async fn connections_without_a_certificate_use_up_no_place_of_nodes() {
    let mut server = TestServer::start_with(|options| {
        options.accept.most_connections = 20;
        options.accept.most_anonymous_per_address = 3;
    })
    .await;
    let strangers: Vec<_> = (0..10).map(|_| server.stranger()).collect();
    let mut answered = 0;
    for stranger in &strangers {
        // Any answer is one; a connection that is closed has no status.
        let reply = stranger.get::<serde_json::Value>("/v1/server").await;
        answered += usize::from(reply.expect_err("no certificate").status().is_some());
    }
    assert_eq!(answered, 3, "the others have no place");
    let _: ServerStatus = server.operator.get("/v1/server").await.expect("served");
    drop(strangers);
    // Their places are free again when they are gone.
    let next = server.stranger();
    eventually(|| async {
        let reply = next.get::<serde_json::Value>("/v1/server").await;
        reply.expect_err("no certificate").status().is_some()
    })
    .await;
    server.shutdown().await;
}

#[tokio::test]
async fn health_and_metrics_are_there_without_tls_on_loopback_only() {
    let mut server = TestServer::start_with(|options| {
        options.health_listen = Some("127.0.0.1:0".parse().expect("an address"));
    })
    .await;
    server.node("web-1").await;
    let address = server.running().health_address().expect("it listens");
    let mut replies = Vec::new();
    for path in ["/healthz", "/readyz", "/metrics", "/v1/nodes"] {
        let mut plain = TcpStream::connect(address).await.expect("connected");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        plain.write_all(request.as_bytes()).await.expect("written");
        let mut reply = String::new();
        soon(plain.read_to_string(&mut reply))
            .await
            .expect("a reply");
        replies.push(reply);
    }
    assert!(
        replies[0].starts_with("HTTP/1.1 200") && replies[1].starts_with("HTTP/1.1 200"),
        "{replies:?}"
    );
    assert!(
        replies[2].contains("bunraku_requests_total{"),
        "{}",
        replies[2]
    );
    assert!(
        replies[3].starts_with("HTTP/1.1 404"),
        "nothing else is there: {}",
        replies[3]
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_renews_its_own_certificate_at_its_next_start() {
    let lifetime = jiff::SignedDuration::from_secs(1);
    let mut server = TestServer::start_with(|options| {
        options.services.certificates.server_lifetime = lifetime;
    })
    .await;
    let (directory, mut options) = (server.directory(), server.options());
    server.shutdown().await;
    options.services.certificates.server_lifetime = jiff::SignedDuration::from_hours(24);
    // Times in certificates are whole seconds.
    let expired = jiff::Timestamp::now() + lifetime * 2;
    eventually(async || jiff::Timestamp::now() > expired).await;
    let mut server = TestServer::open(directory, options).await;
    server.node("web-1").await;
    let _: NodeSummary = server
        .operator
        .get("/v1/nodes/web-1")
        .await
        .expect("its certificate is good");
    server.shutdown().await;
}

#[tokio::test]
async fn a_silent_stream_shows_that_its_server_lives() {
    for (heartbeat, lives) in [
        (Duration::from_millis(200), true),
        (Duration::from_secs(600), false),
    ] {
        let mut server =
            TestServer::start_with(|options| options.services.heartbeat = heartbeat).await;
        let node = server.impatient_node("web-1").await;
        let mut stream = open_stream(&node, "web-1").await;
        let next = tokio::time::timeout(Duration::from_secs(6), stream.next()).await;
        assert_eq!(
            next.is_err(),
            lives,
            "with a heartbeat every {heartbeat:?}: {next:?}"
        );
        server.shutdown().await;
    }
}
