//! A node's command stream, from subscription to the last line.
//!
//! The stream is one HTTP response whose body does not end on its own. Agents request it over
//! a separate HTTP/1.1 connection. TCP keep-alive detects dead connections. A periodic ping
//! tells an agent that its server is not hanging, and its answer in the body of the request tells
//! the server the same about the agent (`liveness`). Agents from before there were pings get an
//! empty line instead.
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
use tokio::time::Instant;

use super::ping_body::PingBody;
use crate::liveness::LivenessGuard;
use crate::services::Services;
use bunraku_compile::targets::KnownTarget;
use bunraku_compile::{Subscription, SubscriptionItem};
use bunraku_control::presence::AgentDescription;
use bunraku_control::{SILENT_AGENT, ServiceError, Session};

/// One open stream.
pub struct CommandStream {
    services: Services,
    subscription: Subscription,
    stage: Stage,
    /// Revision of the last target sent to the agent.
    last_sent: Option<Revision>,
    /// A run to send after the message that must precede it.
    next: Option<Box<Envelope>>,
    pings: Option<Pings>,
    /// Declared last, so that the node counts as connected until everything else is dropped.
    session: SessionGuard,
}

/// The agent that opens a stream.
pub struct ConnectedAgent {
    pub description: AgentDescription,
    /// The answers to pings, from an agent that sends any.
    pub pings: Option<PingBody>,
}

/// The pings of one stream.
struct Pings {
    answers: PingBody,
    sent: u64,
    due: Instant,
}

/// One line of the body.
enum StreamLine {
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
    /// Set if the agent answers pings.
    liveness: Option<LivenessGuard>,
}

/// Opens a node's stream, as the body of a response.
pub(super) async fn open(
    services: &Services,
    node: &NodeName,
    agent: ConnectedAgent,
) -> Result<Body, ServiceError> {
    let stream = CommandStream::open(services, node, agent).await?;
    Ok(Body::from_stream(stream::unfold(
        Box::new(stream),
        |mut stream| async move {
            let line = match stream.next().await? {
                StreamLine::Message(message) => {
                    let mut line = serde_json::to_vec(&message)
                        .expect("messages are plain data that JSON can hold");
                    line.push(b'\n');
                    Bytes::from(line)
                }
                StreamLine::Heartbeat => Bytes::from_static(b"\n"),
            };
            Some((Ok::<_, Infallible>(line), stream))
        },
    )))
}

/// Marks the node connected. If the agent disconnects meanwhile, the caller is dropped but
/// this task is not: it finishes writing, and its guard then reverts the write.
async fn connect(
    services: &Services,
    node: &NodeName,
    agent: &AgentDescription,
) -> Result<SessionGuard, ServiceError> {
    let (services, node, agent) = (services.clone(), node.clone(), agent.clone());
    let tasks = services.closing.clone();
    let connecting = tasks.spawn(async move {
        let session = services.presence.connect(&node, &agent).await?;
        services.metrics.connected_agents.inc();
        Ok(SessionGuard {
            services,
            session,
            liveness: None,
        })
    });
    connecting
        .await
        .map_err(|error| ServiceError::internal("a node cannot be marked connected", error))?
}

impl CommandStream {
    /// Opens a node's stream.
    pub async fn open(
        services: &Services,
        node: &NodeName,
        agent: ConnectedAgent,
    ) -> Result<Self, ServiceError> {
        services.certificates.admit(node).await?;
        // Subscribe before checking for pending messages, so that none is missed in between.
        let subscription = services.hub.subscribe(node);
        let mut session = connect(services, node, &agent.description).await?;
        let pings = agent.pings.map(|answers| Pings {
            answers,
            sent: 0,
            due: Instant::now() + services.liveness.ping_interval(),
        });
        if pings.is_some() {
            session.liveness = Some(services.liveness.watch(&session.session));
        }
        Ok(Self {
            services: services.clone(),
            subscription,
            stage: Stage::Welcome,
            last_sent: None,
            next: None,
            pings,
            session,
        })
    }

    /// Returns the next message, or nothing when the stream has ended.
    pub async fn next_message(&mut self) -> Option<StreamMessage> {
        loop {
            if let StreamLine::Message(message) = self.next().await? {
                return Some(message);
            }
        }
    }

    async fn next(&mut self) -> Option<StreamLine> {
        match self.stage {
            Stage::Ended => None,
            Stage::Welcome => {
                self.stage = Stage::FirstTarget;
                Some(StreamLine::Message(StreamMessage::Welcome {
                    server: self.services.identity.id.to_string(),
                    lost: self.session.session.silent_before(),
                }))
            }
            Stage::FirstTarget => {
                self.stage = Stage::FirstHold;
                Some(StreamLine::Message(match self.target().await {
                    Ok((_, message)) => message,
                    Err(error) => self.store_is_away(&error),
                }))
            }
            Stage::FirstHold => {
                self.stage = Stage::Commands;
                match self.hold().await {
                    Ok(StreamMessage::Hold { hold: None }) => Some(self.next_line().await),
                    Ok(message) => Some(StreamLine::Message(message)),
                    Err(error) => Some(StreamLine::Message(self.store_is_away(&error))),
                }
            }
            Stage::Commands => Some(self.next_line().await),
        }
    }

