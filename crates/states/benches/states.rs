//! Rendering and ordering ten thousand states, beside real Salt's own time
//! for the same file, in one run:
//!
//!     cargo bench -p bunraku-states --bench states
//!
//! Salt's time is that of what `state.show_lowstate` does after its modules
//! are loaded: render, compile, order. Its start is not counted.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use bunraku_states::{Input, Lookup, Target, Tree, World, WorldError, compile};

struct OneFile(String);

impl World for OneFile {
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        Ok((tree == Tree::States && path == "big.sls").then(|| self.0.clone()))
    }

    fn state_files(&self, _tree: Tree) -> Result<Vec<String>, WorldError> {
        Ok(Vec::new())
    }

    fn function(&self, _name: &str) -> Lookup {
        Lookup::UnknownModule
    }
}

/// Ten thousand states by a loop, each with five requisites.
fn big() -> String {
    let mut text = String::from(
        "{% for n in range(10000) %}\nstate {{ n }}:\n  test.nop:\n    - comment: number {{ n }} on {{ grains['id'] }}\n",
    );
    text.push_str("{% if n >= 10 %}\n    - require:\n");
    for back in [1, 2, 3, 5, 8] {
        let _ = writeln!(text, "      - test: state {{{{ n - {back} }}}}");
    }
    text.push_str("{% endif %}\n{% endfor %}\n");
    text
}

fn ours(text: &str) -> (f64, usize) {
    let world: Arc<dyn World> = Arc::new(OneFile(text.to_owned()));
    let input = Input {
        node: "web1".to_owned(),
        target: Target::Files(vec!["big".to_owned()]),
        ..Input::default()
    };
    let mut best = f64::INFINITY;
    let mut count = 0;
    for _ in 0..3 {
        let begun = Instant::now();
        let compiled = compile(&world, &input).unwrap_or_else(|error| panic!("{error}"));
        best = best.min(begun.elapsed().as_secs_f64());
        count = compiled.low.len();
    }
    (best, count)
}

fn salts(text: &str) -> (f64, usize) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = here.join("../../scripts/peer-salt");
    let python = Command::new(&script)
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/peer-salt runs");
    assert!(
        python.status.success(),
        "scripts/peer-salt failed: real Salt is needed"
    );
    let work = tempfile::tempdir().expect("a directory");
    let states = work.path().join("states");
    std::fs::create_dir(&states).expect("a directory");
    std::fs::write(states.join("big.sls"), text).expect("a file");
    let mut child = Command::new(String::from_utf8_lossy(&python.stdout).trim())
        .arg(here.join("tests/support/salt_driver.py"))
        .args([work.path().join("salt"), states.clone(), states])
        .arg("low")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("Salt starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"big\nbig\n")
        .expect("Salt reads");
    let output = child.wait_with_output().expect("Salt ends");
    let mut best = (f64::INFINITY, 0);
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let answer: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let (Some(seconds), Some(count)) = (answer["seconds"].as_f64(), answer["count"].as_u64())
        else {
            panic!("Salt could not do it: {line}");
        };
        if seconds < best.0 {
            best = (seconds, count as usize);
        }
    }
    best
}

fn main() {
    let text = big();
    let (own, count) = ours(&text);
    let (salt, salt_count) = salts(&text);
    assert_eq!(count, salt_count, "both see the same states");
    println!("render and order {count} states, 49,950 requisites, the best of several:");
    println!("  bunraku {own:>8.3} s");
    println!("  salt    {salt:>8.3} s  (3008.3, modules loaded)");
    println!("  ratio   {:>8.1}", salt / own);
}
