//! `bunraku man`.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Args)]
#[command(after_help = "Example:\n  bunraku man /usr/local/share/man/man1")]
pub(crate) struct ManArguments {
    /// Directory for the pages, one for each command
    directory: PathBuf,
}

pub(crate) fn run(arguments: &ManArguments, program: clap::Command) -> Result<Exit, Failure> {
    std::fs::create_dir_all(&arguments.directory)?;
    clap_mangen::generate_to(program, &arguments.directory)?;
    note!("Manual pages written to {}.", arguments.directory.display());
    Ok(Exit::Done)
}
