//! Queries over the API: the index follows changes of nodes.

use bunraku_wire::api::{DisableRequest, FactsReceipt, QueryReply, QueryRequest};
use serde_json::{Value, json};

use crate::support::{TestServer, eventually, status};

pub(crate) async fn ask(server: &TestServer, text: &str) -> String {
    let request = QueryRequest {
        query: text.to_owned(),
    };
    let reply: QueryReply = server
        .operator
        .post("/v1/query", &request)
        .await
        .expect("answered");
    Value::from_iter(reply.rows.into_iter().map(Value::Object)).to_string()
}

pub(crate) async fn becomes(server: &TestServer, text: &str, wanted: &str) {
    eventually(async || {
        let shown = ask(server, text).await;
        if shown != wanted {
            eprintln!("{text}: {shown}");
        }
        shown == wanted
    })
    .await;
}

pub(crate) async fn submit(client: &bunraku_wire::Client, node: &str, facts: Value) {
    let path = format!("/v1/nodes/{node}/facts");
    let submitted = client.put::<_, FactsReceipt>(&path, &facts).await;
    submitted.expect("taken");
}

const DEBIAN: &str = r#"nodes[certname] { facts.os.family = "Debian" }"#;

#[tokio::test]
async fn the_index_follows_facts_status_and_removal_and_is_the_same_after_a_restart() {
    let mut server = TestServer::start().await;
    let web = server.node("web-1").await;
    let db = server.node("db-1").await;
    submit(&web, "web-1", json!({"os": {"family": "Debian"}})).await;
    submit(&db, "db-1", json!({"os": {"family": "RedHat"}})).await;
    becomes(&server, DEBIAN, r#"[{"certname":"web-1"}]"#).await;
    submit(&db, "db-1", json!({"os": {"family": "Debian"}})).await;
    becomes(
        &server,
        DEBIAN,
        r#"[{"certname":"db-1"},{"certname":"web-1"}]"#,
    )
    .await;
    let disable = DisableRequest {
        reason: "being moved".to_owned(),
    };
    server
        .operator
        .post::<_, ()>("/v1/nodes/web-1/disable", &disable)
        .await
        .expect("disabled");
    let disabled = "nodes[certname, disabled, status] { disabled is not null }";
    let shown = r#"[{"certname":"web-1","disabled":"being moved","status":"new"}]"#;
    becomes(&server, disabled, shown).await;
    let all = "nodes[certname, status, disabled, fact_set, facts_changed, facts]";
    let before = ask(&server, all).await;
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    assert_eq!(ask(&server, all).await, before, "rebuilt from nothing");
    server
        .operator
        .delete::<()>("/v1/nodes/db-1")
        .await
        .expect("removed");
    becomes(&server, DEBIAN, r#"[{"certname":"web-1"}]"#).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_query_that_makes_no_sense_is_refused_with_its_place() {
    let mut server = TestServer::start().await;
    let request = QueryRequest {
        query: "nodes { certnam = 1 }".to_owned(),
    };
    let refused = server
        .operator
        .post::<_, QueryReply>("/v1/query", &request)
        .await
        .expect_err("refused");
    assert_eq!(refused.status(), Some(400));
    assert!(refused.to_string().contains("^^^^^^^"), "{refused}");
    assert_eq!(refused.hint().as_deref(), Some("did you mean `certname`?"));
    let deep = QueryRequest {
        query: "nodes { ".repeat(1_000),
    };
    assert_eq!(
        status(
            server
                .operator
                .post::<_, QueryReply>("/v1/query", &deep)
                .await
        ),
        400
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_sees_names_and_chosen_facts_of_others_and_nothing_else() {
    let visible = ["role".to_owned()];
    let mut server = TestServer::start_with(|options| {
        options.services.visible_facts = bunraku_query::VisibleFacts::new(&visible);
    })
    .await;
    let balancer = server.node("lb-1").await;
    let facts = json!({"role": "loadbalancer", "secret": "x"});
    submit(&balancer, "lb-1", facts).await;
    let web = server.node("web-1").await;
    submit(&web, "web-1", json!({"role": "web"})).await;
    let balancers = "nodes[certname] { facts.role = 'loadbalancer' }";
    becomes(&server, balancers, r#"[{"certname":"lb-1"}]"#).await;
    let ask = async |client: &bunraku_wire::Client, text: &str| {
        let request = json!({ "query": text });
        client.post::<_, QueryReply>("/v1/query", &request).await
    };
    let found = ask(&web, "nodes { facts.role = 'loadbalancer' }").await;
    let found = found.expect("an answer");
    assert_eq!(json!(found.rows), json!([{"certname": "lb-1"}]));
    for text in [
        "nodes[facts.secret]",
        "nodes { facts.secret ~ '^x' }",
        "resources",
        "facts",
    ] {
        let refused = ask(&web, text).await.expect_err(text);
        assert!(
            refused.to_string().contains("a node may not ask for"),
            "{refused}"
        );
    }
    server.shutdown().await;
    // Without a list, nodes may not query.
    let mut server = TestServer::start().await;
    let web = server.node("web-1").await;
    let refused = ask(&web, "nodes").await.expect_err("refused");
    assert_eq!(refused.status(), Some(403), "{refused}");
    server.shutdown().await;
}
