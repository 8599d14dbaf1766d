//! Contexts, short names, several nodes at once, and the completions of shells.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Site, all_output, bunraku};

/// Runs `bunraku` as a user with this home directory.
fn at_home(home: &Path, words: &[&str]) -> Output {
    let mut command = bunraku();
    let output = command.env("HOME", home).args(words).output();
    output.expect("it runs")
}

#[test]
fn a_context_names_a_fleet_and_is_used_until_another_one_is() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let home = site.path("home");
    let (address, credentials) = (server.address.to_string(), server.credentials());
    let credentials = credentials.to_str().expect("a path");
    let run = |words: &[&str], code: i32| {
        let output = at_home(&home, words);
        let shown = all_output(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}\n{shown}");
        shown
    };
    assert!(run(&["node", "list"], 1).contains("no credentials found"));
    assert!(run(&["context", "list"], 0).contains("no contexts"));
    let missing = run(&["context", "add", "a", "--server", &address], 1);
    assert!(missing.contains("there is no cert.pem in"), "{missing}");
    assert!(run(&["context", "add", "a"], 64).contains("needs a server"));
    let add = |name| {
        [
            "context",
            "add",
            name,
            "--server",
            &address,
            "--credentials",
            credentials,
        ]
    };
    let added = run(&add("production"), 0);
    assert!(
        added.contains("Added context production, which is now in use."),
        "{added}"
    );
    assert!(run(&["node", "list"], 0).contains("no nodes yet"));
    // Another fleet, which does not answer.
    let dead = [
        "context",
        "add",
        "lab",
        "--server",
        "127.0.0.1:9",
        "--credentials",
        credentials,
    ];
    assert!(run(&dead, 0).contains("`bunraku context use lab`"));
    assert!(run(&["node", "list"], 0).contains("no nodes yet"));
    run(&["node", "list", "--context", "lab"], 1);
    assert!(run(&["context", "use", "lab"], 0).contains("Using context lab."));
    run(&["node", "list"], 1);
    // Flags come first.
    run(&["node", "list", "--server", &address], 0);
    run(&["node", "list", "--context", "production"], 0);
    assert!(run(&["context", "use", "prod"], 1).contains("there is lab, production"));
    let list = run(&["context", "list"], 0);
    assert!(list.contains("\n*  lab         127.0.0.1:9"), "{list}");
    assert!(run(&["context", "remove", "lab"], 0).contains("No context is in use now."));
    assert!(run(&["node", "list"], 1).contains("no credentials found"));
    let list = at_home(&home, &["context", "list", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert_eq!(list[0]["name"], "production");
    assert_eq!(list[0]["current"], false);
    // A damaged file is named, and nothing is overwritten.
    let file = home.join(".config/bunraku/contexts.toml");
    std::fs::write(&file, "contexts = 7\n").expect("written");
    let damaged = run(&["context", "use", "production"], 1);
    assert!(damaged.contains("contexts.toml is not valid"), "{damaged}");
    assert_eq!(
        std::fs::read_to_string(&file).expect("text"),
        "contexts = 7\n"
    );
}

#[test]
fn short_names_queries_and_all_select_nodes() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let names = ["web-1.a.test", "web-2.a.test", "web-2.b.test"];
    let _agents = names.map(|name| site.agent(name, &[&server], true));
    for name in names {
        server.wait_for_facts(name);
    }
    let run = |words: &[&str], code: i32| {
        let output = server.operator(words);
        let shown = all_output(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}\n{shown}");
        shown
    };
    assert!(run(&["node", "show", "web-1"], 0).contains("web-1.a.test"));
    assert!(run(&["node", "ping", "web-1"], 0).contains("web-1.a.test"));
    assert!(run(&["facts", "show", "web-1", "kernel"], 0).contains("Linux"));
    let several = run(&["node", "ping", "web-2"], 1);
    assert!(
        several.contains("`web-2` is short for several nodes"),
        "{several}"
    );
    assert!(
        several.contains("write one of web-2.a.test, web-2.b.test"),
        "{several}"
    );
    assert!(run(&["node", "show", "web-9"], 1).contains("web-9"));
    // Removing takes a full name.
    run(&["node", "remove", "web-1"], 1);
    let all = run(&["node", "run", "--all"], 0);
    assert!(names.iter().all(|name| all.contains(name)), "{all}");
    let query = "nodes { certname ~ \"^web-2\" }";
    let some = run(&["node", "run", "--query", query], 0);
    assert!(
        !some.contains("web-1") && some.contains("web-2.b.test"),
        "{some}"
    );
    let none = run(&["node", "run", "--query", "nodes { certname = \"x\" }"], 1);
    assert!(none.contains("no node matches"), "{none}");
    run(&["node", "run"], 64);
    run(&["node", "run", "web-1", "--all"], 64);
}

