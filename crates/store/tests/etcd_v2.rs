//! The v2 keyspace of a real etcd, with etcdctl on the other side.

use std::process::Command;
use std::time::Duration;

use bunraku_store::etcd::{EtcdOptions, EtcdV2, EtcdV2Changes, EtcdV2Error};
use bunraku_store::testing::EtcdCluster;

const TTL: Duration = Duration::from_secs(180);

/// Runs etcdctl with the v2 API.
fn etcdctl(cluster: &EtcdCluster, arguments: &[&str]) -> String {
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "2")
        .args(["--endpoints", &cluster.endpoints()[0]])
        .args(arguments)
        .output()
        .expect("etcdctl runs; scripts/setup installs etcd-client");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text.trim_end().to_owned()
}

fn client(cluster: &EtcdCluster) -> EtcdV2 {
    EtcdV2::new(&cluster.options("/puppet_trigger/events")).expect("a client")
}

fn entries(changes: &EtcdV2Changes) -> Vec<(&str, &str)> {
    let entries = changes.entries.iter();
    entries
        .map(|entry| (entry.key.as_str(), entry.value.as_str()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_reads_what_is_set_and_sets_what_is_waited_for() {
    let cluster = EtcdCluster::start_with_flags(1, &["--enable-v2=true"]).await;
    let client = client(&cluster);
    let from = client.newest().await.expect("it answers") + 1;

    let name = "refresh (all) / load balancers";
    client.set(name, "{\"a\": 1}&", TTL).await.expect("set");
    let path = format!("/puppet_trigger/events/{name}");
    assert_eq!(etcdctl(&cluster, &["get", &path]), "{\"a\": 1}&");

    let own = client.wait(from).await.expect("a change");
    assert_eq!(entries(&own), [(name, "{\"a\": 1}&")]);

    let key = "/puppet_trigger/events/hosts/lb01";
    etcdctl(&cluster, &["set", "--ttl", "180", key, "first"]);
    etcdctl(&cluster, &["set", "--ttl", "180", key, "second"]);
    let first = client.wait(own.next).await.expect("a change");
    assert_eq!(entries(&first), [("hosts/lb01", "first")]);
    let second = client.wait(first.next).await.expect("a change");
    assert_eq!(entries(&second), [("hosts/lb01", "second")]);

    etcdctl(&cluster, &["rm", key]);
    let removed = client.wait(second.next).await.expect("a change");
    assert_eq!(entries(&removed), [], "a key that is gone is not set");
    assert_eq!(removed.next, second.next + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_keys_are_read_and_the_index_leads_on() {
    let cluster = EtcdCluster::start_with_flags(1, &["--enable-v2=true"]).await;
    let client = client(&cluster);
    let nothing = client.all().await.expect("it answers");
    assert_eq!(entries(&nothing), []);
    client.set("hosts/a", "1", TTL).await.expect("set");
    client.set("b", "2", TTL).await.expect("set");
    let all = client.all().await.expect("it answers");
    let mut found = entries(&all);
    found.sort_unstable();
    assert_eq!(found, [("b", "2"), ("hosts/a", "1")]);
    client.set("c", "3", TTL).await.expect("set");
    let next = client.wait(all.next).await.expect("a change");
    assert_eq!(entries(&next), [("c", "3")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_etcd_dropped_are_named_as_gone() {
    let cluster = EtcdCluster::start_with_flags(1, &["--enable-v2=true"]).await;
    let client = client(&cluster);
    let from = client.newest().await.expect("it answers") + 1;
    // etcd keeps the last 1,000 events of all keys.
    for number in 0..1_050 {
        client
            .set("x", &number.to_string(), TTL)
            .await
            .expect("set");
    }
    let gone = client.wait(from).await;
    assert!(matches!(gone, Err(EtcdV2Error::Cleared(_))), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_without_the_second_api_says_so() {
    let cluster = EtcdCluster::start(1).await;
    let refused = client(&cluster).newest().await;
    assert!(
        matches!(refused, Err(EtcdV2Error::NotServed { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_away_is_named() {
    let nobody = "http://127.0.0.1:9".to_owned();
    let client = EtcdV2::new(&EtcdOptions::new(vec![nobody], "/x")).expect("a client");
    let error = client.newest().await.expect_err("nobody answers");
    assert_eq!(error.to_string(), "cannot reach etcd at http://127.0.0.1:9");
}
