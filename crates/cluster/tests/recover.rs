//! Tests the decision whether to recover, based on the members' answers.

use bunraku_cluster::recover::{DatastoreAnswer, RecoveryRefusal, decide};
use bunraku_cluster::transport::{DataProgress, DatastoreReport};
use bunraku_model::NodeName;

fn name(number: usize) -> NodeName {
    NodeName::new(format!("server-{number}")).expect("a name")
}

fn url(number: usize) -> String {
    format!("https://{number}")
}

/// A datastore of three that answers, at this index.
fn answer(number: usize, index: Option<u64>, has_leader: bool) -> DatastoreAnswer {
    let progress = index.map(|raft_index| DataProgress {
        raft_term: 3,
        raft_index,
        revision: 1,
        has_leader,
    });
    DatastoreAnswer {
        name: name(number),
        peer_url: url(number),
        report: Some(DatastoreReport {
            name: name(number),
            epoch: 1,
            ordered: true,
            progress,
            voters: (0..3).map(url).collect(),
        }),
    }
}

fn silent(number: usize) -> DatastoreAnswer {
    DatastoreAnswer {
        name: name(number),
        peer_url: url(number),
        report: None,
    }
}

#[test]
fn a_majority_that_lives_is_never_recovered_from() {
    let all = [
        answer(0, Some(9), true),
        answer(1, Some(9), true),
        silent(2),
    ];
    assert_eq!(
        decide(&all, &[name(2)]),
        Err(RecoveryRefusal::MajorityLives)
    );
    // Two that answer are a majority, even if they have not elected a leader yet.
    let all = [
        answer(0, Some(9), false),
        answer(1, Some(9), false),
        silent(2),
    ];
    assert_eq!(
        decide(&all, &[name(2)]),
        Err(RecoveryRefusal::MajorityLives)
    );
    // This one has a leader: the others are alive where we cannot see them.
    let all = [answer(0, Some(9), true), silent(1), silent(2)];
    assert_eq!(
        decide(&all, &[name(1), name(2)]),
        Err(RecoveryRefusal::MajorityLives)
    );
}

#[test]
fn unreachable_datastores_must_be_named() {
    let all = [answer(0, Some(9), false), silent(1), silent(2)];
    assert_eq!(
        decide(&all, &[name(1)]),
        Err(RecoveryRefusal::MayLive(vec![name(2)]))
    );
    let decision = decide(&all, &[name(1), name(2)]).expect("all are named");
    assert_eq!(decision.from, name(0));
    assert_eq!(decision.epoch, 2);
    assert_eq!(decision.lost, [name(1), name(2)]);
}

#[test]
fn the_most_advanced_survivor_is_taken_and_the_others_are_fenced() {
    let mut all: Vec<DatastoreAnswer> = (0..5).map(|number| answer(number, None, false)).collect();
    for one in &mut all {
        let report = one.report.as_mut().expect("it answers");
        report.voters = (0..5).map(url).collect();
    }
    let progress = |one: &mut DatastoreAnswer, raft_index| {
        let report = one.report.as_mut().expect("it answers");
        report.progress = Some(DataProgress {
            raft_term: 3,
            raft_index,
            revision: 1,
            has_leader: false,
        });
    };
    progress(&mut all[1], 100);
    progress(&mut all[3], 1080);
    all[0].report = None;
    all[2].report = None;
    let decision = decide(&all, &[name(0), name(2)]).expect("it is decided");
    assert_eq!(decision.from, name(3));
    let fenced: Vec<_> = decision
        .fenced
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    assert_eq!(fenced, [name(1), name(4)]);
}

#[test]
fn one_that_stood_for_election_in_vain_is_not_taken_for_the_most_advanced() {
    let mut all: Vec<DatastoreAnswer> = (0..5).map(|number| answer(number, None, false)).collect();
    for (number, (raft_term, raft_index)) in [(1, (41, 100)), (3, (3, 1080))] {
        let report = all[number].report.as_mut().expect("it answers");
        report.progress = Some(DataProgress {
            raft_term,
            raft_index,
            revision: 1,
            has_leader: false,
        });
    }
    for one in &mut all {
        one.report.as_mut().expect("it answers").voters = (0..5).map(url).collect();
    }
    for number in [0, 2, 4] {
        all[number].report = None;
    }
    let decision = decide(&all, &[name(0), name(2), name(4)]).expect("it is decided");
    assert_eq!(decision.from, name(3), "more data, though an older term");
}

#[test]
fn nothing_can_be_made_from_nothing() {
    let all = [silent(0), silent(1), silent(2)];
    assert_eq!(decide(&all, &[]), Err(RecoveryRefusal::NobodyLeft));
}
