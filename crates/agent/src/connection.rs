//! The single long-lived stream, and the messages that arrive on it.
//!
//! The stream has its own HTTP/1.1 connection. The agent sends its requests over another
//! connection, which closes when there is nothing to send. So an idle agent costs its server one
//! connection, of the cheaper kind.
//!
//! The agent reopens a broken stream on the same server or the next one, with a jittered back-off.
//! The server sends all pending messages at the start of each stream, so nothing is lost in
//! between.

use std::time::{Duration, Instant};

use bunraku_model::CommandId;
use bunraku_wire::api::{CommandOutcome, CommandResult, Envelope, StreamMessage};
use bunraku_wire::client::{BackOff, Lines};
use bunraku_wire::endpoints::{AgentQuery, AnswerCommand, Endpoint, OpenCommandStream};
use bunraku_wire::{Client, ClientError, ClientOptions, ReloadableClientTls};
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::commands::execute;
use crate::journal::Journal;
use crate::{AgentOptions, Shared, servers};

/// The time limit for connecting to one server.
const CONNECT: Duration = Duration::from_secs(3);

/// A server sends an empty line every minute. A server that sends nothing for this long hangs, even
/// if TCP keep-alive says that the connection is up.
const SILENCE: Duration = Duration::from_secs(200);

/// A stream that lasted this long was healthy: the next failure counts as the first one.
const GOOD: Duration = Duration::from_secs(60);

/// Spreads moves over several seconds: all nodes learn at the same time that a server was added.
const MOVES: u32 = 5;

/// The wait after another client used this node's certificate. The two must not fight over the
/// stream.
const AFTER_SUPERSEDED: Duration = Duration::from_secs(60);

/// The reason why a stream ended.
enum StreamEnd {
    Broken(ClientError),
    Goodbye,
    /// Another server is now this node's first choice. The move is not urgent.
    Moves,
    Superseded,
    Revoked,
    /// This process did not run for so long that servers count its node as lost.
    Frozen(Duration),
}

/// Notices that this process did not run: it was stopped, or its machine was.
#[derive(Default)]
struct FreezeWatch {
    /// The time after which servers count the node as lost, once they said so.
    silence: Option<Duration>,
    waits_since: Option<Instant>,
}

impl FreezeWatch {
    fn wait_begins(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// Ends a wait well before it could be mistaken for a freeze.
    async fn turn(&self) {
        match self.silence {
            Some(silence) => tokio::time::sleep(silence / 3).await,
            None => std::future::pending().await,
        }
    }

    /// Returns how long the wait took, if that is longer than any wait of a running process.
    fn frozen_for(&self) -> Option<Duration> {
        let waited = self.waits_since?.elapsed();
        (waited > self.silence?).then_some(waited)
    }
}

/// The retry schedule for answers that were not delivered.
#[derive(Default)]
struct AnswerRetries {
    due: Option<tokio::time::Instant>,
    failures: u32,
}

impl AnswerRetries {
    const BACK_OFF: BackOff = BackOff {
        first: Duration::from_millis(500),
        longest: Duration::from_secs(30),
    };

    /// Schedules one retry, however many answers failed.
    fn failed(&mut self) {
        if self.due.is_none() {
            let wait = Self::BACK_OFF.random_wait(self.failures);
            self.due = Some(tokio::time::Instant::now() + wait);
            self.failures += 1;
        }
    }

    fn begin(&mut self) {
        self.due = None;
    }

    fn got_through(&mut self) {
        self.failures = 0;
    }

