//! Releases: from a compiled catalog that no node sees to a node's target.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bunraku_control::keys;
use bunraku_model::{CatalogId, CommandId, NodeRunId, ReleaseNumber};
use bunraku_store::testing::{MemoryStore, Overlay};
use bunraku_store::{
    Change, KeyValue, SharedStore, StoreError, Transaction, WatchStart, WatchStream,
};
use bunraku_wire::api::{
    Command, HoldRequest, ReleaseDetail, ReleaseHold, ReleaseKind, ReleaseList, ReleaseReply,
    ReleaseState, ReleaseSummary, ReleaseTo, RollbackRequest, RunMode, RunRequest, RunSubject,
    SendCommand, SentCommand, StreamMessage, Target,
};
use bunraku_wire::client::Lines;
use bunraku_wire::{Client, ClientError};
use futures::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::fleet::{
    applied, compile, compile_in, environment, release, release_to, try_release, try_release_all,
};
use crate::query::{becomes, submit};
use crate::support::{
    TestServer, eventually, name, open_stream_with_target, options, soon, status,
};

async fn target(client: &Client, node: &str) -> Result<Target, ClientError> {
    client.get(&format!("/v1/nodes/{node}/target")).await
}

/// Waits until this catalog is the node's target.
async fn gets(client: &Client, node: &str, catalog: CatalogId) {
    let is_so = |target: Target| target.catalog == catalog;
    eventually(async || target(client, node).await.is_ok_and(is_so)).await;
}

async fn catalog(client: &Client, node: &str, id: CatalogId) -> Result<Value, ClientError> {
    client.get(&format!("/v1/nodes/{node}/catalogs/{id}")).await
}

