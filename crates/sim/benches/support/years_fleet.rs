//! The services of a server on a real etcd, agents that call them, and what both cost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bunraku_control::presence::AgentDescription;
use bunraku_control::{Clock, ServiceError, Signer, keys};
use bunraku_model::{FactSet, NodeName, NodeRunId, Role, ServerId, default_environment};
use bunraku_server::backstage::{CompileQueue, RunningServices};
use bunraku_server::{ServiceOptions, Services, WiringParts};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs, SharedBlobs, StoreBlobs};
use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{Range, SharedStore, Transaction, newest_revision};
use bunraku_wire::api::{
    Cause, CompileReason, DeployedCode, EventStatus, IssueRequest, ReportBatch, ReportEvent,
    ResourceEvent, RevokeRequest, RunEnding, RunFinished, RunMode, RunStarted,
};
use bunraku_wire::key::KeyKind;
use bunraku_wire::{Authority, PrivateKey, Request};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::code::{SiteCode, Version};
use crate::processor::processor_time;

/// The number of agents that call at the same time.
const AT_ONCE: usize = 64;
/// A time limit that is long enough on any machine.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// The resources of each node, for its reports.
const RESOURCES: u64 = 40;

/// Where content is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Etcd,
    Directory,
}

/// The cost so far.
pub(crate) struct Cost {
    pub(crate) writes: u64,
    pub(crate) processor: Duration,
}

/// What is stored now.
pub(crate) struct Stored {
    pub(crate) keys: u64,
    pub(crate) etcd_in_use: u64,
    pub(crate) state_bytes: u64,
    pub(crate) content_bytes: u64,
    pub(crate) history_bytes: u64,
    pub(crate) directory_bytes: u64,
}

pub(crate) struct YearsFleet {
    cluster: EtcdCluster,
    store: SharedStore,
    blobs: SharedBlobs,
    authority: Arc<Authority>,
    code: SiteCode,
    /// Seconds by which the clock is ahead of the real one.
    ahead: Arc<AtomicI64>,
    server: Option<RunningServices>,
    /// The numbers of all nodes, oldest first.
    nodes: VecDeque<u64>,
    next_node: u64,
    deploys: u64,
    /// The longest call of an agent, in microseconds.
    longest_call: AtomicU64,
    longest_collection: Duration,
    directory: tempfile::TempDir,
}

fn name(number: u64) -> NodeName {
    NodeName::new(format!("node-{number}.bench")).expect("a name")
}

/// A few kilobytes, like a real machine's facts.
fn facts(number: u64, day: u64) -> FactSet {
    let filler: Vec<Value> = (0..50)
        .map(|fact| json!({"name": format!("fact {fact}"), "value": fact * 7919}))
        .collect();
    let facts = json!({"number": number, "day": day, "kernel": "Linux", "filler": filler});
    facts.try_into().expect("an object")
}

impl YearsFleet {
    /// Starts etcd and a server, and lets all nodes join, connect and submit facts.
    pub(crate) async fn start(nodes: u64, content: Content) -> Self {
        let cluster = EtcdCluster::start_with_flags(1, &["--quota-backend-bytes=8589934592"]).await;
        let store = EtcdStore::connect(cluster.options("/bunraku/")).await;
        let store: SharedStore = Arc::new(store.expect("etcd answers"));
        let directory = tempfile::tempdir().expect("a directory");
        let options = BlobOptions::default();
        let blobs: SharedBlobs = match content {
            Content::Etcd => Arc::new(StoreBlobs::in_store(store.clone(), options)),
            Content::Directory => {
                let place = directory.path().join("blobs");
                let blobs = DirectoryBlobs::in_directory(place, store.clone(), options).await;
                Arc::new(blobs.expect("the blobs open"))
            }
        };
        let authority = Authority::create("bench", Timestamp::now()).expect("an authority");
        let mut fleet = Self {
            cluster,
            store,
            blobs,
            authority: Arc::new(authority),
            code: SiteCode::new(1),
            ahead: Arc::default(),
            server: None,
            nodes: VecDeque::new(),
            next_node: 0,
            deploys: 0,
            longest_call: AtomicU64::new(0),
            longest_collection: Duration::ZERO,
            directory,
        };
        fleet.start_server().await;
        let settings =
            json!({"url": "file:///nowhere", "policy": "auto", "created": "2026-01-01T00:00:00Z"});
        let key = keys::environment_settings(&default_environment());
        fleet.put(key, settings.to_string()).await;
        fleet.write_deploy().await;
        fleet.join(nodes).await;
        fleet.settle().await;
        fleet
    }

    fn clock(&self) -> Clock {
        let ahead = Arc::clone(&self.ahead);
        Clock::new(move || {
            Timestamp::now() + SignedDuration::from_secs(ahead.load(Ordering::Relaxed))
        })
    }

