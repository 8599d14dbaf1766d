//! Every file of the corpus, and as many from a generator, in real Salt and here: the same states
//! run, with the same results and changes, in the same order, and the same files are refused.
//!
//! `scripts/peer-salt` installs Salt from PyPI; without it this test fails.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use crate::support::{Memory, apply_noop, compiled, run};
use bunraku_states::World;
use serde_json::Value;

/// The files with different results, with the reason. `docs/from-salt.md` has the same list for
/// people.
const KNOWN: &[(&str, &str)] = &[
    (
        "known_listen_missing",
        "a `listen` to nothing is refused before anything runs, not reported at the end",
    ),
    (
        "known_py_renderer",
        "state files are YAML and Jinja; Python is refused",
    ),
    (
        "known_check_pillar_types",
        "numbers and booleans of the data keep their types; Salt 3008.3 takes them for text",
    ),
    (
        "known_configurable_refresh",
        "a configurable_test_state with `changes` can be refreshed; Salt's refresh of it fails",
    ),
    (
        "known_unknown_argument",
        "an argument that the state function does not have is refused before anything runs",
    ),
    (
        "known_order_word",
        "`order` is a number, `first` or `last`; Salt puts any other word behind all numbers",
    ),
    (
        "known_test_argument",
        "`test` states refuse unknown arguments too; Salt's ignore them",
    ),
    (
        "known_force_mod_watch",
        "the same: Salt has no `force_mod_watch`, and ignores it",
    ),
    (
        "known_yaml_merge",
        "an alias is a copy: Salt appends the function to the one list that both share, and refuses",
    ),
    (
        "known_watch_failed_watcher",
        "a watcher that fails stays failed: Salt's refresh makes it forget",
    ),
];

/// The differences in noop mode, with the reason. As above, people find the same list in the docs.
const KNOWN_WHEN_LOOKING: &[(&str, &[&str])] = &[
    (
        "a refresh that would come is `null`, a change to come, as of Salt's own services; Salt's \
         `test` states say `true`",
        &[
            "check_cmd_changes",
            "listen_after_failhard",
            "listen_bare",
            "listen_basic",
            "listen_blocked_listener",
            "listen_failed_listener",
            "listen_failed_with_changes",
            "listen_in",
            "listen_twice_once",
            "names_required_by_name",
            "prereq_target_watches",
            "watch_basic",
            "watch_chain",
            "watch_failed",
            "watch_in",
        ],
    ),
    (
        "`check_cmd` runs only after a change was made; Salt runs it also with test=True",
        &["check_cmd_fails", "check_cmd_succeeds"],
    ),
    (
        "`failhard` ends a run that only looks as it would end the real one; Salt goes on",
        &["failhard_blocked", "failhard_state"],
    ),
];

/// The result of one state.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    result: Option<bool>,
    ran: bool,
    changes: bool,
    number: usize,
}

/// All states of a file by `function|id|name`, or the refusal.
#[derive(Clone, PartialEq, Debug)]
enum Answer {
    Refused(String),
    Rows(BTreeMap<String, Row>),
}

impl Answer {
    /// Returns 1 if nothing ran, 2 if something failed, 0 if all succeeded.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => 1,
            Self::Rows(rows) if rows.values().any(|row| row.result == Some(false)) => 2,
            Self::Rows(_) => 0,
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository")
}

pub(crate) fn salt_python() -> PathBuf {
    let script = repository().join("scripts/peer-salt");
    let output = Command::new(&script)
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/peer-salt runs");
    assert!(
        output.status.success(),
        "scripts/peer-salt failed: real Salt is needed for this test"
    );
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
}

/// Runs the driver with the names of state files, one per line.
pub(crate) fn ask_salt(mut driver: Command, names: &[String]) -> Output {
    let mut child = driver
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Salt starts");
    let mut input = child.stdin.take().expect("a pipe");
    let lines = names.join("\n");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()).expect("Salt reads"));
    let output = child.wait_with_output().expect("Salt ends");
    writer.join().expect("the names are written");
    output
}

/// A real run, or a noop run (Salt's `test=True`, our `--noop`).
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Apply,
    Test,
}

