//! Node status is exact.

use bunraku_model::{Activity, Administration, Connection, StatusWord};
use bunraku_wire::api::{
    ActivityReceipt, ActivityReport, DisableRequest, NodeSummary, StreamMessage,
};
use jiff::Timestamp;

use crate::support::{TestServer, eventually, opened, status};

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
    // The stream's connection is what counts, not that of other requests.
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
async fn a_disabled_node_says_why_and_by_whom_until_it_is_enabled() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let mut stream = node
        .stream::<StreamMessage>("/v1/nodes/web-1/stream")
        .await
        .expect("a stream");
    opened(&mut stream).await;
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
async fn after_a_restart_nobody_counts_as_connected_who_is_not() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let mut stream = node
        .stream::<StreamMessage>("/v1/nodes/web-1/stream")
        .await
        .expect("a stream");
    opened(&mut stream).await;
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    drop(node);
    let mut server = TestServer::open(directory, options).await;
    let lost = show(&server).await;
    assert_eq!(lost.word, StatusWord::Lost, "{lost:?}");
    server.shutdown().await;
}
