//! `bunraku apply --ssh`: the same apply, on another machine.
//!
//! The program and the states are copied to the machine, and the apply runs there,
//! with that machine's facts. Afterwards the copies are removed, except for the
//! program, which stays in the user's cache under its hash.
//!
//! Pillar data is copied as a file, over standard input: on a command line, every user there could
//! see it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::local_apply::ApplyArgs;
use crate::ssh::{Binary, SshConnection, Upload, quoted};
use crate::state_tree::{StateArgs, StateTreeError, pillar_text, tree_of};

/// The directory for all files on the remote machine.
const CACHE: &str = r#""$HOME"/.cache/bunraku"#;

/// The files to copy, and the flags that name the copies.
#[derive(Default)]
struct StagedFiles {
    trees: Vec<(String, PathBuf)>,
    /// Each a shell word.
    words: Vec<String>,
    /// The copy of `--pillar-json`, which must exist until it is uploaded.
    pillar: Option<tempfile::NamedTempFile>,
}

pub(super) fn run(destination: &str, arguments: &ApplyArgs, json: bool) -> ExitCode {
    match apply(destination, arguments, json) {
        Ok(code) => code,
        Err(failure) => ExitCode::from(failure.report()),
    }
}

fn apply(destination: &str, arguments: &ApplyArgs, json: bool) -> Result<ExitCode, Failure> {
    let staged = StagedFiles::of(arguments)?;
    let remote = SshConnection::new(destination, &arguments.connection)?;
    let installed =
        Binary::new(arguments.binary.clone())?.install(&remote, &format!("{CACHE}/bin"))?;
    let script = format!(
        "set -e; umask 077; mkdir -p {CACHE}; there=$(mktemp -d {CACHE}/apply.XXXXXX); \
         tar -xf - -C \"$there\" || {{ rm -rf \"$there\"; exit 1; }}; echo \"$there\""
    );
    let there = remote.run("copy the states", &script, &Upload::Trees(&staged.trees))?;
    let there = quoted(there.trim_end_matches('\n'));
    let StagedFiles { mut words, .. } = staged;
    words.extend(flags(arguments, json));
    // Ctrl-C and a lost connection reach the apply itself, which finishes its step.
    // The shell waits for it, and then cleans up.
    let script = format!(
        "there={there}; trap : INT TERM HUP; {} {}; code=$?; rm -rf \"$there\"; exit $code",
        installed.word,
        words.join(" ")
    );
    let status = remote.attached(&script)?;
    match status.code() {
        Some(255) | None => Err(Failure::new(format!(
            "lost the connection to {destination} during the apply"
        ))
        .hint("run `bunraku apply --noop` there before you try again")),
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
    }
}

impl StagedFiles {
    fn of(arguments: &ApplyArgs) -> Result<Self, Failure> {
        let mut staged = Self::default();
        let path = staged.place_of_path(arguments)?;
        for pillar in &arguments.states.pillar {
            let word = staged.add(pillar)?;
            staged.words.push(format!("--pillar {word}"));
        }
        // After all files, because it overrides them.
        if let Some(argument) = &arguments.states.pillar_json {
            let word = staged.add_pillar(&pillar_text(argument)?)?;
            staged.words.push(format!("--pillar {word}"));
        }
        for root in &arguments.source_root {
            let Some((scheme, directory)) = root.split_once('=') else {
                return Err(Failure::usage(format!(
                    "`{root}` is not of the form SCHEME=DIRECTORY"
                )));
            };
            let word = staged.add(Path::new(directory))?;
            staged
                .words
                .push(format!("--source-root {}={word}", quoted(scheme)));
        }
        for modules in &arguments.modules.module_dir {
            let word = staged.add(modules)?;
            staged.words.push(format!("--module-dir {word}"));
        }
        staged.words.insert(0, format!("apply {path}"));
        Ok(staged)
    }

    /// Copies the tree that PATH belongs to, and says what PATH is there.
    fn place_of_path(&mut self, arguments: &ApplyArgs) -> Result<String, Failure> {
        let path = &arguments.path;
        let Some((root, data)) = tree_of(path, &arguments.states) else {
            return self.add(path);
        };
        let word = self.add(&root)?;
        if let Some(data) = data {
            let data = self.add(&data)?;
            self.words.push(format!("--pillar {data}"));
        }
        if arguments.states.state_root.is_some() {
            self.words.push(format!("--state-root {word}"));
            return Ok(quoted(&path.to_string_lossy()));
        }
        let below = if path.is_dir() {
            None
        } else {
            path.canonicalize()?
                .strip_prefix(root.canonicalize()?)
                .map(Path::to_owned)
                .ok()
        };
        Ok(match below {
            None => word,
            Some(below) => format!("{word}/{}", quoted(&below.to_string_lossy())),
        })
    }

    /// Copies pillar data from a file that only this user may read.
    fn add_pillar(&mut self, text: &str) -> Result<String, Failure> {
        let is_object = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text);
        if is_object.is_err() {
            return Err(StateTreeError::PillarJson.into());
        }
        let mut file = tempfile::Builder::new().suffix(".json").tempfile()?;
        file.write_all(text.as_bytes())?;
        let word = self.add(file.path())?;
        self.pillar = Some(file);
        Ok(word)
    }

    /// One more directory or file to copy; the word that names its copy.
    fn add(&mut self, path: &Path) -> Result<String, Failure> {
        std::fs::metadata(path).map_err(|error| {
            Failure::new(format!("cannot read {}", path.display())).caused_by(&error)
        })?;
        let kind = path.extension().filter(|_| path.is_file());
        let name = match kind {
            Some(kind) => format!("{}.{}", self.trees.len(), kind.to_string_lossy()),
            None => self.trees.len().to_string(),
        };
        let word = format!("\"$there\"/{}", quoted(&name));
        self.trees.push((name, path.to_owned()));
        Ok(word)
    }
}

/// The flags that do not name local files. All fields are listed, so that a flag that
/// is added later cannot be forgotten.
fn flags(arguments: &ApplyArgs, json: bool) -> Vec<String> {
    let ApplyArgs {
        path: _,
        ssh: _,
        connection: _,
        binary: _,
        states:
            StateArgs {
                state_root: _,
                pillar: _,
                pillar_json: _,
                node,
            },
        noop,
        order,
        tags,
        explain,
        detailed_exitcodes,
        failhard,
        parallel,
        lock_wait,
        show_diff,
        no_diff,
        root,
        state,
        source_root: _,
        // Modules are copied. The remote machine decides which keys it trusts.
        modules: _,
    } = arguments;
    let mut words = Vec::new();
    let switches = [
        (*noop, "--noop"),
        (*explain, "--explain"),
        (*detailed_exitcodes, "--detailed-exitcodes"),
        (*failhard, "--failhard"),
        (*show_diff, "--show-diff"),
        (*no_diff, "--no-diff"),
        (json, "--json"),
    ];
    words.extend(
        (switches.iter())
            .filter(|(on, _)| *on)
            .map(|(_, flag)| (*flag).to_owned()),
    );
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let values = [
        ("--node", node.clone()),
        ("--order", order.map(|mode| mode.to_string())),
        (
            "--tags",
            Some(tags.join(",")).filter(|tags| !tags.is_empty()),
        ),
        ("--parallel", parallel.map(|number| number.to_string())),
        ("--lock-wait", Some(lock_wait.to_string())),
        ("--root", root.as_deref().map(path)),
        ("--state-dir", state.chosen().map(path)),
    ];
    for (flag, value) in values {
        words.extend(value.map(|value| format!("{flag} {}", quoted(&value))));
    }
    words
}
