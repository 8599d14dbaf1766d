//! Real commands.

use bunraku_testkit::blocking::eventually;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::types::testing::{apply, lines, noop};
use crate::{ResourceOutcome, Status};

/// Runs one `exec` in a new directory. Returns the directory and the outcome.
fn exec(parameters: Value) -> (tempfile::TempDir, ResourceOutcome) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut parameters = parameters;
    parameters["path"] = json!("/usr/bin:/bin:/usr/sbin:/sbin");
    parameters["cwd"] = json!(directory.path());
    let summary = apply(
        &directory.path().join("state"),
        json!([{"type": "Exec", "title": "x", "parameters": parameters}]),
    );
    let outcome = summary.finished[0].outcome.clone();
    (directory, outcome)
}

fn stdout(parameters: Value) -> String {
    let (_directory, outcome) = exec(parameters);
    assert_eq!(outcome.status, Status::Changed, "{:?}", outcome.message);
    outcome.outputs["stdout"].as_str().expect("text").to_owned()
}

fn failure(parameters: Value) -> String {
    let (_directory, outcome) = exec(parameters);
    assert_eq!(outcome.status, Status::Failed);
    outcome.message.expect("a reason")
}

#[test]
fn environment_umask_and_stdin_reach_the_command() {
    assert_eq!(
        stdout(json!({"command": "echo $GREETING", "environment": ["GREETING=hello there"]})),
        "hello there"
    );
    assert_eq!(stdout(json!({"command": "umask", "umask": "027"})), "0027");
    assert_eq!(stdout(json!({"command": "cat", "stdin": "typed"})), "typed");
    assert_eq!(stdout(json!({"command": ["echo", "$HOME"]})), "$HOME");
}

#[test]
fn another_user_has_their_own_groups_and_home() {
    let output = stdout(json!({"command": "id -un; id -Gn; echo $HOME", "user": "daemon"}));
    assert_eq!(output, "daemon\ndaemon\n/usr/sbin");
    assert_eq!(
        stdout(json!({"command": "id -gn; id -un", "user": "daemon", "group": "sys"})),
        "sys\ndaemon"
    );
    assert_eq!(
        failure(json!({"command": "true", "user": "nobody-at-all"})),
        "no user `nobody-at-all`"
    );
}

#[test]
fn an_exit_code_that_was_not_expected_is_a_failure_with_its_last_words() {
    assert_eq!(
        failure(json!({"command": "echo no such luck >&2; exit 3"})),
        "`echo no such luck >&2; exit 3` exited with exit code 3 instead of 0: no such luck"
    );
    assert_eq!(
        stdout(json!({"command": "echo fine; exit 3", "returns": [0, 3]})),
        "fine"
    );
    assert!(failure(json!({"command": "kill -9 $$"})).contains("signal 9"));
}

#[test]
fn a_timeout_ends_the_whole_process_group() {
    // The sleeps have a length that nothing else on the machine uses.
    let (directory, outcome) = exec(json!({
        "command": "echo begun; (trap '' TERM; echo $BASHPID $$ > /dev/null; sh -c 'echo $$ > pid; exec sleep 4321.5') & sleep 4321.5",
        "timeout": 1,
    }));
    assert_eq!(outcome.status, Status::Failed);
    assert_eq!(
        outcome.message.as_deref(),
        Some("it took longer than 1 s and was killed")
    );
    assert_eq!(outcome.outputs["stdout"], "begun");
    let pid =
        std::fs::read_to_string(directory.path().join("pid")).expect("the child wrote its pid");
    let gone = || {
        !std::path::Path::new(&format!("/proc/{}/cmdline", pid.trim())).exists()
            || is_zombie(pid.trim())
    };
    eventually("what it started ends with it", gone);
}

fn is_zombie(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn a_command_that_leaves_a_process_holding_the_pipe_is_done_when_it_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let pid_file = directory.path().join("pid");
    let command = format!(
        "sleep 4322.5 & echo $! > {}; echo started",
        pid_file.display()
    );
    let begun = Instant::now();
    assert_eq!(
        stdout(json!({"command": command, "timeout": 600})),
        "started"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(500),
        "it waited for the pipe"
    );
    let pid: i32 = std::fs::read_to_string(&pid_file)
        .expect("a pid")
        .trim()
        .parse()
        .expect("a number");
    let pid = rustix::process::Pid::from_raw(pid).expect("not 0");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
        .expect("the process was left alone");
}

