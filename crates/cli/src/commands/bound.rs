//! `bunraku bound`: runs a program that ends with our parent, with everything that it started.
//!
//! This process is a subreaper: a process that detaches from the program becomes its child, and not
//! one of the machine's init. When the parent dies, even by `kill -9`, it ends all of them. When
//! the program ends on its own, what it left behind stays: the program was asked to start it.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use bunraku_process::{Child, Program, end_own_descendants, shell_code};
use clap::Args;

use crate::failure::Failure;
use crate::signals::{EndSignals, end_with_parent};

/// The time between asking processes to end and killing them.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct BoundArguments {
    #[arg(long)]
    parent: i32,

    #[arg(required = true, last = true)]
    words: Vec<String>,
}

/// Returns the exit code of the program.
pub(crate) fn run(arguments: &BoundArguments) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(attend(arguments))
}

async fn attend(arguments: &BoundArguments) -> Result<u8, Failure> {
    // From here on, the request to end that the parent's death sends is a message.
    let mut signals = EndSignals::new()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    end_with_parent(Some(arguments.parent))?;
    let mut child = match start(&arguments.words) {
        Ok(child) => child,
        Err(error) => return Ok(not_started(&arguments.words[0], &error)),
    };
    // A signal to the group that this process leads reaches the program too.
    let leads_group = rustix::process::getpgrp() == rustix::process::getpid();
    loop {
        tokio::select! {
            status = child.wait() => return Ok(shell_code(status?)),
            signal = signals.next() => {
                if has_died(arguments.parent) {
                    end_own_descendants(GRACE);
                    return Err(Failure::new("the parent process has ended"));
                }
                if !leads_group {
                    child.signal(signal);
                }
            }
        }
    }
}

/// Says why a program did not start. Returns the code that shells use for it.
fn not_started(program: &str, error: &io::Error) -> u8 {
    let (why, code) = match error.kind() {
        io::ErrorKind::NotFound => ("command not found".to_owned(), 127),
        io::ErrorKind::PermissionDenied => ("permission denied".to_owned(), 126),
        _ => (error.to_string(), 126),
    };
    note!("error: cannot run `{program}`: {why}");
    code
}

fn start(words: &[String]) -> io::Result<Child> {
    let (program, arguments) = words.split_first().expect("the command line requires one");
    Program::new(program)
        .args(arguments)
        .stdin(Stdio::inherit())
        .stdout(Stdio::inherit())
        .stderr(Stdio::inherit())
        .in_our_group()
        .background_may_stay()
        .start()
}

fn has_died(parent: i32) -> bool {
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    now != Some(parent)
}
