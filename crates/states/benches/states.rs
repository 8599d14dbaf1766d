//! Compares with real Salt, using the same files in one run:
//!
//!     cargo bench -p bunraku-states --bench states
//!
//! - rendering and ordering ten thousand states, as `state.show_lowstate` does;
//! - applying a tree of files and guarded commands, twice.
//!
//! Salt's times cover its own work in a process with loaded modules. Its startup, which takes
//! longer, is not counted.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

#[path = "../tests/support/mod.rs"]
mod support;

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

/// Returns ten thousand states from a loop, each with five requisites.
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

/// Returns the answers of real Salt for a file, repeated several times.
fn salts(text: &str, mode: &str, times: usize) -> Vec<serde_json::Value> {
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
        .arg(mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("Salt starts");
    let names = "big\n".repeat(times);
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(names.as_bytes()).expect("Salt reads");
    drop(input);
    let output = child.wait_with_output().expect("Salt ends");
    let text = String::from_utf8_lossy(&output.stdout);
    let answers: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), times, "Salt answers each time");
    answers
}

fn seconds(answer: &serde_json::Value) -> f64 {
    answer["seconds"].as_f64().expect("a time")
}

fn low() {
    let text = big();
    let (own, count) = ours(&text);
    let answers = salts(&text, "low", 2);
    let salt = answers.iter().map(seconds).fold(f64::INFINITY, f64::min);
    assert_eq!(
        answers[0]["count"], count,
        "both see the same states: {:?}",
        answers[0]["errors"]
    );
    println!("render and order {count} states with 49,950 requisites, the best of several:");
    print_comparison(own, salt);
}

fn print_comparison(own: f64, salt: f64) {
    println!("  bunraku {own:>8.3} s");
    println!("  salt    {salt:>8.3} s  (3008.3, modules loaded)");
    println!("  ratio   {:>8.1}", salt / own);
}

/// Creates files with contents and guarded commands below a directory.
fn tree(root: &Path) -> String {
    let root = root.display();
    format!(
        "base:\n  file.directory:\n    - name: {root}/conf\n    - makedirs: True\n\
         {{% for n in range(300) %}}\nfile {{{{ n }}}}:\n  file.managed:\n    - name: {root}/conf/{{{{ n }}}}.conf\n    - mode: '0640'\n    - contents: |\n        # {{{{ grains['id'] }}}}\n        number = {{{{ n }}}}\n    - require:\n      - file: base\n{{% endfor %}}\n\
         {{% for n in range(30) %}}\ncommand {{{{ n }}}}:\n  cmd.run:\n    - name: touch {root}/conf/{{{{ n }}}}.done\n    - creates: {root}/conf/{{{{ n }}}}.done\n    - require:\n      - file: file {{{{ n }}}}\n{{% endfor %}}\n"
    )
}

fn apply() {
    let directory = tempfile::tempdir().expect("a directory");
    let own_text = tree(&directory.path().join("own"));
    let mut own = Vec::new();
    for _ in 0..2 {
        let begun = Instant::now();
        let compiled = support::compiled_text(&own_text).unwrap_or_else(|error| panic!("{error}"));
        let summary = support::run(&compiled, &directory.path().join("state"), None);
        own.push(begun.elapsed().as_secs_f64());
        assert!(summary.succeeded() && summary.finished.len() == 331);
    }
    let answers = salts(&tree(&directory.path().join("salt")), "apply", 2);
    for answer in &answers {
        let states = answer["states"].as_object().expect("states");
        assert!(states.values().all(|state| state["result"] == true) && states.len() == 331);
    }
    for (index, what) in ["the first time", "the second time, nothing to do"]
        .into_iter()
        .enumerate()
    {
        println!("apply 300 files and 30 guarded commands, {what}:");
        print_comparison(own[index], seconds(&answers[index]));
    }
}

fn main() {
    low();
    apply();
}