#[test]
fn output_without_end_is_cut_and_does_not_fill_the_memory() {
    let (_directory, outcome) =
        exec(json!({"command": "head -c 20000000 /dev/zero", "output_limit": 1000}));
    assert_eq!(
        outcome.outputs["stdout"].as_str().expect("text").len(),
        1000
    );
    assert_eq!(outcome.outputs["cut"], true);
    assert_eq!(
        failure(json!({"command": "yes", "timeout": 1})),
        "it took longer than 1 s and was killed"
    );
}

#[test]
fn output_that_is_not_text_is_kept_as_far_as_text_goes() {
    assert_eq!(stdout(json!({"command": "printf 'a\\377b'"})), "a\u{fffd}b");
}

#[test]
fn guards_decide_whether_it_runs() {
    let ran = |parameters: Value| {
        let mut parameters = parameters;
        parameters["command"] = json!("true");
        exec(parameters).1.status == Status::Changed
    };
    assert!(ran(json!({"onlyif": "true"})));
    assert!(!ran(json!({"onlyif": ["true", "false"]})));
    assert!(ran(json!({"unless": "false"})));
    assert!(!ran(json!({"unless": ["false", "true"]})));
    assert!(!ran(json!({"creates": ["/", "/does/not/exist"]})));
    assert!(ran(json!({"creates": "/does/not/exist"})));
    assert!(!ran(json!({"onlyif": "no-such-command-anywhere"})));
    assert!(!ran(json!({"refreshonly": true})));
    assert!(!ran(json!({"onlyif": [["test", "-e", "/no such file"]]})));
}

fn state(title: &str, parameters: Value) -> Value {
    json!({"type": "Exec", "title": title, "parameters": parameters,
           "state": {"id": title, "name": title, "function": "cmd.run"}})
}

#[test]
fn lists_of_guards_of_a_state_must_all_agree_to_keep_it_from_running() {
    let directory = tempfile::tempdir().expect("a directory");
    let summary = apply(
        directory.path(),
        json!([
            state(
                "some",
                json!({"command": "true", "unless": ["false", "true"], "creates": ["/", "/does/not/exist"]})
            ),
            state(
                "all",
                json!({"command": "true", "unless": ["true", "true"]})
            ),
        ]),
    );
    assert_eq!(lines(&summary), "Exec[all] unchanged\nExec[some] changed");
}

#[test]
fn refreshonly_runs_on_a_change_and_refresh_may_be_another_command() {
    let directory = tempfile::tempdir().expect("a directory");
    let mark = |name: &str| json!(format!("echo {name} >> {}/log", directory.path().display()));
    let summary = apply(
        &directory.path().join("state"),
        json!([
            {"type": "Test", "title": "source", "parameters": {"changes": true, "notify": ["Exec[a]", "Exec[b]"]}},
            {"type": "Exec", "title": "a", "parameters": {"command": mark("a"), "refreshonly": true, "provider": "shell", "before": "Exec[b]"}},
            {"type": "Exec", "title": "b", "parameters": {"command": mark("b"), "refresh": mark("again"), "provider": "shell"}},
        ]),
    );
    assert!(summary.succeeded(), "{}", lines(&summary));
    assert_eq!(
        std::fs::read_to_string(directory.path().join("log")).expect("a log"),
        "a\nb\nagain\n"
    );
}

#[test]
fn a_command_is_tried_until_it_succeeds() {
    let command = "echo x >> tries; test $(wc -l < tries) -ge 3";
    let (directory, outcome) = exec(json!({"command": command, "tries": 5}));
    assert_eq!(outcome.status, Status::Changed);
    assert_eq!(
        std::fs::read_to_string(directory.path().join("tries")).expect("a file"),
        "x\nx\nx\n"
    );
    assert!(failure(json!({"command": "false", "tries": 2})).contains("exit code 1"));
}

