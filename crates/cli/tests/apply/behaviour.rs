//! The output of an apply, and how it ends.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use expect_test::expect;
use serde_json::{Value, json};

use crate::world::World;

fn file(name: &str, parameters: Value) -> Value {
    json!({"type": "File", "title": format!("@ROOT@/{name}"), "file": "site.pp", "line": 7, "parameters": parameters})
}

fn exec(title: &str, parameters: Value) -> Value {
    let mut parameters = parameters;
    parameters["path"] = json!("/usr/bin:/bin");
    json!({"type": "Exec", "title": title, "file": "site.pp", "line": 9, "parameters": parameters})
}

#[test]
fn changes_failures_and_what_was_skipped_are_shown_and_the_rest_counted() {
    let world = World::new();
    std::fs::write(world.path("motd"), "old\n").expect("a file");
    std::fs::write(world.path("same"), "same").expect("a file");
    let ended = world.apply(
        &json!([
            file("motd", json!({"content": "new\n"})),
            file("same", json!({"content": "same"})),
            exec(
                "broken",
                json!({"command": "exit 3", "require": "File[@ROOT@/motd]"})
            ),
            exec(
                "behind",
                json!({"command": "true", "require": "Exec[broken]"})
            ),
        ]),
        &["--order", "ansible"],
    );
    expect![[r#"
          ~ File[@ROOT@/motd]  changed
              content: {sha256}01d09d19c2139a46aebfb577780d123d7396e97201bc7ead210a2ebff8239dee → {sha256}7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c
                @@ -1 +1 @@
                -old
                +new
          ✗ Exec[broken]  failed: `exit 3` exited with exit code 3 instead of 0
              at site.pp:9
          - Exec[behind]  skipped: Exec[broken] failed
        applied  web1  ansible  1 changed, 1 unchanged, 1 failed, 1 skipped  TIME
    "#]]
    .assert_eq(&ended.stdout);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("hint: run `bunraku apply"),
        "{}",
        ended.stderr
    );
}

#[test]
fn exit_codes_show_changes_only_on_request() {
    let world = World::new();
    let resources = json!([file("a", json!({"content": "x"}))]);
    let code = |arguments: &[&str]| world.apply(&resources, arguments).code;
    assert_eq!(code(&["--noop"]), Some(0));
    assert_eq!(
        code(&["--noop", "--detailed-exitcodes"]),
        Some(2),
        "changes are pending"
    );
    assert!(!world.path("a").exists());
    assert_eq!(
        code(&["--detailed-exitcodes"]),
        Some(2),
        "changes were made"
    );
    assert_eq!(
        code(&["--detailed-exitcodes"]),
        Some(0),
        "nothing was left to do"
    );
    assert_eq!(code(&["--no-such-flag"]), Some(64));
    assert_eq!(
        world
            .apply(
                &json!([exec("x", json!({"command": "false"}))]),
                &["--detailed-exitcodes"]
            )
            .code,
        Some(1)
    );
}

#[test]
fn problems_are_named_before_anything_changes() {
    let world = World::new();
    let ended = world.apply(
        &json!([file("a", json!({"content": "x"})), {"type": "Fiel", "title": "y"}]),
        &[],
    );
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    expect![[r#"
        error: nothing was changed: the catalog has problems
          Fiel[y] (the catalog): no resource type `Fiel`; did you mean `file`?

        hint: docs/resources.md lists the types. For others, install a module that implements them (`bunraku module`), let Puppet apply the catalog (`run_method = "puppet"` and `released = true` on the node), or remove the resources
    "#]]
    .assert_eq(&ended.stderr);
    assert!(!world.path("a").exists());
}

#[test]
fn a_file_that_is_not_a_catalog_is_refused() {
    let world = World::new();
    let path = world.path("x.json");
    let missing = world.ended(world.command(&path, &[]).output().expect("the binary runs"));
    assert_eq!(missing.code, Some(1));
    std::fs::write(&path, "{\"resources\": 3}").expect("a file");
    let broken = world.ended(world.command(&path, &[]).output().expect("the binary runs"));
    assert_eq!(broken.code, Some(1));
    assert!(
        broken.stderr.contains("is not a catalog"),
        "{}",
        broken.stderr
    );
}

#[test]
fn json_streams_events_and_ends_with_a_summary_of_every_state() {
    let world = World::new();
    let state = json!({"id": "greet", "name": "echo hello", "function": "cmd.run"});
    let mut hello = exec("greet", json!({"command": "echo hello"}));
    hello["state"] = state;
    let ended = world.apply(
        &json!([hello, exec("no", json!({"command": "false"}))]),
        &["--json"],
    );
    let events: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let words: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().expect("a word"))
        .collect();
    assert_eq!((words[0], words[words.len() - 1]), ("begun", "summary"));
    assert!(
        events
            .iter()
            .any(|event| event["event"] == "output" && event["line"] == "hello")
    );
    let summary = events.last().expect("a summary");
    let states = summary["states"].as_array().expect("a list");
    let greet = states
        .iter()
        .find(|state| state["id"] == "greet")
        .expect("the state");
    assert_eq!(greet["name"], "echo hello");
    assert_eq!(greet["function"], "cmd.run");
    assert_eq!(
        (&greet["file"], &greet["line"]),
        (&json!("site.pp"), &json!(9))
    );
    assert_eq!(
        (&greet["result"], &greet["ran"]),
        (&json!(true), &json!(true))
    );
    assert!(
        greet["run_number"].is_u64()
            && greet["duration"].is_f64()
            && greet["changes"]["returns"].is_object()
    );
    let no = states
        .iter()
        .find(|state| state["id"] == "no")
        .expect("the state");
    assert_eq!(no["result"], false);
    assert!(
        no["comment"]
            .as_str()
            .expect("text")
            .contains("exit code 1")
    );
    assert_eq!((summary["failed"].clone(), ended.code), (json!(1), Some(1)));
}

#[test]
fn explain_shows_the_reason_for_the_order_and_changes_nothing() {
    let world = World::new();
    let ended = world.apply(
        &json!([
            file("d/a", json!({"content": "x"})),
            file("d", json!({"ensure": "directory"})),
            exec(
                "last",
                json!({"command": "true", "subscribe": "File[@ROOT@/d/a]"})
            ),
            exec("alone", json!({"command": "true"})),
        ]),
        &["--explain"],
    );
    expect![[r#"
        1  File[@ROOT@/d]  (site.pp:7)
            no dependencies: starts a chain of 3 steps (longest chain first)
        2  Exec[alone]  (site.pp:9)
            no dependencies, and nothing depends on it
        3  File[@ROOT@/d/a]  (site.pp:7)
            after File[@ROOT@/d] (its directory, inferred)
        4  Exec[last]  (site.pp:9)
            after File[@ROOT@/d/a] (subscribe)
    "#]]
    .assert_eq(&ended.stdout);
    assert!(!world.path("d").exists());
}

#[test]
fn a_secret_is_in_no_output_of_any_kind() {
    let world = World::new();
    let resources = json!([
        {"type": "File", "title": "@ROOT@/a", "parameters": {"content": "pass: hunter22x\n"}, "sensitive_parameters": ["content"]},
        {"type": "Exec", "title": "leak", "parameters": {"path": "/bin", "command": "cat @ROOT@/a; echo hunter22x >&2; exit 1", "require": "File[@ROOT@/a]",
            "environment": {"__ptype": "Sensitive", "__pvalue": ["P=hunter22x"]}}},
    ]);
    for arguments in [&["--json"][..], &["--noop"], &[]] {
        let ended = world.apply(&resources, arguments);
        let shown = format!("{}{}", ended.stdout, ended.stderr);
        // The command of `leak` is not secret itself, but it contains a secret.
        assert!(!shown.contains("hunter22x"), "{shown}");
    }
}

/// Starts an apply and waits until one of its commands prints `begun`.
fn started(world: &World, command: &str) -> std::process::Child {
    let path = world.catalog(&json!([
        exec("long", json!({"command": command})),
        exec("later", json!({"command": "true", "require": "Exec[long]"}))
    ]));
    let mut child = world
        .command(&path, &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let begun = lines.find(|line| line.as_ref().is_ok_and(|line| line.ends_with("begun")));
    assert!(begun.is_some(), "the command began");
    child
}

#[test]
fn a_signal_ends_the_step_in_hand_starts_no_other_and_reports() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let world = World::new();
        let child = started(&world, "echo begun >&2; exec sleep 4324.5");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).expect("it runs");
        let ended = world.ended(child.wait_with_output().expect("it ends"));
        assert_eq!(ended.code, Some(1));
        expect![[r#"
              ✗ Exec[long]  failed: interrupted
                  at site.pp:9
              - Exec[later]  skipped: the run was interrupted
            interrupted  web1  genius  0 changed, 0 unchanged, 1 failed, 1 skipped  TIME
        "#]]
        .assert_eq(&ended.stdout);
    }
}

#[test]
fn a_second_apply_is_refused_with_the_owner_or_waits() {
    let world = World::new();
    let go_on = world.path("go-on");
    let command = format!(
        "echo begun; while ! test -e {}; do sleep 0.05; done",
        go_on.display()
    );
    let first = started(&world, &command);
    let path = world.path("second.json");
    std::fs::write(
        &path,
        json!({"name": "second", "resources": []}).to_string(),
    )
    .expect("a file");
    let refused = world.ended(world.command(&path, &[]).output().expect("the binary runs"));
    assert_eq!(refused.code, Some(1));
    assert!(
        refused
            .stderr
            .contains(&format!("another apply is running: pid {}", first.id())),
        "{}",
        refused.stderr
    );
    assert!(
        refused
            .stderr
            .contains("hint: pass `--lock-wait SECONDS` to wait for the other run"),
        "{}",
        refused.stderr
    );
    let noop = world
        .command(&path, &["--noop"])
        .output()
        .expect("the binary runs");
    assert!(noop.status.success(), "a noop run disturbs nobody");
    let waiting = world
        .command(&path, &["--lock-wait", "600"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    std::fs::write(&go_on, "").expect("a file");
    assert!(first.wait_with_output().expect("it ends").status.success());
    assert!(
        waiting
            .wait_with_output()
            .expect("it ends")
            .status
            .success()
    );
}

#[test]
fn a_killed_apply_leaves_no_lock_and_no_half_written_file() {
    let world = World::new();
    std::fs::write(world.path("a"), "old").expect("a file");
    let path = world.catalog(&json!([file(
        "a",
        json!({"content": "new", "validate_cmd": "echo begun; exec sleep 4325.5"})
    )]));
    let mut child = world
        .command(&path, &[])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.ends_with("begun"))));
    // In the middle of a replacement: the new content is written but not yet in place.
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!(
        std::fs::read_to_string(world.path("a")).expect("a file"),
        "old"
    );
    let again = world.apply(&json!([file("a", json!({"content": "new"}))]), &[]);
    assert_eq!(
        (
            again.code,
            std::fs::read_to_string(world.path("a"))
                .expect("a file")
                .as_str()
        ),
        (Some(0), "new")
    );
}

#[test]
fn a_replaced_file_is_brought_back() {
    let world = World::new();
    std::fs::write(world.path("a"), "mine").expect("a file");
    world.apply(&json!([file("a", json!({"content": "theirs"}))]), &[]);
    let state = world.path("../state");
    let restore = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bunraku"));
        command
            .arg("restore")
            .args(arguments)
            .env("BUNRAKU_STATE_DIR", &state);
        command.output().expect("the binary runs")
    };
    let path = world.path("a").to_string_lossy().into_owned();
    assert!(String::from_utf8_lossy(&restore(&["--list"]).stdout).contains(&path));
    assert!(restore(&[&path]).status.success());
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "mine");
    assert_eq!(restore(&[&path, "--version", "9"]).status.code(), Some(1));
}

#[test]
fn a_template_knows_this_machines_facts() {
    let world = World::new();
    let template = json!({"content": "{{ facts.kernel }}\n", "template": "jinja"});
    let ended = world.apply(&json!([file("motd", template)]), &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let written = std::fs::read_to_string(world.path("motd")).expect("a file");
    assert_eq!(written, "Linux\n");
}
