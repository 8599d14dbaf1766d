//! Well-behaved modules, and every kind of misbehaving one. All are real processes:
//! small programs in Python, packed and signed.

use bunraku_testkit::blocking::eventually;
use std::path::{Path, PathBuf};

use bunraku_module::{File, SigningKey, Trust, VerifiedModule, pack, sign, verify};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{ModuleStore, ShelfError, check_pins, read_trust};
use crate::types::testing::{catalog, lines};
use crate::{
    ApplyOptions, Cancellation, CatalogPlan, Event, EventSink, PlanOptions, Registry, Status,
    Summary, apply_plan,
};

/// A module that keeps its state in a file beside the named one, and records each
/// requested method. `BEHAVIOUR` comes first in the loop.
const PROGRAM: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, sys, time
for line in sys.stdin:
    q = json.loads(line)
    p = q.get("parameters", {})
    a = {"id": q["id"]}
    def note(text):
        with open(p["path"] + ".log", "a") as log:
            log.write(text + "\n")
    if p:
        note(q["method"])
#BEHAVIOUR
    if q["method"] == "hello":
        a["protocol"] = 1
    elif q["method"] == "describe":
        a["types"] = [{"name": "note", "properties": ["text", "ensure"]}]
    elif q["method"] == "observe":
        if os.path.exists(p["path"]):
            a["state"] = {"ensure": "present", "text": open(p["path"]).read()}
        else:
            a["state"] = {"ensure": "absent"}
    elif p["ensure"] == "absent":
        os.remove(p["path"])
    else:
        with open(p["path"], "w") as f:
            f.write(p["text"])
        a["message"] = "written"
        a["outputs"] = {"length": len(p["text"])}
    print(json.dumps(a), flush=True)
"#;

fn manifest(version: &str, timeout: u32) -> Value {
    json!({
        "name": "notes", "version": version, "protocol": 1, "command": ["notes.py"],
        "types": [{"name": "note", "name_parameter": "path", "timeout": timeout,
                   "properties": [{"name": "ensure"}, {"name": "text"}],
                   "parameters": [{"name": "path"}]}],
    })
}

fn packed(manifest: &Value, behaviour: &str) -> Vec<u8> {
    let indented: String = (behaviour.lines())
        .map(|line| format!("    {line}\n"))
        .collect();
    let file = File {
        path: "notes.py".to_owned(),
        bytes: PROGRAM.replace("#BEHAVIOUR\n", &indented).into_bytes(),
        executable: true,
    };
    pack(manifest.to_string().as_bytes(), &[file])
        .expect("a package")
        .1
}

fn module_with(timeout: u32, behaviour: &str) -> VerifiedModule {
    let key = SigningKey::generate().expect("a key");
    let mut trust = Trust::default();
    trust.add(&key.public("").to_line()).expect("a key");
    let package = sign(&packed(&manifest("1.0.0", timeout), behaviour), &key).expect("signed");
    verify(&package, &trust).expect("verified")
}

/// A directory, and a registry with the module.
struct World {
    directory: tempfile::TempDir,
    registry: Registry,
}

impl World {
    fn new(behaviour: &str) -> Self {
        Self::with_timeout(300, behaviour)
    }

