//! The servers of a fleet, the network to them, and their deaths.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::{ReleaseOptions, Releases, TargetBoard};
use bunraku_control::{Clock, FactOptions, Facts, Reports};
use bunraku_model::ServerId;
use bunraku_server::backstage::{Backstage, BackstageParts, CompileOptions};
use bunraku_store::SharedStore;
use bunraku_store::blobs::{BlobOptions, StoreBlobs};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::jitter_store::JitterStore;
use crate::strike::Strike;
use crate::{Chance, CountingCompiler};

/// The time that an agent waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest time that a message is in transit: longer than any client waits for it.
const LONGEST_WAY: Duration = Duration::from_secs(3);

/// A server, until it is killed.
struct SimServer {
    backstage: Backstage,
    /// Requests that it is answering.
    requests: JoinSet<()>,
}

/// The services of a server, for a request.
#[derive(Clone)]
pub(crate) struct Services {
    pub(crate) facts: Facts,
    pub(crate) catalogs: Catalogs,
    pub(crate) releases: Releases,
    pub(crate) board: TargetBoard,
    pub(crate) reports: Reports,
}

/// The answer of a server; it may be lost in transit.
pub(crate) struct Answer<T> {
    sender: mpsc::UnboundedSender<T>,
    lost: bool,
}

impl<T> Answer<T> {
    pub(crate) fn give(self, answer: T) {
        if !self.lost {
            let _ = self.sender.send(answer);
        }
    }
}

/// All servers. This is a handle: clones are the same servers.
#[derive(Clone)]
pub(crate) struct Servers {
    running: Arc<Mutex<Vec<Option<SimServer>>>>,
    faults: Arc<AtomicBool>,
    started: Arc<AtomicU64>,
    pub(crate) strike: Arc<Strike>,
    pub(crate) chance: Chance,
    pub(crate) store: SharedStore,
    pub(crate) clock: Clock,
    pub(crate) compiler: CountingCompiler,
}

impl Servers {
    pub(crate) fn new(
        store: SharedStore,
        clock: Clock,
        compiler: CountingCompiler,
        chance: Chance,
        strike: Strike,
    ) -> Self {
        Self {
            running: Arc::default(),
            faults: Arc::default(),
            started: Arc::default(),
            strike: Arc::new(strike),
            chance,
            store,
            clock,
            compiler,
        }
    }

    /// Starts the first servers.
    pub(crate) fn start(&self, count: usize, faults: bool) {
        self.faults.store(faults, Ordering::Relaxed);
        let servers = (0..count).map(|_| Some(self.new_server()));
        let servers: Vec<_> = servers.collect();
        self.running().extend(servers);
    }

    /// Ends the faults: no message is lost or late any more, and every server is alive.
    pub(crate) fn end_faults(&self) {
        self.faults.store(false, Ordering::Relaxed);
        let count = self.running().len();
        (0..count).for_each(|number| self.revive(number));
    }

    pub(crate) fn faults(&self) -> bool {
        self.faults.load(Ordering::Relaxed)
    }

    pub(crate) fn is_alive(&self, number: usize) -> bool {
        self.running()[number].is_some()
    }

    /// Kills a server, whatever it is doing.
    pub(crate) fn kill(&self, number: usize) {
        let killed = self.running()[number].take();
        drop(killed);
    }

    pub(crate) fn revive(&self, number: usize) {
        if !self.is_alive(number) {
            let server = self.new_server();
            self.running()[number] = Some(server);
        }
    }

    /// Kills the only server where the strike says, and starts another one.
    pub(crate) async fn watch_over_the_first(self) {
        loop {
            self.strike.struck().await;
            self.kill(0);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.revive(0);
        }
    }

    fn running(&self) -> MutexGuard<'_, Vec<Option<SimServer>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_server(&self) -> SimServer {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let jitter = JitterStore::new(
            self.store.clone(),
            self.chance.clone(),
            Arc::clone(&self.strike),
        );
        let store: SharedStore = Arc::new(jitter);
        let parts = BackstageParts {
            blobs: Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default())),
            store,
            clock: self.clock.clone(),
            server: ServerId(Uuid::from_u128(u128::from(number))),
            directory: PathBuf::from("/nonexistent"),
            compiler: Box::new(self.compiler.clone()),
            facts: FactOptions {
                adopt_after: Duration::from_secs(2),
                ..FactOptions::default()
            },
            compiles: CompileOptions {
                concurrency: 2,
                lease: Duration::from_secs(3),
                ..CompileOptions::default()
            },
            releases: ReleaseOptions {
                leader_ttl: Duration::from_secs(3),
                keep: 10_000,
                ..ReleaseOptions::default()
            },
        };
        SimServer {
            backstage: Backstage::start(parts),
            requests: JoinSet::new(),
        }
    }

    /// Returns the services of a live server.
    pub(crate) fn any(&self) -> Option<Services> {
        let mut running = self.running();
        let server = self.choose(&mut running)?;
        Some(server.services())
    }

    fn choose<'a>(&self, running: &'a mut [Option<SimServer>]) -> Option<&'a mut SimServer> {
        let mut alive: Vec<&mut SimServer> = running.iter_mut().flatten().collect();
        if alive.is_empty() {
            return None;
        }
        let chosen = self.chance.below(alive.len());
        Some(alive.swap_remove(chosen))
    }

    /// Asks a server over a bad network. The request may arrive twice, late, after
    /// the client gave up, or never. The same applies to its answer.
    pub(crate) async fn ask<T, W, R>(&self, work: W) -> Option<T>
    where
        T: Send + 'static,
        W: Fn(Services, Answer<T>) -> R + Clone + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let (sender, mut answered) = mpsc::unbounded_channel();
        let copies = 1 + usize::from(self.faults() && self.chance.happens(25));
        for _ in 0..copies {
            self.send(work.clone(), sender.clone());
        }
        drop(sender);
        let answer = tokio::time::timeout(PATIENCE, answered.recv()).await;
        answer.ok().flatten()
    }

    fn send<T, W, R>(&self, work: W, sender: mpsc::UnboundedSender<T>)
    where
        T: Send + 'static,
        W: FnOnce(Services, Answer<T>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let (faults, chance) = (self.faults(), &self.chance);
        let lost = faults && chance.happens(15);
        let answer = Answer {
            sender,
            lost: faults && chance.happens(15),
        };
        let longest = if faults && chance.happens(30) {
            LONGEST_WAY
        } else {
            Duration::from_millis(20)
        };
        let way = chance.up_to(longest);
        let servers = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(way).await;
            if !lost {
                servers.arrive(work, answer);
            }
        });
    }

    /// Delivers a request to a live server, or to none if all are dead.
    fn arrive<T, W, R>(&self, work: W, answer: Answer<T>)
    where
        W: FnOnce(Services, Answer<T>) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let mut running = self.running();
        if let Some(server) = self.choose(&mut running) {
            let services = server.services();
            server.requests.spawn(work(services, answer));
        }
    }
}

impl SimServer {
    fn services(&self) -> Services {
        Services {
            facts: self.backstage.facts.clone(),
            catalogs: self.backstage.catalogs.clone(),
            releases: self.backstage.releases.clone(),
            board: self.backstage.board.clone(),
            reports: self.backstage.reports.clone(),
        }
    }
}
