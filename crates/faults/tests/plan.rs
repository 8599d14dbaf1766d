//! Tests of the faults that a seed produces.

use std::collections::BTreeSet;

use bunraku_faults::fault::{Fault, Faults, KINDS, Step};

fn steps(seed: u64, count: usize) -> Vec<Step> {
    Faults::new(seed, 5).take(count).collect()
}

#[test]
fn a_seed_leads_to_the_same_faults_every_time() {
    assert_eq!(steps(7, 50), steps(7, 50));
    assert_ne!(steps(7, 50), steps(8, 50));
}

#[test]
fn what_damages_data_comes_alone() {
    for seed in 0..200 {
        for step in steps(seed, 40) {
            let damages = step.faults.iter().any(Fault::damages_data);
            assert!(!damages || step.faults.len() == 1, "seed {seed}: {step:?}");
        }
    }
}

#[test]
fn every_kind_of_fault_comes_up_early_and_some_come_together() {
    for seed in 0..50 {
        let steps = steps(seed, KINDS.len());
        let kinds: BTreeSet<_> = steps
            .iter()
            .flat_map(|step| &step.faults)
            .map(std::mem::discriminant)
            .map(|kind| format!("{kind:?}"))
            .collect();
        assert_eq!(kinds.len(), KINDS.len(), "seed {seed}: {steps:?}");
    }
    let together = (0..50).flat_map(|seed| steps(seed, 10));
    assert!(together.filter(|step| step.faults.len() == 2).count() > 20);
}

#[test]
fn a_side_is_never_more_than_half() {
    for step in (0..50).flat_map(|seed| steps(seed, 20)) {
        for fault in step.faults {
            if let Fault::Partition { side } | Fault::Deaf { side } = fault {
                assert!((1..=2).contains(&side.len()));
            }
        }
    }
}

#[test]
fn kinds_can_be_selected() {
    let kinds = ["flood".to_owned(), "frozen-agent".to_owned()];
    let steps = Faults::only(7, 5, &kinds).take(20);
    for fault in steps.flat_map(|step| step.faults) {
        let selected = matches!(fault, Fault::Flood { .. } | Fault::FrozenAgent { .. });
        assert!(selected, "{fault:?}");
    }
}
