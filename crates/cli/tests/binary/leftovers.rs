//! Work that outlives its agent, or its `bunraku init`: killed with `kill -9`, without systemd.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::{Running, ServerProcess, Site, all_output, bunraku, eventually};

/// Starts a child in its own session, and a grandchild whose parent is gone. All of them say their
/// id in `ids`. An attempt notes the earlier processes that are still there in `overlaps`.
const ATTEMPT: &str = r#"
for id in $(cat SITE/ids 2>/dev/null); do
    state=$(sed 's/.*) //' /proc/$id/stat 2>/dev/null | cut -c1)
    case "$state" in ''|Z|X) ;; *) echo $id >>SITE/overlaps ;; esac
done
echo begun >>SITE/begun
[ -e SITE/go ] && exit 0
echo $$ >SITE/attempt
say='echo $$ >>SITE/ids; exec sleep 600'
setsid sh -c "$say" &
(setsid sh -c "$say" >/dev/null 2>&1 </dev/null &)
echo $$ >>SITE/ids
wait
"#;

fn script(site: &Site) -> String {
    let directory = site.path("");
    let directory = directory.to_str().expect("text");
    ATTEMPT.replace("SITE", directory.trim_end_matches('/'))
}

fn lines(site: &Site, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(site.path(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until the attempt, its child and its grandchild have said their ids.
fn ids(site: &Site) -> Vec<i32> {
    eventually("all processes are there", || lines(site, "ids").len() == 3);
    let ids = lines(site, "ids");
    ids.iter().map(|id| id.parse().expect("an id")).collect()
}

fn is_alive(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    !matches!(state, None | Some(b'Z' | b'X'))
}

fn agent(site: &Site, server: &ServerProcess, token: bool) -> Running {
    let script = script(site);
    let flags = ["--run-method", "command", "--run-command", &script];
    let flags = [&flags[..], &["--run-interval", "0s"]].concat();
    site.agent_with("dev1", &[server], token, &flags)
}

#[test]
fn a_run_that_is_repeated_after_its_agent_was_killed_does_not_overlap() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    let first = agent(&site, &server, true);
    server.wait_for("dev1", "idle");
    let asked = server.operator(&["node", "run", "dev1"]);
    assert_eq!(asked.status.code(), Some(0), "{}", all_output(&asked));
    let left = ids(&site);

    first.kill();
    assert!(left.iter().all(|id| is_alive(*id)), "they outlive it");
    std::fs::write(site.path("go"), "").expect("written");
    let _second = agent(&site, &server, false);
    server.wait_for("dev1", "idle");
    let again = server.operator(&["node", "run", "dev1", "--wait"]);
    assert_eq!(again.status.code(), Some(0), "{}", all_output(&again));
    assert_eq!(lines(&site, "begun").len(), 2);
    assert_eq!(lines(&site, "overlaps"), [""; 0]);
    assert!(!left.iter().any(|id| is_alive(*id)));
}

fn define(site: &Site, server: &ServerProcess) {
    let path = site.path("app.json");
    let definition = json!({"command": script(site), "retry": "always"});
    std::fs::write(&path, definition.to_string()).expect("written");
    let path = path.to_str().expect("text");
    let defined = server.operator(&["once", "define", "app_1", "-f", path]);
    assert!(defined.status.success(), "{}", all_output(&defined));
}

/// Starts `bunraku init` with its own state directory.
fn init(site: &Site, server: &ServerProcess) -> Running {
    let mut command = bunraku();
    command.args(["init", "app_1", "--lease", "2s", "--retry"]);
    command.arg("--state-dir").arg(site.path("state"));
    command.args(["--server", &server.address.to_string()]);
    command.arg("--credentials").arg(server.credentials());
    command.stdin(Stdio::null());
    Running::start(command, &site.path("init.log"))
}

#[test]
fn a_killed_init_takes_everything_that_it_started_with_it() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    define(&site, &server);
    let first = init(&site, &server);
    let left = ids(&site);
    first.kill();
    // Nobody has to start it again for this.
    eventually("all of them end", || !left.iter().any(|id| is_alive(*id)));
}

#[test]
fn the_next_init_ends_what_is_left_when_its_supervisor_was_killed_too() {
    let site = Site::new();
    let server = site.server("server", 0, &[]);
    define(&site, &server);
    let first = init(&site, &server);
    let left = ids(&site);
    // First the supervisor, which is the parent of the attempt, so that it cannot act.
    let attempt = lines(&site, "attempt").concat();
    let stat = std::fs::read_to_string(format!("/proc/{attempt}/stat")).expect("readable");
    let rest = stat.rsplit_once(") ").expect("a name").1;
    let supervisor: i32 = rest
        .split(' ')
        .nth(1)
        .expect("a parent")
        .parse()
        .expect("an id");
    first.signal(Signal::STOP);
    let supervisor = Pid::from_raw(supervisor).expect("an id");
    kill_process(supervisor, Signal::KILL).expect("it can be killed");
    first.kill();
    assert!(left.iter().all(|id| is_alive(*id)), "they outlive both");

    std::fs::write(site.path("go"), "").expect("written");
    let mut next = None;
    eventually("the claim of the dead one expires", || {
        let mut again = init(&site, &server);
        let code = again.wait();
        next = Some(again.log());
        code == Some(0)
    });
    assert_eq!(lines(&site, "overlaps"), [""; 0], "{next:?}");
    assert!(!left.iter().any(|id| is_alive(*id)));
}

#[test]
fn an_apply_ends_what_a_killed_apply_left_behind() {
    let site = Site::new();
    let file = site.path("app.sls");
    let script = script(&site).replace('\n', "\n        ");
    let state = format!("attempt:\n  cmd.run:\n    - name: |\n        {script}\n");
    std::fs::write(&file, state).expect("written");
    let apply = || {
        let mut command = bunraku();
        command.arg("apply").arg(&file);
        command.arg("--state-dir").arg(site.path("state"));
        command
    };
    let first = Running::start(apply(), &site.path("apply.log"));
    let left = ids(&site);
    first.kill();
    assert!(left.iter().all(|id| is_alive(*id)), "they outlive it");
    std::fs::write(site.path("go"), "").expect("written");
    let again = apply().output().expect("it runs");
    assert_eq!(again.status.code(), Some(0), "{}", all_output(&again));
    assert_eq!(lines(&site, "begun").len(), 2);
    assert_eq!(lines(&site, "overlaps"), [""; 0]);
}
