//! Real children: their answers, their limits, and their ends.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use bunraku_process::{
    CapturePart, FollowEnd, OutputError, OutputLimits, Program, RunAs, Stream, WaitLimits, describe,
};
use bunraku_testkit::blocking::eventually;

const PATIENCE: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Program {
    Program::new("/bin/sh").args(["-c", script])
}

/// Waits until the process that wrote its id to this file has ended.
fn wait_until_gone(pid_file: &Path) {
    let pid = std::fs::read_to_string(pid_file).expect("the id was written");
    let status = format!("/proc/{}/stat", pid.trim());
    eventually("the process is gone", || {
        let stat = std::fs::read_to_string(&status).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
        matches!(state, None | Some(b'Z' | b'X'))
    });
}

fn wait_for(path: &Path) {
    eventually("the file is there", || path.exists());
}

/// A script that leaves a process in the background and writes its id to `$0`.
const BACKGROUND: &str = "sleep 600 >/dev/null 2>&1 & echo $! >\"$0.new\"; mv \"$0.new\" \"$0\"";

fn limits() -> OutputLimits {
    OutputLimits::with_timeout(PATIENCE)
}

#[tokio::test]
async fn an_answer_has_both_streams_and_the_exit_code() {
    let program = shell("cat; echo oops >&2; exit 3").input("hello");
    let output = program.output(limits()).await.expect("it runs");
    assert_eq!(output.stdout_text(), "hello");
    assert_eq!(output.stderr_text(), "oops\n");
    assert_eq!(describe(output.status), "exit code 3");
}

#[tokio::test]
async fn a_program_that_prints_too_much_is_killed() {
    let limits = OutputLimits {
        stdout: CapturePart::AtMost(1000),
        ..limits()
    };
    let outcome = shell("exec cat /dev/zero").output(limits).await;
    assert!(matches!(outcome, Err(OutputError::TooMuch)), "{outcome:?}");
}

#[tokio::test]
async fn stderr_beyond_the_limit_is_dropped_and_blocks_no_process() {
    let limits = OutputLimits {
        stderr: CapturePart::First(3),
        ..limits()
    };
    let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo done";
    let output = shell(script).output(limits).await.expect("it ends");
    assert_eq!(
        (output.stderr_text(), output.stdout_text()),
        ("xxx".into(), "done\n".into())
    );
}

#[tokio::test]
async fn a_deadline_ends_the_wait_for_an_answer() {
    let late = shell("exec sleep 600").output(OutputLimits {
        time: Duration::from_millis(10),
        ..limits()
    });
    assert!(matches!(late.await, Err(OutputError::TimeOut(_))));
}

#[tokio::test]
async fn giving_up_an_answer_kills_the_whole_group() {
    let place = tempfile::tempdir().unwrap();
    let pid_file = place.path().join("pid");
    let program = shell(&format!("{BACKGROUND}; exec sleep 600")).arg(&pid_file);
    let mut running = Box::pin(program.output(limits()));
    let deadline = Instant::now() + PATIENCE;
    while !pid_file.exists() {
        assert!(
            Instant::now() < deadline,
            "the background process never came"
        );
        let _ = tokio::time::timeout(Duration::from_millis(10), &mut running).await;
    }
    drop(running);
    wait_until_gone(&pid_file);
}

#[tokio::test]
async fn dropping_a_child_kills_what_it_started() {
    let place = tempfile::tempdir().unwrap();
    let pid_file = place.path().join("pid");
    let program = shell(&format!("{BACKGROUND}; exec sleep 600")).arg(&pid_file);
    let child = program.start().expect("it starts");
    wait_for(&pid_file);
    drop(child);
    wait_until_gone(&pid_file);
}

#[tokio::test]
async fn the_background_ends_with_the_program_unless_it_may_stay() {
    let place = tempfile::tempdir().unwrap();
    let (killed, kept) = (place.path().join("killed"), place.path().join("kept"));
    let mut child = shell(BACKGROUND).arg(&killed).start().expect("it starts");
    assert!(child.wait().await.expect("it ends").success());
    wait_until_gone(&killed);
    let program = shell(BACKGROUND).arg(&kept).background_may_stay();
    let mut child = program.start().expect("it starts");
    assert!(child.wait().await.expect("it ends").success());
    drop(child);
    let pid = std::fs::read_to_string(&kept).unwrap();
    let alive = shell(&format!("kill {pid}")).output(limits()).await;
    assert!(
        alive.expect("it runs").status.success(),
        "it was still there"
    );
    wait_until_gone(&kept);
}

