//! Compares our facts with those of a real Facter on this machine, key by key.
//!
//! Every key that Facter prints must be equal here, or close if it changes all the time, or listed
//! in [`NOT_COVERED`]. Every key that only we print must be listed in [`ONLY_OURS`].
//! `docs/facts.md` repeats both lists, which a test checks.
//!
//! Needs Debian's `facter`, `ruby-sys-filesystem` (without it Facter has no mount points) and
//! `virt-what`, which `scripts/setup` installs.

use std::collections::BTreeMap;
use std::process::Command;

use bunraku_agent::facts::{FactOptions, collect};
use bunraku_model::VolatileFacts;
use serde_json::Value;

/// The facts that Facter prints and we do not, with the reason. A name covers everything below it.
const NOT_COVERED: &[(&str, &str)] = &[
    ("aio_agent_version", "version of Puppet's own package"),
    ("augeas", "version of a library that Bunraku does not use"),
    ("az_metadata", "needs the network: Azure's metadata service"),
    (
        "cloud",
        "needs the network: derived from the metadata services",
    ),
    (
        "ec2_metadata",
        "needs the network: Amazon's metadata service",
    ),
    ("ec2_userdata", "needs the network, and may contain secrets"),
    ("facterversion", "Facter is not used: see `bunraku_version`"),
    ("gce", "needs the network: Google's metadata service"),
    ("ruby", "Ruby is not used"),
    ("xen", "requires Xen's own tools"),
];

/// The facts that we print and Facter 4.3 does not. `*` stands for any single key.
const ONLY_OURS: &[(&str, &str)] = &[
    ("bunraku_version", "the version of the agent"),
    (
        "fqdn",
        "Facter prints it only with `--show-legacy`, but a lot of code uses it",
    ),
    (
        "hostname",
        "Facter prints it only with `--show-legacy`, but a lot of code uses it",
    ),
    ("hypervisors", "Facter must read /proc/1/environ for it"),
    ("is_virtual", "Facter must read /proc/1/environ for it"),
    (
        "networking.interfaces.*.duplex",
        "newer Facter versions have it",
    ),
    (
        "networking.interfaces.*.operational_state",
        "newer Facter versions have it",
    ),
    (
        "networking.interfaces.*.physical",
        "newer Facter versions have it",
    ),
    (
        "networking.interfaces.*.speed",
        "newer Facter versions have it",
    ),
    (
        "platform",
        "for Salt's grains: init system, resolver, gateways …",
    ),
    ("processors.extensions", "newer Facter versions have it"),
    ("system_uptime", "Facter must read /proc/1/environ for it"),
    ("virtual", "Facter must read /proc/1/environ for it"),
];

/// The facts that change between two readings. They must have the same type, and close numbers.
fn volatile() -> Vec<String> {
    let listed = serde_json::to_value(VolatileFacts::default()).expect("a list");
    let mut paths: Vec<String> = serde_json::from_value(listed).expect("of paths");
    paths.push("processors.speed".to_owned());
    paths
}

#[test]
fn every_key_that_facter_prints_is_equal_or_close_or_listed() {
    let theirs = flatten(&facter());
    let ours = flatten(&our_facts());
    let mut differences: Vec<String> = theirs
        .iter()
        .filter(|(key, _)| !listed(NOT_COVERED, key))
        .filter_map(|(key, their)| difference(key, ours.get(key), their))
        .collect();
    for key in ours.keys().filter(|key| !theirs.contains_key(*key)) {
        if !listed(ONLY_OURS, key) {
            differences.push(format!("{}: only we have it", key.join(".")));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} keys differ:\n{}",
        differences.len(),
        theirs.len(),
        differences.join("\n")
    );
    // A Facter that prints almost nothing would match anything.
    for group in [
        "os",
        "networking",
        "processors",
        "memory",
        "mountpoints",
        "identity",
    ] {
        let found = theirs.keys().any(|key| key[0] == group);
        assert!(
            found,
            "facter printed nothing of `{group}`: run scripts/setup"
        );
    }
}

#[test]
fn the_documentation_lists_what_is_different() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/facts.md");
    let page = std::fs::read_to_string(page).expect("docs/facts.md is there");
    for (key, why) in NOT_COVERED.iter().chain(ONLY_OURS) {
        let row = format!("| `{key}` | {why} |");
        assert!(page.contains(&row), "docs/facts.md lacks the row\n{row}");
    }
}

