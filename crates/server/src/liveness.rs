//! Agents that no longer answer.
//!
//! A connection says nothing about its agent: the kernel of a machine whose agent hangs still
//! acknowledges every packet. So the agent's own loop answers pings, and a stream whose agent has
//! been silent for too long ends: its node counts as lost from then on.
//!
//! Rule: time in which this server itself did not run does not count. A server that was paused, or
//! that gets no CPU, finds all its agents silent, and their answers unread. Silence is therefore
//! measured in ticks of this server, and a late tick counts no more than [`MOST_PER_TICK`].
//!
//! Absent here: agents from before there were pings. Only their connection shows that they live.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bunraku_control::{Presence, SILENT_AGENT, Session};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The interval at which silence is measured.
const TICK: Duration = Duration::from_secs(1);
/// The time that one tick counts at most.
const MOST_PER_TICK: Duration = Duration::from_secs(2);
/// The number of pings within the time after which an agent counts as silent.
const PINGS: u32 = 3;

/// The handle on the liveness of this server's agents.
#[derive(Clone)]
pub struct Liveness {
    inner: Arc<Inner>,
}

struct Inner {
    silence: Duration,
    /// Milliseconds in which this server ran.
    ran: AtomicU64,
    agents: Mutex<Agents>,
}

#[derive(Default)]
struct Agents {
    by_ticket: HashMap<u64, WatchedAgent>,
    next_ticket: u64,
}

struct WatchedAgent {
    session: Session,
    /// [`Inner::ran`] at its last answer.
    answered: Arc<AtomicU64>,
    silent: CancellationToken,
}

/// One agent whose answers are expected, until dropped.
pub struct LivenessGuard {
    liveness: Liveness,
    ticket: u64,
    answered: Arc<AtomicU64>,
    silent: CancellationToken,
}

impl Liveness {
    /// Agents that do not answer for `silence` count as lost.
    pub fn new(silence: Duration) -> Self {
        Self {
            inner: Arc::new(Inner {
                silence: silence.max(TICK),
                ran: AtomicU64::new(0),
                agents: Mutex::default(),
            }),
        }
    }

    /// Returns the time after which a silent agent counts as lost.
    pub fn silence(&self) -> Duration {
        self.inner.silence
    }

    /// Returns the time between two pings.
    pub fn ping_interval(&self) -> Duration {
        self.inner.silence / PINGS
    }

    /// Expects answers from now on.
    pub fn watch(&self, session: &Session) -> LivenessGuard {
        let answered = Arc::new(AtomicU64::new(self.ran()));
        let silent = CancellationToken::new();
        let mut agents = self.agents();
        let ticket = agents.next_ticket;
        agents.next_ticket += 1;
        agents.by_ticket.insert(
            ticket,
            WatchedAgent {
                session: session.clone(),
                answered: Arc::clone(&answered),
                silent: silent.clone(),
            },
        );
        LivenessGuard {
            liveness: self.clone(),
            ticket,
            answered,
            silent,
        }
    }

    /// Ends the sessions of silent agents until cancelled. The writes are among `closing`.
    pub async fn run(&self, presence: &Presence, closing: &TaskTracker, stop: &CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => {}
            }
            let elapsed = last.elapsed();
            last = Instant::now();
            for session in self.pass_time(elapsed) {
                tracing::warn!(node = %session.node, silence = ?self.inner.silence, "an agent does not answer; its node counts as lost");
                let presence = presence.clone();
                // The stream's own task may wait for the agent to read, and so cannot do this.
                closing.spawn(async move {
                    if let Err(error) = presence.disconnect(&session, SILENT_AGENT).await {
                        tracing::warn!(node = %session.node, error = %error, "cannot mark a node lost; retrying");
                    }
                });
            }
        }
    }

    /// Counts the time since the last tick, and returns the sessions of agents that became silent.
    fn pass_time(&self, elapsed: Duration) -> Vec<Session> {
        let counted = milliseconds(elapsed.min(MOST_PER_TICK));
        let now = self.inner.ran.fetch_add(counted, Ordering::Relaxed) + counted;
        let limit = milliseconds(self.inner.silence);
        let mut agents = self.agents();
        let silent = agents.by_ticket.extract_if(|_, agent| {
            now.saturating_sub(agent.answered.load(Ordering::Relaxed)) > limit
        });
        let ended = silent.map(|(_, agent)| {
            agent.silent.cancel();
            agent.session
        });
        ended.collect()
    }

    fn ran(&self) -> u64 {
        self.inner.ran.load(Ordering::Relaxed)
    }

    fn agents(&self) -> MutexGuard<'_, Agents> {
        (self.inner.agents.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

impl LivenessGuard {
    /// Records an answer.
    pub fn answered(&self) {
        self.answered.store(self.liveness.ran(), Ordering::Relaxed);
    }

    /// Resolves when the agent has been silent for too long.
    pub async fn silent(&self) {
        self.silent.cancelled().await;
    }

    pub fn is_silent(&self) -> bool {
        self.silent.is_cancelled()
    }
}

impl Drop for LivenessGuard {
    fn drop(&mut self) {
        self.liveness.agents().by_ticket.remove(&self.ticket);
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use bunraku_model::NodeName;

    use super::*;

    fn watched(liveness: &Liveness, name: &str) -> LivenessGuard {
        let node = NodeName::new(name).expect("a name");
        liveness.watch(&Session::for_test(node))
    }

    fn silent_after(liveness: &Liveness, ticks: impl IntoIterator<Item = u64>) -> Vec<String> {
        let mut silent = Vec::new();
        for seconds in ticks {
            let ended = liveness.pass_time(Duration::from_secs(seconds));
            silent.extend(ended.into_iter().map(|session| session.node.to_string()));
        }
        silent
    }

    #[test]
    fn an_agent_that_stops_answering_is_silent_once() {
        let liveness = Liveness::new(Duration::from_secs(10));
        let (frozen, alive) = (watched(&liveness, "web-1"), watched(&liveness, "web-2"));
        for _ in 0..5 {
            assert_eq!(silent_after(&liveness, [1, 1]), [""; 0]);
            alive.answered();
        }
        assert_eq!(silent_after(&liveness, [1, 1, 1, 1]), ["web-1"]);
        assert!(frozen.is_silent() && !alive.is_silent());
    }

    #[test]
    fn time_in_which_the_server_did_not_run_does_not_count() {
        let liveness = Liveness::new(Duration::from_secs(10));
        let agent = watched(&liveness, "web-1");
        // Paused for an hour: one late tick. Then the answers are read.
        assert_eq!(silent_after(&liveness, [1, 1, 3_600, 1]), [""; 0]);
        // A server that is starved and gets a turn every minute counts two seconds of each.
        agent.answered();
        assert_eq!(silent_after(&liveness, [60, 60, 60, 60, 60]), [""; 0]);
        assert_eq!(silent_after(&liveness, [60]), ["web-1"]);
    }

    #[test]
    fn an_ended_stream_is_not_watched() {
        let liveness = Liveness::new(Duration::from_secs(10));
        drop(watched(&liveness, "web-1"));
        assert_eq!(silent_after(&liveness, 0..100), [""; 0]);
    }
}
