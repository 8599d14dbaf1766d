//! Work that outlives its owner: recorded programs whose owner is killed with `kill -9`.
//!
//! The owner is this test program again, with a role in its environment.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use bunraku_process::{Program, WorkLog};
use bunraku_testkit::blocking::eventually;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

/// The directory of a site, for a process in a role.
const ROLE: &str = "BUNRAKU_TEST_ROLE";
const GRACE: Duration = Duration::from_millis(500);

/// Leaves a process behind that is in its own session and has no parent, and says its id.
const DETACHED: &str = "(setsid sh -c 'echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 600' \
    \"$SITE/NAME\" >/dev/null 2>&1 </dev/null &)";

fn detached(name: &str) -> String {
    DETACHED.replace("NAME", name)
}

struct Site {
    directory: TempDir,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("run")).expect("a directory");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self) -> WorkLog {
        WorkLog::new(self.path("work")).with_pid_files(self.path("run"))
    }

    /// Starts an owner that runs these scripts one after the other, and waits for each.
    fn owner(&self, scripts: &[&str]) -> Child {
        std::fs::write(self.path("scripts"), scripts.join("\n---\n")).expect("written");
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "own", "--nocapture"]);
        command.env(ROLE, self.directory.path());
        command.spawn().expect("it starts")
    }

    /// Waits until a process has said its id.
    fn id(&self, name: &str) -> i32 {
        let path = self.path(name);
        // The file exists a moment before it has its content.
        let read = || std::fs::read_to_string(&path).ok()?.trim().parse().ok();
        eventually("the process has written its id", || read().is_some());
        read().expect("an id")
    }

    /// Returns the content of all records.
    fn record_texts(&self) -> String {
        let entries = std::fs::read_dir(self.path("work")).into_iter().flatten();
        let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        texts.collect()
    }

    fn records(&self) -> usize {
        let entries = std::fs::read_dir(self.path("work")).into_iter().flatten();
        entries.count()
    }
}

fn is_alive(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    !matches!(state, None | Some(b'Z' | b'X'))
}

fn kill(id: i32) {
    let _ = kill_process(Pid::from_raw(id).expect("an id"), Signal::KILL);
}

fn kill_owner(mut owner: Child) {
    owner.kill().expect("it can be killed");
    owner.wait().expect("it ended");
}

/// The role of an owner. Without a role, nothing happens.
#[test]
fn own() {
    let Some(directory) = std::env::var_os(ROLE).map(PathBuf::from) else {
        return;
    };
    let log = WorkLog::new(directory.join("work")).with_pid_files(directory.join("run"));
    let scripts = std::fs::read_to_string(directory.join("scripts")).expect("scripts");
    for script in scripts.split("\n---\n") {
        let program = Program::new("/bin/sh").args(["-c", script]);
        let mut child = program
            .env("SITE", &directory)
            .background_may_stay()
            .recorded(&log)
            .start_blocking()
            .expect("it starts");
        child.wait_for_exit(Duration::from_secs(600));
        child.finish();
    }
}

#[test]
fn everything_that_a_killed_owner_started_ends() {
    let site = Site::new();
    let script = format!(
        "echo $$ >$SITE/leader; {}; setsid sleep 600 & echo $! >$SITE/child; wait",
        detached("detached")
    );
    let owner = site.owner(&[&script]);
    let ids = ["leader", "child", "detached"].map(|name| site.id(name));
    // While its owner lives, nobody else touches it.
    assert_eq!(site.log().end_leftovers(GRACE).expect("readable"), []);
    assert!(ids.iter().all(|id| is_alive(*id)));

    kill_owner(owner);
    assert!(ids.iter().all(|id| is_alive(*id)), "they outlive it");
    assert_eq!(site.log().end_leftovers(GRACE).expect("readable"), []);
    assert!(!ids.iter().any(|id| is_alive(*id)), "they have ended");
    assert_eq!(site.records(), 0);
}

#[test]
fn a_process_that_ignores_the_request_to_end_is_killed() {
    let site = Site::new();
    let script = "trap '' TERM; echo $$ >$SITE/leader; while :; do sleep 0.1; done";
    let owner = site.owner(&[script]);
    let leader = site.id("leader");
    kill_owner(owner);
    assert_eq!(site.log().end_leftovers(GRACE).expect("readable"), []);
    assert!(!is_alive(leader));
}

