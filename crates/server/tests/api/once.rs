//! Tasks that run once, regardless of the number of requests.

use std::time::Duration;

use bunraku_model::ClaimId;
use bunraku_store::{Range, Store};
use bunraku_wire::Client;
use bunraku_wire::api::once::{
    AttemptOutcome, ClaimOnce, ClaimReply, FinishClaim, KeepClaim, OnceAttempt, OnceEvent,
    OnceReport, OnceStatus, OnceSummary, StatOnce,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::query::{becomes, submit};
use crate::support::{TestServer, eventually, soon, status};

fn request(lease_seconds: u64) -> ClaimOnce {
    ClaimOnce {
        claim: ClaimId(Uuid::new_v4()),
        lease_seconds,
        retry: false,
    }
}

async fn define(client: &Client, app: &str, definition: Value) {
    let path = format!("/v1/once/{app}/definition");
    let body = json!({ "definition": definition });
    client.put::<_, ()>(&path, &body).await.expect("defined");
}

async fn claim(client: &Client, app: &str, request: &ClaimOnce) -> ClaimReply {
    let path = format!("/v1/once/{app}/claims");
    client.post(&path, request).await.expect("an answer")
}

async fn granted(client: &Client, app: &str, request: &ClaimOnce) -> OnceAttempt {
    match claim(client, app, request).await {
        ClaimReply::Granted { attempt, .. } => attempt,
        other => panic!("it must be granted: {other:?}"),
    }
}

async fn stat(client: &Client, app: &str) -> OnceStatus {
    let path = format!("/v1/once/{app}/standing");
    client.get(&path).await.expect("a standing")
}

async fn finish(
    client: &Client,
    app: &str,
    token: u64,
    exit_code: u8,
) -> Result<(), bunraku_wire::ClientError> {
    let path = format!("/v1/once/{app}/claims/{token}/outcome");
    let request = FinishClaim {
        exit_code,
        log: format!("ended with {exit_code}\n"),
    };
    client.put(&path, &request).await
}

async fn ended(client: &Client, app: &str, token: u64) -> AttemptOutcome {
    let path = format!("/v1/once/{app}/attempts/{token}?wait_seconds=50");
    let attempt: OnceAttempt = soon(client.get(&path)).await.expect("an attempt");
    attempt.outcome
}

async fn report(client: &Client, app: &str) -> OnceReport {
    let path = format!("/v1/once/{app}");
    client.get(&path).await.expect("a report")
}

fn missing(standing: &OnceStatus) -> String {
    match standing {
        OnceStatus::NotReady { missing, .. } => missing.join("; "),
        other => panic!("something must be missing: {other:?}"),
    }
}

#[tokio::test]
async fn of_many_hosts_that_ask_at_once_exactly_one_gets_it() {
    let mut server = TestServer::start().await;
    server.permit("once/app_1").await;
    define(&server.operator, "app_1", json!({"command": "true"})).await;
    let mut nodes = Vec::new();
    for number in 0..20 {
        nodes.push(server.node(&format!("web-{number}")).await);
    }
    let request = request(60);
    // All of them wake at the same moment, each with its own claim.
    let asking = nodes.iter().map(|node| {
        let request = ClaimOnce {
            claim: ClaimId(Uuid::new_v4()),
            ..request.clone()
        };
        async move { claim(node, "app_1", &request).await }
    });
    let replies = futures::future::join_all(asking).await;
    let (won, lost): (Vec<_>, Vec<_>) = replies
        .into_iter()
        .partition(|reply| matches!(reply, ClaimReply::Granted { .. }));
    assert_eq!(won.len(), 1, "one of twenty");
    for reply in lost {
        assert!(
            matches!(
                reply,
                ClaimReply::Refused {
                    standing: OnceStatus::Busy { .. }
                }
            ),
            "{reply:?}"
        );
    }
    server.shutdown().await;
}

#[tokio::test]
async fn stat_says_ready_exactly_when_a_claim_would_be_granted() {
    let mut server = TestServer::start().await;
    server.permit("once/a").await;
    let node = server.node("deploy").await;
    let ready = |standing: &OnceStatus| *standing == OnceStatus::Ready;
    // Nothing is defined.
    assert_eq!(missing(&stat(&node, "a").await), "its definition");
    assert!(!is_granted(&claim(&node, "a", &request(60)).await));
    // Defined: the claim is granted.
    define(
        &server.operator,
        "a",
        json!({"command": "true", "retry": 1}),
    )
    .await;
    assert!(ready(&stat(&node, "a").await));
    let first = granted(&node, "a", &request(60)).await;
    // In progress.
    assert!(matches!(stat(&node, "a").await, OnceStatus::Busy { .. }));
    assert!(!is_granted(&claim(&node, "a", &request(60)).await));
    // It failed, and may be repeated once.
    finish(&node, "a", first.token, 7).await.expect("recorded");
    assert!(ready(&stat(&node, "a").await));
    let second = granted(&node, "a", &request(60)).await;
    assert!(second.token > first.token);
    finish(&node, "a", second.token, 7).await.expect("recorded");
    let shown = missing(&stat(&node, "a").await);
    assert!(shown.contains("failed with exit code 7"), "{shown}");
    assert!(!is_granted(&claim(&node, "a", &request(60)).await));
    // A caller requests a retry.
    let again = "/v1/once/a/standing?retry=true";
    assert!(ready(&node.get(again).await.expect("a standing")));
    let insist = ClaimOnce {
        retry: true,
        ..request(60)
    };
    let third = granted(&node, "a", &insist).await;
    finish(&node, "a", third.token, 0).await.expect("recorded");
    // Done permanently, even for callers that request a retry.
    assert!(matches!(stat(&node, "a").await, OnceStatus::Done { .. }));
    assert!(!is_granted(&claim(&node, "a", &insist).await));
    server.shutdown().await;
}

fn is_granted(reply: &ClaimReply) -> bool {
    matches!(reply, ClaimReply::Granted { .. })
}

#[tokio::test]
async fn asking_writes_nothing() {
    let mut server = TestServer::start().await;
    server.permit("once/a").await;
    server.permit("once/unknown").await;
    let node = server.node("deploy").await;
    define(&server.operator, "a", json!({"command": "true"})).await;
    let revision = || async {
        let page = server.store().range(Range::prefix("once")).await;
        page.expect("readable").revision
    };
    // The records of what came before are linked in the background.
    eventually(async || {
        let page = server.store().range(Range::prefix("audit/inbox/")).await;
        page.expect("readable").items.is_empty()
    })
    .await;
    let before = revision().await;
    for app in ["a", "unknown"] {
        for _ in 0..50 {
            stat(&node, app).await;
            let with = StatOnce {
                definition: json!({"command": "true"}).as_object().cloned(),
                retry: true,
            };
            let path = format!("/v1/once/{app}/standing");
            let standing: OnceStatus = node.post(&path, &with).await.expect("a standing");
            // For the unknown one, the file is the definition; the other's belongs to the
            // operator.
            assert_eq!(standing, OnceStatus::Ready, "{app}");
        }
    }
    assert_eq!(
        revision().await,
        before,
        "a hundred questions left no trace"
    );
    let all: Vec<OnceSummary> = server.operator.get("/v1/once").await.expect("a list");
    assert_eq!(
        all.len(),
        2,
        "the defined one, and the one that is only permitted"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_claimant_that_falls_silent_has_abandoned_it_and_is_refused_when_it_wakes() {
    let mut server = TestServer::start().await;
    server.permit("once/a").await;
    let node = server.node("deploy").await;
    define(&server.operator, "a", json!({"command": "true"})).await;
    let attempt = granted(&node, "a", &request(1)).await;
    let keep = format!("/v1/once/a/claims/{}", attempt.token);
    let log = KeepClaim {
        log: Some("half way\n".to_owned()),
    };
    node.put::<_, ()>(&keep, &log).await.expect("it lives");
    // No further sign of life: the end of the lease wakes the waiting caller.
    assert_eq!(
        ended(&node, "a", attempt.token).await,
        AttemptOutcome::Abandoned
    );
    let shown = missing(&stat(&node, "a").await);
    assert!(shown.contains("was abandoned"), "{shown}");
    assert_eq!(
        report(&server.operator, "a").await.log.as_deref(),
        Some("half way\n")
    );
    // The paused node wakes up.
    assert_eq!(status(node.put::<_, ()>(&keep, &log).await), 409);
    assert_eq!(status(finish(&node, "a", attempt.token, 0).await), 409);
    let insist = ClaimOnce {
        retry: true,
        ..request(60)
    };
    let second = granted(&node, "a", &insist).await;
    assert!(second.token > attempt.token);
    assert_eq!(
        status(finish(&node, "a", attempt.token, 0).await),
        409,
        "the old token must not end the new attempt"
    );
    assert!(matches!(stat(&node, "a").await, OnceStatus::Busy { .. }));
    server.shutdown().await;
}

#[tokio::test]
async fn replies_that_were_lost_can_be_asked_for_again() {
    let mut server = TestServer::start().await;
    server.permit("once/a").await;
    let node = server.node("deploy").await;
    let other = server.node("other").await;
    define(&server.operator, "a", json!({"command": "true"})).await;
    let request = request(60);
    let first = granted(&node, "a", &request).await;
    assert_eq!(granted(&node, "a", &request).await, first);
    assert!(
        !is_granted(&claim(&other, "a", &request).await),
        "not under another name"
    );
    assert_eq!(status(finish(&other, "a", first.token, 0).await), 409);
    finish(&node, "a", first.token, 3).await.expect("recorded");
    finish(&node, "a", first.token, 3)
        .await
        .expect("the same again");
    assert_eq!(
        status(finish(&node, "a", first.token, 0).await),
        409,
        "another outcome"
    );
    assert!(matches!(
        ended(&node, "a", first.token).await,
        AttemptOutcome::Failed { exit_code: 3, .. }
    ));
    server.shutdown().await;
}

#[tokio::test]
async fn nothing_starts_before_every_expected_host_has_its_part() {
    let mut server = TestServer::start().await;
    server.permit("once/app").await;
    server.permit("once/three").await;
    let (a, b) = (server.node("a").await, server.node("b").await);
    let part = json!({"fragment": {"datacentre": "chicago", "port": 80}});
    // A part may come before the definition.
    a.put::<_, ()>("/v1/once/app/fragments/a", &part)
        .await
        .expect("its own part");
    assert_eq!(
        status(a.put::<_, ()>("/v1/once/app/fragments/b", &part).await),
        403
    );
    define(
        &server.operator,
        "app",
        json!({"command": "true", "expected_hosts": ["a", "b"]}),
    )
    .await;
    assert_eq!(missing(&stat(&a, "app").await), "the fragment of `b`");
    assert!(!is_granted(&claim(&a, "app", &request(60)).await));
    b.put::<_, ()>("/v1/once/app/fragments/b", &part)
        .await
        .expect("its own part");
    match claim(&a, "app", &request(60)).await {
        ClaimReply::Granted { document, .. } => {
            assert_eq!(document["sites"], json!({"chicago": ["a", "b"]}));
            assert_eq!(document["fragments"]["b"]["port"], 80);
        }
        other => panic!("complete: {other:?}"),
    }
    define(
        &server.operator,
        "three",
        json!({"command": "true", "expected_hosts": 3}),
    )
    .await;
    a.put::<_, ()>("/v1/once/three/fragments/a", &part)
        .await
        .expect("a part");
    assert_eq!(missing(&stat(&a, "three").await), "2 of 3 fragments");
    // Withdrawn: incomplete again.
    a.delete::<()>("/v1/once/three/fragments/a")
        .await
        .expect("taken back");
    assert_eq!(missing(&stat(&a, "three").await), "3 of 3 fragments");
    let large = json!({"fragment": {"text": "x".repeat(70_000)}});
    assert_eq!(
        status(a.put::<_, ()>("/v1/once/three/fragments/a", &large).await),
        413
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_node_runs_only_an_operators_definition_or_its_own() {
    let mut server = TestServer::start().await;
    let deploy = server.node("deploy").await;
    let hostile = server.node("hostile").await;
    let path = "/v1/once/app/definition";
    let bad = json!({"definition": {"command": "rm -rf /", "init_on": ["hostile"]}});
    assert_eq!(
        status(hostile.put::<_, ()>(path, &bad).await),
        403,
        "nobody permits itself"
    );
    let both = json!({"init_on": ["deploy", "hostile"]});
    let permitted = server
        .operator
        .post::<_, ()>("/v1/once/app/permissions", &both);
    permitted.await.expect("permitted");
    define(&hostile, "app", json!({"command": "rm -rf /"})).await;
    let shown = missing(&stat(&deploy, "app").await);
    assert!(shown.contains("not by `hostile`"), "{shown}");
    assert!(!is_granted(&claim(&deploy, "app", &request(60)).await));
    let mine = json!({"definition": {"command": "true"}});
    assert_eq!(
        status(deploy.put::<_, ()>(path, &mine).await),
        403,
        "it is taken"
    );
    let other = server.node("other").await;
    define(
        &server.operator,
        "app",
        json!({"command": "true", "init_on": ["other"]}),
    )
    .await;
    assert_eq!(stat(&other, "app").await, OnceStatus::Ready);
    let shown = missing(&stat(&server.operator, "app").await);
    assert!(
        shown.contains("init_on"),
        "an operator's machine obeys it: {shown}"
    );
    define(&server.operator, "app", json!({"command": "true"})).await;
    assert_eq!(
        status(
            hostile.put::<_, ()>(path, &mine).await.and(Err::<(), _>(
                hostile
                    .put::<_, ()>(path, &json!({"definition": {"command": "false"}}))
                    .await
                    .expect_err("an operator's stays")
            ))
        ),
        403
    );
    assert!(is_granted(&claim(&deploy, "app", &request(60)).await));
    server.shutdown().await;
}

#[tokio::test]
async fn a_reset_needs_an_operator_and_a_reason_and_is_remembered() {
    let mut server = TestServer::start().await;
    server.permit("once/a").await;
    let node = server.node("deploy").await;
    define(&server.operator, "a", json!({"command": "true"})).await;
    let first = granted(&node, "a", &request(60)).await;
    let reason = json!({"reason": "the database was restored"});
    let path = "/v1/once/a/reset";
    assert_eq!(
        status(server.operator.post::<_, ()>(path, &reason).await),
        409,
        "it runs"
    );
    finish(&node, "a", first.token, 0).await.expect("recorded");
    assert_eq!(status(node.post::<_, ()>(path, &reason).await), 403);
    let none = json!({"reason": " "});
    assert_eq!(
        status(server.operator.post::<_, ()>(path, &none).await),
        400
    );
    assert_eq!(
        status(
            server
                .operator
                .post::<_, ()>("/v1/once/b/reset", &reason)
                .await
        ),
        404
    );
    server
        .operator
        .post::<_, ()>(path, &reason)
        .await
        .expect("reset");
    assert_eq!(stat(&node, "a").await, OnceStatus::Ready);
    let second = granted(&node, "a", &request(60)).await;
    assert!(
        second.token > first.token,
        "a reset does not bring old tokens back"
    );
    let history = report(&server.operator, "a").await.history;
    assert!(
        matches!(&history[..], [
        OnceEvent::Attempt(done),
        OnceEvent::Reset { reason, .. },
        OnceEvent::Attempt(running),
    ] if done.token == first.token && running.token == second.token && reason.contains("restored")),
        "{history:?}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn outcomes_and_claims_survive_the_server() {
    let mut server = TestServer::start().await;
    server.permit("once/done").await;
    server.permit("once/dies").await;
    let (node, key) = server.node_with_key("deploy").await;
    for app in ["done", "dies"] {
        define(&server.operator, app, json!({"command": "true"})).await;
    }
    let done = granted(&node, "done", &request(60)).await;
    finish(&node, "done", done.token, 0)
        .await
        .expect("recorded");
    let dies = granted(&node, "dies", &request(2)).await;
    let (directory, options) = (server.directory(), server.options());
    server.shutdown().await;
    let mut server = TestServer::open(directory, options).await;
    let node = server.known_node("deploy", &key).await;
    assert!(matches!(stat(&node, "done").await, OnceStatus::Done { .. }));
    assert_eq!(
        ended(&node, "dies", dies.token).await,
        AttemptOutcome::Abandoned
    );
    server.shutdown().await;
}

#[tokio::test]
async fn history_and_logs_do_not_grow_without_end() {
    let mut server = TestServer::start().await;
    server.permit("once/a").await;
    let node = server.node("deploy").await;
    define(
        &server.operator,
        "a",
        json!({"command": "true", "retry": "always"}),
    )
    .await;
    for _ in 0..40 {
        let attempt = granted(&node, "a", &request(60)).await;
        finish(&node, "a", attempt.token, 1)
            .await
            .expect("recorded");
    }
    assert!(report(&server.operator, "a").await.history.len() <= 21);
    let logs = server.store().range(Range::prefix("once-logs/")).await;
    assert!(logs.expect("readable").items.len() <= 21);
    tokio::time::timeout(Duration::from_secs(60), server.shutdown())
        .await
        .expect("it ends");
}

#[tokio::test]
async fn a_set_of_hosts_may_be_whatever_a_query_finds_and_finding_none_is_too_early() {
    let mut server = TestServer::start().await;
    let definition =
        json!({"command": "true", "expected_hosts": {"query": "nodes { facts.app = 1 }"}});
    define(&server.operator, "app", definition.clone()).await;
    let missing = |standing: OnceStatus| match standing {
        OnceStatus::NotReady { missing, .. } => missing,
        other => panic!("it is too early: {other:?}"),
    };
    assert_eq!(
        missing(stat(&server.operator, "app").await),
        ["hosts: `nodes { facts.app = 1 }` matches none"]
    );
    let (a, b) = (server.node("a").await, server.node("b").await);
    submit(&a, "a", json!({"app": 1})).await;
    submit(&b, "b", json!({"app": 1})).await;
    let both = r#"[{"certname":"a"},{"certname":"b"}]"#;
    becomes(&server, "nodes[certname] { facts.app = 1 }", both).await;
    let part = json!({"fragment": {"port": 80}});
    let given = a.put::<_, ()>("/v1/once/app/fragments/a", &part).await;
    given.expect("taken");
    assert_eq!(
        missing(stat(&server.operator, "app").await),
        ["the fragment of `b`"]
    );
    let too_early = claim(&server.operator, "app", &request(30)).await;
    assert!(!matches!(too_early, ClaimReply::Granted { .. }));
    let given = b.put::<_, ()>("/v1/once/app/fragments/b", &part).await;
    given.expect("taken");
    assert_eq!(stat(&server.operator, "app").await, OnceStatus::Ready);
    granted(&server.operator, "app", &request(30)).await;
    for (client, wrong, code) in [
        (&a, definition, 403),
        (
            &server.operator,
            json!({"command": "true", "expected_hosts": {"query": "nodes { facts.app = }"}}),
            400,
        ),
    ] {
        let body = json!({ "definition": wrong });
        let refused = client.put::<_, ()>("/v1/once/other/definition", &body);
        assert_eq!(status(refused.await), code);
    }
    server.shutdown().await;
}
