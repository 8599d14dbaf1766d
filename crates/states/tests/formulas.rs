//! A directory of public Salt formulas, in real Salt and here: which files both compile, and whether
//! they compile to the same states.
//!
//! `BUNRAKU_FORMULAS` is a directory with one directory for each formula. They are other people's
//! work and are not part of the project.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bunraku_states::{Input, Target, World, compile};
use serde_json::{Value, json};

use crate::salt_comparison::{ask_salt, salt_python};
use crate::support::{Memory, debian_facts};

const NODE: &str = "web1.example.net";

/// What became of one file: its states as `function|id|name`, or the reason why there are none.
type Outcome = Result<Vec<String>, String>;

struct Formula {
    name: String,
    directory: PathBuf,
    /// Its `pillar.example`, as a pillar tree.
    pillar: tempfile::TempDir,
}

impl Formula {
    fn read(directory: PathBuf) -> Self {
        let pillar = tempfile::tempdir().expect("a directory");
        let example = std::fs::read_to_string(directory.join("pillar.example"));
        let write = |name: &str, text: &str| {
            std::fs::write(pillar.path().join(name), text).expect("a file");
        };
        write("top.sls", "base: {'*': [data]}\n");
        write("data.sls", &example.unwrap_or_default());
        Self {
            name: directory
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            directory,
            pillar,
        }
    }

    fn forget_pillar(&self) {
        std::fs::write(self.pillar.path().join("data.sls"), "").expect("a file");
    }

    fn files(&self, memory: &Memory) -> Vec<String> {
        let paths = memory.states.keys();
        let names = paths.filter(|path| path.ends_with(".sls") && !path.starts_with("test/"));
        names
            .map(|path| {
                let path = path.trim_end_matches(".sls");
                path.strip_suffix("/init").unwrap_or(path).replace('/', ".")
            })
            .collect()
    }
}

fn ours(formula: &Formula, names: &[String]) -> BTreeMap<String, Outcome> {
    let world: Arc<dyn World> = Arc::new(Memory::read(&formula.directory, formula.pillar.path()));
    let compiled = names.iter().map(|name| {
        let input = Input {
            node: NODE.to_owned(),
            facts: debian_facts(),
            target: Target::Files(vec![name.clone()]),
            ..Input::default()
        };
        let outcome = match compile(&world, &input) {
            Ok(compiled) => Ok((compiled.low.iter())
                .map(|low| format!("{}|{}|{}", low.function, low.id, low.name))
                .collect()),
            Err(error) => Err(error.to_string()),
        };
        (name.clone(), outcome)
    });
    compiled.collect()
}

fn salts(python: &Path, formula: &Formula, names: &[String]) -> BTreeMap<String, Outcome> {
    let work = tempfile::tempdir().expect("a directory");
    let grains = work.path().join("grains.json");
    let ours = bunraku_states::grains(NODE, &debian_facts());
    std::fs::write(&grains, Value::Object(ours).to_string()).expect("a file");
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/salt_driver.py");
    let mut salt = Command::new(python);
    salt.arg(driver)
        .arg(work.path().join("salt"))
        .args([formula.directory.as_path(), formula.pillar.path()])
        .arg("states")
        .arg(grains);
    let output = ask_salt(salt, names);
    let text = String::from_utf8_lossy(&output.stdout);
    (text.lines().filter(|line| line.starts_with('{')))
        .map(|line| {
            let answer: Value = serde_json::from_str(line).expect("JSON from the driver");
            let texts = |key: &str| -> Vec<String> {
                let items = answer[key].as_array().into_iter().flatten();
                items.filter_map(Value::as_str).map(str::to_owned).collect()
            };
            let errors = texts("errors");
            let name = answer["sls"].as_str().expect("a name").to_owned();
            let outcome = if errors.is_empty() {
                Ok(texts("states"))
            } else {
                Err(errors.join("; "))
            };
            (name, outcome)
        })
        .collect()
}

/// Salt's answers for one formula.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct FormulaAnswers {
    /// Salt refuses to apply anything if the pillar fails. Such an example is left out.
    has_pillar: bool,
    files: BTreeMap<String, Outcome>,
}

/// Salt's answers for all formulas. It needs minutes for them: `BUNRAKU_SALT_ANSWERS=FILE` keeps them
/// for the next time.
struct SaltAnswers {
    file: Option<PathBuf>,
    known: BTreeMap<String, FormulaAnswers>,
}