    async fn next_line(&mut self) -> StreamLine {
        if let Some(run) = self.next.take() {
            return StreamLine::Message(StreamMessage::Command(*run));
        }
        loop {
            let text = tokio::select! {
                () = self.services.shutdown.cancelled() => {
                    self.stage = Stage::Ended;
                    return StreamLine::Message(StreamMessage::Goodbye);
                }
                sign = self.session.sign_of_life(self.pings.as_mut()) => match sign {
                    SignOfLife::Due => return self.show_life(),
                    SignOfLife::Ended => {
                        self.stage = Stage::Ended;
                        return StreamLine::Message(StreamMessage::Goodbye);
                    }
                },
                text = self.subscription.next() => text,
            };
            match text {
                Ok(Some(SubscriptionItem::Command(envelope))) => {
                    return self.command(envelope).await;
                }
                Ok(Some(SubscriptionItem::Target)) => match self.target().await {
                    Ok((true, message)) => return StreamLine::Message(message),
                    Ok((false, _)) => {}
                    Err(error) => return StreamLine::Message(self.store_is_away(&error)),
                },
                Ok(Some(SubscriptionItem::Hold)) => {
                    return StreamLine::Message(match self.hold().await {
                        Ok(message) => message,
                        Err(error) => self.store_is_away(&error),
                    });
                }
                Ok(Some(SubscriptionItem::Servers)) => {
                    let servers = self.services.cluster.servers().servers;
                    return StreamLine::Message(StreamMessage::Servers { servers });
                }
                Ok(Some(SubscriptionItem::Authority)) => {
                    return StreamLine::Message(StreamMessage::Authority);
                }
                Ok(Some(SubscriptionItem::Revoked)) => {
                    self.stage = Stage::Ended;
                    return StreamLine::Message(StreamMessage::Revoked);
                }
                Ok(None) => {
                    self.stage = Stage::Ended;
                    return StreamLine::Message(StreamMessage::Superseded);
                }
                Err(error) => return StreamLine::Message(self.store_is_away(&error)),
            }
        }
    }

    /// Returns the line that shows that this server lives, and asks whether the agent does.
    fn show_life(&mut self) -> StreamLine {
        let liveness = &self.services.liveness;
        let Some(pings) = &mut self.pings else {
            return StreamLine::Heartbeat;
        };
        pings.sent += 1;
        pings.due = Instant::now() + liveness.ping_interval();
        StreamLine::Message(StreamMessage::Ping {
            number: pings.sent,
            silence_seconds: liveness.silence().as_secs(),
        })
    }

    /// Returns the line for a command. The board knows every target from before the command;
    /// one that the agent does not have yet precedes a run. If that cannot be determined, the
    /// stream ends: the agent gets the run with its next stream, and not with an old target.
    async fn command(&mut self, envelope: Box<Envelope>) -> StreamLine {
        if let Command::Run(_) = envelope.command {
            match self.target().await {
                Ok((true, message)) => {
                    self.next = Some(envelope);
                    return StreamLine::Message(message);
                }
                Ok((false, _)) => {}
                Err(error) => return StreamLine::Message(self.store_is_away(&error)),
            }
        }
        StreamLine::Message(StreamMessage::Command(*envelope))
    }

    /// Returns `true` if the agent does not have the node's target yet, and the target.
    async fn target(&mut self) -> Result<(bool, StreamMessage), ServiceError> {
        let known = self.services.board.get(&self.session.session.node).await?;
        Ok(self.target_message(known.as_deref()))
    }

    fn target_message(&mut self, known: Option<&KnownTarget>) -> (bool, StreamMessage) {
        let written = known.map(|known| known.modified);
        let news = self.last_sent != written;
        self.last_sent = written;
        let target = known.map(|known| known.stored.target.clone());
        (news, StreamMessage::Target { target })
    }

    /// Returns the run that holds the node exclusively.
    async fn hold(&mut self) -> Result<StreamMessage, ServiceError> {
        let node = &self.session.session.node;
        let hold = self.services.orchestration.hold_for_agent(node).await?;
        Ok(StreamMessage::Hold { hold })
    }

    /// Ends the stream. The agent reconnects, here or elsewhere, and gets its pending
    /// messages.
    fn store_is_away(&mut self, error: &ServiceError) -> StreamMessage {
        tracing::warn!(error = %error, "a command stream ended because the store is unavailable");
        self.stage = Stage::Ended;
        StreamMessage::Goodbye
    }
}

enum SignOfLife {
    /// The server must show that it lives.
    Due,
    /// The agent closed its side, or has been silent for too long.
    Ended,
}

impl SessionGuard {
    /// Takes the agent's answers until a sign of life is due, or the agent does not live.
    async fn sign_of_life(&self, pings: Option<&mut Pings>) -> SignOfLife {
        let (Some(pings), Some(liveness)) = (pings, &self.liveness) else {
            tokio::time::sleep(self.services.heartbeat).await;
            return SignOfLife::Due;
        };
        loop {
            tokio::select! {
                answer = pings.answers.next() => match answer {
                    Some(number) if number <= pings.sent => liveness.answered(),
                    Some(_) | None => return SignOfLife::Ended,
                },
                () = liveness.silent() => return SignOfLife::Ended,
                () = tokio::time::sleep_until(pings.due) => return SignOfLife::Due,
            }
        }
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let services = self.services.clone();
        let session = self.session.clone();
        services.metrics.connected_agents.dec();
        let silent = (self.liveness.as_ref()).is_some_and(LivenessGuard::is_silent);
        let reason = if services.shutdown.is_cancelled() {
            "its server shut down"
        } else if silent {
            SILENT_AGENT
        } else {
            "its connection closed"
        };
        self.services.closing.spawn(async move {
            // If that cannot be read, the usual reason has to do.
            let revoked = services.certificates.are_revoked(&session.node).await;
            let reason = match revoked {
                Ok(true) => "its certificate was revoked",
                Ok(false) | Err(_) => reason,
            };
            if let Err(error) = services.presence.disconnect(&session, reason).await {
                tracing::warn!(node = %session.node, error = %error, "cannot mark a node lost");
            }
        });
    }
}
