//! Lists are paged and filtered by the server, and followed by the client.

use std::collections::BTreeSet;
use std::sync::Arc;

use bunraku_control::{Clock, Nodes};
use bunraku_model::NodeName;
use bunraku_wire::api::NodeSummary;
use bunraku_wire::endpoints::{Endpoint, ListNodes, NodesQuery};

use crate::support::{TestServer, eventually, status};

#[tokio::test]
async fn a_long_list_is_followed_page_by_page_with_its_total() {
    const NODES: usize = 1_005;
    let mut server = TestServer::start().await;
    let nodes = Nodes::new(Arc::new(server.store().clone()), Clock::system());
    for number in 0..NODES {
        let name = NodeName::new(format!("web-{number}")).expect("a name");
        nodes.register(&name).await.expect("registered");
    }
    let operator = &server.operator;
    // One request returns one page.
    let one: Vec<NodeSummary> = operator.get("/v1/nodes").await.expect("a page");
    assert_eq!(one.len(), 1_000);
    let all = operator.call(ListNodes).await.expect("all pages");
    let names: BTreeSet<NodeName> = all.into_iter().map(|node| node.name).collect();
    assert_eq!(names.len(), NODES);
    // The total comes from the index, which may lag slightly.
    eventually(async || {
        let few = operator.first(ListNodes, Some(3)).await.expect("a page");
        assert_eq!((few.items.len(), few.next.is_some()), (3, true));
        few.total == Some(NODES)
    })
    .await;
    let failed = NodesQuery {
        failed: true,
        ..NodesQuery::default()
    };
    let failed = operator.call(ListNodes.with_query((), &failed)).await;
    assert_eq!(failed.expect("a page").len(), 0);
    let wrong = operator
        .get::<Vec<NodeSummary>>("/v1/nodes?after=xyz")
        .await;
    assert_eq!(status(wrong), 400);
    server.shutdown().await;
}
