//! A permanently removed server comes back with all its old data.

use bunraku_testkit::eventually;

use crate::support::Cluster;
use bunraku_cluster::operator::Operator;
use bunraku_store::Transaction;
use bunraku_wire::api::cluster::{RemovedMember, keys};
use jiff::Timestamp;

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_server_that_returns_exits_and_is_not_a_member() {
    let mut cluster = Cluster::start(2, 1).await;
    let name = cluster.servers[1].name.clone();
    cluster.servers[1].kill();
    let note = RemovedMember {
        name: name.clone(),
        at: Timestamp::now(),
        by: "operator".to_owned(),
    };
    let store = cluster.store().await;
    let removal = Transaction::new().delete(keys::member(&name)).put(
        keys::removed(&name),
        serde_json::to_vec(&note).expect("JSON"),
    );
    store.commit(removal).await.expect("it is removed");

    cluster.servers[1].start();
    eventually(async || cluster.servers[1].has_ended()).await;
    let record = store.get(&keys::member(&name)).await.expect("readable");
    assert!(record.is_none(), "it wrote itself down again");
    let kept = cluster.servers[1].directory().removed().expect("readable");
    assert_eq!(kept, Some(note), "it knows why, also without the others");
    let operator = Operator::of(&cluster.servers[0].directory()).expect("it can ask");
    eventually(async || {
        let sight = operator.view().await.expect("it answers");
        let members = sight.expect("what it sees").members;
        members.iter().all(|it| it.name != name)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datastore_with_a_vote_keeps_its_data_when_its_order_is_gone() {
    let cluster = Cluster::start(2, 1).await;
    let (server, store) = (&cluster.servers[0], cluster.store().await);
    let put = Transaction::new().put("test/kept", "kept");
    store.commit(put).await.expect("written");
    let lost = Transaction::new().delete(keys::order(&server.name));
    store.commit(lost).await.expect("deleted");
    eventually(async || {
        server
            .log()
            .contains("is a voter without an order; keeping its data")
    })
    .await;
    let order = server.directory().order().expect("readable");
    assert!(order.is_some(), "it still runs what it was told to");
    let kept = store.get("test/kept").await.expect("it answers");
    assert!(kept.is_some(), "the only data there is, is there");
    let more = Transaction::new().put("test/more", "kept");
    store.commit(more).await.expect("and can be written to");
}
