//! Runs every target over its corpus, and over changed copies of it, on a stack of the size that
//! the threads of a server have. Coverage-guided runs are longer: `scripts/fuzz`.

use std::path::{Path, PathBuf};

use bunraku_fuzz::TARGETS;
use bunraku_testkit::Chance;

/// The number of changed inputs per target. `BUNRAKU_FUZZ_RUNS=100000` tries more.
const USUAL_RUNS: usize = 3_000;
/// The stack of a thread of the server's runtime.
const STACK: usize = 2 << 20;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let entries = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).expect("readable")))
        .collect()
}

/// Changes a copy of an input in a few places: bytes replaced, removed, repeated, or taken from
/// another input.
fn change(input: &[u8], other: &[u8], chance: &Chance) -> Vec<u8> {
    const INTERESTING: &[u8] = b"\0\n\t \"'{}[]()&*|%#:,-$\\<>@=~!?0\xff";
    let mut bytes = input.to_vec();
    for _ in 0..1 + chance.below(6) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + 1 + chance.below(12)).min(bytes.len());
        match chance.below(5) {
            0 if at < bytes.len() => bytes[at] = chance.number() as u8,
            1 => bytes.insert(at, INTERESTING[chance.below(INTERESTING.len())]),
            2 => drop(bytes.drain(at.min(end)..end)),
            3 => {
                let piece = bytes[at.min(end)..end].repeat(1 + chance.below(40));
                bytes.splice(at..at, piece);
            }
            _ if !other.is_empty() => {
                let from = chance.below(other.len());
                let to = (from + chance.below(40)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ => {}
        }
    }
    bytes
}

fn check(name: &'static str) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = *target.expect("a target");
    let runs = std::env::var("BUNRAKU_FUZZ_RUNS").ok();
    let runs = runs.map_or(USUAL_RUNS, |text| text.parse().expect("a number"));
    let thread = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let corpus = corpus(name);
            assert!(!corpus.is_empty(), "`{name}` has no corpus");
            for (path, input) in &corpus {
                eprintln!("{}", path.display());
                (target.run)(input);
            }
            let chance = Chance::new(7);
            for run in 0..runs {
                let (_, input) = &corpus[chance.below(corpus.len())];
                let (_, other) = &corpus[chance.below(corpus.len())];
                let changed = change(input, other, &chance);
                let shown = std::panic::catch_unwind(|| (target.run)(&changed));
                assert!(
                    shown.is_ok(),
                    "run {run} of `{name}` panics on {:?}",
                    String::from_utf8_lossy(&changed)
                );
            }
        });
    thread.expect("a thread").join().expect("no panic");
}

#[test]
fn every_target_has_a_program_and_a_corpus() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for target in TARGETS {
        assert!(!corpus(target.name).is_empty(), "{}", target.name);
        let program = root.join("targets").join(target.name).with_extension("rs");
        assert!(program.is_file(), "{}", program.display());
    }
}

#[test]
fn yaml_never_brings_the_reader_down() {
    check("yaml");
}

#[test]
fn states_never_bring_the_compiler_down() {
    check("states");
}

#[test]
fn pillar_files_never_bring_the_compiler_down() {
    check("pillar");
}

#[test]
fn queries_never_bring_the_index_down() {
    check("query");
}

#[test]
fn manifests_never_bring_the_parser_down() {
    check("puppet_parser");
}

#[test]
fn manifests_never_bring_the_evaluator_down() {
    check("puppet_evaluator");
}

#[test]
fn catalogs_never_bring_the_reader_down() {
    check("catalog");
}

#[test]
fn packages_never_bring_the_verifier_down() {
    check("module_package");
}

#[test]
fn request_bodies_never_bring_the_reader_down() {
    check("http_body");
}

#[test]
fn messages_never_bring_a_member_down() {
    check("gossip");
}

#[test]
fn site_files_never_bring_the_planner_down() {
    check("site_file");
}
