//! The contract on real etcd, with a member for each case.

use std::sync::Arc;

use bunraku_store::contract::Subject;
use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;

async fn make_store() -> Subject {
    let cluster = EtcdCluster::start(1).await;
    let store = EtcdStore::connect(cluster.options("/contract/"))
        .await
        .expect("etcd answers");
    Subject {
        store: Arc::new(store),
        keep: Box::new(cluster),
    }
}

bunraku_store::contract_suite!(make_store);
