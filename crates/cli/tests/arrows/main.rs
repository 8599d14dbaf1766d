//! Checks which crate may use which, against the map in `ARCHITECTURE.md`. Also checks that the
//! top-level modules of each crate have no cycle.

mod module_graph;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use module_graph::ModuleGraph;

/// The workspace crates that each crate may depend on. Tests may use more.
const ALLOWED: &[(&str, &[&str])] = &[
    ("bunraku-files", &[]),
    ("bunraku-process", &[]),
    ("bunraku-model", &[]),
    ("bunraku-module", &[]),
    ("bunraku-example-module", &[]),
    ("bunraku-store", &["bunraku-model"]),
    ("bunraku-wire", &["bunraku-model"]),
    // The only process that holds the CA key: no store, no services.
    ("bunraku-signer", &["bunraku-model", "bunraku-wire"]),
    ("bunraku-engine", &["bunraku-model", "bunraku-module"]),
    ("bunraku-states", &["bunraku-model"]),
    ("bunraku-query", &["bunraku-model"]),
    ("bunraku-puppet", &["bunraku-model"]),
    // Development only: the tests of every crate may use it.
    ("bunraku-testkit", &[]),
    // The messages of ordered runs are in `wire`.
    (
        "bunraku-plan",
        &["bunraku-model", "bunraku-puppet", "bunraku-wire"],
    ),
    // It renders pages from text values, so it depends on no other crate.
    ("bunraku-console", &[]),
    (
        "bunraku-control",
        &[
            "bunraku-model",
            // For the version in the keys of published modules.
            "bunraku-module",
            // To check queries that name nodes.
            "bunraku-query",
            // To ask the signer.
            "bunraku-signer",
            // For the location of a problem in a file.
            "bunraku-states",
            "bunraku-store",
            "bunraku-wire",
        ],
    ),
    (
        "bunraku-cues",
        &[
            "bunraku-control",
            "bunraku-model",
            "bunraku-states",
            "bunraku-store",
            "bunraku-wire",
        ],
    ),
    (
        "bunraku-compile",
        &[
            "bunraku-control",
            "bunraku-cues",
            "bunraku-model",
            // To verify published modules and the pins of catalogs. No module runs there.
            "bunraku-module",
            "bunraku-query",
            "bunraku-states",
            "bunraku-store",
            "bunraku-wire",
        ],
    ),
    (
        "bunraku-orchestrate",
        &[
            "bunraku-compile",
            "bunraku-control",
            "bunraku-cues",
            "bunraku-model",
            "bunraku-plan",
            "bunraku-process",
            "bunraku-store",
            "bunraku-wire",
        ],
    ),
    (
        "bunraku-server",
        &[
            "bunraku-compile",
            "bunraku-control",
            "bunraku-cues",
            "bunraku-model",
            "bunraku-orchestrate",
            "bunraku-plan",
            "bunraku-query",
            "bunraku-signer",
            "bunraku-store",
            "bunraku-wire",
        ],
    ),
    // The server never uses it: a server that is not a member does not know about it.
    (
        "bunraku-cluster",
        &["bunraku-model", "bunraku-store", "bunraku-wire"],
    ),
    // It runs as root on other people's machines: never a store, never a compiler.
    (
        "bunraku-agent",
        &["bunraku-model", "bunraku-engine", "bunraku-wire"],
    ),
    // Development only.
    (
        "bunraku-sim",
        &[
            "bunraku-agent",
            "bunraku-compile",
            "bunraku-control",
            "bunraku-cues",
            "bunraku-model",
            "bunraku-orchestrate",
            "bunraku-plan",
            "bunraku-server",
            "bunraku-store",
            "bunraku-testkit",
            "bunraku-wire",
        ],
    ),
    // Development only, in `fuzz/`: everything that reads outside input.
    (
        "bunraku-fuzz",
        &[
            "bunraku-cluster",
            "bunraku-model",
            "bunraku-module",
            "bunraku-plan",
            "bunraku-puppet",
            "bunraku-query",
            "bunraku-states",
            "bunraku-wire",
        ],
    ),
    // Development only: the whole program, and the faults for it.
    (
        "bunraku-faults",
        &[
            "bunraku",
            "bunraku-cluster",
            "bunraku-model",
            "bunraku-plan",
            "bunraku-store",
            "bunraku-testkit",
            "bunraku-wire",
        ],
    ),
    (
        "bunraku",
        &[
            "bunraku-model",
            "bunraku-module",
            "bunraku-store",
            "bunraku-wire",
            "bunraku-engine",
            "bunraku-states",
            "bunraku-puppet",
            "bunraku-plan",
            "bunraku-query",
            "bunraku-console",
            "bunraku-compile",
            "bunraku-control",
            "bunraku-cues",
            "bunraku-orchestrate",
            "bunraku-server",
            "bunraku-signer",
            "bunraku-cluster",
            "bunraku-agent",
        ],
    ),
];

