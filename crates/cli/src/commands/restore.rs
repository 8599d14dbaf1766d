//! `bunraku restore`: restores a file that an apply replaced.

use std::path::PathBuf;
use std::process::ExitCode;

use bunraku_engine::{Backup, Cancellation, backups, restore};

use crate::apply_view::print_error;
use crate::failure::Failure;
use crate::output;
use crate::state_dir::StateDirArgs;

/// Restore a file that an apply replaced or removed.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  bunraku restore\n  bunraku restore /etc/motd --list\n  bunraku restore /etc/motd --version 2"
)]
pub(crate) struct RestoreArgs {
    /// File to restore [default: list all backups].
    path: Option<PathBuf>,
    /// List the backups of the file.
    #[arg(long)]
    list: bool,
    /// Number of the backup; 1 is the newest.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    version: u32,
    #[command(flatten)]
    state: StateDirArgs,
}

#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error("cannot list the backups")]
    List(#[source] bunraku_engine::BackupError),
    #[error("{path} has no backup {version}: {count} kept")]
    NoSuch {
        path: PathBuf,
        version: u32,
        count: usize,
    },
    #[error("cannot prepare to restore")]
    Prepare(#[source] std::io::Error),
    #[error("{path} was not restored")]
    Restore {
        path: PathBuf,
        #[source]
        source: Box<bunraku_engine::StepError>,
    },
    #[error("cannot write the result: {0}")]
    Output(String),
}

/// Runs the command.
pub(crate) fn run(arguments: &RestoreArgs, json: bool) -> ExitCode {
    match bring_back(arguments, json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(
                &error,
                Some("list the backups with `bunraku restore --list`"),
            );
            ExitCode::FAILURE
        }
    }
}

fn bring_back(arguments: &RestoreArgs, json: bool) -> Result<(), RestoreError> {
    let mut kept = backups(&arguments.state.state_dir, arguments.path.as_deref())
        .map_err(RestoreError::List)?;
    kept.reverse();
    let path = match &arguments.path {
        Some(path) if !arguments.list => path,
        _ => return list(&kept, json).map_err(not_written),
    };
    let chosen = kept
        .get(arguments.version as usize - 1)
        .ok_or_else(|| RestoreError::NoSuch {
            path: path.clone(),
            version: arguments.version,
            count: kept.len(),
        })?;
    let cancellation = Cancellation::new().map_err(RestoreError::Prepare)?;
    restore(&arguments.state.state_dir, chosen, cancellation).map_err(|source| {
        RestoreError::Restore {
            path: path.clone(),
            source: Box::new(source),
        }
    })?;
    let restored = format!(
        "Restored {} as it was until {}.\n",
        path.display(),
        time(chosen)
    );
    output::write(&restored).map_err(not_written)
}

fn not_written(failure: Failure) -> RestoreError {
    RestoreError::Output(failure.message().to_owned())
}

fn list(kept: &[Backup], json: bool) -> Result<(), Failure> {
    for backup in kept {
        if json {
            output::json_line(backup)?;
            continue;
        }
        let sum = &backup.sha256[..8.min(backup.sha256.len())];
        let (at, mode, path) = (time(backup), backup.mode, &backup.path);
        output::write(&format!("{at}  {sum}  {mode:04o}  {path}\n"))?;
    }
    Ok(())
}

fn time(backup: &Backup) -> String {
    jiff::Timestamp::from_second(backup.at)
        .map_or_else(|_| backup.at.to_string(), |time| time.to_string())
}
