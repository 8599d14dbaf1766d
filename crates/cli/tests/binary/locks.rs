//! `bunraku lock`, with processes that race, die and wake up late.

use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::code::repository;
use crate::support::{ServerProcess, Site, all_output, bunraku, ended, eventually, shows, signal};

fn lock(server: &ServerProcess, arguments: &[&str]) -> Command {
    let mut command = bunraku();
    command
        .args(["--server", &server.address.to_string(), "--credentials"])
        .arg(server.credentials())
        .arg("lock")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn waiters(server: &ServerProcess, name: &str) -> usize {
    let status = server.json(&["lock", "show", name]);
    status["waiters"].as_array().expect("a list").len()
}

#[test]
fn commands_under_one_lock_never_overlap_and_each_gets_a_higher_token() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let log = site.path("log");
    let script = format!(
        "echo in >> {0}; sleep 0.1; echo out $BUNRAKU_LOCK_TOKEN >> {0}",
        log.display()
    );
    let all: Vec<Child> = (0..6)
        .map(|_| {
            lock(
                &server,
                &["exec", "db", "--wait", "60s", "--", "sh", "-c", &script],
            )
            .spawn()
            .expect("it starts")
        })
        .collect();
    for child in all {
        let output = child.wait_with_output().expect("it ends");
        ended(&output, 0);
    }
    let text = std::fs::read_to_string(log).expect("a log");
    let expected: String = (1..=6).map(|token| format!("in\nout {token}\n")).collect();
    assert_eq!(text, expected);
}

#[test]
fn a_lock_that_others_hold_is_busy_and_its_exit_code_says_so() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let taken = lock(&server, &["acquire", "db", "--reason", "maintenance"])
        .output()
        .expect("it runs");
    assert_eq!(all_output(&taken), "exit 0\n--- stdout\n1\n--- stderr\n");
    let busy = lock(&server, &["acquire", "db"]).output().expect("it runs");
    assert_eq!(
        all_output(&busy),
        "exit 11\n--- stdout\n--- stderr\ndb is held by operator.server.test (maintenance)\n"
    );
    let waited = lock(&server, &["exec", "db", "--wait", "1s", "--", "true"])
        .output()
        .expect("it runs");
    ended(&waited, 11);
    assert_eq!(waiters(&server, "db"), 0, "it left the line");
    let wrong = lock(&server, &["release", "db", "--token", "9"])
        .output()
        .expect("it runs");
    ended(&wrong, 4);
    let released = lock(&server, &["release", "db", "--token", "1"])
        .output()
        .expect("it runs");
    ended(&released, 0);
    let code = lock(&server, &["exec", "db", "--", "sh", "-c", "exit 42"])
        .output()
        .expect("it runs");
    ended(&code, 42);
}

#[test]
fn a_killed_holder_frees_the_lock_with_its_lease() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let started = site.path("started");
    let script = format!("touch {}; sleep 600", started.display());
    let mut holder = lock(
        &server,
        &["exec", "db", "--lease", "2s", "--", "sh", "-c", &script],
    )
    .spawn()
    .expect("it starts");
    eventually("it holds the lock", || started.exists());
    let next = lock(&server, &["acquire", "db", "--wait", "60s"])
        .spawn()
        .expect("it starts");
    eventually("the other waits", || waiters(&server, "db") == 1);
    holder.kill().expect("killed");
    holder.wait().expect("it ended");
    let output = next.wait_with_output().expect("it ends");
    assert_eq!(all_output(&output), "exit 0\n--- stdout\n2\n--- stderr\n");
}

#[test]
fn a_paused_holder_that_wakes_up_late_loses_its_command_and_says_so() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let started = site.path("started");
    let script = format!("touch {}; sleep 600", started.display());
    let holder = lock(
        &server,
        &["exec", "db", "--lease", "2s", "--", "sh", "-c", &script],
    )
    .spawn()
    .expect("it starts");
    eventually("it holds the lock", || started.exists());
    signal(&holder, Signal::STOP);
    let next = lock(&server, &["acquire", "db", "--wait", "60s"])
        .output()
        .expect("it runs");
    ended(&next, 0);
    signal(&holder, Signal::CONT);
    let output = holder.wait_with_output().expect("it ends");
    ended(&output, 4);
    let renewed = lock(&server, &["renew", "db", "--token", "1"])
        .output()
        .expect("it runs");
    ended(&renewed, 4);
}