#[test]
fn a_shell_completes_names_from_the_server() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let _agent = site.agent("web-1.a.test", &[&server], true);
    server.wait_for_facts("web-1.a.test");
    let programs = site.path("programs");
    std::fs::create_dir(&programs).expect("a directory");
    let program = bunraku().get_program().to_owned();
    std::os::unix::fs::symlink(program, programs.join("bunraku")).expect("a link");
    let script = "source <(bunraku completions bash)
        complete_line() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _bunraku; echo \"${COMPREPLY[@]}\"; }
        complete_line bunraku rel
        complete_line bunraku node show we
        complete_line bunraku node list --fai
        complete_line bunraku release show x";
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["-c", script])
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("BUNRAKU_SERVERS", server.address.to_string())
        .env("BUNRAKU_CREDENTIALS", server.credentials())
        .output()
        .expect("bash runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        shown,
        "release\nweb-1.a.test\n--failed\n\n",
        "{}",
        all_output(&output)
    );
}

/// Runs a line of shell on a terminal of 60 columns, and returns what it shows.
fn on_terminal(server: &crate::support::ServerProcess, line: &str) -> String {
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(format!("stty cols 60; {line}"))
        .arg("/dev/null")
        .env("BUNRAKU", bunraku().get_program())
        .env("BUNRAKU_SERVERS", server.address.to_string())
        .env("BUNRAKU_CREDENTIALS", server.credentials())
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .output()
        .expect("script runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn on_a_terminal_lists_fit_and_waits_say_what_they_wait_for() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let _agent = site.agent("web-1.a-rather-long-domain.test", &[&server], true);
    server.wait_for_facts("web-1.a-rather-long-domain.test");
    let reason = "the disk of this machine is being replaced, and nobody knows until when";
    let disable = ["node", "disable", "web-1", "--reason", reason];
    let disabled = server.operator(&disable);
    assert!(disabled.status.success(), "{}", all_output(&disabled));
    let list = on_terminal(&server, "$BUNRAKU node list");
    assert!(list.contains("\u{1b}[33mdisabled"), "{list:?}");
    assert!(list.contains('…'), "{list:?}");
    for line in list.lines() {
        let mut colour = false;
        let shown = line.chars().filter(|c| {
            let is_shown = !colour && *c != '\u{1b}' && *c != '\r';
            colour = *c == '\u{1b}' || (colour && *c != 'm');
            is_shown
        });
        assert!(shown.count() <= 60, "{line:?}");
    }
    let held = server.operator(&["lock", "acquire", "deploy", "--lease", "10m"]);
    assert!(held.status.success(), "{}", all_output(&held));
    let waited = on_terminal(&server, "$BUNRAKU lock acquire deploy --wait 3s");
    assert!(
        waited.contains("… waiting for the lock (1 s)"),
        "{waited:?}"
    );
    let piped = server.operator(&["lock", "acquire", "deploy", "--wait", "3s"]);
    assert!(!all_output(&piped).contains("waiting for the lock"));
}
