//! `--json` of every command: standard output has only JSON, and so does standard error.
//!
//! The tests walk all commands, and run the examples of their help with `--json`. Most of them fail
//! here, because the examples name machines that do not exist: errors are JSON too.

use std::process::{Command, Output};

use serde_json::Value;

use crate::code::release_to_all;
use crate::manual::Helps;
use crate::support::{Running, ServerProcess, Site, all_output, bunraku};

/// Commands that never end by themselves, or that would change this machine. Each is tested
/// elsewhere, or below with other words.
const NOT_HERE: &[&str] = &[
    "agent",
    "audit follow",
    "console",
    "demo",
    "man",
    "report follow",
    "server",
    "signer",
    "trigger watch",
];

#[test]
fn every_command_prints_json_and_nothing_else() {
    let fleet = Fleet::start();
    let mut helps = Helps::default();
    let mut leaves = 0;
    for leaf in helps.leaves() {
        let name = leaf.join(" ");
        if NOT_HERE.contains(&name.as_str()) {
            continue;
        }
        leaves += 1;
        let examples = helps.examples(&leaf);
        assert!(!examples.is_empty(), "{name} has no example");
        for example in examples {
            fleet.check(&example);
        }
    }
    assert!(leaves > 95, "only {leaves} commands were found");
}

#[test]
fn commands_that_find_something_print_their_data() {
    let fleet = Fleet::start();
    for words in [
        "node list",
        "node show web-1",
        "node run web-1 --wait",
        "node disable web-1 --reason test",
        "node enable web-1",
        "node ping web-1",
        "node queue web-1",
        "facts show web-1",
        "facts refresh web-1",
        "facts history web-1",
        "report list",
        "query nodes[certname]{}",
        "environment list",
        "environment show production",
        "environment set production --policy manual",
        "environment deploy production --wait",
        "catalog list",
        "catalog show web-1",
        "compile web-1 --wait",
        "compile list",
        "release list production",
        "release create production",
        "release show production",
        "release hold production --reason test",
        "release resume production",
        "cert list",
        "token create",
        "token list",
        "lock acquire deploy",
        "lock show deploy",
        "trigger define refresh --hosts web-1",
        "trigger fire refresh --hosts web-1",
        "trigger history",
        "status",
    ] {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let output = fleet.check(&words);
        let code = output.status.code();
        // `status` reports problems with 3.
        assert!(
            matches!(code, Some(0 | 3)),
            "{words:?}: {}",
            all_output(&output)
        );
        assert!(
            !output.stdout.is_empty(),
            "{words:?}: {}",
            all_output(&output)
        );
    }
}

#[test]
fn usage_errors_are_json_too() {
    for words in [
        &["--json", "node", "lost"][..],
        &["node", "list", "--al", "--json"],
        &["release", "create", "--json"],
        &["node", "show", "Web/1", "--json"],
    ] {
        let output = bunraku().args(words).output().expect("it runs");
        let error = errors(&output);
        let [error] = error.as_slice() else {
            panic!("{words:?}: {}", all_output(&output))
        };
        assert_eq!(error["exit_code"], 64, "{words:?}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(
            !message.is_empty() && !message.starts_with("error"),
            "{message}"
        );
        assert_eq!(output.status.code(), Some(64));
    }
    // What follows `--` belongs to another program.
    let words = ["lock", "exec", "--", "x", "--json"];
    let output = bunraku().args(words).output().expect("it runs");
    assert!(
        output.stderr.starts_with(b"error: "),
        "{}",
        all_output(&output)
    );
}

/// A server with an environment, a node and a release.
struct Fleet {
    server: ServerProcess,
    _agent: Running,
    site: Site,
}

impl Fleet {
    fn start() -> Self {
        let site = Site::new();
        let server = site.server("server", 0, &[]);
        let agent = site.agent("web-1", &[&server], true);
        server.wait_for_facts("web-1");
        release_to_all(&site, &server, "resources:\n  Notify[hello]: {}\n");
        Self {
            server,
            _agent: agent,
            site,
        }
    }

    /// Runs a command with `--json`, and checks both streams.
    fn check(&self, words: &[String]) -> Output {
        let at = words.iter().position(|word| word == "--");
        let (own, other) = words.split_at(at.unwrap_or(words.len()));
        let output = self
            .command()
            .args(own)
            .arg("--json")
            .args(other)
            .output()
            .expect("it runs");
        let shown = || format!("{words:?}: {}", all_output(&output));
        let text = String::from_utf8_lossy(&output.stdout);
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        for value in values {
            let value = value.unwrap_or_else(|error| panic!("{error}: {}", shown()));
            // Text for people in JSON helps no program.
            assert!(value.get("text").is_none(), "{}", shown());
        }
        let errors = errors(&output);
        let code = output.status.code().expect("it exits");
        if output.stdout.is_empty() {
            assert_eq!(errors.len(), 1, "{}", shown());
        }
        for error in errors {
            assert_eq!(error["exit_code"], code, "{}", shown());
            let text = error.to_string();
            for internal in ["Error(", "Some(", "None,", "::", "{ "] {
                let message = error["message"].as_str().unwrap_or_default();
                assert!(
                    !message.contains(internal) || message.contains('`'),
                    "{text}"
                );
            }
        }
        output
    }

    /// Returns the binary with the server, and with places of its own for everything it writes.
    fn command(&self) -> Command {
        let mut command = bunraku();
        command
            .current_dir(self.site.path(""))
            .env("HOME", self.site.path("home"))
            .env("BUNRAKU_SERVERS", self.server.address.to_string())
            .env("BUNRAKU_CREDENTIALS", self.server.credentials())
            .env("BUNRAKU_DATA_DIR", self.site.path("elsewhere"))
            .env("BUNRAKU_STATE_DIR", self.site.path("state"))
            .env("BUNRAKU_MODULE_KEYS", self.site.path("keys"));
        command
    }
}

/// Returns the errors on standard error, on which every line is JSON.
fn errors(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let values = lines.map(|line| {
        let value: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{error}: {line}\n{}", all_output(output)));
        value
    });
    values
        .filter_map(|value| value.get("error").cloned())
        .collect()
}
