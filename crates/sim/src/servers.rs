//! The servers of a fleet, the network to them, and their deaths.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bunraku_compile::ReleaseOptions;
use bunraku_control::{AuditOptions, Clock, FactOptions, HistoryBackends, ReportOptions};
use bunraku_model::{NodeName, ServerId};
use bunraku_orchestrate::OrchestrationOptions;
use bunraku_server::backstage::{CommandStream, CompileOptions, ConnectedAgent, RunningServices};
use bunraku_server::{ServiceOptions, Services, StoreUpkeepOptions, UpkeepOptions, WiringParts};
use bunraku_store::SharedStore;
use bunraku_store::blobs::{BlobOptions, StoreBlobs};
use bunraku_store::history::SharedHistory;
use bunraku_wire::Authority;
use bunraku_wire::api::StreamMessage;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::jitter_history::JitterHistory;
use crate::jitter_store::JitterStore;
use crate::strike::KillSwitch;
use crate::{Chance, CountingCompiler};

/// The time that an agent waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest time that a message is in transit: longer than any client waits for it.
const LONGEST_WAY: Duration = Duration::from_secs(3);

/// A server, until it is killed.
struct SimServer {
    /// Its services, once it has started.
    backstage: Arc<OnceLock<RunningServices>>,
    store: Arc<JitterStore>,
    /// Its start, and the requests that it is answering.
    requests: JoinSet<()>,
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
    pub(crate) strike: Arc<KillSwitch>,
    pub(crate) chance: Chance,
    pub(crate) store: SharedStore,
    /// The history that all servers share; without one, history is in the store.
    history: Option<SharedHistory>,
    pub(crate) clock: Clock,
    pub(crate) compiler: CountingCompiler,
    authority: Arc<Authority>,
    directory: PathBuf,
}

