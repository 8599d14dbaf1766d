//! Puppet with directories of its own, apart from the machine's.

use std::path::Path;

/// The settings that name a directory.
const DIRECTORIES: [&str; 7] = [
    "confdir",
    "vardir",
    "codedir",
    "logdir",
    "rundir",
    "ssldir",
    "publicdir",
];

/// Returns the options that keep all of Puppet's own files below a directory, and away from
/// installed modules.
pub fn puppet_options(home: &Path) -> Vec<String> {
    let below = |name: &&str| format!("--{name}={}", home.join(name).display());
    let mut options: Vec<String> = DIRECTORIES.iter().map(below).collect();
    options.push("--modulepath=/nonexistent".to_owned());
    options
}
