//! The directory in which the engine keeps its records on this machine.

use std::path::{Path, PathBuf};

/// The directory of a machine whose administrator chose no other.
const USUAL: &str = "/var/lib/bunraku/engine";

/// The option for the directory.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StateDirArgs {
    /// Directory for backups, installed modules and the record of the last run.
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = USUAL,
        env = "BUNRAKU_STATE_DIR"
    )]
    pub(crate) state_dir: PathBuf,
}

impl StateDirArgs {
    /// Returns the directory if it is not the usual one.
    pub(crate) fn chosen(&self) -> Option<&Path> {
        Some(self.state_dir.as_path()).filter(|chosen| *chosen != Path::new(USUAL))
    }
}