fn salt_answers(
    mode: Mode,
    work: &Path,
    states: &Path,
    pillar: &Path,
    names: &[String],
) -> BTreeMap<String, Answer> {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/salt_driver.py");
    let mut salt = Command::new(salt_python());
    salt.arg(driver)
        .args([work.join("salt"), states.to_owned(), pillar.to_owned()])
        .arg(match mode {
            Mode::Apply => "apply",
            Mode::Test => "test",
        });
    let output = ask_salt(salt, names);
    let text = String::from_utf8_lossy(&output.stdout);
    let answers: BTreeMap<String, Answer> =
        (text.lines().map(|line| salt_answer(mode, line))).collect();
    assert_eq!(
        answers.len(),
        names.len(),
        "Salt did not answer for every file: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    answers
}

fn salt_answer(mode: Mode, line: &str) -> (String, Answer) {
    let answer: Value = serde_json::from_str(line).expect("JSON from the driver");
    let sls = answer["sls"].as_str().expect("a name").to_owned();
    if let Some(errors) = answer["errors"].as_array() {
        let text = errors
            .iter()
            .map(|error| error.as_str().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("; ");
        return (sls, Answer::Refused(text));
    }
    let mut rows = BTreeMap::new();
    for (tag, state) in answer["states"].as_object().expect("states") {
        let parts: Vec<&str> = tag.split("_|-").collect();
        let [module, id, name, function] = parts.as_slice() else {
            panic!("an unusual tag: {tag}");
        };
        let result = state["result"].as_bool();
        // In a real run, null is a state that its failed prereq held back.
        let ran = state["__state_ran__"] != Value::Bool(false)
            && (result.is_some() || mode == Mode::Test);
        let row = Row {
            result,
            ran,
            changes: state["changes"]
                .as_object()
                .is_some_and(|changes| !changes.is_empty()),
            number: state["__run_num__"].as_u64().unwrap_or(0) as usize,
        };
        rows.insert(format!("{module}.{function}|{id}|{name}"), row);
    }
    (sls, Answer::Rows(rows))
}

fn our_answer(mode: Mode, world: &Arc<dyn World>, work: &Path, sls: &str) -> Answer {
    let compiled = match compiled(world, sls) {
        Ok(compiled) => compiled,
        Err(error) => return Answer::Refused(error.to_string()),
    };
    let state = work.join("state").join(sls);
    let summary = match mode {
        Mode::Apply => run(&compiled, &state, None),
        Mode::Test => apply_noop(&compiled, &state),
    };
    let mut rows = BTreeMap::new();
    let mut seen = std::collections::HashSet::new();
    for finished in &summary.finished {
        let state = finished.state.as_ref().expect("a state");
        let outcome = &finished.outcome;
        let key = format!("{}|{}|{}", state.function, state.id, state.name);
        let again = !seen.insert(key.clone());
        if matches!(
            outcome.reasons.as_slice(),
            [bunraku_engine::Reason::RunEnded(_)]
        ) {
            continue;
        }
        // Salt shows the action of a listener as a separate state.
        let key = if again {
            let module = state.function.split('.').next().unwrap_or_default();
            format!("{module}.mod_watch|listener_{}|{}", state.id, state.name)
        } else {
            key
        };
        let row = Row {
            result: outcome.result(),
            // As in Salt, a state that its guards skip was checked.
            ran: !outcome.kept_from_running() && (outcome.result().is_some() || mode == Mode::Test),
            changes: outcome.made_changes(),
            number: finished.number,
        };
        rows.insert(key, row);
    }
    Answer::Rows(rows)
}

/// Describes the difference. Returns nothing if they agree.
fn difference(salt: &Answer, ours: &Answer) -> Option<String> {
    let (salt_rows, our_rows) = match (salt, ours) {
        (Answer::Refused(_), Answer::Refused(_)) => return None,
        (Answer::Refused(why), Answer::Rows(_)) => {
            return Some(format!("only Salt refuses: {why}"));
        }
        (Answer::Rows(_), Answer::Refused(why)) => {
            return Some(format!("only Bunraku refuses: {why}"));
        }
        (Answer::Rows(salt), Answer::Rows(ours)) => (salt, ours),
    };
    let mut text = String::new();
    // Salt only lists a listener whose refresh does nothing.
    let silent = |key: &str| key.contains("mod_watch|listener_") && !salt_rows[key].changes;
    for key in salt_rows
        .keys()
        .filter(|key| !our_rows.contains_key(*key) && !silent(key))
    {
        let _ = writeln!(text, "only in Salt: {key}");
    }
    for key in our_rows.keys().filter(|key| !salt_rows.contains_key(*key)) {
        let _ = writeln!(text, "only here: {key}");
    }
    for (key, salt) in salt_rows {
        let Some(ours) = our_rows.get(key) else {
            continue;
        };
        if (salt.result, salt.ran, salt.changes) != (ours.result, ours.ran, ours.changes) {
            let shown = |row: &Row| {
                let result = row
                    .result
                    .map_or("null".to_owned(), |result| result.to_string());
                format!(
                    "{result}{}{}",
                    if row.ran { " ran" } else { " not run" },
                    if row.changes { " changes" } else { "" }
                )
            };
            let _ = writeln!(text, "{key}: Salt {}, here {}", shown(salt), shown(ours));
        }
    }
    let by_number = |rows: &BTreeMap<String, Row>| {
        // Salt lists a state that a `prereq` checked, and that may not run, at the position of the
        // check: only states that ran have a position in the order.
        let mut keys: Vec<(usize, String)> = rows
            .iter()
            .filter(|(key, row)| row.ran && !key.contains("mod_watch|listener_"))
            .map(|(key, row)| (row.number, key.clone()))
            .collect();
        keys.sort();
        keys.into_iter().map(|(_, key)| key).collect::<Vec<_>>()
    };
    if text.is_empty() && by_number(salt_rows) != by_number(our_rows) {
        let _ = writeln!(
            text,
            "order: Salt {:?}\n       here {:?}",
            by_number(salt_rows),
            by_number(our_rows)
        );
    }
    if text.is_empty() && salt.exit_code() != ours.exit_code() {
        let _ = writeln!(
            text,
            "exit code: Salt {}, here {}",
            salt.exit_code(),
            ours.exit_code()
        );
    }
    (!text.is_empty()).then_some(text)
}

fn corpus(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = (std::fs::read_dir(directory).expect("the corpus"))
        .filter_map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name()?.to_str()?.strip_suffix(".sls")?.to_owned();
            (name != "top").then_some(name)
        })
        .collect();
    names.sort();
    names
}

