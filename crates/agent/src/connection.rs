//! The one long-lived stream, and what comes through it.
//!
//! It has an HTTP/1.1 connection of its own; what the agent sends goes over
//! another one, which closes when there is nothing to send. So an idle agent
//! costs its server one connection, and the leaner kind.
//!
//! A stream that breaks is opened again, on the same server or the next, with
//! a jittered back-off. The server sends everything that waits at the start
//! of each stream, so nothing is lost in between.

use std::time::{Duration, Instant};

use bunraku_model::CommandId;
use bunraku_wire::api::{CommandOutcome, CommandResult, Envelope, StreamMessage};
use bunraku_wire::client::{BackOff, Lines};
use bunraku_wire::{Client, ClientError, ClientOptions, ReloadableClientTls};
use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::commands::carry_out;
use crate::journal::Journal;
use crate::{AgentOptions, Shared, servers};

/// How long one server may take to take a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// A server sends an empty line every minute. One that has sent nothing for so
/// long hangs, though TCP keep-alive says that the line lives.
const SILENCE: Duration = Duration::from_secs(200);

/// A stream that lived for so long was a good one: the next failure is a first one.
const GOOD: Duration = Duration::from_secs(60);

/// All nodes hear at once that a server was added: those that move to it
/// spread over some seconds.
const MOVES: u32 = 5;

/// Somebody else has this node's certificate: do not fight over the stream.
const AFTER_SUPERSEDED: Duration = Duration::from_secs(60);

/// How a stream ended.
enum Ended {
    Broken(ClientError),
    Goodbye,
    /// Another server is this node's first choice now. Nothing is urgent.
    Moves,
    Superseded,
}

pub(crate) fn client(options: &AgentOptions, tls: &ReloadableClientTls) -> Client {
    let servers = servers::remembered(options);
    let mut client = ClientOptions::new(servers, tls.clone());
    // The next server is near: no need to wait long for one that is away.
    client.connect_timeout = CONNECT;
    client.idle_timeout = SILENCE;
    Client::new(client)
}

/// Holds the stream until cancelled. A command in hand is finished first.
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
        let Some(ended) = ended else {
            return;
        };
        if opened.elapsed() > GOOD {
            failures = 0;
        }
        let wait = match ended {
            Ended::Goodbye => back_off.random_wait(0),
            Ended::Moves => back_off.random_wait(MOVES),
            Ended::Superseded => {
                tracing::error!(
                    "another agent connected with this node's certificate; is this machine a clone?"
                );
                AFTER_SUPERSEDED
            }
            Ended::Broken(error) => {
                let wait = back_off.random_wait(failures);
                failures += 1;
                tracing::warn!(error = %error, ?wait, "the command stream broke; opening it again");
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
) -> Option<Ended> {
    let path = format!(
        "/v1/nodes/{}/stream?version={}",
        shared.options.name,
        env!("CARGO_PKG_VERSION")
    );
    let mut lines: Lines<Value> = tokio::select! {
        () = shutdown.cancelled() => return None,
        opened = shared.client.stream(&path) => match opened {
            Ok(lines) => lines,
            Err(error) => return Some(Ended::Broken(error)),
        },
    };
    loop {
        let line = tokio::select! {
            () = shutdown.cancelled() => return None,
            () = shared.renewed.notified() => return Some(Ended::Goodbye),
            line = lines.next() => line,
        };
        let message = match line {
            None => return Some(Ended::Goodbye),
            Some(Err(error)) => return Some(Ended::Broken(error)),
            Some(Ok(message)) => message,
        };
        match serde_json::from_value(message.clone()) {
            Ok(StreamMessage::Welcome { server }) => {
                tracing::info!(server, at = %lines.server(), "connected");
                greet(shared, journal).await;
                if servers::follow(shared, lines.server()).await {
                    return Some(Ended::Goodbye);
                }
            }
            Ok(StreamMessage::Command(envelope)) => take(shared, journal, &envelope).await,
            Ok(StreamMessage::Target { target }) => shared.catalogs.told(target),
            Ok(StreamMessage::Hold { hold }) => shared.runs.hold(hold),
            Ok(StreamMessage::Servers { servers }) => {
                if servers::take(shared, &servers, lines.server()).await {
                    return Some(Ended::Moves);
                }
            }
            Ok(StreamMessage::Goodbye) => return Some(Ended::Goodbye),
            Ok(StreamMessage::Superseded) => return Some(Ended::Superseded),
            Err(_) => not_understood(shared, journal, &message).await,
        }
    }
}

/// What the server should know first: what runs, and old answers. The agent
/// hears whether it may run before it takes the first command.
async fn greet(shared: &Shared, journal: &mut Journal) {
    if let Err(error) = shared.runs.tell(shared).await {
        tracing::warn!(error = %error, "cannot tell the server what the agent does");
    }
    shared.connected.send_replace(true);
    for (id, result) in journal.unconfirmed() {
        send_answer(shared, journal, id, &result).await;
    }
}

/// Answers from the journal, or carries the command out.
async fn take(shared: &Shared, journal: &mut Journal, envelope: &Envelope) {
    let result = match journal.answer(envelope.id) {
        Some(known) => known.clone(),
        None => carry_out(shared, envelope).await,
    };
    answer(shared, journal, envelope.id, result).await;
}

/// A newer server may ask what this agent does not know.
async fn not_understood(shared: &Shared, journal: &mut Journal, message: &Value) {
    let id = message
        .get("id")
        .and_then(Value::as_str)
        .and_then(|id| id.parse::<CommandId>().ok());
    tracing::warn!(%message, "a message is not understood; this agent is older than its server");
    if let Some(id) = id {
        let result = CommandResult {
            outcome: CommandOutcome::NotUnderstood,
            message: format!(
                "agent {} does not know this command",
                env!("CARGO_PKG_VERSION")
            ),
            finished: Timestamp::now(),
        };
        answer(shared, journal, id, result).await;
    }
}

async fn answer(shared: &Shared, journal: &mut Journal, id: CommandId, result: CommandResult) {
    if let Err(error) = journal.record(id, result.clone()) {
        // Without the journal the answer still goes out; only a repeat after
        // a crash would be carried out again.
        tracing::error!(error = %error, "an answer could not be written down");
    }
    send_answer(shared, journal, id, &result).await;
}

async fn send_answer(
    shared: &Shared,
    journal: &mut Journal,
    id: CommandId,
    result: &CommandResult,
) {
    let path = format!("/v1/nodes/{}/commands/{id}/result", shared.options.name);
    match shared.client.put::<_, ()>(&path, result).await {
        Ok(()) => {
            if let Err(error) = journal.confirm(id) {
                tracing::error!(error = %error, "the journal could not be written");
            }
        }
        Err(error) => {
            tracing::warn!(%id, error = %error, "an answer waits for the next connection")
        }
    }
}
