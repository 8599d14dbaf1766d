//! Locks: one holder, granted in order of arrival, and never an old token.

use bunraku_wire::Client;
use bunraku_wire::api::locks::{AcquireLock, LockReply, LockStatus, LockToken};
use serde_json::json;

use crate::support::{TestServer, eventually, soon, status};

fn wish(session: &str, lease_seconds: u64, wait_seconds: u64) -> AcquireLock {
    AcquireLock {
        session: session.to_owned(),
        lease_seconds,
        wait_seconds,
        only_now: false,
        reason: None,
        slots: None,
    }
}

async fn acquire(client: &Client, lock: &str, wish: &AcquireLock) -> LockReply {
    let path = format!("/v1/locks/{lock}/acquire");
    soon(client.post(&path, wish)).await.expect("an answer")
}

async fn held(client: &Client, lock: &str, wish: &AcquireLock) -> u64 {
    match acquire(client, lock, wish).await {
        LockReply::Held { token, .. } => token,
        other => panic!("it must be held: {other:?}"),
    }
}

async fn release(client: &Client, lock: &str, token: u64) -> Result<(), bunraku_wire::ClientError> {
    let path = format!("/v1/locks/{lock}/release");
    client.post(&path, &LockToken { token }).await
}

async fn renew(client: &Client, lock: &str, token: u64) -> Result<(), bunraku_wire::ClientError> {
    let path = format!("/v1/locks/{lock}/lease");
    client.put(&path, &LockToken { token }).await
}

async fn show(client: &Client, lock: &str) -> LockStatus {
    let path = format!("/v1/locks/{lock}");
    client.get(&path).await.expect("a lock")
}

async fn waiting(client: &Client, lock: &str, count: usize) {
    eventually(|| async { show(client, lock).await.waiters.len() == count }).await;
}

