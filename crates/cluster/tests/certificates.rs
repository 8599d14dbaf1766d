//! Certificates of members and datastores expire, and nobody notices.

use bunraku_testkit::eventually;

use crate::support::{Cluster, Server};
use bunraku_cluster::operator::Operator;
use bunraku_store::Transaction;
use bunraku_wire::api::cluster::MemberState;
use jiff::Timestamp;
use rustix::process::Pid;

/// The lifetime of the first certificates.
const LIFETIME: &str = "certificate-seconds=15";

fn ends(server: &Server) -> Timestamp {
    let identity = server.directory().credentials().identity();
    let identity = identity.expect("readable").expect("a certificate");
    identity.certificate().not_after
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_during_writes_without_restarting_a_datastore() {
    let cluster = Cluster::start_with(3, 3, &[LIFETIME]).await;
    let store = cluster.store().await;
    let pids: Vec<Pid> = cluster.servers.iter().map(Server::datastore_pid).collect();
    let last = cluster.servers.iter().map(ends).max().expect("three");
    let mut number = 0;
    // Wait until all initial certificates have expired.
    eventually(async || {
        let put = Transaction::new().put(format!("test/{number}"), "kept");
        number += u32::from(store.commit(put).await.is_ok());
        Timestamp::now() > last && cluster.servers.iter().all(|it| ends(it) > last)
    })
    .await;
    let fresh = cluster.store().await;
    for number in 0..number {
        let kept = fresh.get(&format!("test/{number}")).await;
        assert!(kept.expect("readable").is_some(), "test/{number} is lost");
    }
    let now: Vec<Pid> = cluster.servers.iter().map(Server::datastore_pid).collect();
    assert_eq!(now, pids, "etcd takes new certificates as it runs");
    for server in &cluster.servers {
        let operator = Operator::of(&server.directory()).expect("it can ask");
        let sight = operator.view().await.expect("it answers");
        let members = sight.expect("what it sees").members;
        assert!(
            members.iter().all(|it| it.state == MemberState::Alive),
            "{members:?}"
        );
    }
}
