//! The audit log over the API: what it contains, what it leaves out, and that it is intact.

use bunraku_model::{AuditChainCheck, AuditChainPlace};
use bunraku_wire::api::{
    AuditHead, AuditOutcome, AuditPage, AuditRecord, DisableRequest, SendCommand, TokenRequest,
};
use bunraku_wire::endpoints::{
    AuditQuery, CreateToken, DisableNode, Endpoint, ExportAudit, FollowAudit, ListAudit,
    RemoveEnvironment, SendCommands, ShowAuditHead,
};
use bunraku_wire::{Client, api::Command};
use serde_json::{Value, json};

use crate::support::{TestServer, appears, name, soon, status};

pub(crate) async fn list(client: &Client, query: &AuditQuery) -> Vec<AuditRecord> {
    let page: AuditPage = client
        .call(ListAudit.with_query((), query))
        .await
        .expect("a page");
    page.records
}

async fn of_action(client: &Client, action: &str) -> Vec<AuditRecord> {
    let query = AuditQuery {
        action: Some(action.to_owned()),
        ..AuditQuery::default()
    };
    list(client, &query).await
}

/// Fetches the whole log, and checks it against the head that the server names.
pub(crate) async fn verified(client: &Client) -> Vec<AuditRecord> {
    let head: AuditHead = client.call(ShowAuditHead).await.expect("a head");
    let mut lines = client
        .follow::<_, AuditRecord>(ExportAudit)
        .await
        .expect("an export");
    let mut check = AuditChainCheck::default();
    let mut records = Vec::new();
    while let Some(record) = soon(lines.next()).await {
        let record = record.expect("a line");
        // Serialized again, it is the same line.
        let line = serde_json::to_string(&record).expect("JSON");
        check.add(line.as_bytes()).expect("an intact chain");
        records.push(record);
    }
    let head = AuditChainPlace {
        number: head.number,
        hash: head.hash,
    };
    check.finish(Some(&head)).expect("an intact log");
    records
}

#[tokio::test]
async fn a_change_is_in_the_log_before_its_reply() {
    let mut server = TestServer::start().await;
    let _node = server.node("web-1").await;
    let request = DisableRequest {
        reason: "disk replaced".to_owned(),
    };
    let disabled = server
        .operator
        .call_with(DisableNode.at(&name("web-1")), &request);
    disabled.await.expect("disabled");
    let records = of_action(&server.operator, "disable-node").await;
    let [record] = records.as_slice() else {
        panic!("one record, not {records:?}");
    };
    let entry = &record.entry;
    assert_eq!(entry.object.as_deref(), Some("node/web-1"));
    assert_eq!(entry.reason.as_deref(), Some("disk replaced"));
    assert_eq!(entry.outcome, AuditOutcome::Succeeded);
    assert_eq!(entry.role, "operator");
    assert_eq!(entry.address.as_deref(), Some("127.0.0.1"));
    assert!(entry.certificate.is_some() && entry.request_id.is_some());
    let by_request = AuditQuery {
        request_id: entry.request_id.clone(),
        ..AuditQuery::default()
    };
    assert_eq!(list(&server.operator, &by_request).await.len(), 1);
    server.shutdown().await;
}

#[tokio::test]
async fn joins_triggers_locks_and_refusals_of_nodes_are_in_the_log_and_their_routine_is_not() {
    let mut server = TestServer::start().await;
    let node = server.node("web-1").await;
    let signed = of_action(&server.operator, "sign-certificate").await;
    let own = |record: &&AuditRecord| record.entry.object.as_deref() == Some("certificate/web-1");
    let joined = signed.iter().find(own).expect("the join is recorded");
    assert!(
        joined.entry.details["signed_by"]
            .as_str()
            .expect("text")
            .starts_with("token ")
    );
    node.put::<_, Value>("/v1/nodes/web-1/facts", &json!({"role": "web"}))
        .await
        .expect("facts");
    let acquire = json!({"session": "s", "lease_seconds": 60, "wait_seconds": 0, "only_now": true});
    let refused = node
        .post::<_, Value>("/v1/locks/deploy/acquire", &acquire)
        .await;
    assert_eq!(status(refused), 403);
    let refused = node.delete::<Value>("/v1/environments/production").await;
    assert_eq!(status(refused), 403);
    let stranger = server.stranger();
    assert_eq!(status(stranger.get::<Value>("/v1/nodes").await), 401);
    let refusals = AuditQuery {
        outcome: Some(AuditOutcome::Refused),
        ..AuditQuery::default()
    };
    let refusals = list(&server.operator, &refusals).await;
    let seen = |who: &str, action: &str, status: u16| {
        refusals.iter().any(|record| {
            let entry = &record.entry;
            entry.who == who && entry.action == action && entry.status == Some(status)
        })
    };
    assert!(seen("web-1", "acquire-lock", 403), "{refusals:?}");
    assert!(
        seen("web-1", &RemoveEnvironment::DEFINITION.action(), 403),
        "{refusals:?}"
    );
    assert!(seen("anonymous", "list-nodes", 401), "{refusals:?}");
    assert!(of_action(&server.operator, "submit-facts").await.is_empty());
    assert!(of_action(&server.operator, "list-audit").await.is_empty());
    server.shutdown().await;
}

