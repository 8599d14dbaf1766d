//! The content service: files by their address.

use std::io::Read;

use bunraku_model::ContentId;
use bunraku_wire::api::{ReleaseTo, RunMode};
use bunraku_wire::{Client, ClientError};
use bytes::Bytes;
use http::Response;

use crate::fleet::{compile_in, release};
use crate::support::{TestServer, status};

/// Returns a few megabytes in which every position is different.
fn large() -> Vec<u8> {
    (0..700_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// Creates a node whose released catalog names this file.
async fn with_file(file: &[u8]) -> (TestServer, Client, String) {
    let server = TestServer::start().await;
    let node = server.node("web-1").await;
    compile_in(&server, "web-1", "production", "c1", file).await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let path = format!("/v1/content/{}", ContentId::of(file));
    (server, node, path)
}

async fn range(client: &Client, path: &str, range: &str) -> Result<Response<Bytes>, ClientError> {
    client.fetch(path, &[("range", range)]).await
}

#[tokio::test]
async fn content_comes_whole_in_part_and_not_at_all_if_it_is_known() {
    let file = large();
    let (mut server, node, path) = with_file(&file).await;
    let whole = node.fetch(&path, &[]).await.expect("all of it");
    assert_eq!(whole.status(), 200);
    assert_eq!(whole.body(), &file);
    assert_eq!(whole.headers()["content-length"], file.len().to_string());
    assert_eq!(whole.headers()["accept-ranges"], "bytes");
    let last = file.len() - 1;
    for (asked, from, to) in [
        ("bytes=0-0".to_owned(), 0, 0),
        ("bytes=-5".to_owned(), last - 4, last),
        ("bytes=100-".to_owned(), 100, last),
        // Across several chunks, from the middle of one to the middle of another.
        ("bytes=500001-2000002".to_owned(), 500_001, 2_000_002),
        ("bytes=0-99999999999".to_owned(), 0, last),
    ] {
        let part = range(&node, &path, &asked).await.expect("a part");
        assert_eq!(part.status(), 206, "{asked}");
        assert_eq!(part.body(), &file[from..=to], "{asked}");
        let shown = format!("bytes {from}-{to}/{}", file.len());
        assert_eq!(part.headers()["content-range"], shown, "{asked}");
    }
    let beyond = range(&node, &path, &format!("bytes={}-", file.len())).await;
    assert_eq!(status(beyond), 416);
    let tag = whole.headers()["etag"].to_str().expect("text");
    let known = node
        .fetch(&path, &[("if-none-match", tag)])
        .await
        .expect("a reply");
    assert_eq!((known.status().as_u16(), known.body().len()), (304, 0));
    let head = node.head(&path, &[]).await.expect("a head");
    assert_eq!(head.headers()["content-length"], file.len().to_string());
    assert!(head.body().is_empty());
    server.shutdown().await;
}

#[tokio::test]
async fn content_is_smaller_on_the_line_for_who_takes_gzip() {
    let file = "a line like all others\n".repeat(100_000);
    let (mut server, node, path) = with_file(file.as_bytes()).await;
    let packed = node
        .fetch(&path, &[("accept-encoding", "gzip")])
        .await
        .expect("packed");
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    assert!(packed.body().len() < file.len() / 20);
    let mut text = String::new();
    let mut unpack = flate2::read::GzDecoder::new(packed.body().as_ref());
    unpack.read_to_string(&mut text).expect("gzip");
    assert!(text == file);
    let part = [("accept-encoding", "gzip"), ("range", "bytes=0-9")];
    let part = node.fetch(&path, &part).await.expect("a part");
    assert_eq!(
        part.body().as_ref(),
        &file.as_bytes()[..10],
        "parts are of the content itself"
    );
    server.shutdown().await;
}

/// Returns the file in the blob directory that holds these bytes.
fn stored_file(server: &TestServer, size: u64) -> std::path::PathBuf {
    let mut waiting = vec![server.directory().path().join("blobs")];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).expect("readable") {
            let entry = entry.expect("readable");
            let metadata = entry.metadata().expect("readable");
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if metadata.len() >= size {
                return entry.path();
            }
        }
    }
    panic!("no file of {size} bytes");
}

#[tokio::test]
async fn a_wrong_hash_is_never_served() {
    let file = large();
    for (place, packed) in [
        (10, false),
        (file.len() - 10, false),
        (file.len() - 10, true),
        (1_500_000, true),
    ] {
        let (mut server, node, path) = with_file(&file).await;
        let stored = stored_file(&server, file.len() as u64);
        let mut bytes = std::fs::read(&stored).expect("readable");
        bytes[place] ^= 1;
        std::fs::write(&stored, &bytes).expect("writable");
        let encoding = if packed { "gzip" } else { "identity" };
        let served = node.fetch(&path, &[("accept-encoding", encoding)]).await;
        let error = served.expect_err("damaged bytes must not come as a whole reply");
        match place {
            10 => assert_eq!(error.status(), Some(500), "refused before it begins"),
            _ => assert!(
                matches!(error, ClientError::Lost { .. }),
                "broken off: {error:?}"
            ),
        }
        let part = range(&node, &path, &format!("bytes={place}-{place}")).await;
        assert_eq!(status(part), 500, "nor in part");
        server.shutdown().await;
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let (mut server, node, _) = with_file(b"something").await;
    let unknown = format!("/v1/content/{}", ContentId::of(b"unknown"));
    assert_eq!(status(node.fetch(&unknown, &[]).await), 404);
    assert_eq!(status(server.operator.fetch(&unknown, &[]).await), 404);
    assert_eq!(status(node.fetch("/v1/content/abc", &[]).await), 400);
    server.shutdown().await;
}
