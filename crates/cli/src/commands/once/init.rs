//! `bunraku init`: claims a task, runs it, and reports the outcome.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{AppName, ClaimId};
use bunraku_process::{LeftProcess, WorkLog};
use bunraku_wire::api::once::{
    AttemptOutcome, ClaimOnce, ClaimReply, DefineOnce, FinishClaim, KeepClaim, OnceAction,
    OnceAttempt, OnceStatus,
};
use bunraku_wire::endpoints::{
    ClaimOnceTask, DefineOnceTask, Endpoint, FinishOnceClaim, KeepOnceClaim, ShowOnceAttempt,
    WaitQuery,
};
use bunraku_wire::{Client, ClientError};
use clap::Args;
use serde_json::{Map, Value};
use tokio::time::Instant;
use uuid::Uuid;

use super::apply_states::StatesJob;
use super::{code, describe_status, read_object};
use crate::bound_child::{self, GRACE, Job, ProgramEnd};
use crate::connection::failed;
use crate::duration::HumanDuration;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::lease::renew_until_lost;
use crate::state_dir::StateDirArgs;
use crate::task_log::TaskLog;

/// The interval at which processes that cannot be ended are looked for.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(
    after_help = "`bunraku once` defines, lists and resets once tasks, and `bunraku stat` checks whether one may run.
One of all callers runs the task. The others exit with 11 while it is running, 10 after it is
done, and 12 if something is missing. With `--wait` they wait and exit with its result.
The exit code is that of the command in the definition. The command gets the definition as JSON
on standard input, and BUNRAKU_ONCE_TOKEN, a number that rises with every attempt.

Example:
  bunraku init app_1 -f /etc/bunraku/apps/app_1.json"
)]
pub(crate) struct InitArguments {
    /// Name of the once task
    app: AppName,

    /// Definition to store first
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Repeat a failed attempt, regardless of the definition
    #[arg(long)]
    retry: bool,

    /// If the task is running, wait for it and exit with its result [default: 1h]
    #[arg(long, value_name = "SPAN", num_args = 0..=1, default_missing_value = "1h", require_equals = true)]
    wait: Option<HumanDuration>,

    /// The claim expires if it is not renewed for this long
    #[arg(long, value_name = "SPAN", default_value = "30s")]
    lease: HumanDuration,

    #[command(flatten)]
    state: StateDirArgs,
}

pub(super) async fn run(
    arguments: &InitArguments,
    client: Client,
    fleet: Arc<Fleet>,
) -> Result<u8, Failure> {
    let app = &arguments.app;
    if let Some(file) = &arguments.file {
        let request = DefineOnce {
            definition: read_object(file)?,
        };
        let at = DefineOnceTask.at(app);
        let defined = client.call_with(at, &request).await;
        defined.map_err(|error| failed(&error))?;
    }
    let records = WorkLog::new(arguments.state.state_dir.join("once"));
    end_leftovers(&records).await?;
    let ttl = arguments.lease.0.max(Duration::from_secs(1));
    let request = ClaimOnce {
        claim: ClaimId(Uuid::new_v4()),
        lease_seconds: ttl.as_secs(),
        retry: arguments.retry,
    };
    let asked = Instant::now();
    match claim(&client, app, &request).await? {
        ClaimReply::Granted {
            attempt,
            document,
            work,
        } => {
            let claim = GrantedClaim {
                client,
                app: app.clone(),
                token: attempt.token,
                ttl: Duration::from_secs(request.lease_seconds),
                asked,
                records,
            };
            claim.execute(document, work, fleet).await
        }
        ClaimReply::Refused { standing } => refused(arguments, &client, standing).await,
    }
}

