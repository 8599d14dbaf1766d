//! Node status is exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bunraku_model::{Activity, Administration, Connection, StatusWord};
use bunraku_store::testing::{MemoryStore, Overlay};
use bunraku_store::{Operation, SharedStore, StoreError, Transaction, TransactionOutcome};
use bunraku_wire::api::{
    ActivityReceipt, ActivityReport, DisableRequest, NodeSummary, StreamMessage,
};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::support::{TestServer, eventually, metrics, open_stream, opened, options, status};

async fn show(server: &TestServer) -> NodeSummary {
    server
        .operator
        .get("/v1/nodes/web-1")
        .await
        .expect("the node")
}

#[tokio::test]
async fn a_node_is_new_then_idle_then_running_then_lost() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    assert_eq!(show(&server).await.word, StatusWord::New);
    let mut stream = node
        .stream::<StreamMessage>("/v1/nodes/web-1/stream?version=9.9")
        .await
        .expect("a stream");
    opened(&mut stream).await;
    let idle = show(&server).await;
    assert_eq!(
        (idle.word, idle.agent_version.as_deref()),
        (StatusWord::Idle, Some("9.9"))
    );
    let since = Timestamp::now();
    let report = ActivityReport {
        activity: Activity::Running {
            since,
            what: "a run".to_owned(),
        },
    };
    node.put::<_, ActivityReceipt>("/v1/nodes/web-1/activity", &report)
        .await
        .expect("reported");
    let running = show(&server).await;
    assert_eq!((running.word, running.since), (StatusWord::Running, since));
    // Only the stream's connection counts, not that of other requests.
    drop(stream);
    eventually(|| async { show(&server).await.word == StatusWord::Lost }).await;
    let Connection::Lost {
        since: lost,
        reason,
    } = show(&server).await.status.connection
    else {
        panic!("lost")
    };
    assert!(
        lost >= since && reason == "its connection closed",
        "{reason}"
    );
    drop(node);
    server.shutdown().await;
}

#[tokio::test]
async fn a_disabled_node_shows_the_reason_and_the_operator_until_it_is_enabled() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let _stream = open_stream(&node, "web-1").await;
    let empty = DisableRequest {
        reason: " ".to_owned(),
    };
    assert_eq!(
        status(
            server
                .operator
                .post::<_, ()>("/v1/nodes/web-1/disable", &empty)
                .await
        ),
        400
    );
    let reason = DisableRequest {
        reason: "maintenance".to_owned(),
    };
    server
        .operator
        .post::<_, ()>("/v1/nodes/web-1/disable", &reason)
        .await
        .expect("disabled");
    let disabled = show(&server).await;
    assert_eq!(disabled.word, StatusWord::Disabled);
    let Administration::Disabled { reason, by, .. } = disabled.status.administration else {
        panic!("disabled")
    };
    assert_eq!(
        (reason.as_str(), by.as_str()),
        ("maintenance", "operator.server.test")
    );
    server
        .operator
        .post::<_, ()>("/v1/nodes/web-1/enable", &())
        .await
        .expect("enabled");
    assert_eq!(show(&server).await.word, StatusWord::Idle);
    assert_eq!(
        status(
            server
                .operator
                .post::<_, ()>("/v1/nodes/nobody/enable", &())
                .await
        ),
        404
    );
    server.shutdown().await;
}

#[tokio::test]
async fn after_a_restart_only_connected_nodes_count_as_connected() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let _stream = open_stream(&node, "web-1").await;
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    drop(node);
    let mut server = TestServer::open(directory, options).await;
    let lost = show(&server).await;
    assert_eq!(lost.word, StatusWord::Lost, "{lost:?}");
    server.shutdown().await;
}

/// A store that delays or omits its confirmation that a node's connection is written.
struct Hesitant {
    inner: SharedStore,
    /// Without a permit, a completed write is not confirmed.
    answers: Semaphore,
    /// While set, nothing is written.
    away: AtomicBool,
    /// Number of writes refused in the meantime.
    refused: AtomicUsize,
}

impl Overlay for Hesitant {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let concerned = transaction.operations.iter().any(|operation| {
            matches!(operation, Operation::Put { key, .. } if key.ends_with("/connection"))
        });
        if concerned && self.away.load(Ordering::Acquire) {
            self.refused.fetch_add(1, Ordering::AcqRel);
            return Err(StoreError::Unavailable("on purpose".into()));
        }
        let outcome = self.inner.commit(transaction).await;
        if concerned {
            let answer = self.answers.acquire().await;
            drop(answer.expect("it is never closed"));
        }
        outcome
    }
}

async fn hesitant() -> (Arc<Hesitant>, TestServer) {
    let store = Arc::new(Hesitant {
        inner: Arc::new(MemoryStore::new()),
        answers: Semaphore::new(0),
        away: AtomicBool::new(false),
        refused: AtomicUsize::new(0),
    });
    let directory = Arc::new(TempDir::new().expect("a directory"));
    let options = options(directory.path());
    let server = TestServer::on_shared_store(directory, options, store.clone()).await;
    (store, server)
}

/// Returns the number of connections that the server has open.
async fn connections(server: &TestServer) -> u64 {
    let metrics = metrics(server).await;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("bunraku_connections "));
    line.expect("it is counted").parse().expect("a number")
}

#[tokio::test]
async fn an_agent_that_goes_while_it_is_marked_connected_is_lost() {
    let (store, mut server) = hesitant().await;
    let node = server.node("web-1").await;
    let asking = tokio::spawn(async move {
        let stream = node.stream::<StreamMessage>("/v1/nodes/web-1/stream").await;
        drop(stream);
    });
    // Written, but not yet confirmed to the server.
    eventually(|| async { show(&server).await.word == StatusWord::Idle }).await;
    let open = connections(&server).await;
    asking.abort();
    eventually(async || connections(&server).await < open).await;
    store.answers.add_permits(1);
    eventually(|| async { show(&server).await.word == StatusWord::Lost }).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_that_goes_while_nothing_can_be_written_is_marked_lost_later() {
    let (store, mut server) = hesitant().await;
    store.answers.add_permits(1);
    let node = server.node("web-1").await;
    let stream = open_stream(&node, "web-1").await;
    store.away.store(true, Ordering::Release);
    drop((stream, node));
    eventually(async || store.refused.load(Ordering::Acquire) > 0).await;
    assert_eq!(show(&server).await.word, StatusWord::Idle);
    store.away.store(false, Ordering::Release);
    eventually(|| async { show(&server).await.word == StatusWord::Lost }).await;
    server.shutdown().await;
}