impl Servers {
    pub(crate) fn new(
        (store, history): (SharedStore, Option<SharedHistory>),
        clock: Clock,
        compiler: CountingCompiler,
        chance: Chance,
        strike: KillSwitch,
        directory: PathBuf,
    ) -> Self {
        Self {
            running: Arc::default(),
            faults: Arc::default(),
            started: Arc::default(),
            strike: Arc::new(strike),
            chance,
            store,
            history,
            clock,
            compiler,
            authority: authority(),
            directory,
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
        (0..count).for_each(|number| self.restart(number));
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

    pub(crate) fn restart(&self, number: usize) {
        if !self.is_alive(number) {
            let server = self.new_server();
            self.running()[number] = Some(server);
        }
    }

    /// Kills the only server where the strike says, and starts another one.
    pub(crate) async fn watch_over_the_first(self) {
        loop {
            self.strike.wait_for_strike().await;
            self.kill(0);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.restart(0);
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
        let jitter = Arc::new(jitter);
        let store: SharedStore = jitter.clone();
        let parts = WiringParts {
            blobs: Arc::new(StoreBlobs::in_store(store.clone(), BlobOptions::default())),
            store,
            clock: self.clock.clone(),
            signer: Arc::clone(&self.authority).into(),
            server: ServerId(Uuid::from_u128(u128::from(number))),
            compiler: Some(Box::new(self.compiler.clone())),
        };
        let postgresql = self.history.clone().map(|history| {
            let history: SharedHistory = Arc::new(JitterHistory::new(history, Arc::clone(&jitter)));
            history
        });
        let options = ServiceOptions {
            history: HistoryBackends {
                begin_with_postgresql: postgresql.is_some(),
                postgresql,
                embedded: None,
            },
            ..self.options()
        };
        let backstage = Arc::new(OnceLock::new());
        let started = Arc::clone(&backstage);
        let mut requests = JoinSet::new();
        requests.spawn(async move {
            let start = RunningServices::start(&options, parts).await;
            let _ = started.set(start.expect("memory answers"));
        });
        SimServer {
            backstage,
            store: jitter,
            requests,
        }
    }

    fn options(&self) -> ServiceOptions {
        ServiceOptions {
            exclusive_store: false,
            store_kind: "memory",
            server_ttl: Duration::from_secs(3),
            heartbeat: Duration::from_secs(20),
            agent_silence: Duration::from_secs(90),
            rates: bunraku_server::RateOptions::default(),
            facts: FactOptions {
                adopt_after: Duration::from_secs(2),
                ..FactOptions::default()
            },
            compiles: CompileOptions {
                concurrency: 2,
                lease: Duration::from_secs(3),
                ..CompileOptions::default()
            },
            audit: AuditOptions {
                leader_ttl: Duration::from_secs(3),
                upkeep_every: Duration::from_secs(40),
                ..AuditOptions::default()
            },
            releases: ReleaseOptions {
                leader_ttl: Duration::from_secs(3),
                keep: 10_000,
                ..ReleaseOptions::default()
            },
            reports: ReportOptions {
                kept_per_node: 10_000,
                ..ReportOptions::default()
            },
            orchestration: OrchestrationOptions {
                leader_ttl: Duration::from_secs(3),
                hold_ttl: Duration::from_secs(20),
            },
            upkeep: UpkeepOptions {
                sweep_every: Duration::from_secs(10),
                collect_every: Duration::from_secs(40),
                expire_every: Duration::from_secs(3_600),
                store: StoreUpkeepOptions::default(),
            },
            ..ServiceOptions::new(&self.directory)
        }
    }

    /// Returns the services of a live server.
    pub(crate) fn any(&self) -> Option<Services> {
        let mut running = self.running();
        let server = self.choose(&mut running)?;
        server.services().cloned()
    }

    fn choose<'a>(&self, running: &'a mut [Option<SimServer>]) -> Option<&'a mut SimServer> {
        let alive = running.iter_mut().flatten();
        let mut alive: Vec<&mut SimServer> = alive.filter(|it| it.services().is_some()).collect();
        if alive.is_empty() {
            return None;
        }
        let chosen = self.chance.below(alive.len());
        Some(alive.swap_remove(chosen))
    }

    /// Opens the command stream of a node at a live server. The stream ends when the receiver
    /// is dropped, or when its server is killed.
    pub(crate) fn connect(
        &self,
        node: &NodeName,
    ) -> Option<mpsc::UnboundedReceiver<StreamMessage>> {
        let mut running = self.running();
        let server = self.choose(&mut running)?;
        let services = server.services()?.clone();
        let (sender, receiver) = mpsc::unbounded_channel();
        let node = node.clone();
        server.requests.spawn(async move {
            let agent = ConnectedAgent {
                description: Default::default(),
                pings: None,
            };
            let Ok(mut stream) = CommandStream::open(&services, &node, agent).await else {
                return;
            };
            loop {
                let message = tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    message = stream.next_message() => message,
                };
                let is_over = message.is_none_or(|message| sender.send(message).is_err());
                if is_over {
                    return;
                }
            }
        });
        Some(receiver)
    }

    /// Returns the time that a message is in transit.
    pub(crate) fn transit(&self) -> Duration {
        let longest = if self.faults() && self.chance.happens(30) {
            LONGEST_WAY
        } else {
            Duration::from_millis(20)
        };
        self.chance.up_to(longest)
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
        let way = self.transit();
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
        if let Some(server) = self.choose(&mut running)
            && let Some(services) = server.services().cloned()
        {
            server.requests.spawn(work(services, answer));
        }
    }
}

impl SimServer {
    /// Returns its services, once it has started.
    fn services(&self) -> Option<&Services> {
        self.backstage.get().map(RunningServices::services)
    }
}

impl Drop for SimServer {
    /// Kills it. Tasks that its services spawned themselves get no further than their next
    /// call to the store.
    fn drop(&mut self) {
        self.store.kill();
    }
}

/// Returns the authority of all fleets of this process, because creating a key takes long.
fn authority() -> Arc<Authority> {
    static AUTHORITY: OnceLock<Arc<Authority>> = OnceLock::new();
    let authority = AUTHORITY.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let now = jiff::Timestamp::UNIX_EPOCH;
        let authority = Authority::load_or_create(directory.path(), now);
        Arc::new(authority.expect("an authority"))
    });
    Arc::clone(authority)
}