/// Ends what an attempt that was killed on this machine left behind. Waits for what cannot be
/// ended: the next attempt must not overlap it.
async fn end_leftovers(records: &WorkLog) -> Result<(), Failure> {
    let mut shown = Vec::new();
    loop {
        let log = records.clone();
        let ending = tokio::task::spawn_blocking(move || log.end_leftovers(GRACE));
        let left = match ending.await? {
            // A user who may not read the records of root has none there.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(()),
            left => left?,
        };
        if left.is_empty() {
            return Ok(());
        }
        if left != shown {
            let list: Vec<String> = left.iter().map(LeftProcess::to_string).collect();
            note!("waiting for {}, of an earlier attempt", list.join(", "));
            shown = left;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Repeats the request if the reply was lost: the claim's own id finds the claim.
async fn claim(client: &Client, app: &AppName, request: &ClaimOnce) -> Result<ClaimReply, Failure> {
    let at = ClaimOnceTask.at(app);
    let first = client.call_with(&at, request).await;
    let reply = match first {
        Err(ClientError::Lost { .. }) => client.call_with(at, request).await,
        other => other,
    };
    reply.map_err(|error| failed(&error))
}

async fn refused(
    arguments: &InitArguments,
    client: &Client,
    standing: OnceStatus,
) -> Result<u8, Failure> {
    let app = &arguments.app;
    note!("{}", describe_status(app, &standing));
    match (&standing, arguments.wait) {
        (OnceStatus::Busy { attempt }, Some(span)) => {
            wait_for(client, app, attempt.token, span.0).await
        }
        // It is too late to wait: the result of the other attempt is known.
        (OnceStatus::Done { .. }, Some(_)) => Ok(0),
        _ => Ok(code(&standing)),
    }
}

/// Waits for the attempt of another host, and returns its exit code.
async fn wait_for(
    client: &Client,
    app: &AppName,
    token: u64,
    span: Duration,
) -> Result<u8, Failure> {
    let deadline = Instant::now() + span;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let seconds = left.as_secs().clamp(1, 60);
        let wait = WaitQuery {
            wait_seconds: seconds,
        };
        let at = ShowOnceAttempt.with_query((app, &token), &wait);
        let attempt: OnceAttempt = client.call(at).await.map_err(|error| failed(&error))?;
        let shown = match attempt.outcome {
            AttemptOutcome::Running if left.is_zero() => {
                note!("{app} is still being run by {}", attempt.by);
                return Ok(super::BUSY);
            }
            AttemptOutcome::Running => continue,
            AttemptOutcome::Done { .. } => (0, "succeeded"),
            AttemptOutcome::Failed { exit_code, .. } => (exit_code, "failed"),
            AttemptOutcome::Abandoned => (1, "was abandoned"),
        };
        note!("{app} {} (attempt {token} by {})", shown.1, attempt.by);
        return Ok(shown.0);
    }
}

/// A claim that was granted.
struct GrantedClaim {
    client: Client,
    app: AppName,
    token: u64,
    ttl: Duration,
    /// When the claim was asked for: its lease lives at least from then.
    asked: Instant,
    /// The records of its program.
    records: WorkLog,
}

impl GrantedClaim {
    async fn execute(
        self,
        document: Map<String, Value>,
        work: OnceAction,
        fleet: Arc<Fleet>,
    ) -> Result<u8, Failure> {
        let app = &self.app;
        let log = TaskLog::default();
        let environment = vec![
            ("BUNRAKU_ONCE_APP".to_owned(), app.to_string()),
            ("BUNRAKU_ONCE_TOKEN".to_owned(), self.token.to_string()),
        ];
        let lease = KeepOnceClaim.at((app, &self.token));
        let (client, kept) = (self.client.clone(), log.clone());
        let renew = move || {
            let (client, lease, log) = (client.clone(), lease.clone(), kept.unsent());
            async move { client.call_with(lease, &KeepClaim { log }).await }
        };
        let lost = renew_until_lost(self.ttl, self.asked, renew);
        let words = match work {
            OnceAction::Command(words) => words,
            OnceAction::Shell(text) => vec!["/bin/sh".to_owned(), "-c".to_owned(), text],
            OnceAction::States(file) => {
                let job = StatesJob {
                    file,
                    environment,
                    fleet,
                };
                return self.ended(job.run(&log, lost).await?, &log).await;
            }
        };
        let job = Job {
            words,
            environment,
            document: Some(serde_json::to_vec(&document)?),
            work: Some(self.records.clone()),
        };
        let ended = bound_child::run(job, &log, lost).await?;
        self.ended(ended, &log).await
    }

    async fn ended(&self, ended: ProgramEnd, log: &TaskLog) -> Result<u8, Failure> {
        match ended {
            ProgramEnd::Exit(exit_code) => {
                self.finish(exit_code, log.text()).await?;
                Ok(exit_code)
            }
            ProgramEnd::Lost(why) => {
                let app = &self.app;
                Err(Failure::new(format!("{app} was abandoned: {why}"))
                    .hint(format!("see its state with `bunraku once show {app}`")))
            }
        }
    }

    /// Records the outcome. A server that is away has until the lease ends to come back.
    async fn finish(&self, exit_code: u8, log: String) -> Result<(), Failure> {
        let request = FinishClaim { exit_code, log };
        let at = FinishOnceClaim.at((&self.app, &self.token));
        let deadline = Instant::now() + self.ttl;
        loop {
            match self.client.call_with(&at, &request).await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_passing() && Instant::now() < deadline => {
                    tokio::time::sleep(self.ttl / 20).await;
                }
                Err(error) => {
                    let shown = format!(
                        "the command exited with {exit_code}, but this could not be recorded"
                    );
                    return Err(Failure::new(shown).caused_by(&error));
                }
            }
        }
    }
}
