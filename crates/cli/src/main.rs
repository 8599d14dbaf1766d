//! The `bunraku` binary: flags, configuration, wiring, rendering.
//!
//! Only this crate reads the environment, prints, and turns errors into text
//! and exit codes. One file per command under `commands/`.

mod apply_view;
mod arguments;
mod bound_child;
mod commands;
mod config;
mod connection;
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

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;
use exit::Exit;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error).into(),
    };
    match commands::run(arguments) {
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