impl SaltAnswers {
    fn read() -> Self {
        let file = std::env::var_os("BUNRAKU_SALT_ANSWERS").map(PathBuf::from);
        let text = file.as_ref().and_then(|file| std::fs::read(file).ok());
        let known = text.map(|text| serde_json::from_slice(&text).expect("answers of Salt"));
        Self {
            file,
            known: known.unwrap_or_default(),
        }
    }

    fn of(&mut self, formula: &Formula, names: &[String]) -> BTreeMap<String, Outcome> {
        let answers = self.known.entry(formula.name.clone());
        let answers = answers.or_insert_with(|| {
            let files = salts(&salt_python(), formula, names);
            let is_of_pillar = |outcome: &Outcome| matches!(outcome, Err(why) if why == "pillar");
            if !files.values().any(is_of_pillar) {
                return FormulaAnswers {
                    has_pillar: true,
                    files,
                };
            }
            formula.forget_pillar();
            FormulaAnswers {
                has_pillar: false,
                files: salts(&salt_python(), formula, names),
            }
        });
        if !answers.has_pillar {
            formula.forget_pillar();
        }
        answers.files.clone()
    }

    fn keep(&self) {
        if let Some(file) = &self.file {
            let text = serde_json::to_vec(&self.known).expect("plain data");
            std::fs::write(file, text).expect("a file");
        }
    }
}

/// One state for each package of `pkgs` is one state in Salt: compares by id, and ignores names of
/// packages.
fn comparable(states: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    for state in states {
        let state = match state.strip_prefix("pkg.") {
            Some(_) => state.rsplit_once('|').map_or(state.as_str(), |(id, _)| id),
            None => state.as_str(),
        };
        if shown.last().map(String::as_str) != Some(state) {
            shown.push(state.to_owned());
        }
    }
    shown
}

fn first_difference(salt: &[String], ours: &[String]) -> Option<String> {
    let (salt, ours) = (comparable(salt), comparable(ours));
    let at = (0..salt.len().max(ours.len())).find(|at| salt.get(*at) != ours.get(*at))?;
    let shown = |states: &[String]| states.get(at).cloned().unwrap_or_else(|| "nothing".into());
    Some(format!("Salt {}, here {}", shown(&salt), shown(&ours)))
}

/// `BUNRAKU_FORMULAS=DIR cargo nextest run -p bunraku-states -E 'test(public_formulas)' --run-ignored
/// only --no-capture`. `BUNRAKU_FORMULA_REPORT=FILE` writes every result as JSON.
#[test]
#[ignore = "needs other people's formulas, which are not part of the project: CI has none"]
fn public_formulas_compile_to_the_states_of_real_salt() {
    let root = std::env::var("BUNRAKU_FORMULAS").expect("a directory of formulas");
    let mut salt = SaltAnswers::read();
    let mut directories: Vec<PathBuf> = (std::fs::read_dir(root).expect("a directory"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .collect();
    directories.sort();
    let (mut by_salt, mut by_both, mut same) = (0, 0, 0);
    let mut report = Vec::new();
    for directory in &directories {
        let formula = Formula::read(directory.clone());
        let names = formula.files(&Memory::read(directory, formula.pillar.path()));
        let salts = salt.of(&formula, &names);
        for (name, ours) in ours(&formula, &names) {
            let Some(Ok(salt)) = salts.get(&name) else {
                continue;
            };
            by_salt += 1;
            let problem = match &ours {
                Err(error) => Some(error.clone()),
                Ok(ours) => {
                    by_both += 1;
                    first_difference(salt, ours)
                }
            };
            same += usize::from(problem.is_none());
            if let Some(problem) = problem {
                let (formula, compiles) = (&formula.name, ours.is_ok());
                report.push(json!({"formula": formula, "file": name, "compiles": compiles, "problem": problem}));
            }
        }
    }
    salt.keep();
    if let Ok(file) = std::env::var("BUNRAKU_FORMULA_REPORT") {
        let lines: Vec<String> = report.iter().map(Value::to_string).collect();
        std::fs::write(file, lines.join("\n")).expect("a report");
    }
    println!(
        "{} formulas: Salt compiles {by_salt} files, Bunraku {by_both} of them, {same} of these to the same states",
        directories.len()
    );
    assert!(by_salt > 0, "Salt compiled nothing");
    assert!(
        by_both * 10 >= by_salt * 8,
        "Bunraku compiles less than 80 % of the files that Salt compiles"
    );
}