#[test]
fn a_noop_run_asks_the_guards_and_runs_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let mark = directory.path().join("mark");
    let touch = format!("/usr/bin/touch {}", mark.display());
    let summary = noop(
        &directory.path().join("state"),
        json!([
            {"type": "Exec", "title": "would", "parameters": {"command": touch, "onlyif": "/bin/true"}},
            {"type": "Exec", "title": "would not", "parameters": {"command": touch, "onlyif": "/bin/false"}},
            {"type": "Exec", "title": "on refresh", "parameters": {"command": touch, "refreshonly": true, "subscribe": "Exec[would]"}},
        ]),
    );
    assert_eq!(
        lines(&summary),
        "Exec[on refresh] pending (refreshed by Exec[would])\nExec[would not] unchanged\nExec[would] pending"
    );
    assert!(!mark.exists());
}

#[test]
fn a_state_may_say_itself_whether_it_changed_something() {
    let (_directory, outcome) =
        exec(json!({"command": "echo; echo \"changed=no comment='all well'\"", "stateful": true}));
    assert_eq!(
        (outcome.status, outcome.message.as_deref()),
        (Status::Unchanged, Some("all well"))
    );
    let (_directory, outcome) =
        exec(json!({"command": "echo '{\"changed\": true}'", "stateful": true}));
    assert_eq!(outcome.status, Status::Changed);
}

#[test]
fn outputs_of_one_state_are_parameters_of_a_later_one() {
    let directory = tempfile::tempdir().expect("a directory");
    // Declared first, so only the use of the output orders it later.
    let summary = apply(
        directory.path(),
        json!([
            state(
                "use",
                json!({"command": "echo got ${ made.stdout } ${made.rc} ${HOME:+home}", "register": "used"})
            ),
            state("no such", json!({"command": "echo ${ made.stdoot }"})),
            state(
                "of a failure",
                json!({"command": "echo ${ broken.stdout }"})
            ),
            state("make", json!({"command": "echo 42", "register": "made"})),
            state("break", json!({"command": "false", "register": "broken"})),
        ]),
    );
    let of = |title: &str| {
        &summary
            .finished
            .iter()
            .find(|one| one.reference.title() == title)
            .expect("it finished")
            .outcome
    };
    assert_eq!(of("use").outputs["stdout"], "got 42 0 home");
    let message = of("no such").message.as_deref().expect("a reason");
    assert!(
        message.starts_with("`made` has no `made.stdoot`, only "),
        "{message}"
    );
    assert_eq!(of("of a failure").status, Status::Skipped);
}

#[test]
fn guards_and_checks_work_on_every_type() {
    let directory = tempfile::tempdir().expect("a directory");
    let test = |title: &str, parameters: Value| json!({"type": "Test", "title": title, "parameters": parameters});
    let summary = apply(
        directory.path(),
        json!([
            test("onlyif", json!({"changes": true, "onlyif": "false"})),
            test("unless", json!({"changes": true, "unless": "true"})),
            test("creates", json!({"changes": true, "creates": "/"})),
            test("checked", json!({"changes": true, "check_cmd": "false"})),
            test(
                "runs",
                json!({"changes": true, "onlyif": "true", "unless": "false", "check_cmd": "true"})
            ),
        ]),
    );
    assert_eq!(
        lines(&summary),
        "Test[checked] failed: check_cmd `false` failed\n\
         Test[creates] skipped (creates: / exists)\n\
         Test[onlyif] skipped (onlyif: `false` failed)\n\
         Test[runs] changed\n\
         Test[unless] skipped (unless: `true` succeeded)"
    );
}

#[test]
fn an_interrupt_ends_the_command_in_hand() {
    let directory = tempfile::tempdir().expect("a directory");
    let cancellation = crate::Cancellation::new().expect("a pipe");
    struct CancelOnOutput(crate::Cancellation);
    impl crate::EventSink for CancelOnOutput {
        fn emit(&self, event: crate::Event<'_>) {
            if matches!(event, crate::Event::Output { .. }) {
                self.0.cancel();
            }
        }
    }
    let catalog = crate::types::testing::catalog(json!([
        {"type": "Exec", "title": "long", "parameters": {"command": "/bin/echo begun; exec /bin/sleep 4323.5", "tries": 3}},
    ]));
    let plan = crate::CatalogPlan::new(
        &catalog,
        &crate::Registry::standard(),
        crate::PlanOptions::default(),
    )
    .expect("a plan");
    let sink = CancelOnOutput(cancellation.clone());
    let summary = crate::apply_plan(
        &plan,
        crate::ApplyOptions::new(directory.path(), cancellation, &sink),
    )
    .expect("a summary");
    assert_eq!(lines(&summary), "Exec[long] failed: interrupted");
    assert!(!summary.succeeded());
}