    /// Waits for the next retry. Never resolves while no answer is owed.
    async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

pub(crate) fn client(options: &AgentOptions, tls: &ReloadableClientTls) -> Client {
    let servers = servers::initial_servers(options);
    let mut client = ClientOptions::new(servers, tls.clone());
    // Another server is available, so there is no need to wait long for one that is down.
    client.connect_timeout = CONNECT;
    client.idle_timeout = SILENCE;
    Client::new(client)
}

/// Keeps the stream open until cancelled. Finishes the current command first.
pub(crate) async fn hold_stream(
    shared: &Shared,
    mut journal: Journal,
    shutdown: &CancellationToken,
) {
    let back_off = BackOff {
        first: Duration::from_millis(200),
        longest: Duration::from_secs(30),
    };
    let mut failures = 0;
    while !shutdown.is_cancelled() {
        let opened = Instant::now();
        let ended = one_stream(shared, &mut journal, shutdown).await;
        shared.connected.send_replace(false);
        shared.catalogs.targets.stream_ended();
        let Some(ended) = ended else {
            return;
        };
        if opened.elapsed() > GOOD {
            failures = 0;
        }
        let wait = match ended {
            StreamEnd::Goodbye => back_off.random_wait(0),
            StreamEnd::Frozen(span) => {
                tracing::warn!(
                    ?span,
                    "the agent did not run for a while; reconnecting, because servers may count this node as lost"
                );
                back_off.random_wait(0)
            }
            StreamEnd::Moves => back_off.random_wait(MOVES),
            StreamEnd::Revoked => {
                tracing::error!(
                    "this node's certificate was revoked; it must join again to be managed"
                );
                AFTER_SUPERSEDED
            }
            StreamEnd::Superseded => {
                tracing::error!(
                    "another agent connected with this node's certificate; is this machine a clone?"
                );
                AFTER_SUPERSEDED
            }
            StreamEnd::Broken(error) => {
                let wait = back_off.random_wait(failures);
                failures += 1;
                let hint = error.hint();
                tracing::warn!(error = %error, hint, ?wait, "the command stream was interrupted; reconnecting");
                wait
            }
        };
        shared.client.reconnect().await;
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn one_stream(
    shared: &Shared,
    journal: &mut Journal,
    shutdown: &CancellationToken,
) -> Option<StreamEnd> {
    let query = AgentQuery {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        answers_pings: true,
        run_method: shared.options.runs.method.name().to_owned(),
        applies_released: shared.options.runs.method.is_of_releases(),
    };
    let at = OpenCommandStream.with_query(&shared.options.name, &query);
    let mut lines: Lines<Value> = tokio::select! {
        () = shutdown.cancelled() => return None,
        // Plain JSON: a newer server may send messages that this agent does not know.
        opened = shared.client.answered_stream(at.as_str()) => match opened {
            Ok(lines) => lines,
            Err(error) => return Some(StreamEnd::Broken(error)),
        },
    };
    let mut owed = AnswerRetries::default();
    let mut freeze = FreezeWatch::default();
    loop {
        freeze.wait_begins();
        let line = tokio::select! {
            () = shutdown.cancelled() => return None,
            () = shared.renewed.notified() => return Some(StreamEnd::Goodbye),
            line = lines.next() => line,
            () = owed.due() => {
                owed.begin();
                send_all(shared, journal, &mut owed).await;
                continue;
            }
            () = freeze.turn() => {
                if let Some(span) = freeze.frozen_for() {
                    return Some(StreamEnd::Frozen(span));
                }
                continue;
            }
        };
        // What arrived meanwhile may be out of date. The next stream sends what is still valid.
        if let Some(span) = freeze.frozen_for() {
            return Some(StreamEnd::Frozen(span));
        }
        let message = match line {
            None => return Some(StreamEnd::Goodbye),
            Some(Err(error)) => return Some(StreamEnd::Broken(error)),
            Some(Ok(message)) => message,
        };
        match serde_json::from_value(message.clone()) {
            Ok(StreamMessage::Welcome { server, lost }) => {
                tracing::info!(server, at = %lines.server(), "connected");
                if let Some(lost) = lost {
                    shared.runs.was_lost(&lost);
                }
                send_pending(shared, journal, &mut owed).await;
                if servers::follow(shared, lines.server()).await {
                    return Some(StreamEnd::Goodbye);
                }
            }
            Ok(StreamMessage::Command(envelope)) => {
                take(shared, journal, &mut owed, &envelope).await;
            }
            Ok(StreamMessage::Target { target }) => shared.catalogs.receive_target(target),
            Ok(StreamMessage::Hold { hold }) => shared.runs.hold(hold),
            Ok(StreamMessage::Servers { servers }) => {
                let moves = servers::take(shared, &servers, lines.server()).await;
                if moves || servers::go_back(shared, lines.server()).await {
                    return Some(StreamEnd::Moves);
                }
            }
            Ok(StreamMessage::Ping {
                number,
                silence_seconds,
            }) => {
                lines.answer_ping(number);
                freeze.silence = Some(Duration::from_secs(silence_seconds));
            }
            Ok(StreamMessage::Authority) => shared.trust_news.notify_one(),
            Ok(StreamMessage::Goodbye) => return Some(StreamEnd::Goodbye),
            Ok(StreamMessage::Superseded) => return Some(StreamEnd::Superseded),
            Ok(StreamMessage::Revoked) => return Some(StreamEnd::Revoked),
            Err(_) => not_understood(shared, journal, &mut owed, &message).await,
        }
    }
}

/// Sends what the server should know first: the current activity and old answers. The agent learns
/// whether it may run before it accepts the first command.
async fn send_pending(shared: &Shared, journal: &mut Journal, owed: &mut AnswerRetries) {
    if let Err(error) = shared.runs.send_activity(shared).await {
        tracing::warn!(error = %error, "cannot report the agent's activity to the server");
    }
    shared.connected.send_replace(true);
    shared.trust_news.notify_one();
    send_all(shared, journal, owed).await;
}

async fn send_all(shared: &Shared, journal: &mut Journal, owed: &mut AnswerRetries) {
    for (id, result) in journal.unconfirmed() {
        send_answer(shared, journal, owed, id, &result).await;
    }
}

/// Answers from the journal, or executes the command.
async fn take(
    shared: &Shared,
    journal: &mut Journal,
    owed: &mut AnswerRetries,
    envelope: &Envelope,
) {
    let result = match journal.answer(envelope.id) {
        Some(known) => known.clone(),
        None => execute(shared, envelope).await,
    };
    answer(shared, journal, owed, envelope.id, result).await;
}

/// Answers a command that this agent does not know: a newer server may send one.
async fn not_understood(
    shared: &Shared,
    journal: &mut Journal,
    owed: &mut AnswerRetries,
    message: &Value,
) {
    let id = message
        .get("id")
        .and_then(Value::as_str)
        .and_then(|id| id.parse::<CommandId>().ok());
    tracing::warn!(%message, "ignoring an unknown message; this agent is older than its server");
    if let Some(id) = id {
        let result = CommandResult {
            outcome: CommandOutcome::NotUnderstood,
            message: format!(
                "agent {} does not support this command",
                env!("CARGO_PKG_VERSION")
            ),
            finished: Timestamp::now(),
        };
        answer(shared, journal, owed, id, result).await;
    }
}

async fn answer(
    shared: &Shared,
    journal: &mut Journal,
    owed: &mut AnswerRetries,
    id: CommandId,
    result: CommandResult,
) {
    if let Err(error) = journal.record(id, result.clone()) {
        // The answer is sent even if the journal cannot be written. Only a repeat after a crash
        // would execute the command again.
        tracing::error!(error = %error, "cannot store an answer");
    }
    send_answer(shared, journal, owed, id, &result).await;
}

async fn send_answer(
    shared: &Shared,
    journal: &mut Journal,
    owed: &mut AnswerRetries,
    id: CommandId,
    result: &CommandResult,
) {
    let at = AnswerCommand.at((&shared.options.name, &id));
    match shared.client.call_with(at, result).await {
        Ok(()) => {
            owed.got_through();
            if let Err(error) = journal.confirm(id) {
                tracing::error!(error = %error, "cannot write the journal");
            }
        }
        // The stream may stay open while the store is unavailable. Waiting for the next connection
        // could take days, and would delay everything that depends on the answer.
        Err(error) if error.is_passing() => {
            tracing::warn!(%id, error = %error, "cannot send an answer; retrying soon");
            owed.failed();
        }
        Err(error) => {
            tracing::warn!(%id, error = %error, "an answer is sent with the next connection");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_did_not_get_through_is_due_again_soon_and_ever_later() {
        let mut owed = AnswerRetries::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            owed.failed();
            // A second failure in the same round changes nothing.
            let due = owed.due;
            owed.failed();
            assert_eq!(owed.due, due);
            let begun = tokio::time::Instant::now();
            owed.due().await;
            waits.push(begun.elapsed());
            owed.begin();
        }
        assert!(waits[0] <= Duration::from_millis(510), "{waits:?}");
        assert!(waits[11] >= Duration::from_secs(7), "{waits:?}");
        owed.got_through();
        owed.failed();
        let begun = tokio::time::Instant::now();
        owed.due().await;
        assert!(begun.elapsed() <= Duration::from_millis(510));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_due_while_nothing_is_owed() {
        let owed = AnswerRetries::default();
        let day = Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, owed.due()).await.is_err());
    }
}
