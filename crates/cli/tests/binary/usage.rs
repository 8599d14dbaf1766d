//! The messages of the command line, with their exit code and stream.

use expect_test::{Expect, expect};

use crate::support::{all_output, bunraku, output_in};

fn check(arguments: &[&str], expected: Expect) {
    let output = bunraku().args(arguments).output().expect("it runs");
    expected.assert_eq(&all_output(&output));
}

#[test]
fn an_unknown_flag_is_a_usage_error() {
    check(
        &["node", "list", "--al"],
        expect![[r#"
            exit 64
            --- stdout
            --- stderr
            error: unexpected argument '--al' found

              tip: a similar argument exists: '--failed'

            Usage: bunraku node list [OPTIONS]

            For more information, try '--help'.
        "#]],
    );
}

#[test]
fn a_name_that_cannot_be_one_is_a_usage_error_that_says_why() {
    check(
        &["node", "show", "Web/1"],
        expect![[r#"
            exit 64
            --- stdout
            --- stderr
            error: invalid value 'Web/1' for '<NODE>': `Web/1` is not a valid name for a node: only a-z, 0-9, `.`, `-` and `_` are allowed

            For more information, try '--help'.
        "#]],
    );
}

#[test]
fn without_credentials_the_error_names_the_next_step() {
    check(
        &["node", "list"],
        expect![[r#"
            exit 1
            --- stdout
            --- stderr
            error: no credentials found

            hint: pass `--credentials DIR` or set BUNRAKU_CREDENTIALS; root on a server needs neither
        "#]],
    );
}

#[test]
fn an_agent_without_a_fingerprint_does_not_trust_any_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let agent = ["agent", "--name", "web-1", "--server", "127.0.0.1:9"];
    let shown = output_in(
        directory.path(),
        &[&agent[..], &["--log", "error"]].concat(),
    );
    expect![[r#"
        exit 1
        --- stdout
        --- stderr
        error: the node could not join
          because: joining needs the CA fingerprint (`--ca-fingerprint SHA256:…`)
    "#]]
    .assert_eq(&shown);
}

#[test]
fn help_is_an_answer_and_has_examples() {
    for arguments in [
        &["--help"][..],
        &["node", "disable", "--help"],
        &["server", "--help"],
        &["token", "create", "--help"],
    ] {
        let output = bunraku().args(arguments).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(text.contains("Example"), "{arguments:?}: {text}");
    }
}

#[test]
fn nothing_to_do_is_a_usage_error() {
    assert_eq!(bunraku().output().expect("it runs").status.code(), Some(64));
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let output = bunraku()
            .args(["completions", shell])
            .output()
            .expect("it runs");
        assert!(
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains("bunraku"),
            "{shell}"
        );
    }
    let directory = tempfile::tempdir().expect("a directory");
    let output = bunraku()
        .arg("man")
        .arg(directory.path())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", all_output(&output));
    let page = std::fs::read_to_string(directory.path().join("bunraku-node-list.1"))
        .expect("a page per command");
    assert!(page.contains("bunraku"));
}

#[test]
fn local_facts_need_no_server() {
    let one = bunraku()
        .args(["facts", "local", "kernel"])
        .output()
        .expect("it runs");
    assert_eq!(
        all_output(&one).lines().take(3).collect::<Vec<_>>(),
        ["exit 0", "--- stdout", "Linux"]
    );
    let none = bunraku()
        .args(["facts", "local", "no.such.fact"])
        .output()
        .expect("it runs");
    assert_eq!(none.status.code(), Some(1));
}
