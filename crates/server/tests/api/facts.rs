//! Submitting and reading facts.

use bunraku_wire::api::{FactsReceipt, FactsReply};
use serde_json::{Value, json};

use crate::support::{TestServer, status};

const PATH: &str = "/v1/nodes/web-1/facts";

#[tokio::test]
async fn only_what_is_not_volatile_counts_as_a_change() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let submit = async |uptime: u64, role: &str| {
        let facts = json!({"role": role, "system_uptime": {"seconds": uptime}});
        node.put::<_, FactsReceipt>(PATH, &facts)
            .await
            .expect("taken")
    };
    let first = submit(1, "web").await;
    let same = submit(2, "web").await;
    let other = submit(3, "db").await;
    assert_eq!(
        (first.changed, same.changed, other.changed),
        (true, false, true)
    );
    assert_eq!(first.fact_set, same.fact_set);
    assert_ne!(first.fact_set, other.fact_set);
    let shown: FactsReply = server.operator.get(PATH).await.expect("shown");
    assert_eq!(shown.facts.get("role"), Some(&json!("db")));
    assert_eq!(shown.fact_set, other.fact_set);
    let own: FactsReply = node.get(PATH).await.expect("a node reads its own");
    assert_eq!(own, shown);
    server.shutdown().await;
}

#[tokio::test]
async fn concurrent_submissions_end_in_one_of_them() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let submissions = (0..20).map(|number| {
        let node = node.clone();
        async move {
            node.put::<_, FactsReceipt>(PATH, &json!({"number": number}))
                .await
                .expect("taken")
        }
    });
    let receipts = futures::future::join_all(submissions).await;
    let shown: FactsReply = server.operator.get(PATH).await.expect("whole");
    assert!(
        receipts
            .iter()
            .any(|receipt| receipt.fact_set == shown.fact_set)
    );
    server.shutdown().await;
}

#[tokio::test]
async fn facts_that_are_not_an_object_or_too_large_are_refused() {
    let mut server = TestServer::start_with(|options| options.router.facts_limit = 10_000).await;
    let node = server.node("web-1").await;
    assert_eq!(
        status(node.put::<_, Value>(PATH, &json!([1, 2])).await),
        400
    );
    assert_eq!(
        status(
            node.put::<_, Value>(PATH, &json!({"a": "x".repeat(20_000)}))
                .await
        ),
        413
    );
    node.put::<_, FactsReceipt>(PATH, &json!({"a": "x".repeat(5_000)}))
        .await
        .expect("within the limit");
    server.shutdown().await;
}

#[tokio::test]
async fn facts_of_a_node_that_has_none_yet_are_not_found_and_say_why() {
    let mut server = TestServer::start().await;
    server.node("web-1").await;
    let none = server
        .operator
        .get::<FactsReply>(PATH)
        .await
        .expect_err("none yet");
    assert_eq!(none.status(), Some(404));
    assert!(
        none.hint()
            .is_some_and(|hint| hint.contains("first connects")),
        "{:?}",
        none.hint()
    );
    let unknown = server
        .operator
        .get::<FactsReply>("/v1/nodes/nobody/facts")
        .await;
    assert_eq!(status(unknown), 404);
    server.shutdown().await;
}

#[tokio::test]
async fn fifty_megabytes_of_facts_are_refused_with_the_limit_and_nothing_is_kept() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let large = json!({"a": "x".repeat(50 << 20)});
    let refused = node
        .put::<_, FactsReceipt>(PATH, &large)
        .await
        .expect_err("too large");
    assert_eq!(refused.status(), Some(413), "{refused}");
    assert!(refused.to_string().contains("8388608 bytes"), "{refused}");
    assert_eq!(status(server.operator.get::<FactsReply>(PATH).await), 404);
    node.put::<_, FactsReceipt>(PATH, &json!({"a": 1}))
        .await
        .expect("the next ones are taken");
    server.shutdown().await;
}
