//! The `bunraku` binary: flags, wiring, rendering.

mod apply_view;
mod commands;
mod state_tree;

use std::process::ExitCode;

use clap::Parser;

/// An asynchronous control plane for configuration management.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Apply(commands::apply::ApplyArgs),
    Restore(commands::restore::RestoreArgs),
    States(commands::states::StatesArgs),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let usage = error.use_stderr();
            let _ = error.print();
            return ExitCode::from(if usage { 64 } else { 0 });
        }
    };
    match arguments.command {
        Command::Apply(arguments) => commands::apply::run(&arguments),
        Command::Restore(arguments) => commands::restore::run(&arguments),
        Command::States(arguments) => commands::states::run(&arguments),
    }
}