#[tokio::test]
async fn a_compiled_catalog_is_invisible_to_its_node_until_a_release_names_it() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let held = compile(&server, "web-1", "one").await;
    assert_eq!(status(target(&node, "web-1").await), 404);
    assert_eq!(status(catalog(&node, "web-1", held).await), 404);
    let file = bunraku_model::ContentId::of(b"one");
    let content = format!("/v1/content/{file}");
    assert_eq!(status(node.download(&content).await), 404);
    let seen = catalog(&server.operator, "web-1", held).await;
    assert_eq!(seen.expect("operators see it")["name"], "web-1");
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let seen = target(&node, "web-1").await.expect("released");
    assert_eq!((seen.catalog, seen.release), (held, ReleaseNumber(1)));
    assert_eq!(
        catalog(&node, "web-1", held).await.expect("released")["name"],
        "web-1"
    );
    node.download(&content).await.expect("and its file");
    // The next one is held again.
    let next = compile(&server, "web-1", "two").await;
    assert_eq!(status(catalog(&node, "web-1", next).await), 404);
    assert_eq!(
        target(&node, "web-1").await.expect("as before").catalog,
        held
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_reads_its_own_catalogs_and_no_others() {
    let mut server = TestServer::start().await;
    let (one, two) = (server.node("web-1").await, server.node("web-2").await);
    let first = compile(&server, "web-1", "first").await;
    let second = compile(&server, "web-2", "second").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    assert_eq!(status(target(&one, "web-2").await), 403);
    assert_eq!(status(catalog(&one, "web-2", second).await), 403);
    assert_eq!(
        status(catalog(&one, "web-1", second).await),
        404,
        "not under its own name either"
    );
    let file = bunraku_model::ContentId::of(b"second");
    assert_eq!(
        status(one.download(&format!("/v1/content/{file}")).await),
        404
    );
    two.download(&format!("/v1/content/{file}"))
        .await
        .expect("its own");
    // While it applies the previous catalog, it may fetch the content that catalog names.
    compile(&server, "web-1", "newer").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    catalog(&one, "web-1", first).await.expect("the one before");
    compile(&server, "web-1", "newest").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    assert_eq!(
        status(catalog(&one, "web-1", first).await),
        404,
        "two before"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn the_stream_sends_the_target_when_it_opens_and_at_every_change() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let (mut stream, target) = open_stream_with_target(&node, "web-1").await;
    assert_eq!(target, None);
    for text in ["one", "two"] {
        let id = compile(&server, "web-1", text).await;
        release(&server, ReleaseTo::Everything, RunMode::Noop)
            .await
            .expect("released");
        match soon(stream.next()).await {
            Some(Ok(StreamMessage::Target {
                target: Some(target),
            })) => {
                assert_eq!((target.catalog, target.mode), (id, RunMode::Noop));
            }
            other => panic!("a target was expected, not {other:?}"),
        }
    }
    drop(stream);
    let (_stream, target) = open_stream_with_target(&node, "web-1").await;
    assert_eq!(target.expect("a target").release, ReleaseNumber(2));
    server.shutdown().await;
}

#[tokio::test]
async fn asking_for_something_newer_costs_one_conditional_request() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    compile(&server, "web-1", "one").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let path = "/v1/nodes/web-1/target";
    let first = node.fetch(path, &[]).await.expect("a reply");
    assert_eq!(first.status(), 200);
    let tag = first.headers()["etag"].to_str().expect("text").to_owned();
    let again = node
        .fetch(path, &[("if-none-match", &tag)])
        .await
        .expect("a reply");
    assert_eq!(again.status(), 304);
    assert!(again.body().is_empty());
    // A changed mode is a change, with the same catalog.
    release(&server, ReleaseTo::Everything, RunMode::Noop)
        .await
        .expect("released");
    let changed = node
        .fetch(path, &[("if-none-match", &tag)])
        .await
        .expect("a reply");
    assert_eq!(changed.status(), 200);
    server.shutdown().await;
}

#[tokio::test]
async fn a_release_on_a_stale_parent_is_refused_with_what_is_newer() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    compile(&server, "web-1", "one").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("the first");
    compile(&server, "web-1", "two").await;
    let refused = try_release_all(&server, Some(0)).await;
    let error = refused.expect_err("stale");
    assert_eq!(error.status(), Some(409));
    let message = error.to_string();
    assert!(
        message.contains("created release 1") && message.contains("changed 1 node"),
        "{message}"
    );
    assert!(
        error
            .hint()
            .expect("a hint")
            .contains("bunraku release show production 1")
    );
    let unknown = try_release_all(&server, Some(7)).await;
    assert_eq!(status(unknown), 404);
    let fresh = try_release_all(&server, Some(1)).await;
    assert_eq!(
        fresh.expect("fresh").release.expect("new").number,
        ReleaseNumber(2)
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_growing_percentage_keeps_its_nodes_and_others_keep_their_catalogs() {
    let mut server = TestServer::start().await;
    let names: Vec<String> = (0..10).map(|n| format!("web-{n}")).collect();
    for node in &names {
        server.node(node).await;
        compile(&server, node, "one").await;
    }
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    for node in &names {
        compile(&server, node, "two").await;
    }
    let mut before: Vec<String> = Vec::new();
    for (number, percent) in [(2, 20.0), (3, 50.0), (4, 100.0)] {
        let made = release(&server, ReleaseTo::Percentage { percent }, RunMode::Enforce).await;
        let made = made.expect("released");
        assert_eq!(made.nodes, 10);
        let path = format!("/v1/releases/production/{number}");
        let shown: ReleaseDetail = server.operator.get(&path).await.expect("shown");
        let new: Vec<String> = shown
            .map
            .iter()
            .filter(|entry| entry.since > ReleaseNumber(1))
            .map(|entry| entry.node.to_string())
            .collect();
        assert_eq!(new.len(), (percent / 10.0) as usize);
        assert!(
            before.iter().all(|node| new.contains(node)),
            "{before:?} {new:?}"
        );
        assert_eq!(made.changed, new.len() - before.len());
        before = new;
    }
    let nothing = release(&server, ReleaseTo::Everything, RunMode::Enforce).await;
    assert_eq!(nothing, None, "everyone has it");
    server.shutdown().await;
}

#[tokio::test]
async fn a_release_to_some_nodes_leaves_the_others_alone() {
    let mut server = TestServer::start().await;
    let (one, two) = (server.node("web-1").await, server.node("web-2").await);
    let id = compile(&server, "web-1", "one").await;
    compile(&server, "web-2", "one").await;
    let to = ReleaseTo::Nodes {
        nodes: vec![name("web-1")],
    };
    let made = release(&server, to.clone(), RunMode::Noop).await;
    let made = made.expect("released");
    assert_eq!((made.kind, made.nodes), (ReleaseKind::Created(to), 1));
    let seen = target(&one, "web-1").await.expect("released");
    assert_eq!((seen.catalog, seen.mode), (id, RunMode::Noop));
    assert_eq!(status(target(&two, "web-2").await), 404);
    server.shutdown().await;
}

#[tokio::test]
async fn a_release_to_a_query_reaches_the_nodes_that_it_finds_and_no_others() {
    let mut server = TestServer::start().await;
    let (web, db) = (server.node("web-1").await, server.node("db-1").await);
    for (client, node, family) in [(&web, "web-1", "Debian"), (&db, "db-1", "RedHat")] {
        submit(client, node, json!({"os": {"family": family}})).await;
    }
    let id = compile(&server, "web-1", "one").await;
    compile(&server, "db-1", "one").await;
    let query = r#"nodes { facts.os.family = "Debian" }"#;
    becomes(
        &server,
        r#"nodes[certname] { facts.os.family = "Debian" }"#,
        r#"[{"certname":"web-1"}]"#,
    )
    .await;
    let to = ReleaseTo::Query {
        query: query.to_owned(),
    };
    let made = release(&server, to.clone(), RunMode::Enforce).await;
    let made = made.expect("released");
    assert_eq!((made.kind, made.nodes), (ReleaseKind::Created(to), 1));
    let seen = target(&web, "web-1").await.expect("released");
    assert_eq!(seen.catalog, id);
    assert_eq!(status(target(&db, "db-1").await), 404);
    server.shutdown().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    compile(&server, "web-1", "one").await;
    for (to, expected) in [
        (ReleaseTo::Percentage { percent: 0.0 }, 400),
        (ReleaseTo::Percentage { percent: 101.0 }, 400),
        (
            ReleaseTo::Nodes {
                nodes: vec![name("nobody")],
            },
            409,
        ),
        (
            ReleaseTo::Query {
                query: "nodes {".to_owned(),
            },
            400,
        ),
    ] {
        let refused = try_release(&server, &release_to(to, RunMode::Enforce)).await;
        assert_eq!(status(refused), expected);
    }
    let list: ReleaseList = server
        .operator
        .get("/v1/releases/production")
        .await
        .expect("a list");
    assert_eq!(
        (list.releases.len(), list.waiting, list.state),
        (0, 1, None)
    );
    let none: Result<ReleaseDetail, _> =
        server.operator.get("/v1/releases/production/current").await;
    assert_eq!(status(none), 404);
    let back: Result<ReleaseReply, _> = server
        .operator
        .post("/v1/releases/production/rollback", &json!({}))
        .await;
    assert_eq!(status(back), 409);
    let resume: Result<(), _> = server.operator.delete("/v1/releases/production/hold").await;
    assert_eq!(status(resume), 404);
    server.shutdown().await;
}

async fn policy(server: &TestServer, environment_name: &str, policy: &str) {
    let settings =
        json!({"policy": policy, "url": "file:///nowhere", "created": "2026-01-01T00:00:00Z"});
    let value = serde_json::to_vec(&settings).expect("JSON");
    let key = keys::environment_settings(&environment(environment_name));
    let put = Transaction::new().put(key, value);
    server.shared.commit(put).await.expect("written");
}

/// Starts a server that releases soon after a compile.
async fn quick_server() -> TestServer {
    let quiet = std::time::Duration::from_millis(200);
    TestServer::start_with(|options| options.services.releases.quiet = quiet).await
}

async fn assign(server: &TestServer, node: &str, environment: &str) {
    let record = keys::node_record(&name(node));
    let entry = server.shared.get(&record).await.expect("read");
    let mut value: Value = serde_json::from_slice(&entry.expect("there").value).expect("JSON");
    value["environment"] = json!(environment);
    let put = Transaction::new().put(record, serde_json::to_vec(&value).expect("JSON"));
    server.shared.commit(put).await.expect("written");
}

/// Waits until everything that was compiled earlier has been processed. The single leader
/// processes the catalog compiled here after that.
async fn all_had_their_turn(server: &TestServer) {
    policy(server, "staging", "auto").await;
    let last = server.node("last").await;
    assign(server, "last", "staging").await;
    let id = compile_in(server, "last", "staging", "c1", b"last").await;
    gets(&last, "last", id).await;
}

#[tokio::test]
async fn with_the_policy_auto_catalogs_are_released_as_they_are_compiled_until_held() {
    let mut server = quick_server().await;
    let node = server.node("web-1").await;
    policy(&server, "production", "auto").await;
    let one = compile(&server, "web-1", "one").await;
    gets(&node, "web-1", one).await;
    let hold = HoldRequest {
        reason: "freeze".to_owned(),
    };
    let path = "/v1/releases/production/hold";
    let _: ReleaseHold = server.operator.put(path, &hold).await.expect("held");
    let two = compile(&server, "web-1", "two").await;
    all_had_their_turn(&server).await;
    assert_eq!(target(&node, "web-1").await.expect("a target").catalog, one);
    let list: ReleaseList = server
        .operator
        .get("/v1/releases/production")
        .await
        .expect("a list");
    assert_eq!(list.hold.expect("held").reason, "freeze");
    assert_eq!(list.waiting, 1);
    let _: () = server.operator.delete(path).await.expect("resumed");
    gets(&node, "web-1", two).await;
    server.shutdown().await;
}

#[tokio::test]
async fn rolling_back_makes_a_new_release_with_the_old_map_and_holds_what_would_undo_it() {
    let mut server = quick_server().await;
    let node = server.node("web-1").await;
    policy(&server, "production", "auto").await;
    let one = compile(&server, "web-1", "one").await;
    gets(&node, "web-1", one).await;
    let two = compile(&server, "web-1", "two").await;
    gets(&node, "web-1", two).await;
    let request = RollbackRequest {
        parent: None,
        release: None,
        reason: Some("it broke".to_owned()),
    };
    let path = "/v1/releases/production/rollback";
    let made: ReleaseReply = server
        .operator
        .post(path, &request)
        .await
        .expect("rolled back");
    let made_release = made.release.expect("a release");
    assert_eq!(made_release.number, ReleaseNumber(3));
    assert_eq!(
        made_release.kind,
        ReleaseKind::Rollback {
            release: ReleaseNumber(1)
        }
    );
    assert!(made.hold.expect("held").reason.contains("it broke"));
    applied(&server, &made_release).await;
    assert_eq!(target(&node, "web-1").await.expect("a target").catalog, one);
    all_had_their_turn(&server).await;
    let shown: ReleaseDetail = server
        .operator
        .get("/v1/releases/production/current")
        .await
        .expect("shown");
    assert_eq!(
        (shown.summary.number, shown.state),
        (ReleaseNumber(3), ReleaseState::Current)
    );
    assert_eq!(shown.map[0].catalog, one);
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_that_comes_later_gets_what_the_rule_of_the_release_says() {
    let mut server = quick_server().await;
    server.node("web-1").await;
    compile(&server, "web-1", "one").await;
    release(&server, ReleaseTo::Everything, RunMode::Noop)
        .await
        .expect("released");
    let late = server.node("web-2").await;
    let id = compile(&server, "web-2", "one").await;
    gets(&late, "web-2", id).await;
    assert_eq!(
        target(&late, "web-2").await.expect("a target").mode,
        RunMode::Noop
    );
    // The rule does not cover code that nobody released.
    let later = server.node("web-3").await;
    compile_in(&server, "web-3", "production", "c2", b"two").await;
    all_had_their_turn(&server).await;
    assert_eq!(status(target(&later, "web-3").await), 404);
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_of_another_environment_is_not_touched_and_one_that_is_removed_has_no_target() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    compile(&server, "web-1", "one").await;
    release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    let key = keys::target(&name("web-1"));
    assert!(server.shared.get(&key).await.expect("read").is_some());
    let _: () = server
        .operator
        .delete("/v1/nodes/web-1")
        .await
        .expect("removed");
    assert!(server.shared.get(&key).await.expect("read").is_none());
    // A node outside the environment, although a catalog was compiled for it there.
    server.node("db-1").await;
    assign(&server, "db-1", "staging").await;
    compile(&server, "db-1", "one").await;
    let made = release(&server, ReleaseTo::Everything, RunMode::Enforce)
        .await
        .expect("released");
    assert_eq!(made.environment, environment("production"));
    assert_eq!(status(target(&server.operator, "db-1").await), 404);
    server.shutdown().await;
}

/// A store whose watches are late wherever they show a target: that change, and everything
/// behind it in the same watch, comes when the gate opens.
struct LateTargets {
    inner: SharedStore,
    gate: watch::Receiver<bool>,
}

impl Overlay for LateTargets {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        let changes = self.inner.watch(prefix, start).await?;
        let gate = self.gate.clone();
        Ok(Box::pin(changes.then(move |batch| {
            let mut gate = gate.clone();
            async move {
                let changes = batch.iter().flat_map(|batch| &batch.changes);
                let mut keys = changes.map(|change| match change {
                    Change::Put(entry) => &entry.key,
                    Change::Delete { key } => key,
                });
                if keys.any(|key| keys::parse_target(key).is_some()) {
                    drop(gate.wait_for(|is_open| *is_open).await);
                }
                batch
            }
        })))
    }
}

async fn late_targets() -> (watch::Sender<bool>, TestServer) {
    let (gate, seen) = watch::channel(false);
    let store = Arc::new(LateTargets {
        inner: Arc::new(MemoryStore::new()),
        gate: seen,
    });
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let options = options(directory.path());
    let server = TestServer::on_shared_store(directory, options, store).await;
    (gate, server)
}

/// Releases, and waits until the release is applied. The server does not catch up, because no
/// caller waits on it.
async fn release_unseen(server: &TestServer) -> Option<ReleaseSummary> {
    let made = try_release_all(server, None).await;
    let release = made.expect("made").release?;
    let path = format!("/v1/releases/production/{}", release.number);
    eventually(|| async {
        let shown: ReleaseDetail = server.operator.get(&path).await.expect("shown");
        shown.state != ReleaseState::Applying
    })
    .await;
    Some(release)
}

async fn ask_for_runs(
    server: &TestServer,
    nodes: &[&str],
    subject: RunSubject,
) -> Vec<SentCommand> {
    let request = SendCommand {
        nodes: nodes.iter().map(|node| name(node)).collect(),
        command: Command::Run(Box::new(RunRequest {
            subject,
            ..RunRequest::new(NodeRunId(uuid::Uuid::now_v7()), Vec::new())
        })),
        ttl_seconds: 60,
    };
    let sent = server.operator.post("/v1/commands", &request).await;
    sent.expect("the operator may send it")
}

/// Reads a stream up to a command. Returns the newest target that came before it.
async fn told_before(stream: &mut Lines<StreamMessage>, command: CommandId) -> Option<Target> {
    let mut printed = None;
    loop {
        match soon(stream.next()).await {
            Some(Ok(StreamMessage::Target { target: Some(new) })) => printed = Some(new),
            Some(Ok(StreamMessage::Command(envelope))) => {
                assert_eq!(envelope.id, command);
                return printed;
            }
            other => panic!("a target or a command was expected, not {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_release_before_a_run_request_reaches_the_node_before_it() {
    let (gate, mut server) = late_targets().await;
    let node = server.node("web-1").await;
    let (mut stream, target) = open_stream_with_target(&node, "web-1").await;
    assert_eq!(target, None);
    // A node's own settings may also name its released catalog.
    let configured = RunSubject::configured();
    for (content, subject, news) in [
        ("one", RunSubject::Released, true),
        ("two", configured.clone(), true),
        ("two", configured, false),
    ] {
        gate.send_replace(false);
        let id = compile(&server, "web-1", content).await;
        release_unseen(&server).await;
        let sent = ask_for_runs(&server, &["web-1"], subject).await;
        gate.send_replace(true);
        let printed = told_before(&mut stream, sent[0].id).await;
        assert_eq!(printed.map(|printed| printed.catalog), news.then_some(id));
    }
    server.shutdown().await;
}

#[tokio::test]
async fn many_nodes_hear_of_what_was_released_before_their_runs() {
    const NODES: [&str; 3] = ["web-1", "web-2", "web-3"];
    let (gate, mut server) = late_targets().await;
    let mut nodes = Vec::new();
    for node in NODES {
        let client = server.node(node).await;
        let (stream, target) = open_stream_with_target(&client, node).await;
        assert_eq!(target, None);
        nodes.push((client, stream));
    }
    // At first all nodes change; then only one of them does.
    for (content, changed) in [("one", &NODES[..]), ("two", &NODES[1..2])] {
        gate.send_replace(false);
        for node in changed {
            compile(&server, node, content).await;
        }
        release_unseen(&server).await;
        let sent = ask_for_runs(&server, &NODES, RunSubject::Released).await;
        gate.send_replace(true);
        for ((_, stream), (node, sent)) in nodes.iter_mut().zip(NODES.iter().zip(sent)) {
            let printed = told_before(stream, sent.id).await;
            assert_eq!(
                printed.is_some(),
                changed.contains(node),
                "{node}: {printed:?}"
            );
        }
    }
    server.shutdown().await;
}

/// A pending run is read from the store, and the watch that shows its target is behind.
#[tokio::test]
async fn a_run_that_waited_for_its_node_comes_after_its_target() {
    let (_gate, mut server) = late_targets().await;
    let node = server.node("web-1").await;
    let id = compile(&server, "web-1", "one").await;
    release_unseen(&server).await;
    let sent = ask_for_runs(&server, &["web-1"], RunSubject::Released).await;
    let (mut stream, target) = open_stream_with_target(&node, "web-1").await;
    assert_eq!(target, None, "the watch is late");
    let printed = told_before(&mut stream, sent[0].id).await;
    assert_eq!(printed.map(|printed| printed.catalog), Some(id));
    server.shutdown().await;
}

/// A store that sometimes does not answer questions about targets.
struct SilentAboutTargets {
    inner: SharedStore,
    silent: Arc<AtomicBool>,
}

impl Overlay for SilentAboutTargets {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        if keys::parse_target(key).is_some() && self.silent.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("as the test wants it".into()));
        }
        self.inner.get(key).await
    }
}

#[tokio::test]
async fn a_run_waits_while_nobody_knows_whether_there_is_a_newer_target() {
    let silent = Arc::new(AtomicBool::new(true));
    let store = Arc::new(SilentAboutTargets {
        inner: Arc::new(MemoryStore::new()),
        silent: Arc::clone(&silent),
    });
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let options = options(directory.path());
    let mut server = TestServer::on_shared_store(directory, options, store).await;
    let node = server.node("web-1").await;
    let sent = ask_for_runs(&server, &["web-1"], RunSubject::Released).await;
    let (mut stream, _) = open_stream_with_target(&node, "web-1").await;
    let ended = soon(stream.next()).await;
    assert!(
        matches!(ended, Some(Ok(StreamMessage::Goodbye))),
        "{ended:?}"
    );
    // The agent connects again when the store answers, and gets it.
    silent.store(false, Ordering::SeqCst);
    let (mut stream, _) = open_stream_with_target(&node, "web-1").await;
    assert_eq!(told_before(&mut stream, sent[0].id).await, None);
    server.shutdown().await;
}

#[tokio::test]
async fn what_is_applied_is_served_though_the_watch_is_late() {
    let (_gate, mut server) = late_targets().await;
    let node = server.node("web-1").await;
    let held = compile(&server, "web-1", "one").await;
    // No caller waited here. The node, which another server notified, reads the catalog
    // anyway.
    release_unseen(&server).await.expect("released");
    assert_eq!(status(target(&node, "web-1").await), 404);
    catalog(&node, "web-1", held).await.expect("its own");
    // A caller that waited sees the release.
    let next = compile(&server, "web-1", "two").await;
    let made = release(&server, ReleaseTo::Everything, RunMode::Enforce).await;
    let known = target(&node, "web-1").await.expect("served");
    assert_eq!(
        (known.catalog, Some(known.release)),
        (next, made.map(|made| made.number))
    );
    let file = bunraku_model::ContentId::of(b"two");
    node.download(&format!("/v1/content/{file}"))
        .await
        .expect("and its file");
    server.shutdown().await;
}