/// All events of a run, as one text.
#[derive(Default)]
struct RecordedEvents(std::sync::Mutex<String>);

impl crate::EventSink for RecordedEvents {
    fn emit(&self, event: crate::Event<'_>) {
        self.0
            .lock()
            .expect("whole")
            .push_str(&format!("{event:?}\n"));
    }
}

/// Runs states. Returns all that the run reported and left on disk.
fn run_with_transcript(
    states: Value,
    other_nodes: crate::OtherNodeOutputs,
    noop: bool,
) -> (crate::Summary, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let catalog = crate::types::testing::catalog(states);
    let registry = crate::Registry::standard();
    let options = crate::PlanOptions::default();
    let plan = crate::CatalogPlan::new(&catalog, &registry, options).expect("a plan");
    let heard = RecordedEvents::default();
    let cancellation = crate::Cancellation::new().expect("a pipe");
    let how = crate::ApplyOptions {
        noop,
        other_nodes: std::sync::Arc::new(other_nodes),
        ..crate::ApplyOptions::new(directory.path(), cancellation, &heard)
    };
    let summary = crate::apply_plan(&plan, how).expect("a summary");
    let mut text = heard.0.lock().expect("whole").clone();
    text.push_str(&format!("{summary:?}\n"));
    for entry in std::fs::read_dir(directory.path())
        .expect("readable")
        .flatten()
    {
        if entry.path().is_file() {
            let bytes = std::fs::read(entry.path()).expect("readable");
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    (summary, text)
}

fn outcome_of<'a>(summary: &'a crate::Summary, title: &str) -> &'a ResourceOutcome {
    let mut finished = summary.finished.iter();
    let found = finished.find(|one| one.reference.title() == title);
    &found.expect("it finished").outcome
}

fn secret_state(title: &str, parameters: Value) -> Value {
    json!({"type": "Exec", "title": title, "parameters": parameters,
           "sensitive_parameters": ["command", "outputs"],
           "state": {"id": title, "name": title, "function": "cmd.run"}})
}

fn plain_state(kind: &str, title: &str, parameters: Value) -> Value {
    json!({"type": kind, "title": title, "parameters": parameters,
           "state": {"id": title, "name": title, "function": "cmd.run"}})
}

#[test]
fn a_secret_output_is_used_and_shown_nowhere() {
    let target = tempfile::tempdir().expect("a directory");
    let path = target.path().join("conf");
    std::fs::write(&path, "token = old\n").expect("written");
    let (summary, transcript) = run_with_transcript(
        json!([
            // Computed, so that no text of the catalog contains it.
            secret_state(
                "make",
                json!({"command": "printf 'hunt%d-er\\nxy\\n' 7; echo whisper$((1+1)) >&2", "register": "token"})
            ),
            secret_state(
                "break",
                json!({"command": "echo loud$((3+4)); echo ab >&2; false", "register": "broken", "retry": {"attempts": 2, "interval": 0}})
            ),
            plain_state(
                "File",
                path.to_str().expect("a path"),
                json!({"content": "token = ${ token.stdout }\n"})
            ),
            plain_state(
                "Exec",
                "echo",
                json!({"command": "echo again ${ token.stdout }; echo ${ token.stderr } >&2", "register": "again"})
            ),
        ]),
        crate::OtherNodeOutputs::default(),
        false,
    );
    let text = std::fs::read_to_string(&path).expect("readable");
    assert_eq!(text, "token = hunt7-er\nxy\n");
    for secret in ["hunt7-er", "whisper2", "loud7"] {
        assert!(!transcript.contains(secret), "{secret}: {transcript}");
    }
    let conf = outcome_of(&summary, path.to_str().expect("a path"));
    assert_eq!(
        conf.changes[0].to,
        crate::DisplayValue::Secret,
        "not even its hash"
    );
    let make = outcome_of(&summary, "make");
    assert_eq!(make.outputs["stdout"], "[secret]");
    assert_eq!(make.outputs["rc"], 0);
    assert!(make.secret_outputs);
    let failed = outcome_of(&summary, "break").message.as_deref();
    assert_eq!(failed, Some("it failed; its output is secret"));
    // An output that repeats a secret is a secret too: nobody else may get it.
    assert!(outcome_of(&summary, "echo").secret_outputs);
}

