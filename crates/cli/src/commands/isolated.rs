//! `bunraku isolated`: becomes a program of a repository, which does not see the server's data.
//!
//! The server starts it in new namespaces. It hides directories there, which needs root, and then
//! turns into the program as another user.

use std::ffi::OsString;
use std::path::PathBuf;

use bunraku_process::Isolation;
use clap::Args;

use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct IsolatedArguments {
    #[arg(long)]
    uid: u32,

    #[arg(long)]
    gid: u32,

    /// Directories that the program does not see
    #[arg(long)]
    hide: Vec<PathBuf>,

    /// The directory that the program works in
    #[arg(long)]
    show: PathBuf,

    #[arg(required = true, last = true)]
    words: Vec<OsString>,
}

pub(crate) fn run(arguments: IsolatedArguments) -> Result<Exit, Failure> {
    let isolation = Isolation {
        uid: arguments.uid,
        gid: arguments.gid,
        hidden: arguments.hide,
        shown: arguments.show,
    };
    let error = isolation.become_program(&arguments.words);
    Err(Failure::new("cannot isolate the compiler").caused_by(&error))
}
