//! External facts: order, formats, limits, and files that must not hang or run.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use bunraku_testkit::blocking::eventually;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bunraku_agent::facts::{CollectedFacts, FactOptions, collect};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A timeout longer than any of these tests takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// An empty machine, and directories of external facts.
struct Place {
    root: TempDir,
    directories: Vec<TempDir>,
    timeout: Duration,
}

impl Place {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            directories: vec![tempfile::tempdir().unwrap()],
            timeout: LONG,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directories[0].path().join(name)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name, format!("#!/bin/sh\n{text}\n"));
        set_mode(&path, 0o755);
        path
    }

    fn collect(&self) -> CollectedFacts {
        collect(&FactOptions {
            custom: serde_json::Map::new(),
            root: self.root.path().to_owned(),
            external_dirs: self
                .directories
                .iter()
                .map(|one| one.path().to_owned())
                .collect(),
            external_timeout: self.timeout,
            overrides: serde_json::Map::new(),
        })
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the warnings about files, without the temporary directory's name.
fn said(collected: &CollectedFacts, place: &Place) -> Vec<String> {
    let directory = format!("{}/", place.directories[0].path().display());
    let lines = collected.warnings.iter().map(|warning| warning.to_string());
    lines
        .filter(|line| line.contains(&directory))
        .map(|line| line.replace(&directory, ""))
        .collect()
}

fn fact(collected: &CollectedFacts, name: &str) -> Value {
    collected
        .facts
        .as_map()
        .get(name)
        .cloned()
        .unwrap_or(Value::Null)
}

fn pid_in(path: &Path) -> Option<Pid> {
    Pid::from_raw(fs::read_to_string(path).ok()?.trim().parse().ok()?)
}

#[test]
fn all_formats_load() {
    let place = Place::new();
    place.file("a.json", r#"{"from_json": {"deep": [1, null]}}"#);
    place.file("b.yaml", "from_yaml: [1, two]\n");
    place.file("c.yml", "from_yml: true\n");
    place.file("d.txt", "From_Text=a=b\n");
    place.script("e.sh", "echo 'from_script: {a: 1}'");
    place.script("f", "echo one=1; echo two=2");
    let collected = place.collect();
    assert_eq!(said(&collected, &place), [""; 0]);
    assert_eq!(fact(&collected, "from_json"), json!({"deep": [1, null]}));
    assert_eq!(fact(&collected, "from_yaml"), json!([1, "two"]));
    assert_eq!(fact(&collected, "from_yml"), json!(true));
    assert_eq!(fact(&collected, "from_text"), json!("a=b"));
    assert_eq!(fact(&collected, "from_script"), json!({"a": 1}));
    assert_eq!(fact(&collected, "two"), json!("2"));
}

#[test]
fn order_and_precedence_are_those_of_a_real_facter() {
    let mut place = Place::new();
    place.directories.push(tempfile::tempdir().unwrap());
    let second = place.directories[1].path().to_owned();
    place.file("1.txt", "winner=first\nCapital=1\n");
    place.file("2.txt", "winner=second\nkernel=Mine\n");
    place.file("3.json", r#"{"os": {"family": "Other"}, "with.dot": 1}"#);
    place.script("4.sh", "echo 'scripted: [1, {a: b}]'");
    fs::write(second.join("9.yaml"), "winner: other directory\nalone: 1\n").unwrap();

    let mut facter = std::process::Command::new("facter");
    facter.arg("--json");
    for directory in &place.directories {
        facter.arg("--external-dir").arg(directory.path());
    }
    let printed = facter
        .output()
        .expect("facter is installed: run scripts/setup")
        .stdout;
    let theirs: Value = serde_json::from_slice(&printed).expect("facter prints JSON");
    let ours = place.collect();
    for name in [
        "winner", "capital", "kernel", "os", "with.dot", "scripted", "alone",
    ] {
        assert_ne!(theirs[name], Value::Null, "facter has no `{name}`");
        assert_eq!(fact(&ours, name), theirs[name], "{name}");
    }
}

#[test]
fn broken_files_are_named_with_their_line_and_the_others_load() {
    let place = Place::new();
    place.file("a.json", "{\n  \"x\": 1,\n}\n");
    place.file("b.yaml", "x: 1\ny: [1\nz: 2\n");
    place.file("c.txt", "good=1\nno equals sign\n");
    place.file("d.json", b"\xff\xfe");
    place.file("e.yaml", b"x: \xff\n");
    place.file("z.json", r#"{"last": 1}"#);
    let collected = place.collect();
    let said = said(&collected, &place);
    for start in [
        "a.json:3: is not JSON",
        "b.yaml:3: is not YAML",
        "c.txt:2: is not `name=value`",
        "d.json:1: is not JSON",
        "e.yaml:1: is not UTF-8",
    ] {
        assert!(
            said.iter().any(|line| line.starts_with(start)),
            "{start} not in {said:#?}"
        );
    }
    assert_eq!(fact(&collected, "good"), json!("1"));
    assert_eq!(fact(&collected, "last"), json!(1));
}

#[test]
fn other_files_are_ignored_in_silence() {
    let place = Place::new();
    place.file("README", "a=1\n");
    place.file(".hidden.txt", "a=1\n");
    for name in [
        "run.sh.bak",
        "run.sh.orig",
        "run.sh~",
        "run.rpmsave",
        "run.exe",
    ] {
        place.script(name, "echo a=1");
    }
    fs::create_dir(place.path("directory.json")).unwrap();
    let collected = place.collect();
    assert_eq!(said(&collected, &place), [""; 0]);
    assert_eq!(fact(&collected, "a"), Value::Null);
}

#[test]
fn a_missing_directory_is_not_an_error() {
    let mut place = Place::new();
    place.file("a.txt", "a=1\n");
    place.directories.push(tempfile::tempdir().unwrap());
    fs::remove_dir(place.directories[1].path()).unwrap();
    let collected = place.collect();
    let files = collected.warnings.iter().filter(|warning| {
        matches!(
            warning.place,
            bunraku_agent::facts::WarningPlace::File { .. }
        )
    });
    assert_eq!(files.count(), 0, "{:?}", collected.warnings);
    assert_eq!(fact(&collected, "a"), json!("1"));
}

#[test]
fn pipes_devices_loops_and_dangling_links_do_not_hang() {
    let place = Place::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("pipe.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o777),
        0,
    )
    .unwrap();
    symlink("/dev/zero", place.path("device.yaml")).unwrap();
    symlink("loop.txt", place.path("loop.txt")).unwrap();
    symlink("/nowhere/at/all", place.path("nowhere.json")).unwrap();
    place.file("real", "linked=1\n");
    symlink("real", place.path("link.txt")).unwrap();
    let collected = place.collect();
    let said = said(&collected, &place);
    for start in [
        "pipe.json: is a pipe",
        "device.yaml: is a device",
        "loop.txt: ",
        "nowhere.json: ",
    ] {
        assert!(
            said.iter().any(|line| line.starts_with(start)),
            "{start} not in {said:#?}"
        );
    }
    assert_eq!(fact(&collected, "linked"), json!("1"));
}

#[test]
fn a_large_file_is_refused() {
    let place = Place::new();
    let text = format!("a={}\n", "x".repeat(2 * 1024 * 1024));
    place.file("large.txt", text);
    let collected = place.collect();
    assert_eq!(fact(&collected, "a"), Value::Null);
    assert!(said(&collected, &place)[0].starts_with("large.txt: is larger than 1 MiB"));
}

#[test]
fn many_large_files_come_to_a_limit() {
    let place = Place::new();
    let half = "x".repeat(900 * 1024);
    for number in 0..6 {
        place.file(&format!("{number}.txt"), format!("fact{number}={half}\n"));
    }
    place.file("small.txt", "small=1\n");
    let collected = place.collect();
    assert_ne!(fact(&collected, "fact3"), Value::Null);
    assert_eq!(fact(&collected, "fact4"), Value::Null);
    assert_eq!(fact(&collected, "small"), json!("1"));
    let said = said(&collected, &place);
    assert!(said[0].starts_with("4.txt: is ignored"), "{said:?}");
}

#[test]
fn a_slow_executable_is_killed_with_all_its_children() {
    let mut place = Place::new();
    let notes = tempfile::tempdir().unwrap();
    let child = notes.path().join("child");
    place.script(
        "slow.sh",
        &format!(
            "sleep 600 & echo $! > {}; echo slow=1; wait",
            child.display()
        ),
    );
    place.file("z.txt", "after=1\n");
    place.timeout = Duration::from_secs(3);
    let started = Instant::now();
    let collected = place.collect();
    assert!(started.elapsed() < LONG, "it was waited for");
    let said = said(&collected, &place);
    assert!(
        said[0].starts_with("slow.sh: was killed: it ran longer than 3 s"),
        "{said:?}"
    );
    assert_eq!(fact(&collected, "slow"), Value::Null);
    assert_eq!(fact(&collected, "after"), json!("1"));
    let child = pid_in(&child).expect("the child was started");
    eventually("the end of the child", || {
        test_kill_process(child).is_err() || is_zombie(child)
    });
}

#[test]
fn a_slow_executable_cannot_hide_in_another_group() {
    let mut place = Place::new();
    let notes = tempfile::tempdir().unwrap();
    let own = notes.path().join("own");
    // The child joins its parent's group, which nobody would kill.
    let path = place.file(
        "hides",
        format!(
            "#!/usr/bin/perl\nmy $parent = getpgrp(getppid());\nsetpgrp(0, $parent);\n\
             open(my $f, '>', '{}'); print $f $$; close $f; sleep 600;\n",
            own.display()
        ),
    );
    set_mode(&path, 0o755);
    place.timeout = Duration::from_secs(3);
    let collected = place.collect();
    let said = said(&collected, &place);
    assert!(said[0].starts_with("hides: was killed"), "{said:?}");
    let own = pid_in(&own).expect("it was started");
    eventually("its end", || test_kill_process(own).is_err());
}

/// Detects zombies: orphans stay as zombies if process 1 does not reap them.
fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn what_an_executable_leaves_behind_is_killed_and_not_waited_for() {
    let place = Place::new();
    let notes = tempfile::tempdir().unwrap();
    let child = notes.path().join("child");
    // The child keeps the output open: reading to the end would take 600 s.
    place.script(
        "leaves.sh",
        &format!("sleep 600 & echo $! > {}; echo done=1", child.display()),
    );
    let started = Instant::now();
    let collected = place.collect();
    assert!(started.elapsed() < LONG, "the child was waited for");
    assert_eq!(fact(&collected, "done"), json!("1"));
    let child = pid_in(&child).expect("the child was started");
    eventually("the end of the child", || {
        test_kill_process(child).is_err() || is_zombie(child)
    });
}

#[test]
fn a_process_that_leaves_the_group_does_not_hold_us_up() {
    let place = Place::new();
    let notes = tempfile::tempdir().unwrap();
    let child = notes.path().join("child");
    place.script(
        "daemon.sh",
        &format!(
            "setsid sh -c 'echo $$ > {0}; exec sleep 600' & while [ ! -s {0} ]; do :; done; echo done=1",
            child.display()
        ),
    );
    let collected = place.collect();
    assert_eq!(
        fact(&collected, "done"),
        json!("1"),
        "{:?}",
        collected.warnings
    );
    let child = pid_in(&child).expect("the child was started");
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn an_executable_that_prints_without_end_is_killed() {
    let place = Place::new();
    place.script(
        "endless.sh",
        "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=1; done",
    );
    place.script("noisy.sh", "head -c 3000000 /dev/zero >&2; echo noisy=1");
    let collected = place.collect();
    let said = said(&collected, &place);
    assert!(
        said[0].starts_with("endless.sh: was killed: it printed more than 1 MiB"),
        "{said:?}"
    );
    assert_eq!(fact(&collected, "noisy"), json!("1"));
}

#[test]
fn failures_and_stderr_of_executables_are_reported() {
    let place = Place::new();
    place.script("fails.sh", "echo kept=1; exit 3");
    place.script("complains.sh", "echo 'no such thing' >&2; echo also=1");
    place.file("not-a-program", "\x7fELFgarbage");
    set_mode(&place.path("not-a-program"), 0o755);
    let collected = place.collect();
    let said = said(&collected, &place).join("\n");
    assert!(said.contains("fails.sh: failed with exit code 3"), "{said}");
    assert!(
        said.contains("complains.sh: printed an error: no such thing"),
        "{said}"
    );
    assert!(said.contains("not-a-program: cannot be run"), "{said}");
    assert_eq!(fact(&collected, "kept"), json!("1"));
    assert_eq!(fact(&collected, "also"), json!("1"));
}

#[test]
fn an_executable_sees_a_minimal_environment() {
    let place = Place::new();
    place.script("env.sh", "echo \"home=${HOME-unset}\"; echo \"lang=$LC_ALL\"; echo \"dir=$(pwd)\"; read line; echo \"input=[$line]\"");
    let collected = place.collect();
    assert_eq!(fact(&collected, "home"), json!("unset"));
    assert_eq!(fact(&collected, "lang"), json!("C"));
    assert_eq!(fact(&collected, "dir"), json!("/"));
    assert_eq!(fact(&collected, "input"), json!("[]"));
}

#[test]
fn root_does_not_run_what_others_could_have_written() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test gives files away: run it as root"
    );
    let place = Place::new();
    let proof = tempfile::tempdir().unwrap();
    let touch = format!("touch {}/ran; echo bad=1", proof.path().display());
    set_mode(&place.script("everyone.sh", &touch), 0o777);
    let foreign = place.script("foreign.sh", &touch);
    chown(&foreign, Some(4711), None).unwrap();
    let group = place.script("group.sh", &touch);
    chown(&group, None, Some(4711)).unwrap();
    set_mode(&group, 0o775);
    symlink(&foreign, place.path("link.sh")).unwrap();
    place.script("mine.sh", "echo good=1");
    let collected = place.collect();
    let said = said(&collected, &place).join("\n");
    for text in [
        "everyone.sh: is not run as root: it is writable by everyone",
        "foreign.sh: is not run as root: it belongs to user 4711",
        "group.sh: is not run as root: it is writable by group 4711",
        "link.sh: is not run as root: it belongs to user 4711",
    ] {
        assert!(said.contains(text), "{text} not in\n{said}");
    }
    assert!(!proof.path().join("ran").exists(), "one of them ran");
    assert_eq!(fact(&collected, "bad"), Value::Null);
    assert_eq!(fact(&collected, "good"), json!("1"));

    set_mode(place.directories[0].path(), 0o777);
    let collected = place.collect();
    assert_eq!(
        fact(&collected, "good"),
        Value::Null,
        "its directory is open to all"
    );
}
