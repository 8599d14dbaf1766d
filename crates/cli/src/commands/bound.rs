//! `bunraku bound`: becomes a program that the kernel ends with its parent.
//!
//! A program cannot be told so from outside without unsafe code; this process
//! asks for it and then turns into the program, which keeps it.

use std::os::unix::process::CommandExt;

use clap::Args;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::end_with_parent;

#[derive(Args)]
pub(crate) struct BoundArguments {
    #[arg(long)]
    parent: i32,

    #[arg(required = true, last = true)]
    words: Vec<String>,
}

pub(crate) fn run(arguments: &BoundArguments) -> Result<Exit, Failure> {
    end_with_parent(Some(arguments.parent))?;
    let (program, words) = arguments
        .words
        .split_first()
        .expect("the command line requires one");
    let error = std::process::Command::new(program).args(words).exec();
    Err(Failure::new(format!("cannot run `{program}`")).caused_by(&error))
}