#[test]
fn outputs_of_other_nodes_are_put_in_and_what_is_missing_fails_its_reader_alone() {
    let mut others = crate::OtherNodeOutputs::default();
    let given = json!({"stdout": "s3", "list": [1, 2]});
    others.give(
        "db1",
        "token",
        Ok(given.as_object().cloned().expect("a map")),
    );
    others.give(
        "db1",
        "lost",
        Err("node db1 has not registered `lost`: it failed".to_owned()),
    );
    let states = || {
        json!([
            plain_state(
                "Exec",
                "use",
                json!({"command": "echo ${ node(\"db1\").token.stdout } ${node('db1').token.list.1}", "register": "used"})
            ),
            plain_state(
                "Exec",
                "lost",
                json!({"command": "echo ${ node(\"db1\").lost.stdout }"})
            ),
            plain_state(
                "Exec",
                "unknown",
                json!({"command": "echo ${ node(\"db2\").token.stdout }"})
            ),
            plain_state(
                "Exec",
                "part",
                json!({"command": "echo ${ node(\"db1\").token.stdoot }"})
            ),
        ])
    };
    let (summary, _) = run_with_transcript(states(), others.clone(), false);
    assert_eq!(outcome_of(&summary, "use").outputs["stdout"], "s3 2");
    let said = |title: &str| {
        outcome_of(&summary, title)
            .message
            .clone()
            .unwrap_or_default()
    };
    assert_eq!(
        said("lost"),
        "node db1 has not registered `lost`: it failed"
    );
    assert_eq!(
        said("unknown"),
        "node db2 has not registered `token`: this run has no outputs of other nodes"
    );
    assert!(said("part").starts_with("`token` has no `node(\"db1\").token.stdoot`, only stdout"));
    // A noop run cannot have all outputs, and reports so without a failure.
    let (summary, _) = run_with_transcript(states(), others, true);
    assert_eq!(outcome_of(&summary, "lost").status, Status::Pending);
    assert!(summary.succeeded());
}

#[test]
fn labels_are_put_in_as_data_and_refused_in_a_command_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out").display().to_string();
    let states = json!([
        plain_state(
            "File",
            &out,
            json!({"ensure": "file", "content": "${ label('severity') } ${ label(\"team\", \"ops\") }"})
        ),
        plain_state(
            "Exec",
            "safe",
            json!({"command": "echo \"$BUNRAKU_LABEL_SEVERITY\"", "register": "safe"})
        ),
        plain_state(
            "Exec",
            "unsafe",
            json!({"command": "echo ${ label('severity') }"})
        ),
        plain_state(
            "File",
            &format!("{out}2"),
            json!({"ensure": "file", "content": "${ label('none') }"})
        ),
    ]);
    let catalog = crate::types::testing::catalog(states);
    let registry = crate::Registry::standard();
    let plan = crate::CatalogPlan::new(&catalog, &registry, crate::PlanOptions::default());
    let plan = plan.expect("a plan");
    let heard = RecordedEvents::default();
    let cancellation = crate::Cancellation::new().expect("a pipe");
    let labels = json!({"severity": "$(touch x)"});
    let how = crate::ApplyOptions {
        labels: std::sync::Arc::new(labels.as_object().cloned().expect("a map")),
        commands: crate::CommandSetting {
            environment: vec![("BUNRAKU_LABEL_SEVERITY".to_owned(), "$(touch x)".to_owned())],
            ..crate::CommandSetting::default()
        },
        ..crate::ApplyOptions::new(directory.path(), cancellation, &heard)
    };
    let summary = crate::apply_plan(&plan, how).expect("a summary");
    let written = std::fs::read_to_string(&out).expect("written");
    assert_eq!(written, "$(touch x) ops");
    let said = |title: &str| format!("{:?}", outcome_of(&summary, title));
    assert!(said("safe").contains("$(touch x)"), "{}", said("safe"));
    assert!(
        said("unsafe").contains("must not be part of a command"),
        "{}",
        said("unsafe")
    );
    assert!(said(&format!("{out}2")).contains("has no label `none`"));
}
