//! A connection that goes dead silently.
//!
//! The network is a separate namespace whose loopback is taken down. From then on every
//! packet is lost, without notice to either side. Needs root, `unshare` (util-linux) and `ip`
//! (iproute2), which `scripts/setup test` installs.

use std::process::Command;
use std::time::Duration;

use bunraku_store::Store;
use bunraku_wire::ClientError;
use serde_json::Value;

use crate::support::{TestServer, eventually, open_stream, soon};

/// Set for the part that runs inside the namespace.
const INSIDE: &str = "BUNRAKU_TEST_IN_NAMESPACE";

#[test]
fn both_ends_of_a_stream_notice_that_the_line_is_dead() {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        return runtime.block_on(notice());
    }
    let program = std::env::current_exe().expect("this program");
    let inside = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(["--exact", "--nocapture"])
        .arg("silence::both_ends_of_a_stream_notice_that_the_line_is_dead")
        .env(INSIDE, "1")
        .output()
        .expect("`unshare` is missing: run `scripts/setup test`");
    let text = String::from_utf8_lossy(&inside.stdout);
    let ran = inside.status.success() && text.contains("1 passed");
    assert!(ran, "{text}{}", String::from_utf8_lossy(&inside.stderr));
}

async fn notice() {
    set_loopback("up");
    let second = Duration::from_secs(1);
    let mut server = TestServer::start_with(|options| {
        options.accept.ping_interval = second;
        options.accept.ping_timeout = second;
    })
    .await;
    let node = server.watchful_node("web-1", second).await;
    let mut stream = open_stream(&node, "web-1").await;
    assert_eq!(stored_state(&server).await, "connected");
    set_loopback("down");
    // Neither side can notify the other, so each detects it on its own.
    let error = soon(stream.next()).await.expect("an end").expect_err("bad");
    assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
    eventually(|| async { stored_state(&server).await == "lost" }).await;
    set_loopback("up");
    server.shutdown().await;
}

/// Reads the store directly, because the API is unreachable.
async fn stored_state(server: &TestServer) -> String {
    let entry = server.store().get("nodes/web-1/connection").await;
    let entry = entry.expect("the store").expect("the node");
    let stored: Value = serde_json::from_slice(&entry.value).expect("JSON");
    stored["state"].as_str().expect("a word").to_owned()
}

fn set_loopback(state: &str) {
    let set = Command::new("ip")
        .args(["link", "set", "lo", state])
        .status()
        .expect("`ip` is missing: run `scripts/setup test`");
    assert!(set.success(), "the loopback cannot be set {state}");
}
