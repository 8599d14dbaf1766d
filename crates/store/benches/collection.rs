//! The time of one collection of blobs in a real etcd, by the number of blobs.
//!
//! `cargo bench -p bunraku-store --bench collection [-- BLOBS…]`
//!
//! Every blob has two references and small content, and nothing is garbage: that is the usual
//! collection, which has to look at everything and change nothing.

use std::sync::Arc;
use std::time::Instant;

use bunraku_model::ContentId;
use bunraku_store::blobs::{BlobOptions, Blobs, StoreBlobs};
use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{SharedStore, Store, Transaction, limits};
use jiff::Timestamp;
use uuid::Uuid;

const DEFAULT: [usize; 3] = [5_000, 10_000, 20_000];

fn main() {
    // Cargo adds `--bench` to the arguments.
    let sizes: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|it| it.parse().ok())
        .collect();
    let sizes = if sizes.is_empty() {
        DEFAULT.to_vec()
    } else {
        sizes
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!("{:>8}  {:>10}", "blobs", "seconds");
    for blobs in sizes {
        let seconds = runtime.block_on(measure(blobs));
        println!("{blobs:>8}  {seconds:>10.2}");
    }
}

async fn measure(blobs: usize) -> f64 {
    let cluster = EtcdCluster::start(1).await;
    let etcd = EtcdStore::connect(cluster.options("/bench/")).await;
    let store: SharedStore = Arc::new(etcd.expect("connects"));
    fill(&*store, blobs).await;
    let all = StoreBlobs::in_store(store, BlobOptions::default());
    let begun = Instant::now();
    let collected = all.collect(Timestamp::now()).await.expect("it answers");
    assert_eq!(collected, Default::default(), "nothing is garbage");
    begun.elapsed().as_secs_f64()
}

/// Writes what `blobs` uploads leave behind, without the steps in between.
async fn fill(store: &dyn Store, blobs: usize) {
    let mut transaction = Transaction::new();
    for number in 0..blobs {
        let id = ContentId::of(&number.to_le_bytes());
        let upload = Uuid::new_v4();
        let record = format!("{{\"upload\":\"{upload}\",\"size\":8}}");
        let chunks = format!("blob-chunks/{}/", upload.simple());
        transaction = transaction
            .put(format!("blobs/{id}"), record)
            .put(format!("{chunks}{id}"), number.to_le_bytes().to_vec())
            .put(format!("{chunks}manifest"), "")
            .put(format!("blob-refs/{id}/catalog/1"), "")
            .put(format!("blob-refs/{id}/catalog/2"), "");
        if transaction.operations.len() + 5 > limits::MAX_OPERATIONS || number + 1 == blobs {
            let full = std::mem::take(&mut transaction);
            store.commit(full).await.expect("etcd has room");
        }
    }
}