fn known_difference(mode: Mode, name: &str) -> Option<&'static str> {
    let always = KNOWN.iter().find(|(known, _)| *known == name);
    let looking = (KNOWN_WHEN_LOOKING.iter())
        .find(|(_, names)| mode == Mode::Test && names.contains(&name))
        .map(|(reason, _)| *reason);
    always.map(|(_, reason)| *reason).or(looking)
}

struct Tally {
    files: usize,
    states: usize,
    refused: usize,
    known: usize,
    differences: Vec<(String, String)>,
}

fn compare(mode: Mode, states: &Path, pillar: &Path, names: &[String]) -> Tally {
    let work = tempfile::tempdir().expect("a directory");
    let salt = salt_answers(mode, work.path(), states, pillar, names);
    let world: Arc<dyn World> = Arc::new(Memory::read(states, pillar));
    let mut tally = Tally {
        files: 0,
        states: 0,
        refused: 0,
        known: 0,
        differences: Vec::new(),
    };
    for name in names {
        let ours = our_answer(mode, &world, work.path(), name);
        let salt = &salt[name];
        tally.files += 1;
        match salt {
            Answer::Rows(rows) => tally.states += rows.len(),
            Answer::Refused(_) => tally.refused += 1,
        }
        let known = known_difference(mode, name);
        match (difference(salt, &ours), known) {
            (None, None) => {}
            (Some(_), Some(_)) => tally.known += 1,
            (None, Some(reason)) => {
                tally.differences.push((
                    name.clone(),
                    format!("no longer differs, though listed: {reason}"),
                ));
            }
            (Some(difference), None) => {
                let source =
                    std::fs::read_to_string(states.join(format!("{name}.sls"))).unwrap_or_default();
                tally
                    .differences
                    .push((name.clone(), format!("{difference}{source}")));
            }
        }
    }
    tally
}

fn report(title: &str, tally: &Tally) {
    println!(
        "{title:<22} {:>6} {:>7} {:>8} {:>6} {:>11}",
        tally.files,
        tally.states,
        tally.refused,
        tally.known,
        tally.differences.len()
    );
}

#[test]
fn the_corpus_and_what_a_generator_makes_agree_with_real_salt() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let pillar = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus_pillar");
    let written = compare(Mode::Apply, &directory, &pillar, &corpus(&directory));

    let seed: u64 = std::env::var("BUNRAKU_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_261_115);
    let count: usize = std::env::var("BUNRAKU_CASES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(300);
    let made = tempfile::tempdir().expect("a directory");
    let mut names = Vec::new();
    for index in 0..count {
        let name = format!("made_{index}");
        let text = crate::generate::state_file(seed + index as u64);
        std::fs::write(made.path().join(format!("{name}.sls")), text).expect("a file");
        names.push(name);
    }
    let generated = compare(Mode::Apply, made.path(), &pillar, &names);

    println!(
        "{:<22} {:>6} {:>7} {:>8} {:>6} {:>11}",
        "", "files", "states", "refused", "known", "differences"
    );
    report("written by hand", &written);
    report(&format!("generated, seed {seed}"), &generated);
    for (name, reason) in KNOWN {
        println!("  known: {name}: {reason}");
    }
    let differences: Vec<&(String, String)> = written
        .differences
        .iter()
        .chain(&generated.differences)
        .collect();
    for (name, difference) in differences.iter().take(12) {
        println!("\n== {name}\n{difference}");
    }
    assert!(
        written.files + generated.files >= 150,
        "the corpus is too small"
    );
    assert!(
        differences.is_empty(),
        "{} files differ (seed {seed})",
        differences.len()
    );
}

#[test]
fn looking_only_agrees_with_real_salt_too() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let pillar = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus_pillar");
    let tally = compare(Mode::Test, &directory, &pillar, &corpus(&directory));
    report("test=True", &tally);
    for (reason, names) in KNOWN_WHEN_LOOKING {
        println!("  known: {}: {reason}", names.join(", "));
    }
    for (name, difference) in &tally.differences {
        println!("\n== {name}\n{difference}");
    }
    assert!(tally.differences.is_empty());
}