    async fn start_server(&mut self) {
        let parts = WiringParts {
            store: self.store.clone(),
            blobs: self.blobs.clone(),
            clock: self.clock(),
            signer: Arc::clone(&self.authority).into(),
            server: ServerId(Uuid::new_v4()),
            compiler: Some(Box::new(self.code.clone())),
        };
        let options = ServiceOptions {
            exclusive_store: false,
            store_kind: "etcd",
            ..ServiceOptions::new(self.directory.path())
        };
        let server = RunningServices::start(&options, parts).await;
        self.server = Some(server.expect("the services start"));
    }

    fn services(&self) -> &Services {
        self.server.as_ref().expect("it runs").services()
    }

    async fn put(&self, key: String, value: String) {
        let transaction = Transaction::new().put(key, value);
        self.store.commit(transaction).await.expect("written");
    }

    pub(crate) fn advance_one_day(&self) {
        self.ahead.fetch_add(24 * 3_600, Ordering::Relaxed);
    }

    /// Lets many agents call at once, and measures the longest call.
    async fn each<F: Future<Output = Result<(), ServiceError>>>(
        &self,
        numbers: impl IntoIterator<Item = u64>,
        call: impl Fn(u64) -> F,
    ) {
        let calls = futures::stream::iter(numbers).map(|number| {
            let call = call(number);
            async {
                let started = Instant::now();
                call.await.expect("it is answered");
                let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.longest_call.fetch_max(took, Ordering::Relaxed);
            }
        });
        calls
            .buffer_unordered(AT_ONCE)
            .for_each(async |()| {})
            .await;
    }

    async fn join(&mut self, count: u64) {
        let new = self.next_node..self.next_node + count;
        self.next_node = new.end;
        self.nodes.extend(new.clone());
        let services = self.services();
        self.each(new, async |number| {
            let name = name(number);
            let key = PrivateKey::generate(KeyKind::EcdsaP256).expect("a key");
            let request = IssueRequest {
                certificate_request: Request::create(&name, &key).expect("a request"),
                role: Role::Node,
                server_names: Vec::new(),
                groups: std::collections::BTreeSet::new(),
                proof: None,
            };
            (services.certificates)
                .issue(&request, Signer::ThisServer)
                .await?;
            services.nodes.register(&name).await?;
            let agent = AgentDescription::default();
            services.presence.connect(&name, &agent).await?;
            services
                .facts
                .submit(&name, &facts(number, 0), None)
                .await?;
            Ok(())
        })
        .await;
    }

    /// Lets the oldest nodes leave, and as many new ones join.
    pub(crate) async fn replace_some_nodes(&mut self) {
        let count = (self.nodes.len() / 1_000).max(1);
        let leaving: Vec<u64> = self.nodes.drain(..count).collect();
        let services = self.services();
        self.each(leaving, async |number| {
            let name = name(number);
            let request = RevokeRequest {
                reason: "the node was removed".to_owned(),
                serial: None,
            };
            services
                .certificates
                .revoke(&name, &request, "bench")
                .await?;
            services.reports.forget(&name).await?;
            loop {
                services.facts.forget(&name).await?;
                if services.nodes.remove(&name).await? {
                    break;
                }
            }
            services.compiles.forget(&name).await
        })
        .await;
        self.join(count as u64).await;
        self.settle().await;
    }

    /// Changes the facts of one node in fifty.
    pub(crate) async fn change_some_facts(&self, day: u64) {
        let services = self.services();
        let changing = self.nodes.iter().copied();
        let changing = changing.filter(|number| (number + day).is_multiple_of(50));
        self.each(changing, async |number| {
            let (name, facts) = (name(number), facts(number, day));
            services.facts.submit(&name, &facts, None).await.map(drop)
        })
        .await;
        self.settle().await;
    }

    async fn write_deploy(&mut self) {
        self.deploys += 1;
        let version = if self.deploys.is_multiple_of(2) {
            Version::New
        } else {
            Version::Old
        };
        let deployed = DeployedCode {
            code_id: version.code_id(),
            number: self.deploys,
            at: self.clock().now(),
            compiler: "states".to_owned(),
        };
        let text = serde_json::to_string(&deployed).expect("plain data");
        let key = keys::environment_deployed(&default_environment());
        self.put(key, text).await;
    }

    /// Deploys code that changes every catalog; every node then changes one resource.
    pub(crate) async fn deploy(&mut self) {
        self.write_deploy().await;
        let environment = default_environment();
        let nodes: Vec<_> = (self.nodes.iter())
            .map(|number| (name(*number), environment.clone()))
            .collect();
        let queue = CompileQueue::new(self.store.clone(), self.clock());
        let asked = queue.request_all(&nodes, CompileReason::Code).await;
        asked.expect("asked for");
        self.settle().await;
        self.run(1).await;
    }

    /// Every node makes one scheduled run that changes nothing.
    pub(crate) async fn run_converged(&self) {
        self.run(0).await;
    }

    async fn run(&self, changed: u64) {
        let services = self.services();
        let clock = self.clock();
        let clock = &clock;
        self.each(self.nodes.iter().copied(), async |number| {
            let (name, run) = (name(number), NodeRunId(Uuid::new_v4()));
            let batch = ReportBatch {
                first: 0,
                events: events(clock.now(), changed),
            };
            let taken = services.reports.take(&name, run, batch).await?;
            if taken.needs_settling {
                services.reports.settle(&name, run).await?;
            }
            Ok(())
        })
        .await;
    }

