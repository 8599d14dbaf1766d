//! Handlers for the commands that a server sends.

use bunraku_model::{Activity, NodeRunId};
use bunraku_wire::api::{
    ActivityReport, Command, CommandOutcome, CommandResult, Envelope, RunRequest,
};
use bunraku_wire::endpoints::{Endpoint, ReportActivity};
use jiff::Timestamp;

use crate::Shared;
use crate::runs::{CancelOutcome, SubmitOutcome};
use crate::schedule;

/// Executes a command and returns its result.
pub(crate) async fn execute(shared: &Shared, envelope: &Envelope) -> CommandResult {
    if envelope.expires <= Timestamp::now() {
        return result(
            CommandOutcome::Expired,
            "it reached the node after its deadline".to_owned(),
        );
    }
    tracing::info!(id = %envelope.id, command = name(&envelope.command), by = %envelope.sent_by, "executing a command");
    match &envelope.command {
        Command::Ping => result(CommandOutcome::Done, "pong".to_owned()),
        Command::RefreshFacts => refresh_facts(shared).await,
        Command::Run(request) => queue_run(shared, request),
        Command::CancelRun { run, reason } => cancel_run(shared, *run, reason, &envelope.sent_by),
        Command::Administer { administration } => {
            shared.runs.administer(administration.clone());
            result(CommandOutcome::Done, "noted".to_owned())
        }
    }
}

/// Queues a run. `Done` means that the queue has stored it durably.
fn queue_run(shared: &Shared, request: &RunRequest) -> CommandResult {
    match shared.runs.submit(request.clone()) {
        Ok(SubmitOutcome::Queued { behind: 0 }) => {
            result(CommandOutcome::Done, "starting now".to_owned())
        }
        Ok(SubmitOutcome::Queued { behind }) => {
            result(CommandOutcome::Done, format!("queued behind {behind}"))
        }
        Ok(SubmitOutcome::Folded { into }) => {
            result(CommandOutcome::Done, format!("merged into run {into}"))
        }
        Ok(SubmitOutcome::Known) => result(CommandOutcome::Done, "already requested".to_owned()),
        Err(refused) => result(CommandOutcome::Failed, refused.to_string()),
    }
}

fn cancel_run(shared: &Shared, run: NodeRunId, reason: &str, by: &str) -> CommandResult {
    let reason = format!("cancelled by {by}: {reason}");
    match shared.runs.cancel(run, &reason) {
        Ok(CancelOutcome::Pending(_)) => {
            result(CommandOutcome::Done, "removed from the queue".to_owned())
        }
        Ok(CancelOutcome::Running) => result(CommandOutcome::Done, "stopping".to_owned()),
        Ok(CancelOutcome::Folded { into }) => result(
            CommandOutcome::Done,
            format!("merged into run {into}, which continues for its other causes"),
        ),
        Ok(CancelOutcome::Nowhere) => result(
            CommandOutcome::Failed,
            "no such run in the queue".to_owned(),
        ),
        Err(error) => result(
            CommandOutcome::Failed,
            format!("cannot write the queue: {error}"),
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
            format!("cannot submit facts: {error}"),
        ),
    };
    report_activity(shared, shared.runs.activity()).await;
    outcome
}

/// Reports the agent's activity to the server. A lost report loses no work.
pub(crate) async fn report_activity(shared: &Shared, activity: Activity) {
    let at = ReportActivity.at(&shared.options.name);
    if let Err(error) = shared
        .client
        .call_with(at, &ActivityReport { activity })
        .await
    {
        tracing::warn!(error = %error, "cannot report the agent's activity to the server");
    }
}

fn result(outcome: CommandOutcome, message: String) -> CommandResult {
    CommandResult {
        outcome,
        message,
        finished: Timestamp::now(),
    }
}

/// Returns the name of a command, for the log.
fn name(command: &Command) -> &'static str {
    match command {
        Command::Ping => "ping",
        Command::RefreshFacts => "refresh facts",
        Command::Run(_) => "run",
        Command::CancelRun { .. } => "cancel a run",
        Command::Administer { .. } => "enable or disable",
    }
}
