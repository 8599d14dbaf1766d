//! A full disk. This test has its own process, because the limit that simulates a full disk applies
//! to the whole process.

use crate::blob_support::{Kind, World, content, options, read};
use bunraku_store::blobs::{BlobError, CHUNK_SIZE};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

/// "File too large": the kernel sends it before the write fails, and kills a process that does not
/// handle it.
const SIGXFSZ: i32 = 25;

#[tokio::test]
async fn a_write_that_the_disk_refuses_is_an_error_and_leaves_nothing() {
    let world = World::new(Kind::Directory, options()).await;
    let blobs = world.open().await;
    let _handled = signal(SignalKind::from_raw(SIGXFSZ)).expect("can be handled");
    let small = blobs.put(&mut &b"small"[..], None).await.expect("writes");
    let before = world.stored_names().await;

    let most = (4 * CHUNK_SIZE) as u64;
    setrlimit(
        Resource::Fsize,
        Rlimit {
            current: Some(most),
            maximum: None,
        },
    )
    .expect("a limit of our own");
    // One write that fails in the middle, and one that fails at its very end.
    for size in [6 * CHUNK_SIZE, 4 * CHUNK_SIZE] {
        let bytes = content(1, size);
        let refused = blobs.put(&mut &bytes[..], None).await;
        assert!(matches!(refused, Err(BlobError::Io { .. })), "{refused:?}");
        assert_eq!(world.stored_names().await, before);
    }
    assert_eq!(blobs.list(None).await.expect("lists").len(), 1);
    assert_eq!(read(&*blobs, small.info.id).await.expect("reads"), b"small");
}