#[tokio::test]
async fn a_lock_passes_on_in_the_order_in_which_they_came() {
    let mut server = TestServer::start().await;
    server.permit("locks/db").await;
    let first = server.node("first").await;
    let mut token = held(&first, "db", &wish("s", 60, 0)).await;
    let mut holder = first;
    let mut line = Vec::new();
    for number in 0..5 {
        let node = server.node(&format!("next-{number}")).await;
        let client = node.clone();
        let waits = tokio::spawn(async move { held(&client, "db", &wish("s", 60, 50)).await });
        waiting(&server.operator, "db", number + 1).await;
        line.push((node, waits));
    }
    for (node, waits) in line {
        let status = show(&server.operator, "db").await;
        assert!(!waits.is_finished(), "{status:?}");
        release(&holder, "db", token).await.expect("released");
        let next = soon(waits).await.expect("no panic");
        assert!(next > token, "tokens rise: {next} after {token}");
        (holder, token) = (node, next);
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_dead_owners_lock_frees_with_its_lease_and_the_owner_is_refused_when_it_wakes() {
    let mut server = TestServer::start().await;
    server.permit("locks/db").await;
    server.permit("locks/alone").await;
    let (dead, next) = (server.node("dead").await, server.node("next").await);
    let old = held(&dead, "db", &wish("s", 1, 0)).await;
    // Nobody reports that the owner is gone. Only its lease expires.
    let new = held(&next, "db", &wish("s", 60, 50)).await;
    assert!(new > old);
    assert_eq!(status(renew(&dead, "db", old).await), 409);
    assert_eq!(status(release(&dead, "db", old).await), 409);
    renew(&next, "db", new).await.expect("the new one holds it");
    assert_eq!(show(&server.operator, "db").await.holders[0].owner, "next");
    // The same when nobody is waiting.
    let late = held(&dead, "alone", &wish("s", 1, 0)).await;
    eventually(|| async { show(&server.operator, "alone").await.holders.is_empty() }).await;
    assert_eq!(status(renew(&dead, "alone", late).await), 409);
    assert_eq!(
        status(release(&next, "db", old).await),
        409,
        "an old token releases nothing"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_semaphore_lets_as_many_in_as_it_has_slots() {
    let mut server = TestServer::start().await;
    let define = json!({"slots": 2, "may_hold": ["web-1"]});
    server
        .operator
        .put::<_, ()>("/v1/locks/build", &define)
        .await
        .expect("defined");
    let node = server.node("web-1").await;
    assert_eq!(
        status(node.put::<_, ()>("/v1/locks/build", &define).await),
        403
    );
    let now = |session: &str| AcquireLock {
        only_now: true,
        ..wish(session, 60, 0)
    };
    let first = held(&node, "build", &now("a")).await;
    held(&node, "build", &now("b")).await;
    assert!(
        matches!(acquire(&node, "build", &now("c")).await, LockReply::Taken { holders } if holders.len() == 2)
    );
    assert_eq!(
        show(&node, "build").await.waiters.len(),
        0,
        "nobody was put in line"
    );
    release(&node, "build", first).await.expect("released");
    held(&node, "build", &now("c")).await;
    let other = AcquireLock {
        slots: Some(5),
        ..now("d")
    };
    let refused = node
        .post::<_, LockReply>("/v1/locks/build/acquire", &other)
        .await;
    assert_eq!(status(refused), 409, "an operator said two");
    server.shutdown().await;
}

#[tokio::test]
async fn the_same_session_again_keeps_what_it_has() {
    let mut server = TestServer::start().await;
    server.permit("locks/db").await;
    server.permit("locks/other").await;
    let (a, b) = (server.node("a").await, server.node("b").await);
    let token = held(&a, "db", &wish("puppet", 60, 0)).await;
    assert_eq!(
        acquire(&a, "db", &wish("puppet", 60, 0)).await,
        LockReply::Held {
            token,
            taken: false
        }
    );
    assert!(matches!(
        acquire(&a, "db", &wish("other", 60, 0)).await,
        LockReply::Waiting { ahead: 0, .. }
    ));
    assert!(
        matches!(
            acquire(&b, "db", &wish("puppet", 60, 0)).await,
            LockReply::Waiting { ahead: 1, .. }
        ),
        "another owner is another session"
    );
    // The first in the queue leaves it.
    a.post::<_, ()>("/v1/locks/db/leave", &json!({"session": "other"}))
        .await
        .expect("left");
    assert!(matches!(
        acquire(&b, "db", &wish("puppet", 60, 0)).await,
        LockReply::Waiting { ahead: 0, .. }
    ));
    // An operator breaks the lock and gives a reason.
    let path = "/v1/locks/db/break";
    assert_eq!(
        status(
            b.post::<_, ()>(path, &json!({"token": token, "reason": "mine"}))
                .await
        ),
        403
    );
    assert_eq!(
        status(
            server
                .operator
                .post::<_, ()>(path, &json!({"token": token, "reason": ""}))
                .await
        ),
        400
    );
    server
        .operator
        .post::<_, ()>(path, &json!({"token": token, "reason": "stuck"}))
        .await
        .expect("broken");
    assert_eq!(status(renew(&a, "db", token).await), 409);
    assert!(matches!(
        acquire(&b, "db", &wish("puppet", 60, 0)).await,
        LockReply::Held { .. }
    ));
    server.shutdown().await;
}

#[tokio::test]
async fn a_waiter_that_went_away_does_not_delay_others() {
    let mut server = TestServer::start().await;
    server.permit("locks/db").await;
    let (a, gone, last) = (
        server.node("a").await,
        server.node("gone").await,
        server.node("last").await,
    );
    let token = held(&a, "db", &wish("s", 60, 0)).await;
    // It is in the queue, and never asks again.
    assert!(matches!(
        acquire(&gone, "db", &wish("s", 1, 0)).await,
        LockReply::Waiting { .. }
    ));
    let waits = tokio::spawn(async move { held(&last, "db", &wish("s", 60, 50)).await });
    waiting(&server.operator, "db", 2).await;
    waiting(&server.operator, "db", 1).await;
    release(&a, "db", token).await.expect("released");
    soon(waits).await.expect("no panic");
    assert_eq!(show(&server.operator, "db").await.holders[0].owner, "last");
    server.shutdown().await;
}

#[tokio::test]
async fn two_never_hold_it_at_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let mut server = TestServer::start().await;
    server.permit("locks/db").await;
    server.permit("locks/alone").await;
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..12 {
        let node = server.node(&format!("web-{number}")).await;
        let inside = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for round in 0..3 {
                let token = held(&node, "db", &wish(&format!("s{round}"), 60, 50)).await;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "alone");
                tokens.push(token);
                release(&node, "db", token).await.expect("released");
            }
            tokens
        }));
    }
    let mut tokens: Vec<u64> = Vec::new();
    for task in tasks {
        tokens.extend(soon(task).await.expect("no panic"));
    }
    tokens.sort_unstable();
    assert_eq!(tokens, (1..=36).collect::<Vec<u64>>(), "each token once");
    server.shutdown().await;
}

