//! `bunraku store`: where the fleet keeps its data, and moving it elsewhere.

use std::time::Duration;

use bunraku_model::ContentPlace;
use bunraku_wire::Client;
use bunraku_wire::api::{ContentStatus, MoveContentRequest, StoreStatus};
use bunraku_wire::endpoints::{MoveContent, ShowStore};
use clap::{Subcommand, ValueEnum};

use super::store_history::{self, MoveHistoryArguments};
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, count};

/// The interval between questions about the progress.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Show where data is, how much, and the progress of a move
    #[command(after_help = "Example:\n  bunraku store status\n\nExit code 3: something is wrong.")]
    Status,
    /// Move data to another place while the fleet works
    #[command(subcommand)]
    Move(MoveCommand),
}

#[derive(Subcommand)]
pub(crate) enum MoveCommand {
    /// Move content: catalogs, files, fact sets, code and packages
    #[command(after_help = "Examples:
  bunraku store move content --to s3
  bunraku store move content --to default --no-wait

The servers move it in the background, also if this command is interrupted. Run it again to see the
progress. Exit code 3: some content cannot be moved.")]
    Content {
        /// Place to move to; `default` is the store's own
        #[arg(long, value_enum)]
        to: PlaceArgument,
        /// Return once the move has started
        #[arg(long)]
        no_wait: bool,
    },
    /// Move history: reports and their events
    History(MoveHistoryArguments),
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PlaceArgument {
    Default,
    S3,
}

impl From<PlaceArgument> for ContentPlace {
    fn from(argument: PlaceArgument) -> Self {
        match argument {
            PlaceArgument::Default => Self::Default,
            PlaceArgument::S3 => Self::S3,
        }
    }
}

pub(crate) fn run(command: StoreCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            StoreCommand::Status => {
                let status = ask(&client).await?;
                if json {
                    output::json(&status)?;
                } else {
                    output::write(&render(&status))?;
                }
                Ok(exit(&status))
            }
            StoreCommand::Move(MoveCommand::Content { to, no_wait }) => {
                move_content(&client, to.into(), no_wait, json).await
            }
            StoreCommand::Move(MoveCommand::History(arguments)) => {
                store_history::move_history(&client, &arguments, json).await
            }
        }
    })
}

async fn ask(client: &Client) -> Result<StoreStatus, Failure> {
    let status = client.call(ShowStore).await;
    status.map_err(|error| failed(&error))
}

/// Starts the move, and shows its progress until it ends.
async fn move_content(
    client: &Client,
    to: ContentPlace,
    no_wait: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let started = client
        .call_with(MoveContent, &MoveContentRequest { to })
        .await;
    started.map_err(|error| failed(&error))?;
    let mut shown = String::new();
    loop {
        let status = ask(client).await?;
        let content = &status.content;
        if content.active != to {
            return Err(Failure::new(format!(
                "another operator moves content to {} now",
                content.active
            )));
        }
        let progress = progress(content);
        if !json && progress != shown {
            note!("{progress}");
            shown = progress;
        }
        if content.leaving.is_none() || content.stuck_count > 0 || no_wait {
            if json {
                output::json(&status)?;
            }
            return Ok(end(content, no_wait && content.leaving.is_some()));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn end(content: &ContentStatus, continues: bool) -> Exit {
    if content.stuck_count > 0 {
        for stuck in &content.stuck {
            note!("  {}  {}", stuck.id, stuck.why);
        }
        note!(
            "\nhint: deploy or publish it again to repair it; content that nothing uses is removed automatically"
        );
        return Exit::SomeNodesFailed;
    }
    if continues {
        note!("\nhint: see the progress with `bunraku store status`");
    }
    Exit::Done
}

/// Describes how far a move is, in one line.
fn progress(content: &ContentStatus) -> String {
    let (mut here, mut elsewhere) = (0, 0);
    for place in &content.places {
        if place.place == content.active {
            here += place.contents;
        } else {
            elsewhere += place.contents;
        }
    }
    let to = content.active;
    let mut line = match content.leaving {
        None => format!("All content is in {to}: {}.", count(here, "content")),
        Some(_) => format!(
            "Moving content to {to}: {here} of {} moved.",
            here + elsewhere
        ),
    };
    if content.stuck_count > 0 {
        let stuck = count(content.stuck_count, "content");
        line.push_str(&format!(" {stuck} cannot be moved:"));
    }
    if let Some(problem) = &content.problem {
        line.push_str(&format!(" Waiting: {problem}."));
    }
    line
}

fn exit(status: &StoreStatus) -> Exit {
    if status.s3_problem.is_some() || status.content.problem.is_some() {
        return Exit::SomeNodesFailed;
    }
    if status.content.stuck_count > 0 {
        return Exit::SomeNodesFailed;
    }
    store_history::exit(&status.history)
}

fn render(status: &StoreStatus) -> String {
    let content = &status.content;
    let mut text = format!("store  {}\n\n", status.kind);
    let mut table = Table::new(&["CONTENT IN", "CONTENTS", "BYTES", "STATE"]);
    for place in &content.places {
        let state = match (place.place == content.active, place.is_configured) {
            (true, _) => "active",
            (false, _) if content.leaving == Some(place.place) => "moving away",
            (false, true) => "not used",
            (false, false) => "not configured",
        };
        table.row(vec![
            place.place.to_string(),
            place.contents.to_string(),
            place.bytes.to_string(),
            state.to_owned(),
        ]);
    }
    text.push_str(&table.render());
    if content.leaving.is_some() {
        text.push_str(&format!("\n{}\n", progress(content)));
    }
    for stuck in &content.stuck {
        text.push_str(&format!("  {}  {}\n", stuck.id, stuck.why));
    }
    if let Some(problem) = &status.s3_problem {
        text.push_str(&format!("\nS3 cannot be used: {problem}\n"));
        text.push_str(
            "\nhint: check the S3 server and `[server.content]`; nothing is lost, and servers try again\n",
        );
    }
    text.push_str(&format!("\n{}", store_history::render(&status.history)));
    text
}
