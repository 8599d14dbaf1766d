//! Large content is streamed, not held in memory. This test has its own process, because it
//! measures the whole process.

use crate::blob_support::{Kind, World, options};
use bunraku_model::ContentId;
use bunraku_store::blobs::{BlobOptions, SharedBlobs, StoreBlobs};
use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use futures::TryStreamExt;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A source that generates its bytes as they are read. Each block is different.
struct Generated {
    left: usize,
    blocks: u64,
    block: Vec<u8>,
}

fn generated(size: usize) -> Generated {
    Generated {
        left: size,
        blocks: 0,
        block: vec![7; 32 * 1024],
    }
}

impl tokio::io::AsyncRead for Generated {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let number = self.blocks;
        self.block[..8].copy_from_slice(&number.to_le_bytes());
        let some = self.block.len().min(self.left).min(buffer.remaining());
        buffer.put_slice(&self.block[..some]);
        self.left -= some;
        self.blocks += 1;
        std::task::Poll::Ready(Ok(()))
    }
}

fn peak_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .expect("a peak");
    line.split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number")
}

async fn pass_through(blobs: &SharedBlobs, size: usize) -> ContentId {
    let put = blobs.put(&mut generated(size), None).await.expect("writes");
    assert_eq!(put.info.size, size as u64);
    let mut stream = blobs.open(put.info.id).await.expect("opens");
    let (mut read, mut hash) = (0, Sha256::new());
    while let Some(bytes) = stream.try_next().await.expect("reads") {
        read += bytes.len() as u64;
        hash.update(&bytes);
    }
    assert_eq!(read, size as u64);
    assert_eq!(ContentId::from_digest(hash.finalize().into()), put.info.id);
    put.info.id
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_megabytes_pass_through_a_few_of_memory() {
    let world = World::new(Kind::Directory, options()).await;
    let directory = world.open().await;
    let cluster = EtcdCluster::start(1).await;
    let etcd = EtcdStore::connect(cluster.options("/blobs/"))
        .await
        .expect("connects");
    let store: SharedBlobs = Arc::new(StoreBlobs::in_store(Arc::new(etcd), BlobOptions::default()));

    pass_through(&directory, 8 << 20).await;
    pass_through(&store, 8 << 20).await;
    let before = peak_kilobytes();
    pass_through(&directory, 400 << 20).await;
    let one = pass_through(&store, 64 << 20).await;
    let grown = peak_kilobytes() - before;
    assert!(grown < 32 * 1024, "the peak grew by {grown} KB");

    // The same content has the same name in every place.
    let other = pass_through(&directory, 64 << 20).await;
    assert_eq!(one, other);
    assert!(store.has(one).await.expect("asks"));
}