#[tokio::test]
async fn sessions_and_leases_that_make_no_sense_are_refused() {
    let mut server = TestServer::start().await;
    server.permit("locks/db").await;
    let node = server.node("a").await;
    for (session, lease) in [("", 60), ("a/b", 60), ("a", 0), ("a", 1_000_000)] {
        let refused = node
            .post::<_, LockReply>("/v1/locks/db/acquire", &wish(session, lease, 0))
            .await;
        assert_eq!(status(refused), 400, "{session} {lease}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_change_of_holder_fires_a_trigger_and_a_renewal_does_not() {
    use bunraku_wire::api::triggers::{TriggerEvent, TriggerNews};
    let mut server = TestServer::start().await;
    let (a, b) = (server.node("a").await, server.node("b").await);
    let define = json!({"slots": 1, "on_change": "new master", "may_hold": ["a", "b"]});
    server
        .operator
        .put::<_, ()>("/v1/locks/db", &define)
        .await
        .expect("defined");
    let fired = || async {
        let path = "/v1/trigger-events?trigger=new%20master";
        let events: Vec<TriggerEvent> = server.operator.get(path).await.expect("the history");
        let text = events.into_iter().filter_map(|event| match event.what {
            TriggerNews::Fired { hosts, reason, .. } => Some((
                hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
                reason.unwrap_or_default(),
            )),
            _ => None,
        });
        text.collect::<Vec<_>>()
    };
    let token = held(&a, "db", &wish("s", 60, 0)).await;
    eventually(|| async { fired().await.len() == 1 }).await;
    renew(&a, "db", token).await.expect("renewed");
    assert_eq!(held(&a, "db", &wish("s", 60, 0)).await, token);
    release(&a, "db", token).await.expect("released");
    held(&b, "db", &wish("s", 60, 0)).await;
    eventually(|| async { fired().await.len() == 2 }).await;
    let text = fired().await;
    assert_eq!(text[0].0, ["b"], "{text:?}");
    assert_eq!(text[0].1, "`db` is held by b");
    server.shutdown().await;
}

#[tokio::test]
async fn waiting_for_longer_than_the_lease_keeps_the_place() {
    let mut server = TestServer::start().await;
    server.permit("locks/db").await;
    server.permit("locks/other").await;
    let (a, b) = (server.node("a").await, server.node("b").await);
    let token = held(&a, "db", &wish("s", 60, 0)).await;
    let waits = tokio::spawn(async move { held(&b, "db", &wish("s", 1, 60)).await });
    waiting(&server.operator, "db", 1).await;
    // Its request is the sign of life, for several lease lengths: other leases of the same
    // length that are not renewed expire in the meantime.
    let c = server.node("c").await;
    for session in ["one", "two", "three"] {
        held(&c, "other", &wish(session, 1, 60)).await;
    }
    release(&a, "db", token).await.expect("released");
    assert!(soon(waits).await.expect("it has it") > token);
    server.shutdown().await;
}
