//! `stat`, `init` and `once`, with processes on hosts that race.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{ServerProcess, Site, all_output, bunraku, eventually, signal};

struct Apps {
    site: Site,
    server: ServerProcess,
}

impl Apps {
    fn new() -> Self {
        let site = Site::new();
        let server = site.server("server", 0, &[]);
        Self { site, server }
    }

    fn define(&self, app: &str, definition: &serde_json::Value) {
        let file = self.site.path(&format!("{app}.json"));
        std::fs::write(&file, definition.to_string()).expect("written");
        let file = file.display().to_string();
        let defined = self.server.operator(&["once", "define", app, "-f", &file]);
        assert_eq!(defined.status.code(), Some(0), "{}", all_output(&defined));
    }

    fn code(&self, arguments: &[&str]) -> i32 {
        let output = self.server.operator(arguments);
        output
            .status
            .code()
            .unwrap_or_else(|| panic!("{}", all_output(&output)))
    }

    /// Starts `bunraku` as the operator, without waiting for it.
    fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().expect("it starts")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bunraku();
        command
            .args(arguments)
            .arg("--server")
            .arg(self.server.address.to_string())
            .arg("--credentials")
            .arg(self.server.credentials())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

#[test]
fn stat_answers_with_its_exit_code_and_never_with_zero_by_accident() {
    let apps = Apps::new();
    let started = apps.site.path("started");
    let may_end = apps.site.path("may-end");
    assert_eq!(apps.code(&["stat", "app_1"]), 12, "not defined");
    let wait = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.1; done",
        started.display(),
        may_end.display()
    );
    apps.define("app_1", &json!({"command": wait}));
    assert_eq!(apps.code(&["stat", "app_1"]), 0);
    let mut init = apps.start(&["init", "app_1"]);
    eventually("it runs", || started.exists());
    assert_eq!(apps.code(&["stat", "app_1"]), 11);
    assert_eq!(apps.code(&["init", "app_1"]), 11);
    std::fs::write(&may_end, "").expect("written");
    assert_eq!(init.wait().expect("it ends").code(), Some(0));
    assert_eq!(apps.code(&["stat", "app_1"]), 10);
    assert_eq!(apps.code(&["init", "app_1"]), 10);
    assert_eq!(apps.code(&["init", "app_1", "--wait"]), 0, "as the one did");
    // Every failure is 1, or a usage error.
    let wrong = apps.site.path("wrong.json");
    std::fs::write(&wrong, r#"{"command": 5}"#).expect("written");
    let wrong = wrong.display().to_string();
    let refused = apps.server.operator(&["stat", "app_2", "-f", &wrong]);
    assert_eq!(refused.status.code(), Some(1), "{}", all_output(&refused));
    assert!(
        all_output(&refused).contains("command"),
        "{}",
        all_output(&refused)
    );
    let port = apps.server.address.port();
    let credentials = apps.server.credentials();
    apps.server.running.kill();
    let ask = |arguments: &[&str]| {
        let mut command = bunraku();
        command.args(["stat", "app_2"]).args(arguments);
        command.output().expect("it runs").status.code()
    };
    let credentials = credentials.display().to_string();
    let address = format!("127.0.0.1:{port}");
    assert_eq!(
        ask(&["--server", &address, "--credentials", &credentials]),
        Some(1),
        "no server"
    );
    assert_eq!(
        ask(&["--server", &address, "--credentials", "/nonexistent"]),
        Some(1)
    );
    assert_eq!(ask(&["--server", &address]), Some(1), "no credentials");
    assert_eq!(ask(&["-f", "/nonexistent"]), Some(1), "no file");
    assert_eq!(
        ask(&["--config", "/nonexistent"]),
        Some(1),
        "no configuration"
    );
    assert_eq!(ask(&["--nonsense"]), Some(64));
}

#[test]
fn a_server_of_another_authority_is_an_error_and_not_an_answer() {
    let apps = Apps::new();
    let other = apps.site.server("other", 0, &[]);
    let mut command = bunraku();
    command.args([
        "stat",
        "app_1",
        "--server",
        &other.address.to_string(),
        "--credentials",
    ]);
    let output = command
        .arg(apps.server.credentials())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", all_output(&output));
}

#[test]
fn of_many_processes_one_does_it_and_the_others_can_wait_for_its_result() {
    let apps = Apps::new();
    let file = apps.site.path("done");
    let script = format!(
        "cat > /dev/null; echo x >> {}; sleep 1; exit 7",
        file.display()
    );
    apps.define("app_1", &json!({"command": script}));
    let inits: Vec<Child> = (0..8)
        .map(|_| apps.start(&["init", "app_1", "--wait"]))
        .collect();
    for mut init in inits {
        let code = init.wait().expect("it ends").code();
        // A caller after the end finds a failure that may not be repeated.
        assert!(matches!(code, Some(7 | 12)), "{code:?}");
    }
    assert_eq!(lines(&file), 1, "exactly once");
    assert_eq!(apps.code(&["stat", "app_1"]), 12);
    assert_eq!(apps.code(&["stat", "app_1", "--retry"]), 0);
    let shown = all_output(&apps.server.operator(&["once", "list"]));
    assert!(shown.contains("failed with exit code 7"), "{shown}");
}

#[test]
fn the_definition_and_its_fragments_reach_the_command_and_its_output_the_log() {
    let apps = Apps::new();
    let seen = apps.site.path("seen.json");
    let script = format!(
        "cat > {}; echo to the log; echo token $BUNRAKU_ONCE_TOKEN >&2",
        seen.display()
    );
    apps.define(
        "app_1",
        &json!({
            "command": ["/bin/sh", "-c", script], "expected_hosts": 1,
            "sites": {"chicago": ["db-1"]}, "own": {"x": 1},
        }),
    );
    let incomplete = apps.server.operator(&["stat", "app_1"]);
    assert!(
        all_output(&incomplete).contains("it needs 1 of 1 fragments"),
        "{}",
        all_output(&incomplete)
    );
    let part = apps.site.path("part.json");
    std::fs::write(&part, r#"{"datacentre": "ann-arbor"}"#).expect("written");
    let part = part.display().to_string();
    assert_eq!(
        apps.code(&["once", "fragment", "app_1", "--host", "web-1", "-f", &part]),
        0
    );
    let init = apps.server.operator(&["init", "app_1"]);
    assert_eq!(
        all_output(&init),
        "exit 0\n--- stdout\nto the log\n--- stderr\ntoken 1\n"
    );
    let text = std::fs::read_to_string(seen).expect("its input");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        document["sites"],
        json!({"chicago": ["db-1"], "ann-arbor": ["web-1"]})
    );
    assert_eq!(document["own"]["x"], 1);
    let log = apps.server.json(&["once", "show", "app_1"])["log"].clone();
    let log = log.as_str().expect("a log").to_owned();
    assert!(
        log.contains("to the log") && log.contains("token 1"),
        "{log}"
    );
}

impl Apps {
    /// Starts `bunraku init` for a task that is a state file.
    fn init_states(&self, app: &str, sls: &str, flags: &[&str]) -> Child {
        let file = self.site.path("task.sls");
        std::fs::write(&file, sls).expect("written");
        self.define(app, &json!({"states": file.display().to_string()}));
        let mut command = self.command(&[&["init", app], flags].concat());
        command.env("BUNRAKU_STATE_DIR", self.site.path("engine"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    }

    fn log_of(&self, app: &str) -> String {
        let log = self.server.json(&["once", "show", app])["log"].clone();
        log.as_str().unwrap_or_default().to_owned()
    }
}

/// Returns the command lines of the programs that a process started and that still run.
fn children_of(pid: u32) -> Vec<String> {
    let listed = Command::new("ps")
        .args(["--ppid", &pid.to_string(), "-o", "args="])
        .output()
        .expect("ps runs");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn states_are_applied_by_init_itself_and_their_output_is_in_the_log() {
    let apps = Apps::new();
    let (started, may_end) = (apps.site.path("started"), apps.site.path("may-end"));
    let seen = apps.site.path("seen");
    let sls = format!(
        "{seen}:
  file.managed:
    - contents: token {{{{ salt['environ.get']('BUNRAKU_ONCE_TOKEN') }}}}
work:
  cmd.run:
    - name: echo $BUNRAKU_ONCE_APP; touch {started}; while [ ! -e {may_end} ]; do sleep 0.1; done
",
        seen = seen.display(),
        started = started.display(),
        may_end = may_end.display(),
    );
    let init = apps.init_states("app_1", &sls, &[]);
    eventually("it runs", || started.exists());
    let children = children_of(init.id());
    assert!(
        children.iter().any(|child| child.contains("may-end")),
        "the command is its own child: {children:?}"
    );
    assert!(
        !children.iter().any(|child| child.contains(" apply ")),
        "no other bunraku: {children:?}"
    );
    std::fs::write(&may_end, "").expect("written");
    let output = init.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", all_output(&output));
    assert_eq!(std::fs::read_to_string(&seen).expect("a file"), "token 1\n");
    let (shown, log) = (all_output(&output), apps.log_of("app_1"));
    for expected in ["Exec[work]  changed", "| app_1", "applied", "ansible"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert!(!log.contains('\u{1b}'), "{log:?}");
    assert_eq!(apps.code(&["stat", "app_1"]), 10);
}

#[test]
fn states_that_fail_or_do_not_compile_are_a_failed_attempt_with_the_reason() {
    let apps = Apps::new();
    for (app, sls, reason) in [
        (
            "app_1",
            "work:\n  cmd.run:\n    - name: exit 7\n",
            "exit code 7",
        ),
        ("app_2", "no:\n  cmd.run: []\n", "cannot be compiled"),
    ] {
        let output = apps.init_states(app, sls, &[]).wait_with_output();
        let output = output.expect("it ends");
        assert_eq!(output.status.code(), Some(1), "{}", all_output(&output));
        let shown = all_output(&apps.server.operator(&["once", "show", app]));
        assert!(shown.contains("with exit code 1"), "{shown}");
        assert!(apps.log_of(app).contains(reason), "{shown}");
    }
}

/// Starts states whose first step runs for a long time. Ends them with `end`, which returns the
/// exit code. No later step may run, and the command must end.
fn states_end_with(end: impl FnOnce(&Apps, Child) -> Option<i32>) {
    let apps = Apps::new();
    let (started, finished) = (apps.site.path("started"), apps.site.path("finished"));
    let sls = format!(
        "work:
  cmd.run:
    - name: echo $$ > {0}.new; mv {0}.new {0}; sleep 600; touch {1}
later:
  cmd.run:
    - name: touch {1}
",
        started.display(),
        finished.display()
    );
    let init = apps.init_states("app_1", &sls, &["--lease", "2s"]);
    eventually("it runs", || started.exists());
    let pid = std::fs::read_to_string(&started).expect("a pid");
    let code = end(&apps, init);
    assert!(matches!(code, None | Some(1)), "{code:?}");
    eventually("the command is gone", || {
        !Path::new(&format!("/proc/{}", pid.trim())).exists()
    });
    assert!(!finished.exists());
    eventually("the attempt ends", || apps.code(&["stat", "app_1"]) == 12);
}

#[test]
fn states_end_when_their_claim_is_lost() {
    states_end_with(|apps, mut init| {
        signal(&init, Signal::STOP);
        eventually("its lease ends", || apps.code(&["stat", "app_1"]) == 12);
        signal(&init, Signal::CONT);
        init.wait().expect("it ends").code()
    });
}

#[test]
fn states_end_with_a_signal_and_the_attempt_has_failed() {
    states_end_with(|apps, mut init| {
        signal(&init, Signal::TERM);
        let code = init.wait().expect("it ends").code();
        assert!(apps.log_of("app_1").contains("interrupted"));
        code
    });
}

#[test]
fn states_end_when_their_claimant_is_killed() {
    states_end_with(|_, mut init| {
        init.kill().expect("killed");
        init.wait().expect("it ends").code()
    });
}

#[test]
fn a_claimant_that_is_killed_takes_its_command_with_it_and_has_abandoned_it() {
    let apps = Apps::new();
    let (started, finished) = (apps.site.path("started"), apps.site.path("finished"));
    let script = format!(
        "echo half way; echo $$ > {0}.new; mv {0}.new {0}; sleep 5; touch {1}",
        started.display(),
        finished.display()
    );
    apps.define("app_1", &json!({"command": script}));
    let mut init = apps.start(&["init", "app_1", "--lease", "2s"]);
    eventually("it runs", || started.exists());
    let pid: i32 = std::fs::read_to_string(&started)
        .expect("a pid")
        .trim()
        .parse()
        .expect("a pid");
    // Long enough for a heartbeat, which carries the log.
    eventually("the log is there", || {
        apps.server.json(&["once", "show", "app_1"])["log"]
            .as_str()
            .is_some_and(|log| log.contains("half way"))
    });
    let mut waiter = apps.start(&["init", "app_1", "--wait"]);
    init.kill().expect("killed");
    init.wait().expect("it ended");
    // The code is never 0, whether it asked before or after the end of the lease.
    let code = waiter.wait().expect("it ends").code();
    assert!(matches!(code, Some(1 | 12)), "{code:?}");
    eventually("the kernel ended the command", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    eventually("its lease ends", || apps.code(&["stat", "app_1"]) == 12);
    assert!(!finished.exists());
    let shown = all_output(&apps.server.operator(&["once", "show", "app_1"]));
    assert!(
        shown.contains("was abandoned") && shown.contains("half way"),
        "{shown}"
    );
    assert_eq!(
        apps.code(&["once", "reset", "app_1", "--reason", "looked at it"]),
        0
    );
    assert_eq!(apps.code(&["stat", "app_1"]), 0);
}

#[test]
fn a_paused_claimant_that_wakes_up_late_is_refused_and_ends_its_command() {
    let apps = Apps::new();
    let (started, finished) = (apps.site.path("started"), apps.site.path("finished"));
    let script = format!(
        "touch {}; sleep 600; touch {}",
        started.display(),
        finished.display()
    );
    apps.define("app_1", &json!({"command": script}));
    let mut init = apps.start(&["init", "app_1", "--lease", "2s"]);
    eventually("it runs", || started.exists());
    signal(&init, Signal::STOP);
    eventually("its lease ends", || apps.code(&["stat", "app_1"]) == 12);
    signal(&init, Signal::CONT);
    assert_eq!(init.wait().expect("it ends").code(), Some(1));
    assert!(!finished.exists());
    assert_eq!(
        apps.code(&["stat", "app_1"]),
        12,
        "its outcome did not count"
    );
}

#[test]
fn nodes_ask_and_act_as_themselves() {
    let apps = Apps::new();
    let agent = apps.site.agent("web-1", &[&apps.server], true);
    apps.server.wait_for("web-1", "idle");
    let file = apps.site.path("app.json");
    std::fs::write(&file, r#"{"command": "echo done by a node"}"#).expect("written");
    // As root on a node, the agent's own directory is found through the configuration.
    let configuration = apps.site.path("node.toml");
    let text = format!(
        "[agent]\ndata_dir = {:?}\nservers = [\"{}\"]\n",
        apps.site.path("web-1"),
        apps.server.address
    );
    std::fs::write(&configuration, text).expect("written");
    let node = |arguments: &[&str]| {
        let mut command = bunraku();
        command.arg("--config").arg(&configuration).args(arguments);
        command.output().expect("it runs")
    };
    let file = file.display().to_string();
    let file = file.as_str();
    // Nobody permitted it: the refusal says how.
    for (words, code, command) in [
        (
            &["stat", "app_1"][..],
            12,
            "bunraku once permit … --init-on web-1",
        ),
        (
            &["init", "app_1", "-f", file],
            4,
            "bunraku once permit app_1 --init-on web-1",
        ),
        (
            &["once", "fragment", "app_1", "-f", file],
            4,
            "bunraku once permit app_1 --contributors web-1",
        ),
        (
            &["lock", "acquire", "db"],
            4,
            "bunraku lock permit db --may-hold web-1",
        ),
        (
            &["trigger", "fire", "go", "--hosts", "web-1"],
            4,
            "bunraku trigger permit go --fired-by web-1 --hosts web-1",
        ),
    ] {
        let refused = node(words);
        assert_eq!(
            refused.status.code(),
            Some(code),
            "{}",
            all_output(&refused)
        );
        assert!(
            all_output(&refused).contains(command),
            "{}",
            all_output(&refused)
        );
        // The command works as it is.
        if code == 4 {
            let words: Vec<&str> = command.split(' ').skip(1).collect();
            let permitted = apps.server.operator(&words);
            assert_eq!(
                permitted.status.code(),
                Some(0),
                "{}",
                all_output(&permitted)
            );
        }
    }
    assert_eq!(
        node(&["stat", "app_1"]).status.code(),
        Some(12),
        "nothing is defined"
    );
    assert_eq!(
        node(&["stat", "app_1", "-f", file]).status.code(),
        Some(0),
        "with the file it is"
    );
    assert_eq!(
        node(&["once", "fragment", "app_1", "-f", file])
            .status
            .code(),
        Some(0)
    );
    let init = node(&["init", "app_1", "-f", file]);
    assert_eq!(
        all_output(&init),
        "exit 0\n--- stdout\ndone by a node\n--- stderr\n"
    );
    let shown = all_output(&apps.server.operator(&["stat", "app_1"]));
    assert!(shown.contains("was completed by web-1"), "{shown}");
    assert_eq!(
        node(&["once", "reset", "app_1", "--reason", "mine"])
            .status
            .code(),
        Some(4)
    );
    let lock = node(&[
        "lock",
        "exec",
        "db",
        "--",
        "sh",
        "-c",
        "echo $BUNRAKU_LOCK $BUNRAKU_LOCK_TOKEN",
    ]);
    assert_eq!(all_output(&lock), "exit 0\n--- stdout\ndb 1\n--- stderr\n");
    drop(agent);
}
