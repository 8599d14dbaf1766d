//! A node's command stream, from subscription to the last line.
//!
//! The stream is one HTTP response whose body does not end on its own. Agents request it over
//! a separate HTTP/1.1 connection. TCP keep-alive detects dead connections. A periodic empty
//! line tells an agent that its server is not hanging.
//!
//! Invariant: the node is marked connected before its first line, and lost after the body is
//! dropped, for whatever reason.

use std::convert::Infallible;

use axum::body::Body;
use bunraku_model::NodeName;
use bunraku_store::Revision;
use bunraku_wire::api::{Command, Envelope, StreamMessage};
use bytes::Bytes;
use futures::stream;

use super::routes::Services;
use bunraku_compile::targets::KnownTarget;
use bunraku_compile::{Subscription, Told};
use bunraku_control::{ServiceError, Session};

/// One open stream.
struct Open {
    services: Services,
    subscription: Subscription,
    stage: Stage,
    /// Revision of the last target sent to the agent.
    told: Option<Revision>,
    /// A run to send after the message that must precede it.
    next: Option<Box<Envelope>>,
    /// Declared last, so that the node counts as connected until everything else is dropped.
    session: SessionGuard,
}

/// One line of the body.
enum Line {
    Message(StreamMessage),
    /// An empty line. A hanging server sends none, so its agents switch to another server.
    Heartbeat,
}

enum Stage {
    Welcome,
    FirstTarget,
    FirstHold,
    Commands,
    Ended,
}

/// Marks the node lost when the stream ends, for whatever reason.
struct SessionGuard {
    services: Services,
    session: Session,
}

/// Opens a node's stream.
pub(super) async fn open(
    services: &Services,
    node: &NodeName,
    version: &str,
) -> Result<Body, ServiceError> {
    services.certificates.admit(node).await?;
    // Subscribe before checking for pending messages, so that none is missed in between.
    let subscription = services.hub.subscribe(node);
    let guard = connect(services, node, version).await?;
    let open = Open {
        services: services.clone(),
        subscription,
        stage: Stage::Welcome,
        told: None,
        next: None,
        session: guard,
    };
    Ok(Body::from_stream(stream::unfold(
        Box::new(open),
        |mut open| async move {
            let line = match open.next().await? {
                Line::Message(message) => {
                    let mut line = serde_json::to_vec(&message)
                        .expect("messages are plain data that JSON can hold");
                    line.push(b'\n');
                    Bytes::from(line)
                }
                Line::Heartbeat => Bytes::from_static(b"\n"),
            };
            Some((Ok::<_, Infallible>(line), open))
        },
    )))
}

/// Marks the node connected. If the agent disconnects meanwhile, the caller is dropped but
/// this task is not: it finishes writing, and its guard then reverts the write.
async fn connect(
    services: &Services,
    node: &NodeName,
    version: &str,
) -> Result<SessionGuard, ServiceError> {
    let (services, node, version) = (services.clone(), node.clone(), version.to_owned());
    let tasks = services.closing.clone();
    let connecting = tasks.spawn(async move {
        let session = services.presence.connect(&node, &version).await?;
        services.metrics.connected_agents.inc();
        Ok(SessionGuard { services, session })
    });
    connecting
        .await
        .map_err(|error| ServiceError::internal("a node cannot be marked connected", error))?
}

impl Open {
    async fn next(&mut self) -> Option<Line> {
        match self.stage {
            Stage::Ended => None,
            Stage::Welcome => {
                self.stage = Stage::FirstTarget;
                Some(Line::Message(StreamMessage::Welcome {
                    server: self.services.identity.id.to_string(),
                }))
            }
            Stage::FirstTarget => {
                self.stage = Stage::FirstHold;
                Some(Line::Message(match self.target().await {
                    Ok((_, message)) => message,
                    Err(error) => self.store_is_away(&error),
                }))
            }
            Stage::FirstHold => {
                self.stage = Stage::Commands;
                match self.hold().await {
                    Ok(StreamMessage::Hold { hold: None }) => Some(self.next_line().await),
                    Ok(message) => Some(Line::Message(message)),
                    Err(error) => Some(Line::Message(self.store_is_away(&error))),
                }
            }
            Stage::Commands => Some(self.next_line().await),
        }
    }

