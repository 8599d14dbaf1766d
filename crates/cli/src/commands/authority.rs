//! `bunraku authority`: replaces the CA.

use bunraku_wire::Client;
use bunraku_wire::api::{FinishRotationRequest, RotateRequest, RotationPhase, RotationStatus};
use bunraku_wire::endpoints::{AbortRotation, FinishRotation, ShowRotation, StartRotation};
use clap::Subcommand;
use jiff::Timestamp;

use crate::connection::failed;
use crate::context::Context;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, ago};

/// The most names that are printed.
const SHOWN: usize = 10;

#[derive(Subcommand)]
pub(crate) enum AuthorityCommand {
    /// Replace the CA: trust both, renew all nodes, then drop the former one
    #[command(
        after_help = "Examples:\n  bunraku authority rotate\n  bunraku authority rotate --finish\n  bunraku authority rotate --abort"
    )]
    Rotate {
        /// How long both CAs are trusted; then the former one is dropped automatically
        #[arg(long, default_value = "30d", value_name = "TIME")]
        period: HumanDuration,
        /// Drop the former CA now
        #[arg(long, conflicts_with = "abort")]
        finish: bool,
        /// With --finish: even if nodes lose their connection
        #[arg(long, requires = "finish")]
        force: bool,
        /// Go back to the former CA
        #[arg(long)]
        abort: bool,
    },
    /// Show the running or last rotation
    #[command(after_help = "Example:\n  bunraku authority status")]
    Status,
}

pub(crate) fn run(command: AuthorityCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        let status = match command {
            AuthorityCommand::Status => client.call(ShowRotation).await,
            AuthorityCommand::Rotate { abort: true, .. } => {
                client
                    .call(AbortRotation)
                    .await
                    .map_err(|error| failed(&error))?;
                client.call(ShowRotation).await
            }
            AuthorityCommand::Rotate {
                finish: true,
                force,
                ..
            } => finish(&client, force).await,
            AuthorityCommand::Rotate { period, .. } => {
                let request = RotateRequest {
                    period_seconds: period.0.as_secs(),
                };
                client.call_with(StartRotation, &request).await
            }
        };
        let status = status.map_err(|error| failed(&error))?;
        if json {
            output::json(&status)?;
        } else {
            show(&status)?;
        }
        Ok(Exit::Done)
    })
}

async fn finish(client: &Client, force: bool) -> Result<RotationStatus, bunraku_wire::ClientError> {
    client
        .call_with(FinishRotation, &FinishRotationRequest { force })
        .await
}

fn show(status: &RotationStatus) -> Result<(), Failure> {
    let now = Timestamp::now();
    let phase = match status.phase {
        RotationPhase::Renewing => "both CAs are trusted; nodes are renewing their certificates",
        RotationPhase::Aborting => "aborted; nodes are going back to the former CA",
        RotationPhase::Finished => "finished; only the new CA is trusted",
    };
    let mut text = format!(
        "{phase}\nformer   {}\nnew      {}\nstarted  {} ago by {}\n",
        status.former,
        status.new,
        ago(status.started, now),
        status.started_by
    );
    if status.phase != RotationPhase::Finished {
        text.push_str(&format!("until    {}\n", status.until));
        let total = status.renewed + status.waiting.len();
        text.push_str(&format!("nodes    {} of {total} renewed\n", status.renewed));
        let waiting: Vec<String> = status.waiting.iter().map(ToString::to_string).collect();
        let operators = status.operators_waiting.iter().map(ToString::to_string);
        let operators: Vec<String> = operators.collect();
        for (what, names) in [
            ("waiting  ", &waiting),
            ("operators waiting  ", &operators),
            ("servers waiting  ", &status.servers_waiting),
        ] {
            if !names.is_empty() {
                text.push_str(&format!("{what}{}\n", listed(names)));
            }
        }
    }
    output::write(&text)?;
    if status.phase == RotationPhase::Renewing && status.waiting.is_empty() {
        note!("\nhint: all nodes have renewed; run `bunraku authority rotate --finish`");
    }
    Ok(())
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>();
    let more = names.len().saturating_sub(SHOWN);
    if more == 0 {
        shown.join(", ")
    } else {
        format!("{} and {more} more", shown.join(", "))
    }
}