#[tokio::test]
async fn strangers_cannot_fill_the_log_with_refusals() {
    let mut server = TestServer::start().await;
    let stranger = server.stranger();
    for _ in 0..100 {
        assert_eq!(status(stranger.get::<Value>("/v1/nodes").await), 401);
    }
    let refused = of_action(&server.operator, "list-nodes").await;
    assert_eq!(refused.len(), 5, "the rest is counted");
    server.shutdown().await;
    // The count is written at the latest when the server stops.
    let mut server = TestServer::open(server.directory(), server.options()).await;
    let refused = of_action(&server.operator, "list-nodes").await;
    let all: u64 = refused.iter().map(|record| record.entry.count).sum();
    assert_eq!((refused.len(), all), (6, 100));
    server.shutdown().await;
}

#[tokio::test]
async fn secrets_are_not_in_the_log() {
    let mut server = TestServer::start().await;
    let request = TokenRequest {
        ttl_seconds: 600,
        node: Some(name("web-1")),
    };
    let token = server
        .operator
        .call_with(CreateToken, &request)
        .await
        .expect("a token")
        .token;
    let environment = json!({
        "name": "staging",
        "url": "https://deploy:hunter2@git.example/site.git",
        "policy": "manual",
    });
    let created: Value = server
        .operator
        .post("/v1/environments", &environment)
        .await
        .expect("created");
    let secret = created["hook_secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    let join = json!({"certificate_request": "hunter2", "token": token, "wait_seconds": 0});
    let refused = server.stranger().post::<_, Value>("/v1/join", &join).await;
    assert_eq!(status(refused), 400);
    let records = appears(async || {
        let all = list(&server.operator, &AuditQuery::default()).await;
        let is_there = all.iter().any(|record| record.entry.action == "join");
        is_there.then_some(all)
    });
    let text = serde_json::to_string(&records.await).expect("JSON");
    for hidden in [token.as_str(), secret.as_str(), "hunter2"] {
        assert!(!text.contains(hidden), "{hidden} is in {text}");
    }
    assert!(text.contains("git.example"));
    server.shutdown().await;
}

#[tokio::test]
async fn a_follower_sees_changes_and_the_log_survives_a_restart_intact() {
    let mut server = TestServer::start().await;
    let _node = server.node("web-1").await;
    let mut stream = server.operator.follow(FollowAudit).await.expect("a stream");
    let ping = SendCommand {
        nodes: vec![name("web-1")],
        command: Command::Ping,
        ttl_seconds: 60,
    };
    server
        .operator
        .call_with(SendCommands, &ping)
        .await
        .expect("sent");
    loop {
        let next: AuditRecord = soon(stream.next()).await.expect("open").expect("a line");
        if next.entry.action == "send-commands" {
            assert_eq!(next.entry.details["nodes"], json!(["web-1"]));
            assert_eq!(next.entry.details["command.do"], "ping");
            break;
        }
    }
    drop(stream);
    let before = verified(&server.operator).await;
    server.shutdown().await;
    let mut server = TestServer::open(server.directory(), server.options()).await;
    let after = appears(async || {
        let after = verified(&server.operator).await;
        let is_up = |record: &&AuditRecord| record.entry.action == "start-server";
        (after.iter().filter(is_up).count() == 2).then_some(after)
    });
    let after = after.await;
    assert_eq!(after[..before.len()], before, "nothing before has changed");
    server.shutdown().await;
}
