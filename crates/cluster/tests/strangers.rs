//! A client without a member's certificate gets nothing, and a damaged snapshot is refused.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::{Cluster, Server};
use bunraku_cluster::datastore::{Admin, Program, Snapshots, verify};
use bunraku_cluster::directory::Directory;
use bunraku_cluster::identity::MemberTls;
use bunraku_cluster::transport::{Dialer, PeerAnswer, PeerQuestion, ask};
use bunraku_store::Transaction;
use bunraku_wire::ReloadableClientTls;
use jiff::Timestamp;
use tokio::sync::watch;

/// A certificate with the same server name, from another authority: the best that a
/// node could create for itself.
fn stranger(server: &Server, place: &tempfile::TempDir) -> MemberTls {
    let directory = Directory::of(place.path());
    MemberTls::ensure(&directory, &server.name, "127.0.0.1", Timestamp::now())
        .expect("a certificate of another authority")
}

async fn ask_for_view(server: &Server, tls: &MemberTls, cluster: &str) -> Option<PeerAnswer> {
    let dialer = Dialer {
        tls: ReloadableClientTls::new(&tls.client()).expect("TLS"),
        cluster: cluster.to_owned(),
        epoch: watch::channel(1).1,
    };
    let patience = Duration::from_secs(10);
    let address = &server.record.member_address;
    ask(
        &dialer,
        &server.name,
        address,
        &PeerQuestion::Sight,
        patience,
    )
    .await
    .ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_of_this_cluster_are_answered() {
    let cluster = Cluster::start(1, 1).await;
    let server = &cluster.servers[0];
    let directory = server.directory();
    let me = directory
        .local_member()
        .expect("readable")
        .expect("a member");
    let own = MemberTls::ensure(&directory, &server.name, "127.0.0.1", Timestamp::now())
        .expect("a certificate");
    assert!(ask_for_view(server, &own, &me.cluster).await.is_some());
    assert!(
        ask_for_view(server, &own, "another").await.is_none(),
        "a member of another cluster"
    );
    let place = tempfile::tempdir().expect("a directory");
    let foreign = stranger(server, &place);
    assert!(
        ask_for_view(server, &foreign, &me.cluster).await.is_none(),
        "a certificate of another authority"
    );
    let url = &server.record.client_url;
    Admin::new(own.etcd().clone())
        .progress(url)
        .await
        .expect("a member may ask the datastore");
    // It trusts the datastore, and presents a certificate that no member signed.
    let mut half = foreign.etcd().clone();
    half.ca_pem = own.etcd().ca_pem.clone();
    Admin::new(half)
        .progress(url)
        .await
        .expect_err("a certificate of another authority opens no datastore");
    let mut none = own.etcd().clone();
    none.identity = None;
    Admin::new(none)
        .progress(url)
        .await
        .expect_err("no certificate opens no datastore");
}

fn program(server: &Server) -> Program {
    Program {
        etcd: PathBuf::from("/usr/bin/etcd"),
        etcdctl: PathBuf::from("/usr/bin/etcdctl"),
        name: server.name.clone(),
        client_url: server.record.client_url.clone(),
        peer_url: server.record.peer_url.clone(),
        listen: IpAddr::from([127, 0, 0, 1]),
        heartbeat: Duration::from_millis(100),
        election: Duration::from_secs(1),
        flags: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_counts_only_when_it_can_be_read_back() {
    let cluster = Cluster::start(1, 1).await;
    let store = cluster.store().await;
    let put = Transaction::new().put("test/large", vec![7; 100_000]);
    store.commit(put).await.expect("it is written");
    let server = &cluster.servers[0];
    let snapshots = Snapshots {
        program: program(server),
        directory: server.directory(),
        keep: 2,
    };
    let url = &server.record.client_url;
    let taken = snapshots
        .take(&cluster.admin(), url, Timestamp::now())
        .await
        .expect("a snapshot");
    verify(&snapshots.program, &taken)
        .await
        .expect("it can be read back");
    let mut data = std::fs::read(&taken).expect("the file");
    let middle = data.len() / 2;
    data[middle] ^= 1;
    std::fs::write(&taken, data).expect("it is damaged");
    verify(&snapshots.program, &taken)
        .await
        .expect_err("one bit is wrong");
    for later in 1..4 {
        let now = Timestamp::now() + jiff::SignedDuration::from_secs(later);
        snapshots
            .take(&cluster.admin(), url, now)
            .await
            .expect("a snapshot");
    }
    let kept = std::fs::read_dir(server.directory().snapshots()).expect("the directory");
    let kept = kept
        .flatten()
        .filter(|it| it.path().extension().is_some_and(|it| it == "db"));
    assert_eq!(kept.count(), 2, "the oldest go");
}
