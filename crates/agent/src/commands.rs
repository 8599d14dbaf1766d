//! What the agent does when it is asked.

use bunraku_model::Activity;
use bunraku_wire::api::{
    ActivityReceipt, ActivityReport, Command, CommandOutcome, CommandResult, Envelope,
};
use jiff::Timestamp;

use crate::Shared;
use crate::schedule;

/// Carries a command out, and says how it went.
pub(crate) async fn carry_out(shared: &Shared, envelope: &Envelope) -> CommandResult {
    if envelope.expires <= Timestamp::now() {
        return result(
            CommandOutcome::Expired,
            "it reached the node after its time".to_owned(),
        );
    }
    tracing::info!(id = %envelope.id, command = ?envelope.command, by = %envelope.sent_by, "carrying out a command");
    match &envelope.command {
        Command::Ping => result(CommandOutcome::Done, "pong".to_owned()),
        Command::RefreshFacts => refresh_facts(shared).await,
        Command::Run(_) | Command::CancelRun { .. } | Command::Administer { .. } => result(
            CommandOutcome::NotUnderstood,
            "this agent has no run queue".to_owned(),
        ),
    }
}

async fn refresh_facts(shared: &Shared) -> CommandResult {
    report_activity(
        shared,
        Activity::Running {
            since: Timestamp::now(),
            what: "collecting facts".to_owned(),
        },
    )
    .await;
    let outcome = match schedule::submit_now(shared).await {
        Ok(receipt) => {
            let word = if receipt.changed {
                "changed"
            } else {
                "unchanged"
            };
            result(CommandOutcome::Done, format!("facts submitted, {word}"))
        }
        Err(error) => result(
            CommandOutcome::Failed,
            format!("facts could not be submitted: {error}"),
        ),
    };
    report_activity(
        shared,
        Activity::Idle {
            since: Timestamp::now(),
        },
    )
    .await;
    outcome
}

/// Tells the server what the agent does. Losing this loses no work.
pub(crate) async fn report_activity(shared: &Shared, activity: Activity) {
    let path = format!("/v1/nodes/{}/activity", shared.options.name);
    if let Err(error) = shared
        .client
        .put::<_, ActivityReceipt>(&path, &ActivityReport { activity })
        .await
    {
        tracing::warn!(error = %error, "cannot tell the server what the agent does");
    }
}

fn result(outcome: CommandOutcome, message: String) -> CommandResult {
    CommandResult {
        outcome,
        message,
        finished: Timestamp::now(),
    }
}
