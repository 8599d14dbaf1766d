//! The configuration file, and the sources that override it.

use expect_test::{Expect, expect};

use crate::support::{all_output, bunraku};

fn check(file: &str, expected: Expect) {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("bunraku.toml"), file).expect("written");
    let output = bunraku()
        .current_dir(directory.path())
        .args(["config", "check", "--config", "bunraku.toml"])
        .output()
        .expect("it runs");
    expected.assert_eq(&all_output(&output));
}

#[test]
fn a_right_file_is_ok() {
    check(
        "[server]\nlisten = \"127.0.0.1:8150\"\n[agent]\nservers = [\"bunraku.example.com\"]\nfacts_interval = \"1h\"\n",
        expect![[r#"
            exit 0
            --- stdout
            bunraku.toml: ok
            --- stderr
        "#]],
    );
}

#[test]
fn a_misspelt_key_is_named_with_its_place() {
    check(
        "[agent]\nserver = \"x\"\n",
        expect![[r#"
            exit 1
            --- stdout
            --- stderr
            error: the configuration bunraku.toml is not valid
              because: TOML parse error at line 2, column 1
              |
            2 | server = "x"
              | ^^^^^^
            unknown field `server`, expected one of `name`, `servers`, `data_dir`, `ca_fingerprint`, `token_file`, `facts_interval`, `external_facts`, `external_facts_timeout`, `plugin_sync`, `run_method`, `puppet`, `run_command`, `run_noop_command`, `run_success_codes`, `run_interval`, `run_splay`, `run_on_release`, `release_splay`, `noop`, `windows`, `run_timeout`, `order`, `lock_wait`, `state_dir`, `module_keys`, `root`, `report_unchanged`, `spool_bytes`, `catalog_bytes`


            hint: check it with `bunraku config check --config bunraku.toml`
        "#]],
    );
}

#[test]
fn values_that_do_not_fit_together_are_all_named() {
    check(
        "[server]\nhealth_listen = \"0.0.0.0:1\"\n[server.store]\nkind = \"etcd\"\n[server.authority]\nkind = \"puppet\"\n[server.compile]\nmax_catalog_bytes = 0\n[client]\nservers = [\"a b\"]\n",
        expect![[r#"
            exit 1
            --- stdout
            --- stderr
            error: bunraku.toml: client.servers: `a b` is not the address of a server (write `host`, `host:port` or `[::1]:port`)
            error: bunraku.toml: server.store: etcd needs `endpoints`
            error: bunraku.toml: server.authority: a Puppet CA needs `directory`
            error: bunraku.toml: server.health_listen: must be a loopback address, because it does not require a certificate
            error: bunraku.toml: server.compile.max_catalog_bytes: must be at least 1
        "#]],
    );
}

#[test]
fn a_file_that_was_named_and_is_not_there_is_an_error() {
    let output = bunraku()
        .args(["node", "list", "--config", "/nonexistent.toml"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", all_output(&output));
    assert!(all_output(&output).contains("cannot read the configuration /nonexistent.toml"));
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bunraku.toml");
    let unreachable = |port: u16| format!("127.0.0.1:{port}");
    std::fs::write(
        &file,
        format!("[client]\nservers = [\"{}\"]\n", unreachable(3)),
    )
    .expect("written");
    // Credentials are needed before any request.
    let credentials = crate::support::Site::new();
    let server = credentials.server("server", 0, &[]);
    let run = |environment: bool, flag: bool| {
        let mut command = bunraku();
        command
            .args(["node", "list", "--config"])
            .arg(&file)
            .arg("--credentials")
            .arg(server.credentials());
        if environment {
            command.env("BUNRAKU_SERVERS", unreachable(2));
        }
        if flag {
            command.args(["--server", &unreachable(1)]);
        }
        all_output(&command.output().expect("it runs"))
    };
    assert!(
        run(false, false).contains("127.0.0.1:3"),
        "{}",
        run(false, false)
    );
    assert!(
        run(true, false).contains("127.0.0.1:2"),
        "{}",
        run(true, false)
    );
    assert!(
        run(true, true).contains("127.0.0.1:1"),
        "{}",
        run(true, true)
    );
}
