//! Real servers under seeded faults: the short version of
//! `cargo run -p bunraku-faults --release -- --minutes 60 --seed 1`.
//!
//! These need root, network namespaces, etcd, nftables and libfaketime.

use std::process::{Command, Output};

fn faults(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bunraku-faults"))
        .args(arguments)
        .output()
        .expect("it runs")
}

fn all_output(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn nothing_that_was_acknowledged_is_lost_or_done_twice_whatever_fails() {
    // This seed begins with a partition.
    let output = faults(&["--seed", "2", "--seconds", "22"]);
    let text = all_output(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("fine") && !text.contains(" 0 cuts"), "{text}");
}

#[test]
fn servers_that_do_not_compare_what_they_read_are_found_out() {
    // On a busy machine few clients compete, and a seed may show nothing. Later ones get longer.
    let mut all = String::new();
    for (seed, seconds) in [
        (7, 6),
        (8, 6),
        (9, 12),
        (10, 12),
        (11, 24),
        (12, 24),
        (13, 48),
    ] {
        let output = faults(&[
            &format!("--seed={seed}"),
            "--servers=3",
            "--datastores=3",
            &format!("--seconds={seconds}"),
            "--plant=compares",
        ]);
        let text = all_output(&output);
        if output.status.code() == Some(3) {
            let named = text.contains("wrong: lock") || text.contains("wrong: once");
            return assert!(named, "{text}");
        }
        all.push_str(&text);
    }
    panic!("nobody noticed:\n{all}");
}

/// Faults of nodes, messages and the embedded store, which a short run of all kinds may not draw.
const INCIDENTS: &str = "--only=late,full-embedded-disk,flood,frozen-agent,revocation";

#[test]
fn hostile_and_frozen_nodes_late_messages_and_a_full_disk_do_no_harm() {
    let output = faults(&["--seed=1", "--servers=3", "--seconds=25", INCIDENTS]);
    let text = all_output(&output);
    assert!(output.status.success() && text.contains("fine"), "{text}");
}

#[test]
fn servers_that_renew_what_is_revoked_are_found_out() {
    let output = faults(&[
        "--seed=1",
        "--servers=3",
        "--seconds=4",
        "--only=revocation",
        "--plant=fence",
    ]);
    let text = all_output(&output);
    assert!(text.contains("wrong: certificate of stolen-"), "{text}");
}

#[test]
fn a_store_that_acknowledges_what_a_full_disk_refused_is_found_out() {
    let output = faults(&[
        "--seed=1",
        "--servers=3",
        "--seconds=4",
        "--only=full-embedded-disk",
        "--plant=write-errors",
    ]);
    let text = all_output(&output);
    assert!(
        !output.status.success() && text.contains("alone-1"),
        "{text}"
    );
}

#[test]
fn servers_that_lose_audit_records_are_found_out() {
    let output = faults(&[
        "--seed=7",
        "--servers=3",
        "--datastores=3",
        "--seconds=6",
        "--plant=records",
    ]);
    let text = all_output(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("the log does not contain it"), "{text}");
}