#[tokio::test]
async fn descendants_that_left_the_group_are_ended_too() {
    let place = tempfile::tempdir().unwrap();
    let pid_file = place.path().join("pid");
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; while :; do sleep 1; done' \"$0\" & wait; wait";
    let mut child = shell(script).arg(&pid_file).start().expect("it starts");
    wait_for(&pid_file);
    let status = child.end_with_descendants(Duration::from_millis(50)).await;
    assert!(!status.expect("it ends").success());
    wait_until_gone(&pid_file);
}

#[tokio::test]
async fn a_program_that_ignores_the_request_to_end_is_killed() {
    let place = tempfile::tempdir().unwrap();
    let ready = place.path().join("ready");
    let script = "trap '' TERM; : >\"$0\"; while :; do sleep 1; done";
    let mut child = shell(script).arg(&ready).start().expect("it starts");
    wait_for(&ready);
    let status = child.end(Duration::from_millis(50)).await.expect("it ends");
    assert_eq!(describe(status), "signal 9");
}

fn followed(program: Program, until: WaitLimits<'_>) -> (FollowEnd, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut child = program.start_blocking().expect("it starts");
    let followed = child.follow(until, |stream, bytes| {
        match stream {
            Stream::Stdout => out.extend_from_slice(bytes),
            Stream::Stderr => err.extend_from_slice(bytes),
        }
        ControlFlow::Continue(())
    });
    let status = child.finish().map(describe).unwrap_or_default();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&out),
        String::from_utf8_lossy(&err)
    );
    (followed.expect("it can be followed"), text, status)
}

#[test]
fn a_blocking_child_is_fed_and_read_at_the_same_time() {
    let input = "x".repeat(1 << 20);
    let (followed, text, status) = followed(
        shell("cat; exit 4").input(input.clone()),
        WaitLimits::default(),
    );
    assert_eq!(
        (followed, status.as_str()),
        (FollowEnd::Ended, "exit code 4")
    );
    assert_eq!(text, input);
}

#[test]
fn an_open_pipe_of_a_background_process_is_not_waited_for() {
    let program = shell("sleep 600 & echo done");
    let (followed, text, status) = followed(program, WaitLimits::default());
    assert_eq!(
        (followed, text.as_str(), status.as_str()),
        (FollowEnd::Ended, "done\n", "exit code 0")
    );
}

#[test]
fn a_blocking_child_meets_its_deadline_and_a_request_to_stop() {
    let until = WaitLimits {
        deadline: Some(Instant::now() + Duration::from_millis(20)),
        cancelled: None,
    };
    let (late, _, status) = followed(shell("exec cat /dev/zero"), until);
    assert_eq!((late, status.as_str()), (FollowEnd::Late, "signal 9"));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(writer);
    let until = WaitLimits {
        deadline: None,
        cancelled: Some(std::os::fd::AsFd::as_fd(&reader)),
    };
    assert_eq!(
        followed(shell("exec sleep 600"), until).0,
        FollowEnd::Cancelled
    );
}

#[test]
fn a_closed_receiver_of_output_ends_the_following() {
    let mut child = shell("exec cat /dev/zero")
        .start_blocking()
        .expect("it starts");
    let followed = child.follow(WaitLimits::default(), |_, _| ControlFlow::Break(()));
    assert_eq!(followed.expect("it can be followed"), FollowEnd::Stopped);
    let status = child.end(Duration::from_secs(5)).map(describe);
    assert!(
        matches!(status.as_deref(), Some("signal 13" | "signal 15")),
        "{status:?}"
    );
}

#[test]
fn a_umask_and_a_user_are_set_before_the_program_starts() {
    let (_, text, status) = followed(shell("umask").umask(0o27), WaitLimits::default());
    assert_eq!((text.as_str(), status.as_str()), ("0027\n", "exit code 0"));
    if rustix::process::geteuid().is_root() {
        let nobody = RunAs {
            uid: Some(65534),
            gid: Some(65534),
        };
        let (_, text, _) = followed(shell("id -u; id -g").run_as(nobody), WaitLimits::default());
        assert_eq!(text, "65534\n65534\n");
    }
}
