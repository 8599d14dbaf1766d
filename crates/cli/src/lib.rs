//! What the `bunraku` binary does: flags, configuration, wiring, rendering.
//!
//! Only this crate reads the environment, prints, and turns errors into text
//! and exit codes. One file per command under `commands/`. The binary calls
//! [`main_with`] and nothing else; the fault tests call it with a guard taken
//! away.

mod apply_view;
mod arguments;
mod bound_child;
mod commands;
mod config;
mod connection;
mod console;
mod cues;
mod demo;
mod diff_view;
mod duration;
mod exit;
mod failure;
mod logging;
mod machine_modules;
mod output;
mod plan_view;
mod puppet_server;
mod report_view;
mod run_due;
mod run_follow;
mod run_hooks;
mod run_progress;
mod run_view;
mod site_queries;
mod site_source;
mod ssh;
mod state_tree;

use std::ffi::OsString;
use std::process::ExitCode;

use bunraku_store::SharedStore;
use clap::Parser;

use arguments::Arguments;
use exit::Exit;

/// What a program may put between the parts. The `bunraku` binary puts nothing.
#[derive(Clone, Copy)]
pub struct Wiring {
    /// Between the services of a cluster's server and its store.
    pub store: fn(SharedStore) -> SharedStore,
}

impl Default for Wiring {
    fn default() -> Self {
        Self {
            store: |store| store,
        }
    }
}

/// Carries out a command line, the program's name first.
pub fn main_with(words: impl IntoIterator<Item = OsString>, wiring: Wiring) -> ExitCode {
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error).into(),
    };
    match commands::run(arguments, wiring) {
        Ok(code) => code,
        Err(failure) => failure.report().into(),
    }
}

/// Help and version are answers; everything else is a usage error.
fn usage(error: &clap::Error) -> Exit {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    // Nothing is left to do if the terminal is gone.
    let _ = error.print();
    match error.kind() {
        DisplayHelp | DisplayVersion => Exit::Done,
        _ => Exit::Usage,
    }
}
