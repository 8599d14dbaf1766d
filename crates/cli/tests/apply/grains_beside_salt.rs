//! Compares the grains that state files see with those of real Salt on this machine, key by key.
//!
//! Every grain that Salt has must be equal here, or be listed in [`NOT_EQUAL`] with the reason.
//! `scripts/peer-salt` installs Salt from PyPI.

use std::path::Path;
use std::process::Command;

use serde_json::{Map, Value};

use crate::world::World;

/// Salt's grains that differ here, or do not exist, with the reason.
const NOT_EQUAL: &[(&str, &str)] = &[
    ("ca_truststore", "of Salt's own process"),
    ("cwd", "of Salt's own process"),
    ("efi-secure-boot", "needs a program"),
    ("fibre_channel_host", "off in Salt by default"),
    (
        "fqdn_ip4",
        "from /etc/hosts or the first address; Salt asks the resolver",
    ),
    (
        "fqdn_ip6",
        "from /etc/hosts or the first address; Salt asks the resolver",
    ),
    ("fqdns", "needs the network"),
    ("gpus", "needs a program"),
    ("num_gpus", "needs a program"),
    (
        "hwaddr_interfaces",
        "Facter has no address of virtual interfaces",
    ),
    ("id", "the name of the node"),
    ("locale_info", "of Salt's own process"),
    (
        "lsb_distrib_codename",
        "only with Salt's Python package of LSB",
    ),
    ("lsb_distrib_id", "only with Salt's Python package of LSB"),
    (
        "lsb_distrib_release",
        "only with Salt's Python package of LSB",
    ),
    ("package", "of Salt's own installation"),
    ("path", "of Salt's own process"),
    ("pid", "of Salt's own process"),
    ("pythonexecutable", "of Salt's own installation"),
    ("pythonpath", "of Salt's own installation"),
    ("pythonversion", "the Python of Salt's own packages"),
    ("saltpath", "of Salt's own installation"),
    ("server_id", "a number that only Salt uses"),
    ("shell", "of Salt's own process"),
    ("systempath", "of Salt's own process"),
    ("transactional", "needs a program"),
    (
        "virtual",
        "Salt and Facter detect machines in different ways",
    ),
    (
        "virtual_subtype",
        "Salt and Facter detect machines in different ways",
    ),
    ("zmqversion", "of Salt's own installation"),
];

const SALTS_GRAINS: &str = r#"
import json, logging, os, sys
logging.disable(logging.CRITICAL)
import salt.config, salt.loader
opts = salt.config.DEFAULT_MINION_OPTS.copy()
work = sys.argv[1]
opts.update({"id": "web1", "root_dir": work, "cachedir": work, "extension_modules": work,
             "conf_file": os.path.join(work, "minion"), "enable_fqdns_grains": False})
print(json.dumps(salt.loader.grains(opts), default=str))
"#;

fn salts_grains() -> Map<String, Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peer-salt");
    let python = Command::new(script)
        .output()
        .expect("scripts/peer-salt runs");
    assert!(python.status.success(), "real Salt is needed for this test");
    let python = String::from_utf8(python.stdout).expect("a path");
    let work = tempfile::tempdir().expect("a directory");
    let printed = (Command::new(python.trim()).args(["-c", SALTS_GRAINS]))
        .arg(work.path())
        .output()
        .expect("Salt runs");
    serde_json::from_slice(&printed.stdout).expect("grains as JSON")
}

fn our_grains(world: &World) -> Map<String, Value> {
    std::fs::write(world.path("x.sls"), "x:\n  test.nop: []\n").expect("a file");
    let printed = Command::new(env!("CARGO_BIN_EXE_bunraku"))
        .args(["states", "show", "--what", "grains", "--json"])
        .arg(world.path("x.sls"))
        .output()
        .expect("bunraku runs");
    let text = String::from_utf8_lossy(&printed.stderr);
    serde_json::from_slice(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn every_core_grain_of_salt_is_equal_or_listed() {
    let world = World::new();
    let (salts, ours) = (salts_grains(), our_grains(&world));
    let listed = |name: &str| NOT_EQUAL.iter().any(|(known, _)| *known == name);
    let different: Vec<String> = (salts.iter())
        .filter(|(name, value)| !listed(name) && ours.get(*name) != Some(*value))
        .map(|(name, value)| {
            let here = ours.get(name).unwrap_or(&Value::Null);
            format!("{name}: Salt {value}, here {here}")
        })
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
    // Facter's names are not grains.
    for name in [
        "memory",
        "networking",
        "processors",
        "timezone",
        "ssh",
        "mountpoints",
    ] {
        assert!(!ours.contains_key(name), "{name}");
    }
}
