//! `bunraku stat`, `bunraku init` and `bunraku once`: tasks that run once per fleet.

mod apply_states;
mod init;
mod manage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bunraku_model::AppName;
use bunraku_wire::Client;
use bunraku_wire::api::once::{AttemptOutcome, OnceStatus, StatOnce};
use bunraku_wire::endpoints::{CheckOnceStanding, Endpoint, OnceStatusQuery, ShowOnceStanding};
use clap::Args;
use serde_json::{Map, Value};

use crate::connection::connect;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::output;

pub(crate) use init::InitArguments;
pub(crate) use manage::{OnceCommand, run};

/// Exit codes for the status of a task.
const DONE: u8 = 10;
const BUSY: u8 = 11;
const NOT_READY: u8 = 12;

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 ready, 10 already done, 11 busy, 12 not ready, 1 error. This command
changes nothing. `bunraku init` runs the task, and `bunraku once` defines, lists and resets tasks.

Examples:
  bunraku stat app_1 && bunraku init app_1
  exec { 'bunraku init app_1': onlyif => 'bunraku stat app_1' }   # in Puppet code"
)]
pub(crate) struct StatArguments {
    /// Name of the once task
    app: AppName,

    /// Evaluate as if this definition were stored
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Evaluate for `init --retry`
    #[arg(long)]
    retry: bool,

    /// Exit 0 also after a failure that is not retried, so that the `init` behind it fails again
    #[arg(long)]
    or_failed: bool,
}

/// Shows the status of a task. Every failure has exit code 1, never 0 by accident.
pub(crate) fn stat(arguments: &StatArguments, context: &Context) -> Result<ExitCode, Failure> {
    let standing = with_client(context, |client| async move {
        Ok(match &arguments.file {
            None => {
                let query = OnceStatusQuery {
                    retry: arguments.retry,
                };
                let at = ShowOnceStanding.with_query(&arguments.app, &query);
                client.call(at).await?
            }
            Some(file) => {
                let request = StatOnce {
                    definition: Some(read_object(file)?),
                    retry: arguments.retry,
                };
                client
                    .call_with(CheckOnceStanding.at(&arguments.app), &request)
                    .await?
            }
        })
    })
    .map_err(|failure| failure.exit(Exit::Error))?;
    if context.global.json {
        output::json(&standing)?;
    } else {
        output::write(&format!("{}\n", describe_status(&arguments.app, &standing)))?;
    }
    let failed = matches!(
        standing,
        OnceStatus::NotReady {
            failed: Some(_),
            ..
        }
    );
    Ok(if failed && arguments.or_failed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(code(&standing))
    })
}

pub(crate) fn init(arguments: &InitArguments, context: &Context) -> Result<ExitCode, Failure> {
    let fleet = Arc::new(Fleet::new(context));
    with_client(context, |client| init::run(arguments, client, fleet)).map(ExitCode::from)
}

/// Runs a future on one thread, with any result.
pub(super) fn with_client<T, R>(
    context: &Context,
    work: impl FnOnce(Client) -> R,
) -> Result<T, Failure>
where
    R: Future<Output = Result<T, Failure>>,
{
    let client = connect(&context.global, &context.loaded)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(crate::waiting::shown(work(client)))
}

fn code(standing: &OnceStatus) -> u8 {
    match standing {
        OnceStatus::Ready => 0,
        OnceStatus::Done { .. } => DONE,
        OnceStatus::Busy { .. } => BUSY,
        OnceStatus::NotReady { .. } => NOT_READY,
    }
}

fn describe_status(app: &AppName, standing: &OnceStatus) -> String {
    match standing {
        OnceStatus::Ready => format!("{app} is ready"),
        OnceStatus::Done { attempt } => match &attempt.outcome {
            AttemptOutcome::Done { ended } => {
                format!("{app} was completed by {} at {ended:.0}", attempt.by)
            }
            _ => format!("{app} was completed by {}", attempt.by),
        },
        OnceStatus::Busy { attempt } => {
            format!(
                "{} has been running {app} since {:.0}",
                attempt.by, attempt.started
            )
        }
        OnceStatus::NotReady { missing, .. } => {
            format!("{app} is not ready: it needs {}", missing.join(", "))
        }
    }
}

/// A JSON object in a file; `-` is standard input.
fn read_object(path: &Path) -> Result<Map<String, Value>, Failure> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| {
        Failure::new(format!("cannot read {}", path.display())).caused_by(&error)
    })?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(format!("{} is not a JSON object", path.display())).caused_by(&error)
    })
}