#[test]
fn a_server_that_restarts_takes_no_lock_away() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let port = server.address.port();
    let (started, end) = (site.path("started"), site.path("end"));
    let script = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.1; done",
        started.display(),
        end.display()
    );
    let holder = lock(
        &server,
        &["exec", "db", "--lease", "60s", "--", "sh", "-c", &script],
    )
    .spawn()
    .expect("it starts");
    eventually("it holds the lock", || started.exists());
    server.running.kill();
    let server = site.server("server", port, &[]);
    let busy = lock(&server, &["acquire", "db"]).output().expect("it runs");
    ended(&busy, 11);
    std::fs::write(end, "").expect("written");
    let output = holder.wait_with_output().expect("it ends");
    ended(&output, 0);
    let free = lock(&server, &["acquire", "db"]).output().expect("it runs");
    assert_eq!(all_output(&free), "exit 0\n--- stdout\n2\n--- stderr\n");
}

/// Writes code whose catalogs name the holder of a lock.
fn code_that_asks(site: &Site, motd: &std::path::Path) -> std::path::PathBuf {
    let state = format!(
        "{}:\n  file.managed:\n    - contents: master is {{{{ salt['lock.holder']('db-master') or 'nobody' }}}}\n",
        motd.display()
    );
    let files = [("app.sls", &*state), ("top.sls", "base:\n  '*': [app]\n")];
    repository(site, &files)
}

#[test]
fn a_template_names_the_holder_of_a_lock_and_its_node_follows_every_change() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let motd = site.path("motd");
    let code = code_that_asks(&site, &motd);
    let flags = ["--run-interval", "0s", "--run-on-release"];
    let _app = site.agent_with("app-1", &[&server], true, &flags);
    let _db = site.agent_with("db-1", &[&server], true, &flags[..2]);
    for node in ["app-1", "db-1"] {
        eventually("facts are there", || {
            server.operator(&["facts", "show", node, "kernel"]).stdout == b"Linux\n"
        });
    }
    let url = format!("file://{}", code.display());
    for words in [
        &["environment", "add", "production", &url, "--policy", "auto"][..],
        &["environment", "deploy", "production", "--wait"],
    ] {
        let done = server.operator(words);
        ended(&done, 0);
    }
    let text = || std::fs::read_to_string(&motd).unwrap_or_default();
    eventually("nobody holds it", || text() == "master is nobody\n");
    let permit = ["lock", "permit", "db-master", "--may-hold", "db-*"];
    let permitted = server.operator(&permit);
    ended(&permitted, 0);
    // A node takes the lock as itself, and renews it as long as the check runs.
    let take = || {
        let taken = bunraku()
            .args(["--server", &server.address.to_string(), "--credentials"])
            .arg(site.path("db-1").join("tls"))
            .args(["lock", "acquire", "db-master", "--lease", "5s", "--as", "t"])
            .output()
            .expect("it runs");
        ended(&taken, 0);
    };
    eventually("it is compiled, released and applied again", || {
        take();
        text() == "master is db-1\n"
    });
    // Nobody renews it any more: the end of its lease is a change as well.
    eventually("its lease ends", || text() == "master is nobody\n");
    let catalogs = server.json(&["catalog", "show", "app-1"]).to_string();
    assert!(catalogs.contains("master is nobody"), "{catalogs}");
    // On a machine, `bunraku apply` asks the server.
    let applied = bunraku()
        .env("BUNRAKU_SERVERS", server.address.to_string())
        .env("BUNRAKU_CREDENTIALS", site.path("db-1").join("tls"))
        .args(["--json", "states", "show"])
        .arg(code.join("app.sls"))
        .output()
        .expect("it runs");
    shows(&applied, "master is nobody");
}
