//! What a confined process cannot do. Each test needs one guard: without it, the test fails.
//!
//! The confined process is this test program again, with a role in its environment.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use bunraku_process::{Sandbox, limit_cpu};
use rustix::process::{Signal, getpid, getppid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// The action and the directory of a process in the role.
const ACTION: &str = "BUNRAKU_TEST_ACTION";
const DIRECTORY: &str = "BUNRAKU_TEST_DIRECTORY";

const MEMORY: usize = 128 << 20;
const OPEN_FILES: usize = 64;
/// Seconds on the processor after which a process without a limit gives up.
const PATIENCE: i64 = 10;

/// The exit codes of the role.
const PERMITTED: i32 = 10;
const REFUSED: i32 = 11;

/// Enters the sandbox, tries one action, and exits. Without a role, nothing happens.
#[test]
fn try_one() {
    let (Some(action), Some(directory)) = (std::env::var_os(ACTION), std::env::var_os(DIRECTORY))
    else {
        return;
    };
    let action = action.to_string_lossy().into_owned();
    let directory = PathBuf::from(directory);
    let open = directory.join("open");
    let mut before = File::options()
        .append(true)
        .open(open.join("file"))
        .expect("opened");
    let parent = getppid().expect("a parent");
    let sandbox = Sandbox {
        readable: vec![open.clone()],
        memory: MEMORY as u64,
        open_files: OPEN_FILES as u64,
        needs_landlock: true,
    };
    sandbox.enter().expect("confined");
    let permitted = match action.as_str() {
        "read" => std::fs::read(open.join("file")).is_ok(),
        "read-outside" => std::fs::read(directory.join("secret")).is_ok(),
        "read-without-permission" => std::fs::read(open.join("unreadable")).is_ok(),
        "create" => File::create(open.join("new")).is_ok(),
        "append" => before.write_all(b"more").is_ok(),
        "socket" => UnixStream::pair().is_ok(),
        "program" => Command::new("/bin/true").status().is_ok(),
        "signal" => test_kill_process(parent).is_ok(),
        "memory" => Vec::<u8>::new().try_reserve_exact(2 * MEMORY).is_ok(),
        "open-files" => open_many(&open.join("file")),
        "processor" => compute(),
        other => panic!("`{other}` is not an action"),
    };
    std::process::exit(if permitted { PERMITTED } else { REFUSED });
}

fn open_many(path: &Path) -> bool {
    let opened: Result<Vec<File>, _> = (0..2 * OPEN_FILES).map(|_| File::open(path)).collect();
    opened.is_ok()
}

/// Uses the processor for much longer than it may.
fn compute() -> bool {
    limit_cpu(1).expect("limited");
    while clock_gettime(ClockId::ProcessCPUTime).tv_sec < PATIENCE {
        std::hint::black_box(getpid());
    }
    true
}

fn attempt(action: &str) -> ExitStatus {
    let directory = TempDir::new().expect("a directory");
    let open = directory.path().join("open");
    std::fs::create_dir(&open).expect("a directory");
    for path in [
        open.join("file"),
        open.join("unreadable"),
        directory.path().join("secret"),
    ] {
        std::fs::write(path, "text").expect("written");
    }
    let nobody = std::fs::Permissions::from_mode(0o0);
    std::fs::set_permissions(open.join("unreadable"), nobody).expect("changed");
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "try_one", "--nocapture"])
        .env(ACTION, action)
        .env(DIRECTORY, directory.path())
        .status()
        .expect("it starts")
}

fn refused(action: &str) {
    let status = attempt(action);
    assert_eq!(status.code(), Some(REFUSED), "{action}: {status}");
}

/// The kernel ends the process with this signal.
fn ended_by(action: &str, signal: Signal) {
    use std::os::unix::process::ExitStatusExt;
    let status = attempt(action);
    assert_eq!(status.signal(), Some(signal.as_raw()), "{action}: {status}");
}

#[test]
fn what_it_was_given_can_be_read() {
    assert_eq!(attempt("read").code(), Some(PERMITTED));
}

#[test]
fn other_files_cannot_be_read_and_none_can_be_created() {
    refused("read-outside");
    refused("create");
}

#[test]
fn root_has_no_privileges_over_files() {
    refused("read-without-permission");
}

#[test]
fn nothing_can_be_written_to_files_that_were_open_before() {
    ended_by("append", Signal::XFSZ);
}

#[test]
fn there_are_no_sockets_no_programs_and_no_signals_to_others() {
    refused("socket");
    refused("program");
    refused("signal");
}

#[test]
fn memory_is_limited() {
    refused("memory");
}

#[test]
fn open_files_are_limited() {
    refused("open-files");
}

#[test]
fn time_on_the_processor_is_limited() {
    ended_by("processor", Signal::XCPU);
}
