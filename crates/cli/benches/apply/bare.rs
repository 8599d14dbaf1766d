//! The lower bound: stat, read and hash each file, and nothing else.
//!
//! It runs as its own process, as `bunraku apply` does: the bench starts itself with `--bare`. It
//! knows where the files are. It has no catalog to read and nothing to compare with, reports
//! nothing, and processes the files one by one.

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::catalogs;

const FLAG: &str = "--bare";

/// Returns the command that starts the bare process.
pub(crate) fn command(place: &Path, count: usize) -> Command {
    let own = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(own);
    command.arg(FLAG).arg(place).arg(count.to_string());
    command
}

/// Returns the arguments if this process is the bare one.
pub(crate) fn asked_for() -> Option<(PathBuf, usize)> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != FLAG {
        return None;
    }
    let place = arguments.next().expect("a directory").into();
    let count = arguments.next().and_then(|count| count.parse().ok());
    Some((place, count.expect("a number")))
}

pub(crate) fn run(place: &Path, count: usize) {
    for index in 0..count {
        let path = catalogs::path(place, index);
        let metadata = std::fs::symlink_metadata(&path).expect("a file");
        let bytes = std::fs::read(&path).expect("a file");
        assert_eq!(metadata.len(), bytes.len() as u64);
        std::hint::black_box(Sha256::digest(&bytes));
    }
}
