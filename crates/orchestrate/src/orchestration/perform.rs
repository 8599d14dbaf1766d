//! Performs the actions in the log: asks nodes to run, and to end their runs.
//!
//! Every action here may be done twice and by two servers: command ids are
//! derived from the node run, and an existing key is not written again.

use bunraku_model::{CommandId, NodeName, NodeRunId};
use bunraku_plan::run::{Action, OrderedRunSubject, Run, RunRecord};
use bunraku_plan::{PlanStep, PlannedWork, StepIndex};
use bunraku_store::{Compare, Swap, compare_and_swap};
use bunraku_wire::api::{Cause, Command, Envelope, RunMode, RunRequest, RunSubject, TriggerCause};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::Inner;
use super::log::LogWriter;
use bunraku_control::{ServiceError, document, keys};

/// The number of commands written to the store concurrently.
const AT_ONCE: usize = 64;

/// The outcome of an action.
pub(super) enum ActionOutcome {
    /// The node gets it, with this command.
    Sent(NodeName, CommandId, StepIndex),
    /// The node cannot get it.
    Impossible(StepIndex, String),
    Nothing,
}

impl Inner {
    pub(super) async fn perform(
        &self,
        record: &RunRecord,
        run: &Run,
        writer: &LogWriter,
        actions: Vec<Action>,
    ) -> Result<Vec<ActionOutcome>, ServiceError> {
        let performing = actions
            .into_iter()
            .map(|action| self.perform_one(record, run, writer, action));
        let done: Vec<_> = futures::stream::iter(performing)
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        done.into_iter().collect()
    }

    async fn perform_one(
        &self,
        record: &RunRecord,
        run: &Run,
        writer: &LogWriter,
        action: Action,
    ) -> Result<ActionOutcome, ServiceError> {
        let now = self.clock.now();
        match action {
            Action::Start { step, node_run } => {
                let planned = &run.plan().steps[step.at()];
                let node = planned.node.clone();
                let subject = match self.subject(record, planned).await? {
                    Ok(subject) => subject,
                    Err(reason) => return Ok(ActionOutcome::Impossible(step, reason)),
                };
                let expires = later(now, record.options.start_timeout_seconds);
                let request = RunRequest {
                    id: node_run,
                    causes: causes_of(record, &node),
                    mode: Some(if record.options.noop {
                        RunMode::Noop
                    } else {
                        RunMode::Enforce
                    }),
                    subject,
                    tags: planned.tags.clone(),
                    start_before: Some(expires),
                    timeout_seconds: record.options.node_timeout_seconds,
                    coalesce: false,
                    report_unchanged: false,
                };
                let id = CommandId(node_run.0);
                let command = Command::Run(Box::new(request));
                let envelope = envelope(record, id, command, now, expires);
                if self.send(writer, &node, envelope).await? {
                    Ok(ActionOutcome::Sent(node, id, step))
                } else {
                    Ok(ActionOutcome::Impossible(
                        step,
                        "no node with this name has joined".to_owned(),
                    ))
                }
            }
            // The leader performs checks itself.
            Action::Check { .. } => Ok(ActionOutcome::Nothing),
            Action::Cancel {
                step,
                node_run,
                reason,
            } => {
                let node = run.plan().steps[step.at()].node.clone();
                let command = Command::CancelRun {
                    run: node_run,
                    reason,
                };
                let expires = later(now, 24 * 3_600);
                let envelope = envelope(record, cancel_id(node_run), command, now, expires);
                self.send(writer, &node, envelope).await?;
                Ok(ActionOutcome::Nothing)
            }
        }
    }

    /// Returns what the node is asked to do: the work that the plan names, and nothing else. Returns
    /// the reason if it must not be done any more.
    async fn subject(
        &self,
        record: &RunRecord,
        step: &PlanStep,
    ) -> Result<Result<RunSubject, String>, ServiceError> {
        let Some(work) = &step.work else {
            return Ok(Err(
                "an earlier version planned this run; plan it again".to_owned()
            ));
        };
        if let PlannedWork::Catalog(planned) = work
            && let Some(reason) = self.links.plans.prohibited(&step.node, planned).await?
        {
            return Ok(Err(reason));
        }
        Ok(match (&record.subject, work) {
            (_, PlannedWork::Nothing) => Err("it has no released catalog".to_owned()),
            (OrderedRunSubject::Configured { environment }, work) => Ok(RunSubject::Configured {
                environment: environment.clone(),
                planned: Some(Box::new(work.clone())),
            }),
            (_, PlannedWork::Catalog(planned)) => Ok(RunSubject::Catalog {
                release: planned.release,
                catalog: planned.catalog,
                planned: Some(Box::new(planned.clone())),
            }),
            (_, PlannedWork::Method { .. }) => {
                Err("the plan requests released catalogs and names a run method".to_owned())
            }
        })
    }

    /// Puts a command into a node's queue, once. Returns false if there is no such node.
    async fn send(
        &self,
        writer: &LogWriter,
        node: &NodeName,
        envelope: Envelope,
    ) -> Result<bool, ServiceError> {
        let pending = keys::command_pending(node, envelope.id);
        let result = keys::command_result(node, envelope.id);
        let node_record = keys::node_record(node);
        let (pending, result, node_record) = (&pending, &result, &node_record);
        let envelope = &document::encode(&envelope);
        compare_and_swap(&*self.store, |refused| async move {
            // Refused: already stored, or fenced. In both cases nothing is left to do here.
            if let Some(record) = refused.first() {
                return Ok(Swap::Done(record.is_some()));
            }
            let transaction = writer
                .fenced()
                .when(Compare::Exists(node_record.clone()))
                .when(Compare::Absent(pending.clone()))
                .when(Compare::Absent(result.clone()))
                .read_on_failure(node_record)
                .put(pending, envelope.clone());
            Ok(Swap::Write(transaction, true))
        })
        .await
    }
}

/// Returns the causes of a node's run: this run, and the reactor that started it.
fn causes_of(record: &RunRecord, node: &NodeName) -> Vec<Cause> {
    let of_reactor = (record.causes.iter())
        .filter(|cause| cause.concerns(node))
        .map(|cause| {
            Cause::Trigger(TriggerCause {
                hosts: Vec::new(),
                ..cause.clone()
            })
        });
    let mut causes = vec![Cause::Run { run: record.id }];
    causes.extend(of_reactor);
    causes
}

fn envelope(
    record: &RunRecord,
    id: CommandId,
    command: Command,
    sent: Timestamp,
    expires: Timestamp,
) -> Envelope {
    Envelope {
        id,
        command,
        sent_by: record.by.clone(),
        sent,
        expires,
    }
}

fn later(now: Timestamp, seconds: u64) -> Timestamp {
    let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    now.checked_add(seconds).unwrap_or(Timestamp::MAX)
}

/// The id of the command that ends a node run: separate from the run's own
/// command, and always the same.
fn cancel_id(run: NodeRunId) -> CommandId {
    let mut bytes = *run.0.as_bytes();
    bytes[0] ^= 0xff;
    CommandId(Uuid::from_bytes(bytes))
}
