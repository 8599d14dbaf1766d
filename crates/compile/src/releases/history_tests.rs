//! Random histories of releases, compared with a reference model.
//!
//! After every step, the targets in the store must be those of the
//! model. Independently of the model, no node may have code that was rolled back
//! and not released again since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bunraku_model::{Catalog, CatalogId, CodeId, ContentId, NodeName};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs};
use bunraku_store::testing::MemoryStore;
use bunraku_store::{Follow, FollowEvent, Transaction};
use bunraku_wire::api::{
    CreateRelease, HoldRequest, ReleaseKind, ReleaseTo, RollbackRequest, RunMode,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use super::apply::{ApplyOutcome, Extent};
use super::history_model::{Covers, Model, NODES, code, compiles, name, production};
use super::joins::{CompileAtCode, CompileAtCodeError};
use super::worker::LeaderState;
use super::*;
use crate::catalogs::{CatalogOptions, NewCatalog};
use crate::targets::StoredTarget;
use bunraku_control::NoQueries;

#[derive(Clone, Debug)]
enum Step {
    Join(usize),
    Leave(usize),
    /// New code, or code that was deployed before.
    Deploy(Option<usize>),
    /// New facts: the node is compiled again from the deployed code.
    Facts(usize),
    ReleaseAll,
    ReleasePercent(f64),
    ReleaseNodes(Vec<usize>),
    Rollback(usize),
    RollbackOne,
    Hold,
    Resume,
    Policy(bool),
    NewLeader,
}

fn any_step() -> impl Strategy<Value = Step> {
    let node = || 0..NODES;
    prop_oneof![
        6 => node().prop_map(Step::Join),
        2 => node().prop_map(Step::Leave),
        4 => Just(Step::Deploy(None)),
        1 => (0..9_usize).prop_map(|back| Step::Deploy(Some(back))),
        2 => node().prop_map(Step::Facts),
        2 => Just(Step::ReleaseAll),
        3 => (1..100_u32).prop_map(|percent| Step::ReleasePercent(f64::from(percent))),
        1 => proptest::collection::vec(node(), 1..3).prop_map(Step::ReleaseNodes),
        3 => (0..9_usize).prop_map(Step::Rollback),
        1 => Just(Step::RollbackOne),
        1 => Just(Step::Hold),
        3 => Just(Step::Resume),
        1 => any::<bool>().prop_map(Step::Policy),
        1 => Just(Step::NewLeader),
    ]
}

/// Compiles what the history says compiles.
struct FakeCompiler {
    releases: Releases,
}

#[async_trait]
impl CompileAtCode for FakeCompiler {
    async fn compile_at(
        &self,
        _: &EnvironmentName,
        node: &NodeName,
        code_id: &CodeId,
    ) -> Result<CatalogId, CompileAtCodeError> {
        let number: usize = node.as_str()[5..].parse().expect("a number");
        let version: usize = code_id.0[1..].parse().expect("a version");
        if !compiles(number, version) {
            return Err(CompileAtCodeError::Problem(
                "it does not compile".to_owned(),
            ));
        }
        let stored = self
            .releases
            .catalogs
            .put(&catalog(number, version, 0))
            .await;
        Ok(stored.expect("stored").0)
    }
}

fn catalog(number: usize, version: usize, facts: i64) -> NewCatalog {
    let resource = json!({"type": "Notify", "title": "x",
        "parameters": {"version": version, "facts": facts}});
    NewCatalog {
        node: name(number),
        environment: production(),
        code_id: code(version),
        catalog: Catalog {
            name: name(number).to_string(),
            resources: vec![serde_json::from_value(resource).expect("a resource")],
            ..Catalog::default()
        },
        files: Vec::new(),
    }
}

/// The services, and the model beside them.
struct History {
    store: SharedStore,
    releases: Releases,
    worker: ReleaseWorker,
    lead: LeaderState,
    compiled: Follow,
    failed: Follow,
    minutes: Arc<AtomicI64>,
    model: Model,
    /// Code that no node may have.
    banned: BTreeSet<usize>,
    _directory: TempDir,
}

impl History {
    async fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let store: SharedStore = Arc::new(MemoryStore::new());
        let minutes: Arc<AtomicI64> = Arc::default();
        let time = Arc::clone(&minutes);
        let clock = Clock::new(move || {
            Timestamp::UNIX_EPOCH + SignedDuration::from_mins(time.load(Ordering::SeqCst))
        });
        let blobs = DirectoryBlobs::in_directory(
            directory.path().join("b"),
            store.clone(),
            BlobOptions::default(),
        );
        let blobs: SharedBlobs = Arc::new(blobs.await.expect("blobs"));
        let catalogs = Catalogs::new(
            store.clone(),
            blobs.clone(),
            clock.clone(),
            CatalogOptions::default(),
        );
        let releases = Releases::new(
            store.clone(),
            blobs,
            catalogs,
            clock,
            Arc::new(NoQueries),
            ReleaseOptions::default(),
        );
        let worker = ReleaseWorker {
            releases: releases.clone(),
            compiler: Arc::new(FakeCompiler {
                releases: releases.clone(),
            }),
            name: "test".to_owned(),
        };
        let mut history = Self {
            compiled: Follow::new(store.clone(), keys::COMPILED),
            failed: Follow::new(store.clone(), keys::COMPILE_ERRORS),
            store,
            releases,
            worker,
            lead: LeaderState::default(),
            minutes,
            model: Model::default(),
            banned: BTreeSet::new(),
            _directory: directory,
        };
        history.policy(false).await;
        history
    }

    async fn write(&self, transaction: Transaction) {
        let written = self.store.commit(transaction).await.expect("written");
        assert!(written.is_committed());
    }

    async fn policy(&mut self, is_auto: bool) {
        let policy = if is_auto { "auto" } else { "manual" };
        let settings =
            json!({"policy": policy, "url": "file:///x", "created": "2026-01-01T00:00:00Z"});
        let key = keys::environment_settings(&production());
        self.write(Transaction::new().put(key, documents::encode(&settings)))
            .await;
        self.model.is_auto = is_auto;
    }

    /// Compiles a node from the deployed code, as the compile service does.
    async fn compile(&mut self, number: usize) {
        let Some(version) = self.model.deployed else {
            return;
        };
        let at = self.minutes.load(Ordering::SeqCst);
        let time = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(at);
        let node = name(number);
        if !compiles(number, version) {
            let failed = json!({"environment": "production", "code_id": code(version),
                "failed_at": time, "problems": [{"message": "it does not compile"}]});
            let key = keys::compile_error(&node);
            self.write(Transaction::new().put(key, documents::encode(&failed)))
                .await;
            return;
        }
        let new = catalog(number, version, at);
        let stored = self.releases.catalogs.put(&new).await;
        let (id, content) = stored.expect("stored");
        let compiled = json!({
            "environment": "production", "catalog": id, "content": content,
            "code_id": code(version), "fact_set": ContentId::of(b"facts"), "compiled_at": time,
            "config_version": "1", "resources": 1,
        });
        let transaction = Transaction::new()
            .put(keys::compiled(&node), documents::encode(&compiled))
            .delete(keys::compile_error(&node));
        let holder = format!("compiled/{node}");
        let held = self.releases.catalogs.hold_in(transaction, id, &holder);
        self.write(held.await.expect("held")).await;
        self.model.compiled.insert(number, (at, version));
    }

    async fn join(&mut self, number: usize) {
        if self.model.now.nodes.contains_key(&number) {
            return;
        }
        let record = json!({"joined": "2026-01-01T00:00:00Z",
            "administration": {"state": "enabled", "since": "2026-01-01T00:00:00Z"}});
        let key = keys::node_record(&name(number));
        self.write(Transaction::new().put(key, documents::encode(&record)))
            .await;
        self.model.now.nodes.insert(number, None);
        self.compile(number).await;
    }

    async fn leave(&mut self, number: usize) {
        let node = name(number);
        let gone = Transaction::new()
            .delete(keys::compiled(&node))
            .delete(keys::compile_error(&node))
            .delete(keys::target(&node))
            .delete(keys::node_record(&node));
        self.write(gone).await;
        self.model.now.nodes.remove(&number);
        self.model.compiled.remove(&number);
    }

    async fn create(&mut self, to: ReleaseTo) {
        let request = CreateRelease {
            parent: None,
            to: to.clone(),
            mode: RunMode::Enforce,
            reason: None,
        };
        let all: Vec<usize> = self.model.compiled.keys().copied().collect();
        let (chosen, covers) = match &to {
            ReleaseTo::Everything => (all, Some(Covers::All)),
            ReleaseTo::Percentage { percent } => {
                let mut ranked: Vec<(ContentId, usize)> = (all.iter())
                    .map(|number| (choice::rank(&production(), &name(*number)), *number))
                    .collect();
                ranked.sort_unstable();
                let count = (ranked.len() as f64 * percent / 100.0 - 1e-9).ceil() as usize;
                ranked.truncate(count);
                let last = ranked.last().map(|(rank, _)| *rank);
                let chosen = ranked.into_iter().map(|(_, number)| number).collect();
                (chosen, last.map(|last| Covers::Percent(*percent, last)))
            }
            ReleaseTo::Nodes { nodes } => {
                let is_named = |number: &usize| nodes.contains(&name(*number));
                (all.into_iter().filter(is_named).collect(), None)
            }
            ReleaseTo::Query { .. } => unreachable!("no queries here"),
        };
        if chosen.is_empty() {
            return;
        }
        self.releases
            .create(&production(), &request, "test")
            .await
            .expect("created");
        for number in &chosen {
            self.banned.remove(&self.model.compiled[number].1);
        }
        self.model.release(&chosen, covers);
    }

    async fn rollback(&mut self, to: Option<u64>) {
        let request = RollbackRequest {
            parent: None,
            release: to.map(ReleaseNumber),
            reason: None,
        };
        let rolled = self
            .releases
            .rollback(&production(), &request, "test")
            .await;
        let Ok(reply) = rolled else {
            assert!(to.is_none(), "{rolled:?}");
            return;
        };
        let Some(release) = reply.release else {
            return;
        };
        let ReleaseKind::Rollback { release: to } = release.kind else {
            panic!("not a rollback: {release:?}");
        };
        let gone = self.model.rollback(to.0);
        self.banned.extend(gone);
        let old = &self.model.history[&to.0];
        let restored = old.nodes.values().flatten();
        for version in restored.chain(old.rules.iter().map(|(_, version)| version)) {
            self.banned.remove(version);
        }
    }

    async fn perform(&mut self, step: &Step) {
        self.minutes.fetch_add(1, Ordering::SeqCst);
        match step {
            Step::Join(number) => self.join(*number).await,
            Step::Leave(number) => self.leave(*number).await,
            Step::Facts(number) => {
                if self.model.now.nodes.contains_key(number) {
                    self.compile(*number).await;
                }
            }
            Step::Deploy(back) => {
                let version = match back {
                    Some(back) if self.model.versions > 0 => back % self.model.versions,
                    _ => {
                        self.model.versions += 1;
                        self.model.versions - 1
                    }
                };
                self.model.deployed = Some(version);
                let nodes: Vec<usize> = self.model.now.nodes.keys().copied().collect();
                for number in nodes {
                    self.compile(number).await;
                }
            }
            Step::ReleaseAll => self.create(ReleaseTo::Everything).await,
            Step::ReleasePercent(percent) => {
                self.create(ReleaseTo::Percentage { percent: *percent })
                    .await;
            }
            Step::ReleaseNodes(numbers) => {
                let known = |number: &&usize| self.model.compiled.contains_key(*number);
                let nodes = numbers.iter().filter(known);
                let nodes = nodes.map(|number| name(*number)).collect();
                self.create(ReleaseTo::Nodes { nodes }).await;
            }
            Step::Rollback(at) => {
                let numbers: Vec<u64> = self.model.history.keys().copied().collect();
                if !numbers.is_empty() {
                    self.rollback(Some(numbers[at % numbers.len()])).await;
                }
            }
            Step::RollbackOne => self.rollback(None).await,
            Step::Hold => {
                let request = HoldRequest {
                    reason: "test".to_owned(),
                };
                let held = self.releases.hold(&production(), &request, "test").await;
                held.expect("held");
                self.model.is_held = true;
            }
            Step::Resume => {
                self.releases.resume(&production()).await.expect("resumed");
                self.model.is_held = false;
            }
            Step::Policy(is_auto) => self.policy(*is_auto).await,
            Step::NewLeader => {
                self.compiled = Follow::new(self.store.clone(), keys::COMPILED);
                self.failed = Follow::new(self.store.clone(), keys::COMPILE_ERRORS);
                self.lead = LeaderState::default();
                self.follow().await;
                self.lead.appeared.clear();
                let environment = production();
                let applied = self.releases.apply(&environment, Extent::Everything).await;
                assert_eq!(applied.expect("applied"), ApplyOutcome::Done);
            }
        }
        self.model.settle();
    }

    /// Passes all changes to the leader.
    async fn follow(&mut self) {
        let options = ReleaseOptions::default();
        while let Some(event) = ready(&mut self.compiled).await {
            self.lead.take_compiled(event, &options);
        }
        while let Some(event) = ready(&mut self.failed).await {
            self.lead.take_failed(event, &options);
        }
    }

    /// Lets the leader work until nothing is left to do.
    async fn settle(&mut self) {
        self.follow().await;
        loop {
            let again = self.worker.advance(&production(), &mut self.lead).await;
            let again = again.expect("advanced");
            if !self.lead.joins.is_idle() {
                self.lead.joins.ended().await;
                continue;
            }
            let soon = Instant::now() + Duration::from_secs(1);
            if again.is_none_or(|again| again > soon) {
                break;
            }
        }
    }

    async fn targets(&self) -> BTreeMap<usize, usize> {
        let all = documents::read_all(&*self.store, keys::TARGETS).await;
        let mut targets = BTreeMap::new();
        for entry in all.expect("readable") {
            let node = keys::parse_target(&entry.key).expect("a target");
            let target: StoredTarget = documents::decode(&entry).expect("a target");
            let catalog = self.releases.catalogs.get(target.target.catalog).await;
            let resources = catalog.expect("stored").resources;
            let version = &resources[0].parameters["version"];
            let code_id = target.target.code_id.expect("known code");
            let version = version.as_u64().expect("a number") as usize;
            assert_eq!(code_id, code(version), "{node}");
            targets.insert(node.as_str()[5..].parse().expect("a number"), version);
        }
        targets
    }

    async fn check(&mut self) {
        let targets = self.targets().await;
        let rolled_back: Vec<_> = (targets.iter())
            .filter(|(_, version)| self.banned.contains(version))
            .collect();
        assert!(
            rolled_back.is_empty(),
            "rolled back, not released: {rolled_back:?}"
        );
        let expected: BTreeMap<usize, usize> = (self.model.now.nodes.iter())
            .filter_map(|(number, version)| Some((*number, (*version)?)))
            .collect();
        assert_eq!(targets, expected, "rules {:?}", self.model.now.rules);
        if let Some(newest) = self.releases.newest(&production()).await.expect("readable") {
            self.model.record(newest.0);
            let shown = self
                .releases
                .show(&production(), None)
                .await
                .expect("shown");
            assert!(shown.is_complete);
            let without: BTreeSet<NodeName> = (shown.without_catalog.iter())
                .map(|without| without.node.clone())
                .collect();
            let mut nodes = self.model.now.nodes.iter();
            let is_shown = |number: &usize| without.contains(&name(*number));
            let compiled = &self.model.compiled;
            assert!(
                nodes.all(|(number, version)| match version {
                    Some(_) => !is_shown(number),
                    None => is_shown(number) || !compiled.contains_key(number),
                }),
                "{without:?}"
            );
        }
    }
}

/// Returns the next event, if there is one already.
async fn ready(follow: &mut Follow) -> Option<FollowEvent> {
    let next = tokio::time::timeout(Duration::from_millis(2), follow.next()).await;
    next.ok().map(|event| event.expect("followed"))
}

fn run(steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut history = History::new().await;
        for step in steps {
            history.perform(step).await;
            history.settle().await;
            history.check().await;
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn rolled_back_code_stays_away_in_any_history(
        steps in proptest::collection::vec(any_step(), 1..40),
    ) {
        run(&steps);
    }
}

/// With the policy `manual`, five of these eight nodes once ended up on rolled-back code.
#[test]
fn nodes_that_join_before_and_after_a_rollback_get_the_code_it_returned_to() {
    let mut steps = vec![Step::Deploy(None), Step::Deploy(None)];
    steps.extend((0..3).map(Step::Join));
    steps.extend([
        Step::ReleaseAll,
        Step::Deploy(None),
        Step::ReleasePercent(50.0),
    ]);
    steps.extend((3..6).map(Step::Join));
    steps.extend([Step::Rollback(0), Step::Resume]);
    steps.extend((6..8).map(Step::Join));
    run(&steps);
}
