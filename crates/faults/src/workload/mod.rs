//! Clients that work while things break, and record what they see.
//!
//! Every call goes to one server and is sent once. If a client does not know the
//! outcome of a call, it records the outcome as unknown; it never guesses.

mod alone;
mod cues;
mod locks;
mod once;
mod registers;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bunraku_store::SharedStore;
use bunraku_wire::{Client, ClientError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

use crate::history::{Call, CallOutcome, Micros, NetworkCut, Operation, Server};

pub(crate) use alone::AloneWorker;
pub(crate) use cues::order;
pub(crate) use locks::LOCKS;
pub(crate) use registers::KEYS;

pub(crate) const CLIENTS: usize = 5;
/// The number of times that all clients start with the same lock.
const RUSHES: usize = 5;

/// The only clock, and everything that was seen by it.
#[derive(Clone)]
pub(crate) struct Recorder {
    begun: Instant,
    began_at: SystemTime,
    seen: Arc<Mutex<(Vec<Operation>, Vec<NetworkCut>)>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            began_at: SystemTime::now(),
            seen: Arc::default(),
        }
    }

    pub(crate) fn now(&self) -> Micros {
        micros(self.begun.elapsed())
    }

    /// Converts a time of day, as reported by scripts and servers.
    pub(crate) fn of_day(&self, since_epoch: Duration) -> Micros {
        let began = self.began_at.duration_since(SystemTime::UNIX_EPOCH);
        micros(since_epoch.saturating_sub(began.unwrap_or_default()))
    }

    fn recorded(&self) -> MutexGuard<'_, (Vec<Operation>, Vec<NetworkCut>)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cut(&self, cut: NetworkCut) {
        self.recorded().1.push(cut);
    }

    pub(crate) fn all(&self) -> (Vec<Operation>, Vec<NetworkCut>) {
        self.recorded().clone()
    }
}

pub(crate) fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

/// A request that is about to be sent.
struct Request {
    client: Client,
    id: String,
    server: Server,
    begun: Micros,
}

/// One client, with a connection to every server and to the store.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) servers: Vec<Client>,
    pub(crate) store: SharedStore,
    pub(crate) recorder: Recorder,
    pub(crate) random: StdRng,
    count: u64,
}

impl Worker {
    pub(crate) fn new(
        number: usize,
        seed: u64,
        servers: Vec<Client>,
        store: SharedStore,
        recorder: Recorder,
    ) -> Self {
        Self {
            number,
            servers,
            store,
            recorder,
            random: StdRng::seed_from_u64(seed ^ ((number as u64 + 1) << 32)),
            count: 0,
        }
    }

    /// Works until stopped, then finishes what it began.
    pub(crate) async fn work(mut self, stop: CancellationToken) {
        for _ in 0..RUSHES {
            self.contend().await;
        }
        while !stop.is_cancelled() {
            match self.random.random_range(0..100) {
                0..40 => self.swap().await,
                40..65 => self.write_or_read().await,
                65..80 => self.hold_lock().await,
                80..90 => self.do_once().await,
                90..97 => self.fire().await,
                _ => self.start_run().await,
            }
            let pause = Duration::from_millis(self.random.random_range(1..60));
            tokio::time::sleep(pause).await;
        }
    }

    fn any_server(&mut self) -> Server {
        self.random.random_range(0..self.servers.len())
    }

    /// Returns a unique name.
    fn unique(&mut self) -> String {
        self.count += 1;
        format!("c{}-{}", self.number, self.count)
    }

    /// Begins a request to a server, under an id that the audit log repeats.
    fn request(&mut self, server: Server) -> Request {
        let id = self.unique();
        Request {
            client: self.servers[server].with_request_id(&id),
            id,
            server,
            begun: self.recorder.now(),
        }
    }

    fn record_reply(&self, request: Request, call: Call, outcome: CallOutcome) {
        let mut operation = self.operation(Some(request.server), request.begun, call, outcome);
        operation.request = Some(request.id);
        self.recorder.recorded().0.push(operation);
    }

    fn record(&self, server: Option<Server>, begun: Micros, call: Call, outcome: CallOutcome) {
        let operation = self.operation(server, begun, call, outcome);
        self.recorder.recorded().0.push(operation);
    }

    fn operation(
        &self,
        server: Option<Server>,
        begun: Micros,
        call: Call,
        outcome: CallOutcome,
    ) -> Operation {
        Operation {
            client: self.number,
            server,
            begun,
            ended: self.recorder.now(),
            call,
            outcome,
            request: None,
        }
    }
}

/// Returns the effect of a call that an error implies.
fn outcome_of(error: &ClientError) -> CallOutcome {
    match error {
        // Nothing was sent.
        ClientError::NoServer { .. } | ClientError::Refused { .. } => CallOutcome::Refused,
        // A clear refusal. An error of a server in trouble (5xx, 408) does not count as an answer.
        ClientError::Api { status, .. } if (400..500).contains(status) && *status != 408 => {
            CallOutcome::Refused
        }
        _ => CallOutcome::Unknown,
    }
}
