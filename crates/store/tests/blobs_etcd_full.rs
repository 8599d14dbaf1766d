//! An etcd that has reached its quota.

use std::sync::Arc;

use crate::blob_support::{World, content, options};
use bunraku_store::blobs::BlobError;
use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{Store, StoreError, Transaction};

#[tokio::test(flavor = "multi_thread")]
async fn content_that_etcd_has_no_space_for_is_an_error_and_nothing_is_visible() {
    let flags = ["--quota-backend-bytes=8388608"];
    let cluster = EtcdCluster::start_with_flags(1, &flags).await;
    let store = EtcdStore::connect(cluster.options("/full/"))
        .await
        .expect("connects");
    let world = World::in_store(Arc::new(store.clone()), options());
    let blobs = world.open().await;
    let refused = blobs.put(&mut &content(1, 32 << 20)[..], None).await;
    assert!(
        matches!(refused, Err(BlobError::Store(StoreError::Full(_)))),
        "{refused:?}"
    );
    assert!(blobs.list(None).await.expect("reads still work").is_empty());
    assert_eq!(world.stored_names().await, Vec::<String>::new());

    let put = store.commit(Transaction::new().put("key", "value")).await;
    let Err(StoreError::Full(reason)) = put else {
        panic!("a full store takes nothing: {put:?}");
    };
    assert!(reason.contains("NOSPACE"), "{reason}");
}
