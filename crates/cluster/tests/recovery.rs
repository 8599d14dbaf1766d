//! A majority is permanently lost, and the remaining data becomes a new cluster.

use crate::support::Cluster;
use bunraku_cluster::operator::Operator;
use bunraku_cluster::recover::{RecoveryRefusal, decide};
use bunraku_store::Transaction;
use bunraku_testkit::{appears, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn the_survivor_of_three_recovers_and_old_data_never_joins_it() {
    let mut cluster = Cluster::start(3, 3).await;
    let store = cluster.store().await;
    for number in 0..20 {
        let put = Transaction::new().put(format!("test/{number}"), "kept");
        store.commit(put).await.expect("it is written");
    }
    let operator = Operator::of(&cluster.servers[0].directory()).expect("it can ask");
    let names: Vec<_> = cluster.servers.iter().map(|it| it.name.clone()).collect();
    let refused = decide(&operator.ask_all().await, &names);
    assert_eq!(refused, Err(RecoveryRefusal::MajorityLives));

    cluster.servers[1].kill();
    cluster.servers[2].kill();
    let decision = appears(async || {
        let heard = operator.ask_all().await;
        let unnamed = decide(&heard, &[]);
        let decision = decide(&heard, &names[1..]).ok()?;
        let missing = RecoveryRefusal::MayLive(names[1..].to_vec());
        assert_eq!(unnamed, Err(missing), "without naming those that are gone");
        Some(decision)
    })
    .await;
    let unfenced = operator.recover(&decision).await.expect("it starts again");
    assert_eq!(unfenced, names[1..]);
    eventually(async || cluster.servers[0].has_ended()).await;
    cluster.servers[0].start();
    cluster
        .wait("one datastore", |records| {
            records.len() == 1 && records[0].healthy
        })
        .await;
    let store = cluster.store().await;
    for number in 0..20 {
        let kept = store
            .get(&format!("test/{number}"))
            .await
            .expect("readable");
        assert!(kept.is_some(), "test/{number} is lost");
    }

    let old = cluster.servers[1].directory().order().expect("readable");
    let old = old.expect("it kept data");
    cluster.servers[1].start();
    let directory = cluster.servers[1].directory();
    eventually(async || {
        cluster.servers[1].has_ended() || !directory.datastores().join(&old.generation).exists()
    })
    .await;
    cluster.servers[2].start();
    // Both exit once more, to restart in the new epoch.
    eventually(async || {
        for server in &mut cluster.servers {
            if server.has_ended() {
                server.start();
            }
        }
        let records = cluster.datastores().await;
        records.len() == 3 && records.iter().all(|it| it.healthy && !it.learner)
    })
    .await;
    for server in &cluster.servers {
        let counters = server.directory().counters().expect("readable");
        assert_eq!(counters.epoch, 2, "{}", server.name);
    }
    assert!(!directory.datastores().join(&old.generation).exists());
}