#[test]
fn the_comparison_sees_wrong_units_types_and_keys() {
    let key: Vec<String> = ["memory", "system", "used_bytes"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(
        difference(&key, Some(&480_000_000.into()), &500_000_000.into()),
        None
    );
    assert!(difference(&key, Some(&480_000.into()), &480_000_000.into()).is_some());
    assert!(difference(&key, Some(&"480000000".into()), &480_000_000.into()).is_some());
    assert!(difference(&key, None, &480_000_000.into()).is_some());
    assert!(close(&"0:59 hours".into(), &"1:00 hours".into()));
    assert!(close(&"1023.90 MiB".into(), &"1.00 GiB".into()));
    assert!(!close(&"12.00%".into(), &"1.00 GiB".into()));
}

fn our_facts() -> Value {
    let collected = collect(&FactOptions::default());
    assert!(collected.warnings.is_empty(), "{:?}", collected.warnings);
    Value::Object(collected.facts.into_map())
}

/// The arguments for Facter's own facts, without those that other packages on this machine add.
const FACTER: [&str; 4] = [
    "facter",
    "--json",
    "--no-custom-facts",
    "--no-external-facts",
];

/// Runs Facter, if possible in its own process namespace: there it can read /proc/1/environ,
/// without which it omits some facts.
fn facter() -> Value {
    let mut alone = Command::new("unshare");
    alone.args(["--pid", "--fork", "--mount-proc"]).args(FACTER);
    let mut plain = Command::new(FACTER[0]);
    plain.args(&FACTER[1..]);
    // Facter exits with 1 if /proc/1/environ is not readable. That is not a failure.
    let run = |command: &mut Command| {
        let output = command.env_remove("FACTERLIB").output().ok()?;
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    run(&mut alone)
        .or_else(|| run(&mut plain))
        .expect("facter prints JSON: install it with scripts/setup")
}

type Flat = BTreeMap<Vec<String>, Value>;

/// Returns the leaves by path. Lists and empty objects are leaves.
fn flatten(value: &Value) -> Flat {
    fn walk(value: &Value, path: &mut Vec<String>, flat: &mut Flat) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                for (name, member) in members {
                    path.push(name.clone());
                    walk(member, path, flat);
                    path.pop();
                }
            }
            leaf => {
                flat.insert(path.clone(), leaf.clone());
            }
        }
    }
    let mut flat = Flat::new();
    walk(value, &mut Vec::new(), &mut flat);
    flat
}

fn difference(key: &[String], ours: Option<&Value>, theirs: &Value) -> Option<String> {
    let name = key.join(".");
    let volatile = volatile().iter().any(|pattern| matches(pattern, key));
    match ours {
        None => Some(format!("{name}: only Facter has it: {theirs}")),
        Some(ours) if volatile => {
            (!close(ours, theirs)).then(|| format!("{name}: {ours} is far from {theirs}"))
        }
        Some(ours) => (ours != theirs).then(|| format!("{name}: {ours}, Facter says {theirs}")),
    }
}

fn listed(list: &[(&str, &str)], key: &[String]) -> bool {
    list.iter().any(|(pattern, _)| matches(pattern, key))
}

/// Returns whether a dotted pattern names this key or one above it.
fn matches(pattern: &str, key: &[String]) -> bool {
    let steps: Vec<&str> = pattern.split('.').collect();
    let same = |(step, name): (&&str, &String)| *step == "*" || step == name;
    steps.len() <= key.len() && steps.iter().zip(key).all(same)
}

/// Returns whether two values are equal in type and form, with numbers that are close.
fn close(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(ours), Value::Number(theirs)) => {
            let pair = ours.as_f64().zip(theirs.as_f64());
            pair.is_some_and(|(ours, theirs)| near(ours, theirs))
        }
        (Value::String(ours), Value::String(theirs)) => {
            let pair = quantity(ours).zip(quantity(theirs));
            pair.is_some_and(|(ours, theirs)| ours.1 == theirs.1 && near(ours.0, theirs.0))
        }
        _ => false,
    }
}

/// Parses a quantity: `1.50 KiB` is 1536 bytes; `12.34%`, `2.30 GHz` and `0:15 hours` keep their
/// unit.
fn quantity(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':')?;
    let (number, unit) = (&text[..end], text[end..].trim());
    let number: f64 = match number.split_once(':') {
        Some((hours, minutes)) => hours.parse::<f64>().ok()? + minutes.parse::<f64>().ok()? / 60.0,
        None => number.parse().ok()?,
    };
    let power = ["bytes", "KiB", "MiB", "GiB", "TiB"]
        .iter()
        .position(|known| *known == unit);
    Some(match power {
        Some(power) => (number * 1024f64.powi(power as i32), "bytes"),
        None => (number, unit),
    })
}

/// Returns whether two numbers are close: within a factor that a busy machine may reach in the
/// seconds between the two readings, but that every wrong unit exceeds.
fn near(ours: f64, theirs: f64) -> bool {
    let (low, high) = (ours.min(theirs), ours.max(theirs));
    high <= 8.0 * low + 10.0
}
