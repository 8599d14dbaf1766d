//! `bunraku store` for history: where it is, and moving it.

use std::time::Duration;

use bunraku_wire::Client;
use bunraku_wire::api::{HistoryStatus, HistoryTarget, MoveHistoryRequest};
use bunraku_wire::endpoints::{MoveHistory, ShowHistory};
use clap::{Args, ValueEnum};

use crate::connection::failed;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, count};

/// The interval between questions about the progress.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku store move history --to postgresql
  bunraku store move history --to default --no-wait

The servers move it in the background, also if this command is interrupted. Run it again to see the
progress. Exit code 3: history does not answer.")]
pub(crate) struct MoveHistoryArguments {
    /// Place to move to; `default` is the data directory of a single server, or etcd
    #[arg(long, value_enum)]
    to: HistoryPlaceArgument,
    /// Return once the move has started
    #[arg(long)]
    no_wait: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum HistoryPlaceArgument {
    Default,
    Postgresql,
}

impl From<HistoryPlaceArgument> for HistoryTarget {
    fn from(argument: HistoryPlaceArgument) -> Self {
        match argument {
            HistoryPlaceArgument::Default => Self::Default,
            HistoryPlaceArgument::Postgresql => Self::Postgresql,
        }
    }
}

/// Asks a server where history is.
pub(crate) async fn ask(client: &Client) -> Result<HistoryStatus, Failure> {
    let status = client.call(ShowHistory).await;
    status.map_err(|error| failed(&error))
}

/// Starts the move, and shows its progress until it ends.
pub(crate) async fn move_history(
    client: &Client,
    arguments: &MoveHistoryArguments,
    json: bool,
) -> Result<Exit, Failure> {
    let request = MoveHistoryRequest {
        to: arguments.to.into(),
    };
    let started = client.call_with(MoveHistory, &request).await;
    let mut status = started.map_err(|error| failed(&error))?;
    let mut shown = String::new();
    loop {
        let progress = progress(&status);
        if !json && progress != shown {
            note!("{progress}");
            shown = progress;
        }
        if status.moving_from.is_none() || arguments.no_wait {
            if json {
                output::json(&status)?;
            } else if status.moving_from.is_some() {
                note!("\nhint: see the progress with `bunraku store status`");
            }
            return Ok(exit(&status));
        }
        tokio::time::sleep(ASK_EVERY).await;
        status = ask(client).await?;
    }
}

/// Describes how far a move is, in one line.
fn progress(status: &HistoryStatus) -> String {
    let (place, reports) = (&status.place, count(status.moved, "report"));
    let mut line = match &status.moving_from {
        None => format!("All history is in {place}: {reports} moved."),
        Some(from) => format!("Moving history from {from} to {place}: {reports} moved."),
    };
    if let Some(outage) = &status.outage {
        line.push_str(&format!(" Waiting: {outage}."));
    }
    line
}

pub(crate) fn exit(status: &HistoryStatus) -> Exit {
    match status.outage {
        Some(_) => Exit::SomeNodesFailed,
        None => Exit::Done,
    }
}

/// Formats the place of history.
pub(crate) fn render(status: &HistoryStatus) -> String {
    let mut text = format!("history  {}\n", status.place);
    if status.moving_from.is_some() {
        text.push_str(&format!("{}\n", progress(status)));
    }
    if let Some(outage) = &status.outage {
        text.push_str(&format!(
            "\nhistory does not answer: {outage}\n\nhint: start PostgreSQL or repair it; agents keep their reports and send them later\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(status: &HistoryStatus, expected: Expect) {
        expected.assert_eq(&render(status));
    }

    #[test]
    fn a_move_and_an_outage_are_shown() {
        let mut status = HistoryStatus {
            place: "postgresql".to_owned(),
            moving_from: None,
            moved: 0,
            outage: None,
            outage_seconds: None,
        };
        check(
            &status,
            expect![[r#"
            history  postgresql
        "#]],
        );
        status.moving_from = Some("store".to_owned());
        status.moved = 1;
        check(
            &status,
            expect![[r#"
            history  postgresql
            Moving history from store to postgresql: 1 report moved.
        "#]],
        );
        status.moving_from = None;
        status.outage = Some("connection refused".to_owned());
        check(
            &status,
            expect![[r#"
            history  postgresql

            history does not answer: connection refused

            hint: start PostgreSQL or repair it; agents keep their reports and send them later
        "#]],
        );
    }
}
