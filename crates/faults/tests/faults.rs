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
    let output = faults(&["--seed", "6", "--seconds", "22"]);
    let told = all_output(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("fine") && !told.contains(" 0 cuts"), "{told}");
}

#[test]
fn servers_that_do_not_compare_what_they_read_are_found_out() {
    // On a slow machine few clients compete, and one seed may show nothing.
    let mut all = String::new();
    for seed in ["7", "8", "9", "10"] {
        let output = faults(&[
            "--seed",
            seed,
            "--servers=3",
            "--datastores=3",
            "--seconds=6",
            "--plant=compares",
        ]);
        let told = all_output(&output);
        if output.status.code() == Some(3) {
            let named = told.contains("wrong: lock") || told.contains("wrong: once");
            return assert!(named, "{told}");
        }
        all.push_str(&told);
    }
    panic!("nobody noticed:\n{all}");
}
