//! Faults from a seed against real servers, and a checker over what clients saw.
//!
//! The short version of `bunraku-cluster-faults --minutes 60 --seed N`.

mod support;

use std::time::Duration;

use support::faults::{self, Options};

async fn check(seed: u64) {
    let outcome = faults::run(Options {
        seed,
        servers: 5,
        time: Duration::from_secs(25),
        careless: false,
    })
    .await;
    assert!(
        outcome.wrong.is_empty(),
        "seed {seed}: {:#?}\nafter {:#?}",
        outcome.wrong,
        outcome.faults
    );
    assert!(
        outcome.acknowledged > 10,
        "seed {seed}: nothing was written"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_and_no_lock_is_held_twice_whatever_fails() {
    check(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_compare_are_found_out() {
    let outcome = faults::run(Options {
        seed: 7,
        servers: 3,
        time: Duration::from_secs(2),
        careless: true,
    })
    .await;
    assert!(!outcome.wrong.is_empty(), "the checker finds nothing");
}