    async fn next_line(&mut self) -> Line {
        if let Some(run) = self.next.take() {
            return Line::Message(StreamMessage::Command(*run));
        }
        loop {
            let told = tokio::select! {
                () = self.services.shutdown.cancelled() => {
                    self.stage = Stage::Ended;
                    return Line::Message(StreamMessage::Goodbye);
                }
                told = self.subscription.next() => told,
                () = tokio::time::sleep(self.services.heartbeat) => return Line::Heartbeat,
            };
            match told {
                Ok(Some(Told::Command {
                    envelope,
                    refreshed,
                })) => return self.command(envelope, refreshed).await,
                Ok(Some(Told::Target)) => match self.target().await {
                    Ok((true, message)) => return Line::Message(message),
                    Ok((false, _)) => {}
                    Err(error) => return Line::Message(self.store_is_away(&error)),
                },
                Ok(Some(Told::Hold)) => {
                    return Line::Message(match self.hold().await {
                        Ok(message) => message,
                        Err(error) => self.store_is_away(&error),
                    });
                }
                Ok(Some(Told::Servers)) => {
                    let servers = self.services.cluster.servers().servers;
                    return Line::Message(StreamMessage::Servers { servers });
                }
                Ok(None) => {
                    self.stage = Stage::Ended;
                    return Line::Message(StreamMessage::Superseded);
                }
                Err(error) => return Line::Message(self.store_is_away(&error)),
            }
        }
    }

    /// Returns the line for a command. Sends a target released before the run was requested
    /// ahead of the run, although the target arrives through another watch.
    async fn command(&mut self, envelope: Box<Envelope>, refreshed: bool) -> Line {
        if let Command::Run(_) = envelope.command {
            let (board, node) = (&self.services.board, &self.session.session.node);
            let known = match refreshed {
                true => board.get(node).await,
                false => board.get_newest(node).await,
            };
            match known {
                Ok(known) => {
                    if let (true, message) = self.tell(known.as_deref()) {
                        self.next = Some(envelope);
                        return Line::Message(message);
                    }
                }
                Err(error) => {
                    tracing::warn!(%node, error = %error, "whether there is a newer target for a run is not known");
                }
            }
        }
        Line::Message(StreamMessage::Command(*envelope))
    }

    /// Returns `true` if the agent does not have the node's target yet, and the target.
    async fn target(&mut self) -> Result<(bool, StreamMessage), ServiceError> {
        let known = self.services.board.get(&self.session.session.node).await?;
        Ok(self.tell(known.as_deref()))
    }

    fn tell(&mut self, known: Option<&KnownTarget>) -> (bool, StreamMessage) {
        let written = known.map(|known| known.modified);
        let news = self.told != written;
        self.told = written;
        let target = known.map(|known| known.stored.target.clone());
        (news, StreamMessage::Target { target })
    }

    /// Returns the run that holds the node exclusively.
    async fn hold(&self) -> Result<StreamMessage, ServiceError> {
        let node = &self.session.session.node;
        let hold = self.services.orchestration.hold_for_agent(node).await?;
        Ok(StreamMessage::Hold { hold })
    }

    /// Ends the stream. The agent reconnects, here or elsewhere, and gets its pending
    /// messages.
    fn store_is_away(&mut self, error: &ServiceError) -> StreamMessage {
        tracing::warn!(error = %error, "a command stream ended because the store is away");
        self.stage = Stage::Ended;
        StreamMessage::Goodbye
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let services = self.services.clone();
        let session = self.session.clone();
        services.metrics.connected_agents.dec();
        let reason = if services.shutdown.is_cancelled() {
            "its server shut down"
        } else {
            "its connection closed"
        };
        self.services.closing.spawn(async move {
            if let Err(error) = services.presence.disconnect(&session, reason).await {
                tracing::warn!(node = %session.node, error = %error, "cannot mark a node lost");
            }
        });
    }
}