#[test]
fn what_a_finished_program_started_stays() {
    let site = Site::new();
    let in_progress = format!("{}; exec sleep 600", detached("busy"));
    let owner = site.owner(&[&detached("daemon"), &in_progress]);
    let (daemon, work) = (site.id("daemon"), site.id("busy"));
    kill_owner(owner);
    assert_eq!(site.log().end_leftovers(GRACE).expect("readable"), []);
    assert!(!is_alive(work), "its program was in progress");
    assert!(is_alive(daemon), "its program had ended");
    kill(daemon);
}

#[test]
fn a_service_with_a_pid_file_stays_even_if_its_starter_was_in_progress() {
    let site = Site::new();
    let script = format!(
        "{}; {}; exec sleep 600",
        detached("service"),
        detached("worker")
    );
    let owner = site.owner(&[&script]);
    let (service, worker) = (site.id("service"), site.id("worker"));
    std::fs::write(site.path("run/nginx.pid"), format!("{service}\n")).expect("written");
    kill_owner(owner);
    assert_eq!(site.log().end_leftovers(GRACE).expect("readable"), []);
    assert!(is_alive(service) && !is_alive(worker));
    kill(service);
}

#[test]
fn a_reused_process_id_and_another_boot_are_left_alone() {
    let site = Site::new();
    let mut other = Command::new("sleep").arg("600").spawn().expect("it starts");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    std::fs::create_dir(site.path("work")).expect("a directory");
    let id = other.id();
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("readable");
    let start = stat.rsplit_once(')').expect("a name").1;
    let start = start
        .split_ascii_whitespace()
        .nth(19)
        .expect("a start")
        .to_owned();
    let write = |boot: &str, start: &str| {
        let text = format!("boot {boot}\nowner 999999999 1\nleader {id} {start}\nprogram apt\n");
        std::fs::write(site.path("work/999999999_1_0"), text).expect("written");
    };
    for (boot, start) in [(boot.trim(), "1"), ("another", start.as_str())] {
        write(boot, start);
        assert_eq!(site.log().end_leftovers(GRACE).expect("readable"), []);
        assert!(is_alive(id.cast_signed()), "{boot} {start}");
        assert_eq!(site.records(), 0);
    }
    // The same process in the same boot: this record is about it.
    write(boot.trim(), &start);
    assert_eq!(site.log().end_leftovers(GRACE).expect("readable"), []);
    assert!(!is_alive(id.cast_signed()));
    other.wait().expect("it ended");
}

/// The role of somebody who may not end the processes of others.
#[test]
fn end_as_nobody() {
    let Some(directory) = std::env::var_os(ROLE).map(PathBuf::from) else {
        return;
    };
    let log = WorkLog::new(directory.join("work")).with_pid_files(directory.join("run"));
    for left in log.end_leftovers(Duration::ZERO).expect("readable") {
        println!("left: {left}");
    }
}

#[test]
fn what_cannot_be_ended_is_named() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let site = Site::new();
    let owner = site.owner(&["echo $$ >$SITE/leader; exec sleep 600"]);
    let leader = site.id("leader");
    // Without the id in the record, the process is found by its environment, which nobody may
    // not read.
    eventually("the process is recorded", || {
        site.record_texts().contains(&format!("\nleader {leader} "))
    });
    kill_owner(owner);
    open_to_all(site.directory.path());
    // A copy, because nobody may reach the original.
    let program = site.path("test");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("copied");
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&program)
        .args(["--exact", "end_as_nobody", "--nocapture"])
        .env(ROLE, site.directory.path())
        .output()
        .expect("it runs");
    let shown = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let expected = format!("left: process {leader} (`");
    assert!(shown.contains(&expected), "{shown}");
    assert!(shown.contains("started by `/bin/sh`"), "{shown}");
    let pid = Pid::from_raw(leader).expect("an id");
    test_kill_process(pid).expect("it is still there");
    assert_eq!(site.records(), 1, "it stays until someone who may ends it");
    assert_eq!(site.log().end_leftovers(GRACE).expect("readable"), []);
    assert!(!is_alive(leader));
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, all).expect("set");
}

#[test]
fn a_program_that_is_ended_takes_its_detached_processes_with_it() {
    let site = Site::new();
    let script = format!("{}; exec sleep 600", detached("busy"));
    let program = Program::new("/bin/sh").args(["-c", &script]);
    let mut child = program
        .env("SITE", site.directory.path())
        .background_may_stay()
        .recorded(&site.log())
        .start_blocking()
        .expect("it starts");
    let work = site.id("busy");
    child.end(GRACE);
    assert!(!is_alive(work));
    assert_eq!(site.records(), 0);
}