    /// Waits until all facts are persisted and all nodes are compiled.
    async fn settle(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.is_busy().await {
            assert!(Instant::now() < deadline, "it never comes to rest");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn is_busy(&self) -> bool {
        for prefix in [keys::FACT_QUEUE, keys::COMPILE_QUEUE] {
            let range = Range {
                limit: 1,
                keys_only: true,
                ..Range::prefix(prefix)
            };
            let page = self.store.range(range).await.expect("readable");
            if !page.items.is_empty() {
                return true;
            }
        }
        false
    }

    /// Deletes what is not used any more, and compacts, as servers do every hour.
    pub(crate) async fn keep_house(&mut self) {
        let started = Instant::now();
        let services = self.services();
        services.catalogs.collect().await.expect("collected");
        services.reports.upkeep().await.expect("collected");
        let collected = self.blobs.collect(self.clock().now()).await;
        collected.expect("collected");
        self.longest_collection = self.longest_collection.max(started.elapsed());
        let newest = newest_revision(&*self.store).await.expect("readable");
        self.store.compact(newest).await.expect("compacted");
    }

    pub(crate) async fn cost(&self) -> Cost {
        let revision = newest_revision(&*self.store).await.expect("readable");
        Cost {
            writes: revision.0,
            processor: processor_time(),
        }
    }

    /// Reads everything, and adds it up by kind.
    pub(crate) async fn stored(&self) -> Stored {
        let space = self.store.observe_space().await.expect("readable");
        let used = space.and_then(|space| space.fullest().map(|member| member.used_bytes));
        let mut stored = Stored {
            keys: 0,
            etcd_in_use: used.unwrap_or(0),
            state_bytes: 0,
            content_bytes: 0,
            history_bytes: 0,
            directory_bytes: size_of(&self.directory.path().join("blobs")),
        };
        let mut range = Range::prefix("");
        loop {
            let page = self.store.range(range.clone()).await.expect("readable");
            for entry in &page.items {
                stored.keys += 1;
                let size = (entry.key.len() + entry.value.len()) as u64;
                let total = if entry.key.starts_with("blob-chunks/") {
                    &mut stored.content_bytes
                } else if entry.key.starts_with("report") || entry.key.starts_with("audit") {
                    &mut stored.history_bytes
                } else {
                    &mut stored.state_bytes
                };
                *total += size;
            }
            range.after = page.items.last().map(|entry| entry.key.clone());
            if !page.more {
                return stored;
            }
        }
    }

    /// Returns the number of catalogs that were compiled.
    pub(crate) fn compiles(&self) -> u64 {
        self.code.compiles()
    }

    pub(crate) fn longest_call(&self) -> Duration {
        Duration::from_micros(self.longest_call.load(Ordering::Relaxed))
    }

    pub(crate) fn longest_collection(&self) -> Duration {
        self.longest_collection
    }

    /// Returns the resident memory of the etcd whose data is in this bench's directory.
    pub(crate) fn etcd_memory(&self) -> u64 {
        let directory = self.cluster.directory().display().to_string();
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return 0;
        };
        let ids = processes.flatten().map(|it| it.file_name());
        let ids = ids.filter_map(|id| id.into_string().ok());
        let mut ours = ids.filter(|id| {
            let command = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command);
            command.contains("etcd") && command.contains(&directory)
        });
        ours.next().map_or(0, |id| memory_of(&id))
    }

    /// Replaces the server, and returns the time until it answers queries.
    pub(crate) async fn restart(&mut self) -> Duration {
        self.server = None;
        let started = Instant::now();
        self.start_server().await;
        let answer = self
            .services()
            .queries
            .answer("nodes { facts.kernel = \"Linux\" }");
        answer.await.expect("answered");
        started.elapsed()
    }

    pub(crate) async fn end(self) {
        drop(self.server);
        drop(self.store);
        self.directory.close().expect("removed");
        drop(self.cluster);
    }
}

/// The report of one run.
fn events(at: Timestamp, changed: u64) -> Vec<ReportEvent> {
    let started = RunStarted {
        causes: vec![Cause::Schedule],
        resources: RESOURCES,
        ..RunStarted::new(at, RunMode::Enforce, "engine")
    };
    let resource = |number| {
        let title = format!("/etc/site/{number}.conf");
        let event = ResourceEvent::new(at, "File", title, EventStatus::Changed);
        ReportEvent::Resource(Box::new(event))
    };
    let finished = RunFinished {
        unchanged: RESOURCES - changed,
        changed,
        ..RunFinished::new(at, RunEnding::Succeeded)
    };
    let mut events = vec![ReportEvent::Started(started)];
    events.extend((0..changed).map(resource));
    events.push(ReportEvent::Finished(finished));
    events
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn memory_of(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1_024
}

/// Returns the bytes of all files below a directory.
fn size_of(directory: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size_of(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
