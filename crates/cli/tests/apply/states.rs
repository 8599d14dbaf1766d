//! State files through the binary: the example tree, applied twice, and the errors of a broken
//! tree.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn bunraku(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bunraku"))
        .args(arguments)
        .output()
        .expect("bunraku runs")
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/states/salt")
}

/// Returns the summary, which is the last line.
fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text
        .lines()
        .last()
        .unwrap_or_else(|| panic!("no output: {}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(last).expect("JSON")
}

fn apply_example(root: &Path) -> (Output, Value) {
    let pillar = serde_json::json!({"root": root.join("machine")}).to_string();
    let state = root.join("state");
    let output = bunraku(&[
        "apply",
        example().to_str().expect("a path"),
        "--json",
        "--pillar-json",
        &pillar,
        "--state-dir",
        state.to_str().expect("a path"),
        "--detailed-exitcodes",
    ]);
    let summary = summary(&output);
    (output, summary)
}

#[test]
fn the_example_tree_converges_and_a_second_run_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let (output, first) = apply_example(directory.path());
    assert_eq!(output.status.code(), Some(2), "{first:#}");
    assert_eq!(first["failed"], 0, "{first:#}");
    let machine = directory.path().join("machine");
    let read = |path: &str| std::fs::read_to_string(machine.join(path)).expect(path);
    assert!(
        read("etc/nginx/sites/shop.conf")
            .contains("server_name shop.example.net www.shop.example.net;")
    );
    assert!(read("etc/nginx/nginx.conf").starts_with("worker_processes 4;"));
    assert!(read("srv/database/database.conf").contains("cluster_name = cluster-42"));
    assert_eq!(read("srv/web/reloads"), "reloaded\n");

    let (output, second) = apply_example(directory.path());
    assert_eq!(output.status.code(), Some(0), "{second:#}");
    assert_eq!(
        (&second["changed"], &second["failed"]),
        (&Value::from(0), &Value::from(0))
    );
    assert_eq!(read("srv/web/reloads"), "reloaded\n");
}

#[test]
fn the_summary_shows_the_same_result_as_salt_for_each_state() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("case.sls");
    std::fs::write(&file, "bad: test.fail_without_changes\nblocked:\n  test.nop:\n    - name: other\n    - require:\n      - test: bad\n").expect("written");
    let state = directory.path().join("state");
    let output = bunraku(&[
        "apply",
        file.to_str().expect("a path"),
        "--json",
        "--state-dir",
        state.to_str().expect("a path"),
    ]);
    assert_ne!(output.status.code(), Some(0));
    let summary = summary(&output);
    let blocked = &summary["states"][1];
    assert_eq!(blocked["id"], "blocked");
    assert_eq!(blocked["name"], "other");
    assert_eq!(blocked["function"], "test.nop");
    assert_eq!(blocked["file"], "case.sls");
    assert_eq!(blocked["line"], 3);
    assert_eq!(blocked["run_number"], 2);
    assert_eq!(blocked["result"], false);
    assert_eq!(blocked["ran"], false);
    assert!(
        blocked["duration"].is_number()
            && blocked["changes"].is_object()
            && blocked["comment"].is_string()
    );
}

#[test]
fn a_tree_that_cannot_be_compiled_exits_with_1_and_runs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let witness = directory.path().join("witness");
    let file = directory.path().join("case.sls");
    let text = format!(
        "touch:\n  cmd.run:\n    - name: touch {}\nbroken:\n  test.nop:\n    - require:\n      - cmd: tuch\n",
        witness.display()
    );
    std::fs::write(&file, text).expect("written");
    let output = bunraku(&["apply", file.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("case.sls:7:14") && error.contains("did you mean `touch`?"),
        "{error}"
    );
    assert!(!witness.exists());
}

#[test]
fn names_below_a_root_and_data_from_a_file_are_applied() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    std::fs::create_dir_all(root.join("tree/web")).expect("made");
    std::fs::write(
        root.join("tree/web/init.sls"),
        "{{ pillar.greeting }} {{ grains.id }}: test.nop\n",
    )
    .expect("written");
    std::fs::write(root.join("data.yml"), "greeting: hello\n").expect("written");
    let path = |name: &str| root.join(name).to_str().expect("a path").to_owned();
    let output = bunraku(&[
        "states",
        "show",
        "web",
        "--state-root",
        &path("tree"),
        "--pillar",
        &path("data.yml"),
        "--node",
        "web1",
        "--json",
    ]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(shown[0]["id"], "hello web1");
}

#[test]
fn what_a_state_without_log_gives_is_used_and_shown_nowhere() {
    for flags in [&["--json"][..], &["--show-diff"], &[]] {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        let conf = root.join("conf");
        std::fs::write(&conf, "token = before\n").expect("written");
        let file = root.join("secret.sls");
        // Computed, so that no text in the catalog contains it.
        let text = format!(
            "make:\n  cmd.run:\n    - name: echo whisper-$((50 + 5)); echo loud-$((60 + 6)) >&2\n    \
             - register: token\n    - no_log: True\n\
             {}:\n  file.managed:\n    - contents: 'token = ${{ token.stdout }}'\n",
            conf.display()
        );
        std::fs::write(&file, text).expect("written");
        let state = root.join("state");
        let apply = [
            "apply",
            file.to_str().expect("a path"),
            "--state-dir",
            state.to_str().expect("a path"),
        ];
        let output = bunraku(&[&apply[..], flags].concat());
        let printed = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(0), "{printed}");
        let written = std::fs::read_to_string(&conf).expect("readable");
        assert_eq!(written, "token = whisper-55\n");
        for secret in ["whisper-55", "loud-66"] {
            assert!(!printed.contains(secret), "{flags:?}: {printed}");
        }
    }
}