/// Every crate with I/O may use these: atomic file replacement, and child processes.
const MACHINE: &[&str] = &["bunraku-files", "bunraku-process"];

/// Dependencies that crates without I/O must not have.
const PURE: &[&str] = &[
    "bunraku-model",
    "bunraku-module",
    "bunraku-query",
    "bunraku-states",
    "bunraku-puppet",
    "bunraku-plan",
    "bunraku-console",
];
const IMPURE: &[&str] = &[
    "tokio",
    "hyper",
    "rustix",
    "rusqlite",
    "etcd-client",
    "rustls",
];

fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let used = package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter();
            let ordinary = used.filter(|used| used["kind"] != "dev");
            let names = ordinary
                .map(|used| used["name"].as_str().expect("a name").to_owned())
                .collect();
            (package["name"].as_str().expect("a name").to_owned(), names)
        })
        .collect()
}

#[test]
fn crates_use_only_what_the_map_allows() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for (package, used) in dependencies() {
        let may = allowed.get(package.as_str()).unwrap_or_else(|| {
            panic!("`{package}` is not on the map: add it here and to ARCHITECTURE.md");
        });
        for name in used.iter().filter(|name| name.starts_with("bunraku")) {
            let is_machine = MACHINE.contains(&name.as_str()) && !PURE.contains(&package.as_str());
            assert!(
                is_machine || may.contains(&name.as_str()),
                "`{package}` must not use `{name}`"
            );
        }
    }
}

#[test]
fn pure_crates_have_no_way_to_do_io() {
    let dependencies = dependencies();
    for package in PURE {
        let Some(used) = dependencies.get(*package) else {
            continue;
        };
        for name in IMPURE {
            assert!(!used.contains(*name), "`{package}` must not use `{name}`");
        }
    }
}

#[test]
fn no_crate_has_a_cycle_between_its_modules() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cycles = Vec::new();
    let mut checked = 0;
    for entry in std::fs::read_dir(&crates).expect("the crates") {
        let directory = entry.expect("an entry").path();
        let src = directory.join("src");
        if !src.join("lib.rs").is_file() {
            continue;
        }
        checked += 1;
        let name = directory.file_name().unwrap_or_default();
        if let Some(cycle) = ModuleGraph::read(&src).cycle() {
            cycles.push(format!("{}:\n{cycle}", name.to_string_lossy()));
        }
    }
    // The example module and the fuzz targets are elsewhere.
    assert!(checked >= ALLOWED.len() - 2, "only {checked} crates found");
    assert!(cycles.is_empty(), "cycles:\n{}", cycles.join("\n"));
}

fn architecture() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md")
}

#[test]
fn the_architecture_lists_every_crate_and_no_other() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let there: BTreeSet<String> = (std::fs::read_dir(crates).expect("the crates"))
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    let text = architecture();
    let table = text.split("\n## ").nth(1).expect("a table of crates");
    let listed: BTreeSet<String> = (table.lines())
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, there);
}

#[test]
fn every_folder_and_file_that_the_architecture_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = architecture();
    let named: Vec<&str> = (text.split('`').skip(1).step_by(2))
        .filter(|word| word.contains("/src") || word.starts_with("crates/"))
        .chain(["docs/keys.md", "docs/adr"])
        .collect();
    assert!(named.len() > 20, "only {named:?}");
    for path in named {
        let there = root.join(path).exists() || root.join("crates").join(path).exists();
        assert!(there, "`{path}` does not exist");
    }
}
