//! `bunraku demo`: a server and four agents, real processes, on loopback.
//!
//! Everything lives in one directory that is gone afterwards. The children
//! end with this process, however it ends.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::asked_to_end;
use crate::demo::{Fleet, Stage};
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku demo           # ends by itself, leaves nothing behind
  bunraku demo --keep    # goes on running, and tells what to try next")]
pub(crate) struct DemoArguments {
    /// Go on running until Ctrl-C, with the next commands to try
    #[arg(long)]
    keep: bool,

    /// Directory to work in; must be empty or new [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Long enough for a busy machine; an ordinary one needs a few seconds.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn run(arguments: &DemoArguments) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut stage = Stage::new();
        let mut fleet = Fleet::new(arguments.dir.as_deref())?;
        let outcome = tokio::select! {
            outcome = perform(&mut fleet, &mut stage, arguments.keep) => outcome,
            signal = asked_to_end() => {
                stage.note(&format!("{} received, cleaning up", signal?));
                Ok(Exit::Error)
            }
        };
        fleet.end().await;
        if outcome.is_ok() {
            stage.note("every process has ended and the directory is gone");
        }
        outcome
    })
}

async fn perform(fleet: &mut Fleet, stage: &mut Stage, keep: bool) -> Result<Exit, Failure> {
    let play = async {
        stage.act("a server starts, with a store and an authority of its own");
        fleet.start_server(stage).await?;
        stage.act("four agents join, each with a one-time token and a pinned authority");
        fleet.start_agents(stage).await?;
        fleet.wait_until_all_answer(stage).await?;
        stage.act("an operator takes a node out of service, and says why");
        fleet.disable_one(stage).await?;
        stage.act(
            "the server is killed (kill -9) with a command still waiting for a node that is away",
        );
        fleet.lose_the_server(stage).await?;
        fleet.show_nodes(stage).await
    };
    tokio::time::timeout(PATIENCE, play).await.map_err(|_| {
        Failure::new(format!(
            "the demo did not get to its end within {PATIENCE:?}"
        ))
    })??;
    if keep {
        fleet.tell_what_to_try(stage);
        std::future::pending::<()>().await;
    }
    Ok(Exit::Done)
}
