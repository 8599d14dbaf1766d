//! `bunraku backup`: what to do after data was restored from a backup.

use bunraku_wire::api::RestoreReview;
use bunraku_wire::endpoints::{AcceptRestore, DeclareRestore, ShowRestore};
use clap::Subcommand;

use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};

#[derive(Subcommand)]
pub(crate) enum BackupCommand {
    /// Show what may be missing after a restore
    #[command(after_help = "Example:\n  bunraku backup check")]
    Check,
    /// End the review: trust the operators in the inventory again
    #[command(after_help = "Example:\n  bunraku backup accept")]
    Accept,
    /// Declare that the data was restored; needed only with your own etcd
    #[command(after_help = "Example:\n  bunraku backup restored")]
    Restored,
}

pub(crate) fn run(command: &BackupCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            BackupCommand::Check => {
                let review = client
                    .call(ShowRestore)
                    .await
                    .map_err(|error| failed(&error))?;
                if json {
                    output::json(&review)?;
                } else {
                    show(&review)?;
                }
            }
            BackupCommand::Accept => {
                client
                    .call(AcceptRestore)
                    .await
                    .map_err(|error| failed(&error))?;
                note!("Review finished. Operators in the inventory are trusted again.");
            }
            BackupCommand::Restored => {
                client
                    .call(DeclareRestore)
                    .await
                    .map_err(|error| failed(&error))?;
                note!(
                    "New epoch started.\n\nhint: restart the other servers, then run `bunraku backup check`"
                );
            }
        }
        Ok(Exit::Done)
    })
}

fn show(review: &RestoreReview) -> Result<(), Failure> {
    let Some(since) = review.since else {
        note!("The data was never restored from a backup.");
        return Ok(());
    };
    let because = review.because.as_deref().unwrap_or("unknown");
    let mut text = format!("restore {} noticed at {since}: {because}\n", review.epoch);
    if let Some(newest) = review.newest_certificate {
        text.push_str(&format!("newest certificate in the inventory: {newest}\n"));
    }
    text.push_str(&format!(
        "nodes with a valid certificate: {}\nrevocations recovered from the signer and from clients: {}\n",
        review.nodes, review.recovered_revocations
    ));
    match &review.reviewed_by {
        Some(by) => text.push_str(&format!("reviewed by {by}\n")),
        None => {
            text.push_str("not reviewed: only the operators of servers themselves are trusted\n")
        }
    }
    output::write(&text)?;
    let mut table = Table::new(&["OPERATOR", "SIGNED BY", "SERIAL"]);
    for entry in &review.operators {
        table.row(vec![
            entry.name.to_string(),
            entry.signed_by.clone(),
            entry.serial.clone(),
        ]);
    }
    table.print()?;
    if !review.unknown.is_empty() {
        let mut table = Table::new(&["NOT IN THE INVENTORY", "ROLE", "SIGNED", "SERIAL"]);
        for unknown in &review.unknown {
            table.row(vec![
                unknown.name.to_string(),
                unknown.role.to_string(),
                unknown.not_before.to_string(),
                unknown.serial.clone(),
            ]);
        }
        table.print()?;
        note!("\nhint: these must join again, each with a new token from `bunraku token create`");
    }
    if !review.is_reviewed {
        note!(
            "\nhint: revoke the operators that you do not expect (`bunraku cert revoke -h`), then run `bunraku backup accept`"
        );
    }
    Ok(())
}
