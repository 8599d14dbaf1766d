//! Streams of lines and large bodies, over a real connection.

use std::time::Duration;

use bunraku_model::Role;
use bunraku_wire::client::{Client, ClientError, ClientOptions};
use bytes::Bytes;
use serde::Deserialize;
use tokio::io::AsyncReadExt;

use crate::support::{TestServer, authority, client, client_tls, identity, options, server_tls};

#[derive(Deserialize, Debug, PartialEq)]
struct Number {
    n: u32,
}

fn impatient(server: &TestServer, authority: &bunraku_wire::Authority) -> ClientOptions {
    let node = identity(authority, "node1", Role::Node);
    let mut options = options(&[server], client_tls(authority, Some(node)));
    options.idle_timeout = Duration::from_millis(300);
    options
}

#[tokio::test]
async fn lines_are_values_and_empty_lines_are_heartbeats() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let mut lines = client(&authority, &[&server])
        .stream::<Number>("/three")
        .await
        .unwrap();
    let mut numbers = Vec::new();
    while let Some(line) = lines.next().await {
        numbers.push(line.unwrap().n);
    }
    assert_eq!(numbers, [1, 2, 3]);
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn a_silent_stream_is_an_error() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = Client::new(impatient(&server, &authority));
    let mut lines = client.stream::<Number>("/silent").await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap(), Number { n: 1 });
    let error = lines.next().await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn heartbeats_keep_a_stream_alive() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let mut options = impatient(&server, &authority);
    // The server sends a heartbeat every 100 ms for 2 s, then one value.
    options.idle_timeout = Duration::from_millis(1500);
    let client = Client::new(options);
    let mut lines = client.stream::<Number>("/beating").await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap(), Number { n: 1 });
}

#[tokio::test]
async fn giving_up_a_wait_loses_no_value() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    let mut lines = client.stream::<Number>("/beating").await.unwrap();
    for _ in 0..40 {
        let waited = tokio::time::timeout(Duration::from_millis(37), lines.next()).await;
        if let Ok(Some(value)) = waited {
            assert_eq!(value.unwrap(), Number { n: 1 });
            return;
        }
    }
    assert_eq!(lines.next().await.unwrap().unwrap(), Number { n: 1 });
}

#[tokio::test]
async fn a_stream_that_is_cut_off_is_an_error() {
    let authority = authority();
    let mut server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    let mut lines = client.stream::<Number>("/cut-off").await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap(), Number { n: 1 });
    let error = lines.next().await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");

    let mut lines = client.stream::<Number>("/silent").await.unwrap();
    lines.next().await.unwrap().unwrap();
    server.die().await;
    let error = lines.next().await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
}

#[tokio::test]
async fn after_its_server_died_a_stream_opens_on_the_next() {
    let authority = authority();
    let mut first = TestServer::start(&server_tls(&authority)).await;
    let second = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&first, &second]);
    let mut lines = client.stream::<Number>("/silent").await.unwrap();
    lines.next().await.unwrap().unwrap();
    assert_eq!(*lines.server(), first.address());
    first.die().await;
    assert!(lines.next().await.unwrap().is_err());
    let mut lines = client.stream::<Number>("/silent").await.unwrap();
    assert_eq!(*lines.server(), second.address());
    lines.next().await.unwrap().unwrap();
}

#[tokio::test]
async fn garbage_and_endless_lines_are_bad_replies() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let mut options = impatient(&server, &authority);
    options.largest_reply = 100_000;
    options.idle_timeout = Duration::from_secs(60);
    let client = Client::new(options);
    for path in ["/endless", "/garbage-line"] {
        let mut lines = client.stream::<Number>(path).await.unwrap();
        let error = lines.next().await.unwrap().unwrap_err();
        assert!(matches!(error, ClientError::BadReply { .. }), "{error:?}");
        assert!(lines.next().await.is_none());
    }
}

#[tokio::test]
async fn a_large_body_goes_up_without_being_held() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    let reader = tokio::io::repeat(7).take(40 << 20);
    let counted: u64 = client.upload("/count", reader).await.unwrap();
    assert_eq!(counted, 40 << 20);
}

#[tokio::test]
async fn an_upload_that_does_not_move_ends() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = Client::new(impatient(&server, &authority));
    let (_kept_open, reader) = tokio::io::duplex(64);
    let error = client.upload::<u64>("/count", reader).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
}

#[tokio::test]
async fn an_upload_whose_source_fails_never_counts_as_complete() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let client = client(&authority, &[&server]);
    let pieces = futures::stream::iter([
        Ok(Bytes::from_static(b"one")),
        Err(std::io::Error::other("the disk is gone")),
    ]);
    let error = client
        .upload_stream::<u64, _>(http::Method::PUT, "/count", pieces)
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Upload(_)), "{error:?}");
    assert_eq!(server.completed(), 0);
}

#[tokio::test]
async fn a_large_body_comes_down_in_pieces() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let mut download = client(&authority, &[&server])
        .download("/large")
        .await
        .unwrap();
    let mut received = 0;
    while let Some(piece) = download.next().await {
        received += piece.unwrap().len();
    }
    assert_eq!(received, 16 << 20);
}

#[tokio::test]
async fn a_download_that_ends_early_is_an_error() {
    let authority = authority();
    let server = TestServer::start(&server_tls(&authority)).await;
    let mut download = client(&authority, &[&server])
        .download("/short")
        .await
        .unwrap();
    assert_eq!(download.length, Some(100));
    let mut last = None;
    while let Some(piece) = download.next().await {
        last = Some(piece);
    }
    assert!(last.unwrap().is_err());
}
