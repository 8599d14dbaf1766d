//! A majority is lost for good, and what is left starts anew.

mod support;

use std::time::{Duration, Instant};

use bunraku_cluster::operator::Operator;
use bunraku_cluster::recover::{Refusal, decide};
use bunraku_store::Transaction;
use support::Cluster;

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + support::PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_survivor_of_three_starts_anew_and_old_data_never_joins_it() {
    let mut cluster = Cluster::start(3, 3).await;
    let store = cluster.store().await;
    for number in 0..20 {
        let put = Transaction::new().put(format!("test/{number}"), "kept");
        store.commit(put).await.expect("it is written");
    }
    let operator = Operator::of(&cluster.servers[0].directory()).expect("it can ask");
    let names: Vec<_> = cluster.servers.iter().map(|it| it.name.clone()).collect();
    let refused = decide(&operator.hear_all().await, &names);
    assert_eq!(refused, Err(Refusal::MajorityLives));

    cluster.servers[1].kill();
    cluster.servers[2].kill();
    let deadline = Instant::now() + support::PATIENCE;
    let decision = loop {
        let heard = operator.hear_all().await;
        let unnamed = decide(&heard, &[]);
        if let Ok(decision) = decide(&heard, &names[1..]) {
            let missing = Refusal::MayLive(names[1..].to_vec());
            assert_eq!(unnamed, Err(missing), "without naming those that are gone");
            break decision;
        }
        assert!(
            Instant::now() < deadline,
            "the lost majority is not noticed"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let unfenced = operator.recover(&decision).await.expect("it starts anew");
    assert_eq!(unfenced, names[1..]);
    until("the survivor ends to start anew", || {
        cluster.servers[0].has_ended()
    })
    .await;
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
    until("the one that returns puts its old data aside", || {
        cluster.servers[1].has_ended() || !directory.datastores().join(&old.generation).exists()
    })
    .await;
    cluster.servers[2].start();
    // Both end themselves once more, to start anew in the new epoch.
    let deadline = Instant::now() + support::PATIENCE;
    loop {
        for server in &mut cluster.servers {
            if server.has_ended() {
                server.start();
            }
        }
        let records = cluster.datastores().await;
        if records.len() == 3 && records.iter().all(|it| it.healthy && !it.learner) {
            break;
        }
        assert!(Instant::now() < deadline, "{records:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for server in &cluster.servers {
        let counters = server.directory().counters().expect("readable");
        assert_eq!(counters.epoch, 2, "{}", server.name);
    }
    assert!(!directory.datastores().join(&old.generation).exists());
}