    fn with_timeout(timeout: u32, behaviour: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut registry = Registry::standard();
        registry
            .add_module(&module_with(timeout, behaviour), directory.path())
            .expect("added");
        Self {
            directory,
            registry,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn note(&self, name: &str, parameters: Value) -> Value {
        json!({"type": "Note", "title": self.path(name), "parameters": parameters})
    }

    fn run(&self, resources: Value, noop: bool) -> Summary {
        let plan = CatalogPlan::new(&catalog(resources), &self.registry, PlanOptions::default());
        let cancellation = Cancellation::new().expect("a pipe");
        let how = ApplyOptions {
            noop,
            ..ApplyOptions::new(self.path("state"), cancellation, &())
        };
        apply_plan(&plan.expect("a plan"), how).expect("a summary")
    }

    fn log(&self, name: &str) -> String {
        let path = self.path(&format!("{name}.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    fn transcript(&self, summary: &Summary) -> String {
        let directory = self.directory.path().display().to_string();
        lines(summary).replace(&directory, "")
    }
}

fn fails(behaviour: &str, expected: Expect) {
    fails_within(300, behaviour, expected);
}

fn fails_within(timeout: u32, behaviour: &str, expected: Expect) {
    expected.assert_eq(&transcript_with(timeout, behaviour));
}

/// Applies a note of a module that behaves this way, and another resource.
fn transcript_with(timeout: u32, behaviour: &str) -> String {
    let world = World::with_timeout(timeout, behaviour);
    let resources = json!([
        world.note("a", json!({"text": "hello"})),
        json!({"type": "Test", "title": "another", "parameters": {}}),
    ]);
    world.transcript(&world.run(resources, false))
}

#[test]
fn a_module_is_asked_to_apply_only_what_differs() {
    let world = World::new("");
    let desired = |text: &str| json!([world.note("a", json!({"text": text}))]);
    let first = world.run(desired("one"), false);
    assert_eq!(first.count(Status::Changed), 1, "{}", lines(&first));
    let outcome = &first.finished[0].outcome;
    assert_eq!(outcome.message.as_deref(), Some("written"));
    assert_eq!(outcome.outputs["length"], 3);
    assert_eq!(world.run(desired("one"), false).count(Status::Unchanged), 1);
    let second = world.run(desired("two"), false);
    let change = &second.finished[0].outcome.changes[0];
    assert_eq!(change.property, "text");
    assert!(!second.finished[0].outcome.corrective);
    assert_eq!(
        std::fs::read_to_string(world.path("a")).expect("a file"),
        "two"
    );
    std::fs::write(world.path("a"), "drift").expect("written");
    assert!(
        world.run(desired("two"), false).finished[0]
            .outcome
            .corrective
    );
    let absent = json!([world.note("a", json!({"ensure": "absent"}))]);
    assert_eq!(world.run(absent.clone(), false).count(Status::Changed), 1);
    assert_eq!(world.run(absent, false).count(Status::Unchanged), 1);
    assert!(!world.path("a").exists());
}

#[test]
fn a_noop_run_never_asks_a_module_to_apply() {
    let world = World::new("");
    let resources = json!([world.note("a", json!({"text": "one"}))]);
    let summary = world.run(resources, true);
    assert_eq!(summary.count(Status::Pending), 1);
    assert_eq!(world.log("a"), "observe\n");
}

#[test]
fn many_at_once_have_a_process_each_and_do_not_mix_up_their_answers() {
    let world = World::new("");
    let large = "x".repeat(300_000);
    let notes = (0..40).map(|index| {
        let text = format!("{index} {large}");
        world.note(&index.to_string(), json!({"text": text}))
    });
    let summary = world.run(Value::Array(notes.collect()), false);
    assert_eq!(summary.count(Status::Changed), 40, "{}", lines(&summary));
    for index in 0..40 {
        let text = std::fs::read_to_string(world.path(&index.to_string())).expect("a file");
        assert!(text.starts_with(&format!("{index} x")));
    }
}

#[test]
fn only_one_at_a_time_of_a_module_changes_things() {
    let world = World::new(
        "if q['method'] == 'apply':\n    busy = os.path.join(os.path.dirname(p['path']), 'busy')\n    os.mkdir(busy)\n    time.sleep(0.05)\n    os.rmdir(busy)",
    );
    let notes = (0..12).map(|index| world.note(&index.to_string(), json!({"text": "x"})));
    let summary = world.run(Value::Array(notes.collect()), false);
    assert_eq!(summary.count(Status::Changed), 12, "{}", lines(&summary));
}

#[test]
fn what_was_unpacked_is_gone_afterwards_and_so_is_what_a_killed_run_left() {
    let world = World::new("");
    let running = world.path("modules/running");
    // No process has this ID.
    std::fs::create_dir_all(running.join("4194999-0")).expect("made");
    world.run(json!([world.note("a", json!({"text": "x"}))]), false);
    let entries = || std::fs::read_dir(&running).expect("a directory").count();
    assert_eq!(entries(), 1);
    let unpacked = std::fs::read_dir(&running).expect("a directory").next();
    let unpacked = unpacked.expect("one").expect("an entry");
    assert_ne!(unpacked.file_name(), "4194999-0");
    let mode = unpacked.metadata().expect("a directory").permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o700
    );
    let World {
        directory: _directory,
        registry,
    } = world;
    drop(registry);
    assert_eq!(entries(), 0);
}

#[test]
fn a_module_that_hangs_is_ended_with_all_that_it_started() {
    let world = World::with_timeout(
        2,
        "if q['method'] == 'observe':\n    child = subprocess.Popen(['sleep', '600'])\n    note(str(child.pid))\n    time.sleep(600)",
    );
    let summary = world.run(json!([world.note("a", json!({"text": "x"}))]), false);
    expect!["Note[/a] failed: the module `notes` 1.0.0 did not answer in time and was killed"]
        .assert_eq(&world.transcript(&summary));
    let log = world.log("a");
    let child = log.lines().last().expect("the number of the child");
    // Ended, or a zombie. A busy machine takes its time.
    let gone = || {
        let stat = std::fs::read_to_string(Path::new("/proc").join(child).join("stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    eventually("the child ends", gone);
}

#[test]
fn a_module_that_dies_fails_its_resource_with_its_last_words() {
    fails(
        "if q['method'] == 'observe':\n    sys.exit('no such table')",
        expect![[r#"
            Note[/a] failed: the module `notes` 1.0.0 exited before it answered: no such table
            Test[another] unchanged"#]],
    );
}

#[test]
fn garbage_is_reported_as_such() {
    fails(
        "if q['method'] == 'observe':\n    print('Traceback: oops', flush=True)",
        expect![[r#"
            Note[/a] failed: the module `notes` 1.0.0 answered with invalid JSON: `Traceback: oops`
            Test[another] unchanged"#]],
    );
    fails(
        "if q['method'] == 'observe':\n    sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush()",
        expect![[r#"
            Note[/a] failed: the module `notes` 1.0.0 answered with invalid JSON: `��`
            Test[another] unchanged"#]],
    );
}

#[test]
fn an_answer_without_end_does_not_fill_the_memory() {
    fails(
        "if q['method'] == 'observe':\n    while True: sys.stdout.write('x' * 65536)",
        expect![[r#"
            Note[/a] failed: the module `notes` 1.0.0 answered with more than 16 MiB
            Test[another] unchanged"#]],
    );
}

#[test]
fn a_module_that_lies_about_its_types_is_not_used() {
    fails(
        "if q['method'] == 'describe':\n    print(json.dumps({**a, 'types': [{'name': 'note', 'properties': ['ensure']}]}), flush=True); continue",
        expect![[r#"
            Note[/a] failed: the module `notes` 1.0.0 describes types that differ from the signed ones
            Test[another] unchanged"#]],
    );
    fails(
        "if q['method'] == 'hello':\n    print(json.dumps({**a, 'protocol': 2}), flush=True); continue",
        expect![[r#"
            Note[/a] failed: the module `notes` 1.0.0 does not support a known protocol version
            Test[another] unchanged"#]],
    );
}

#[test]
fn a_module_that_says_it_is_done_and_is_not_fails() {
    fails(
        "if q['method'] == 'apply':\n    print(json.dumps({**a, 'message': 'all done'}), flush=True); continue",
        expect![[r#"
            Note[/a] failed: the module `notes` 1.0.0 reported success, but `ensure` still differs from the desired value
            Test[another] unchanged"#]],
    );
}

#[test]
fn an_answer_that_the_manifest_does_not_allow_fails() {
    for (state, problem) in [
        (
            "'state': {'ensure': 'present', 'text': '', 'owner': 'root'}",
            "returned `owner`, which is not a property of its type",
        ),
        ("'state': {'ensure': 'present'}", "did not return `text`"),
        ("'state': {'text': 'x'}", "did not return `ensure`"),
        ("'stat': {}", "did not return `state`"),
        ("'id': 77", "sent an unexpected message: `{\"id\": 77}`"),
    ] {
        let behaviour = format!(
            "if q['method'] == 'observe':\n    print(json.dumps({{**a, {state}}}), flush=True); continue"
        );
        let expected =
            format!("Note[/a] failed: the module `notes` 1.0.0 {problem}\nTest[another] unchanged");
        assert_eq!(transcript_with(300, &behaviour), expected);
    }
}

#[test]
fn an_unrequested_answer_is_not_mistaken_for_the_next() {
    let forged = r#"{"id": 3, "state": {"ensure": "present", "text": "hello"}}"#;
    fails(
        &format!(
            "if q['method'] == 'describe':\n    print(json.dumps({{**a, 'types': [{{'name': 'note', 'properties': ['ensure', 'text']}}]}}) + '\\n' + '{forged}', flush=True); continue"
        ),
        expect![[r#"
            Note[/a] failed: the module `notes` 1.0.0 sent an unexpected message: `{"id": 3, "state": {"ensure": "present", "text": "hello"}}`
            Test[another] unchanged"#]],
    );
}

#[test]
fn an_error_from_a_module_fails_one_resource_and_not_the_next() {
    let world = World::new(
        "if q['method'] == 'observe' and p['path'].endswith('bad'):\n    print(json.dumps({**a, 'error': 'the table is locked'}), flush=True); continue",
    );
    let resources = json!([
        world.note("bad", json!({"text": "x"})),
        world.note("good", json!({"text": "x", "require": "Test[gate]"})),
        json!({"type": "Test", "title": "gate", "parameters": {}}),
    ]);
    expect![[r#"
        Note[/bad] failed: the module `notes` 1.0.0 reported: the table is locked
        Note[/good] changed
        Test[gate] unchanged"#]]
    .assert_eq(&world.transcript(&world.run(resources, false)));
}

#[test]
fn secrets_that_a_module_prints_are_hidden() {
    let world =
        World::new("if p:\n    sys.stderr.write(p['text'] + '\\n')\n    sys.exit(p['text'])");
    let mut resource = world.note("a", json!({"text": "hunter22"}));
    resource["sensitive_parameters"] = json!(["text"]);
    let summary = world.run(json!([resource]), false);
    let transcript = format!("{:?}", summary.finished);
    assert!(
        transcript.contains("[secret]") && !transcript.contains("hunter22"),
        "{transcript}"
    );
}

/// Cancels when a step has started and its log exists.
struct CancelWhen(PathBuf, Cancellation);

impl EventSink for CancelWhen {
    fn emit(&self, event: Event<'_>) {
        if let Event::Started { .. } = event {
            let (path, cancellation) = (self.0.clone(), self.1.clone());
            std::thread::spawn(move || {
                eventually("the log is there", || path.exists());
                cancellation.cancel();
            });
        }
    }
}

#[test]
fn an_interrupt_ends_the_module_in_hand() {
    let world = World::new("if q['method'] == 'observe':\n    time.sleep(600)");
    let resources = json!([world.note("a", json!({"text": "x"}))]);
    let plan = CatalogPlan::new(&catalog(resources), &world.registry, PlanOptions::default());
    let cancellation = Cancellation::new().expect("a pipe");
    let sink = CancelWhen(world.path("a.log"), cancellation.clone());
    let how = ApplyOptions::new(world.path("state"), cancellation, &sink);
    let summary = apply_plan(&plan.expect("a plan"), how).expect("a summary");
    expect!["Note[/a] failed: interrupted"].assert_eq(&world.transcript(&summary));
}

#[test]
fn a_module_cannot_take_the_place_of_another_type() {
    let mut other = manifest("1.0.0", 10);
    other["types"][0]["name"] = json!("file");
    let key = SigningKey::generate().expect("a key");
    let mut trust = Trust::default();
    trust.add(&key.public("").to_line()).expect("a key");
    let package = sign(&packed(&other, ""), &key).expect("signed");
    let module = verify(&package, &trust).expect("verified");
    let directory = tempfile::tempdir().expect("a directory");
    let error = Registry::standard().add_module(&module, directory.path());
    expect!["the module `notes` adds the type `file`, which already exists"]
        .assert_eq(&error.expect_err("taken").to_string());
}

#[test]
fn parameters_are_checked_before_anything_runs() {
    let world = World::new("");
    let resources = json!([world.note("a", json!({"txt": "x"}))]);
    let plan = CatalogPlan::new(&catalog(resources), &world.registry, PlanOptions::default());
    let error = plan.err().expect("refused").to_string();
    assert!(
        error.contains("the type `note` has no parameter `txt`; did you mean `text`?"),
        "{error}"
    );
}

/// Keys, packages and a state directory.
struct Machine {
    directory: tempfile::TempDir,
    key: SigningKey,
    shelf: ModuleStore,
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let key = SigningKey::generate().expect("a key");
        std::fs::create_dir_all(directory.path().join("keys")).expect("made");
        let line = key.public("the author").to_line();
        std::fs::write(directory.path().join("keys/author.pub"), line).expect("written");
        let shelf = ModuleStore::new(&directory.path().join("state"));
        Self {
            directory,
            key,
            shelf,
        }
    }

    fn trust(&self) -> Trust {
        read_trust(&self.directory.path().join("keys")).expect("keys")
    }

    fn package(&self, directory: &str, version: &str) -> PathBuf {
        let package = sign(&packed(&manifest(version, 10), ""), &self.key).expect("signed");
        let directory = self.directory.path().join(directory);
        std::fs::create_dir_all(&directory).expect("made");
        let path = directory.join(format!("notes-{version}.bunraku-module"));
        std::fs::write(&path, package).expect("written");
        path
    }

    fn revoke(&self) {
        let list = format!("{}\n", self.key.public("").fingerprint());
        std::fs::write(self.directory.path().join("keys/revoked"), list).expect("written");
    }
}

#[test]
fn an_installed_module_is_found_and_an_older_one_is_refused_for_good() {
    let machine = Machine::new();
    let newer = machine.package("new", "1.1.0");
    let older = machine.package("old", "1.0.0");
    machine
        .shelf
        .install(
            &newer,
            &std::fs::read(&newer).expect("readable"),
            &machine.trust(),
        )
        .expect("installed");
    let error = machine
        .shelf
        .install(
            &older,
            &std::fs::read(&older).expect("readable"),
            &machine.trust(),
        )
        .expect_err("older");
    assert!(matches!(error, ShelfError::Known { .. }), "{error:?}");
    let loaded = machine
        .shelf
        .load(&[], &machine.trust(), true)
        .expect("loaded");
    assert_eq!(loaded[0].manifest().version.to_string(), "1.1.0");
    // Not even through a directory, in noop or not.
    let old = [machine.directory.path().join("old")];
    for remember in [true, false] {
        assert!(
            machine
                .shelf
                .load(&old, &machine.trust(), remember)
                .is_err()
        );
    }
}

#[test]
fn a_look_leaves_no_trace_and_a_run_remembers() {
    let machine = Machine::new();
    machine.package("new", "1.1.0");
    machine.package("old", "1.0.0");
    let (new, old) = (
        machine.directory.path().join("new"),
        machine.directory.path().join("old"),
    );
    machine
        .shelf
        .load(std::slice::from_ref(&new), &machine.trust(), false)
        .expect("loaded");
    assert!(!machine.directory.path().join("state").exists());
    machine
        .shelf
        .load(std::slice::from_ref(&old), &machine.trust(), true)
        .expect("the first");
    machine
        .shelf
        .load(std::slice::from_ref(&new), &machine.trust(), true)
        .expect("newer");
    machine
        .shelf
        .load(&[old], &machine.trust(), true)
        .expect_err("older by now");
}

#[test]
fn a_key_that_is_revoked_later_stops_what_is_installed() {
    let machine = Machine::new();
    let package = machine.package("new", "1.0.0");
    machine
        .shelf
        .install(
            &package,
            &std::fs::read(&package).expect("readable"),
            &machine.trust(),
        )
        .expect("installed");
    machine.revoke();
    let error = machine
        .shelf
        .load(&[], &machine.trust(), true)
        .expect_err("revoked");
    assert!(matches!(error, ShelfError::Refused { .. }), "{error:?}");
}

#[test]
fn nothing_is_trusted_without_keys_and_a_broken_key_is_an_error() {
    let machine = Machine::new();
    let package = machine.package("new", "1.0.0");
    let nobody = read_trust(Path::new("/nonexistent")).expect("nobody");
    assert!(
        machine
            .shelf
            .install(
                &package,
                &std::fs::read(&package).expect("readable"),
                &nobody
            )
            .is_err()
    );
    let broken = machine.directory.path().join("keys/broken.pub");
    std::fs::write(&broken, "nonsense").expect("written");
    let error = read_trust(&machine.directory.path().join("keys")).expect_err("broken");
    assert!(error.to_string().contains("broken.pub"), "{error}");
}

#[test]
fn the_same_module_twice_is_refused_and_a_named_directory_wins() {
    let machine = Machine::new();
    let old = machine.package("old", "1.0.0");
    machine.package("new", "1.1.0");
    machine
        .shelf
        .install(
            &old,
            &std::fs::read(&old).expect("readable"),
            &machine.trust(),
        )
        .expect("installed");
    let new = [machine.directory.path().join("new")];
    let loaded = machine
        .shelf
        .load(&new, &machine.trust(), true)
        .expect("loaded");
    assert_eq!(loaded.len(), 1);
    assert_eq!(loaded[0].manifest().version.to_string(), "1.1.0");
    machine.package("new", "1.2.0");
    let error = machine
        .shelf
        .load(&new, &machine.trust(), true)
        .expect_err("twice");
    assert!(matches!(error, ShelfError::Twice { .. }), "{error:?}");
    let missing = [machine.directory.path().join("missing")];
    assert!(
        machine
            .shelf
            .load(&missing, &machine.trust(), true)
            .is_err()
    );
}

#[test]
fn a_catalog_that_pins_its_modules_gets_exactly_those() {
    let module = module_with(10, "");
    let other = module_with(10, "# another");
    let modules = std::slice::from_ref(&module);
    let mut pinned = catalog(json!([{"type": "Note", "title": "/a", "parameters": {}}]));
    check_pins(&pinned, modules).expect("no pins");
    pinned
        .other
        .insert("modules".to_owned(), json!({"notes": module.sha256()}));
    check_pins(&pinned, modules).expect("the very one");
    let error = |modules: &[VerifiedModule]| {
        check_pins(&pinned, modules)
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        error(&[]),
        "the catalog needs the module `notes`, which is not installed"
    );
    assert_eq!(
        error(&[other]),
        "the module `notes` differs from the one that the catalog was compiled with"
    );
    pinned.other.insert("modules".to_owned(), json!({}));
    let error = check_pins(&pinned, modules)
        .expect_err("refused")
        .to_string();
    assert_eq!(
        error,
        "the catalog uses `Note` of the module `notes`, which it does not pin"
    );
    pinned.other.insert("modules".to_owned(), json!(["notes"]));
    assert!(check_pins(&pinned, modules).is_err());
}
