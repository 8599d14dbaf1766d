//! Locks with concurrent callers.

use std::sync::Arc;

use bunraku_model::{NodeMatcher, NodeName, Role, TriggerName};
use bunraku_store::LeaseId;
use bunraku_store::testing::{InterferingStore, MemoryStore};
use bunraku_wire::api::locks::{AcquireLock, LockReply, PermitLock};

use super::*;

fn name() -> LockName {
    LockName::new("db").expect("a name")
}

fn locks(store: &SharedStore) -> Locks {
    Locks::new(store.clone(), Clock::system())
}

/// Lets these nodes hold the lock.
async fn permit(store: &SharedStore, nodes: &str) {
    let request = PermitLock {
        may_hold: vec![nodes.parse::<NodeMatcher>().expect("a pattern")],
        ..Default::default()
    };
    let permitted = locks(store).permit(&name(), &request).await;
    permitted.expect("permitted");
}

async fn acquire(store: &SharedStore, owner: &str) -> LockReply {
    try_acquire(store, owner, None).await.expect("an answer")
}

async fn try_acquire(
    store: &SharedStore,
    owner: &str,
    slots: Option<u32>,
) -> Result<LockReply, ServiceError> {
    acquire_as(Role::Operator, store, owner, slots).await
}

async fn acquire_as(
    role: Role,
    store: &SharedStore,
    owner: &str,
    slots: Option<u32>,
) -> Result<LockReply, ServiceError> {
    let request = AcquireLock {
        session: "s".to_owned(),
        lease_seconds: 3_600,
        wait_seconds: 0,
        only_now: role == Role::Node,
        reason: None,
        slots,
    };
    let (locks, name) = (locks(store), name());
    let owner = NodeName::new(owner).expect("a name");
    let caller = CueCaller::new(&owner, role);
    locks.acquire(&name, caller, &request, Duration::ZERO).await
}

fn operator() -> NodeName {
    NodeName::new("operator").expect("a name")
}

fn as_operator(name: &NodeName) -> CueCaller<'_> {
    CueCaller::new(name, Role::Operator)
}

async fn renew(locks: &Locks, owner: &str, token: u64) -> Result<(), ServiceError> {
    let owner = NodeName::new(owner).expect("a name");
    locks.renew(&name(), as_operator(&owner), token).await
}

async fn announced(store: &SharedStore) -> usize {
    let keys = document::keys_under(&**store, keys::TRIGGER_ANNOUNCED).await;
    keys.expect("read").len()
}

#[tokio::test]
async fn one_who_dies_at_the_moment_of_its_turn_never_holds_it() {
    let store = new_store();
    let defined = DefineLock {
        slots: 1,
        on_change: Some(TriggerName::new("new master").expect("a name")),
        hosts: Vec::new(),
        may_hold: Vec::new(),
        may_see: Vec::new(),
    };
    let defined = locks(&store).define(&name(), &defined).await;
    defined.expect("defined");
    let LockReply::Held { token, .. } = acquire(&store, "a").await else {
        panic!("it is free")
    };
    assert!(matches!(
        acquire(&store, "b").await,
        LockReply::Waiting { .. }
    ));
    assert!(matches!(
        acquire(&store, "c").await,
        LockReply::Waiting { .. }
    ));
    assert_eq!(announced(&store).await, 1, "that a holds it");
    let (lease, below) = (lease_of_first_waiter(&store).await, store.clone());
    let meddled = Arc::new(InterferingStore::new(store.clone(), async move {
        below.lease_revoke(lease).await.expect("its lease ends");
    }));
    let shared: SharedStore = meddled.clone();
    let released = locks(&shared).release(&name(), "a", token).await;
    released.expect("released");
    assert!(meddled.is_meddled());
    assert_eq!(locks(&store).owners(&name()).await.expect("read"), ["c"]);
    assert_eq!(
        announced(&store).await,
        2,
        "that c holds it, and never that b does"
    );
    let LockReply::Held { token: next, .. } = acquire(&store, "c").await else {
        panic!("it has it")
    };
    assert_eq!(next, token + 1, "b never had one");
}

/// Ends the lease of the current holder.
async fn end_of_lease(store: &SharedStore) {
    let holders = locks(store)
        .show(&name(), as_operator(&operator()))
        .await
        .expect("shown")
        .holders;
    let lease = locks(store).lease(&name(), &holders[0]).await;
    let lease = lease.expect("read").expect("a lease");
    store.lease_revoke(lease).await.expect("its lease ends");
}

#[tokio::test]
async fn a_token_belongs_to_its_owner_and_ends_with_its_lease_even_without_waiters() {
    let store = new_store();
    let LockReply::Held { token, .. } = acquire(&store, "a").await else {
        panic!("it is free")
    };
    let locks = locks(&store);
    for owner in ["b", "a.b"] {
        let renewed = renew(&locks, owner, token).await;
        assert!(matches!(renewed, Err(ServiceError::Conflict { .. })));
        let released = locks.release(&name(), owner, token).await;
        assert!(matches!(released, Err(ServiceError::Conflict { .. })));
    }
    renew(&locks, "a", token).await.expect("it holds it");
    end_of_lease(&store).await;
    let renewed = renew(&locks, "a", token).await;
    assert!(matches!(renewed, Err(ServiceError::Conflict { .. })));
    let released = locks.release(&name(), "a", token).await;
    assert!(matches!(released, Err(ServiceError::Conflict { .. })));
    // The same session gets a new token: the old one no longer protects anything.
    let LockReply::Held { token: next, .. } = acquire(&store, "a").await else {
        panic!("it is free")
    };
    assert!(next > token);
}

#[tokio::test]
async fn a_lock_without_possible_holders_is_refused() {
    let store = new_store();
    let none = DefineLock {
        slots: 0,
        on_change: None,
        hosts: Vec::new(),
        may_hold: Vec::new(),
        may_see: Vec::new(),
    };
    let defined = locks(&store).define(&name(), &none).await;
    assert!(matches!(defined, Err(ServiceError::Invalid { .. })));
}

fn new_store() -> SharedStore {
    Arc::new(MemoryStore::new())
}

async fn lease_of_first_waiter(store: &SharedStore) -> LeaseId {
    let shown = locks(store).show(&name(), as_operator(&operator())).await;
    let waiting = shown.expect("shown").waiters;
    let lease = locks(store).lease(&name(), &waiting[0]).await;
    lease.expect("read").expect("a lease")
}

/// Checks that this node may not have the lock.
async fn refuses(store: &SharedStore, node: &str) {
    let refused = acquire_as(Role::Node, store, node, None).await;
    assert!(matches!(refused, Err(ServiceError::Forbidden { .. })));
}

fn waits_behind(reply: &LockReply) -> Option<usize> {
    match reply {
        LockReply::Waiting { ahead, .. } => Some(*ahead),
        _ => None,
    }
}

#[tokio::test]
async fn a_waiter_whose_lease_ended_goes_to_the_end_of_the_line() {
    let store = new_store();
    acquire(&store, "a").await;
    assert_eq!(waits_behind(&acquire(&store, "b").await), Some(0));
    assert_eq!(waits_behind(&acquire(&store, "c").await), Some(1));
    assert_eq!(
        waits_behind(&acquire(&store, "b").await),
        Some(0),
        "asked again"
    );
    let lease = lease_of_first_waiter(&store).await;
    store.lease_revoke(lease).await.expect("its lease ends");
    assert_eq!(waits_behind(&acquire(&store, "b").await), Some(1));
}

#[tokio::test]
async fn a_line_has_an_end() {
    let store = new_store();
    acquire(&store, "a").await;
    let key = keys::lock_line(&name());
    let read = document::read::<LockLine>(&*store, &key).await;
    let mut line = read.expect("read").expect("a line").document;
    let living: Vec<Holder> = (0..LONGEST_LINE)
        .map(|number| Holder {
            owner: format!("n{number}"),
            token: 0,
            ..line.holders[0].clone()
        })
        .collect();
    for some in living.chunks(50) {
        let sessions = some.iter().fold(Transaction::new(), |all, waiter| {
            all.put(session_key(&name(), waiter), "{}")
        });
        store.commit(sessions).await.expect("stored");
    }
    line.waiters = living;
    let put = Transaction::new().put(key, document::encode(&line));
    store.commit(put).await.expect("stored");
    let refused = try_acquire(&store, "late", None).await;
    assert!(matches!(refused, Err(ServiceError::Busy { .. })));
    let first = acquire(&store, "n0").await;
    assert_eq!(waits_behind(&first), Some(0), "who is in it stays");
}

#[tokio::test]
async fn only_the_first_who_uses_a_lock_says_how_many_may_hold_it() {
    let store = new_store();
    try_acquire(&store, "a", Some(2)).await.expect("it is free");
    let more = try_acquire(&store, "b", Some(3)).await;
    assert!(matches!(more, Err(ServiceError::Conflict { .. })));
    try_acquire(&store, "b", Some(2)).await.expect("as it is");
    // An operator's settings stay, even if nobody holds the lock.
    let store = new_store();
    let one = DefineLock {
        slots: 1,
        on_change: None,
        hosts: Vec::new(),
        may_hold: Vec::new(),
        may_see: Vec::new(),
    };
    locks(&store).define(&name(), &one).await.expect("defined");
    let more = try_acquire(&store, "a", Some(3)).await;
    assert!(matches!(more, Err(ServiceError::Conflict { .. })));
}

#[tokio::test]
async fn a_lock_from_before_permissions_stays_with_its_holder_and_no_other_node_gets_it() {
    let store = new_store();
    acquire(&store, "db-1").await;
    // As an earlier version wrote it.
    let key = keys::lock_line(&name());
    let entry = store.get(&key).await.expect("read").expect("a line");
    let mut line: serde_json::Value = document::decode(&entry).expect("a line");
    let fields = line.as_object_mut().expect("an object");
    fields.remove("may_hold");
    fields.remove("may_see");
    let put = Transaction::new().put(key, document::encode(&line));
    store.commit(put).await.expect("stored");
    let kept = acquire_as(Role::Node, &store, "db-1", None).await;
    let Ok(LockReply::Held {
        token,
        taken: false,
    }) = kept
    else {
        panic!("it keeps what it has: {kept:?}")
    };
    let db_1 = NodeName::new("db-1").expect("a name");
    let node = CueCaller::new(&db_1, Role::Node);
    let renewed = locks(&store).renew(&name(), node, token).await;
    renewed.expect("renewed");
    refuses(&store, "db-2").await;
    // An operator decides: from now on the list counts, for its holder as well.
    permit(&store, "db-2").await;
    let refused = locks(&store).renew(&name(), node, token).await;
    assert!(matches!(refused, Err(ServiceError::Forbidden { .. })));
    let busy = acquire_as(Role::Node, &store, "db-2", None).await;
    assert!(matches!(busy, Ok(LockReply::Taken { .. })));
    let released = locks(&store).release(&name(), "db-1", token).await;
    released.expect("it may always let go");
    let held = acquire_as(Role::Node, &store, "db-2", None).await;
    assert!(matches!(held, Ok(LockReply::Held { .. })));
}

#[tokio::test]
async fn a_permission_that_ends_while_a_node_asks_counts() {
    let store = new_store();
    permit(&store, "*").await;
    let below = store.clone();
    let meddled: SharedStore = Arc::new(InterferingStore::new(store, async move {
        let nobody = PermitLock {
            replace: true,
            ..Default::default()
        };
        let denied = locks(&below).permit(&name(), &nobody).await;
        denied.expect("denied");
    }));
    refuses(&meddled, "web-1").await;
}

#[tokio::test]
async fn a_node_does_not_choose_how_many_may_hold_a_lock() {
    let store = new_store();
    let refused = acquire_as(Role::Node, &store, "web-1", Some(4)).await;
    let Err(ServiceError::Forbidden {
        hint: Some(hint), ..
    }) = refused
    else {
        panic!("refused: {refused:?}")
    };
    assert!(
        hint.contains("`bunraku lock permit db --may-hold web-1 --slots 4`"),
        "{hint}"
    );
    permit(&store, "web-1").await;
    let refused = acquire_as(Role::Node, &store, "web-1", Some(4)).await;
    assert!(matches!(refused, Err(ServiceError::Conflict { .. })));
    let held = acquire_as(Role::Node, &store, "web-1", Some(1)).await;
    assert!(matches!(held, Ok(LockReply::Held { .. })));
}

/// Somebody who waited gets the lock from the holder before. That is news, and goes to the audit
/// log. Asking again is not.
#[tokio::test]
async fn a_lock_that_was_waited_for_is_taken_by_the_request_that_waited() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let LockReply::Held { token, taken: true } = acquire(&store, "a").await else {
        panic!("it is free")
    };
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move {
            let request = AcquireLock {
                session: "s".to_owned(),
                lease_seconds: 3_600,
                wait_seconds: 60,
                only_now: false,
                reason: None,
                slots: None,
            };
            let b = NodeName::new("b").expect("a name");
            let caller = CueCaller::new(&b, Role::Operator);
            let most = Duration::from_secs(60);
            locks(&store).acquire(&name(), caller, &request, most).await
        })
    };
    let key = keys::lock_line(&name());
    loop {
        let entry = store.get(&key).await.expect("read").expect("a line");
        if String::from_utf8_lossy(&entry.value).contains(r#""owner":"b""#) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let released = locks(&store).release(&name(), "a", token).await;
    released.expect("released");
    let got = waiting.await.expect("it ends");
    assert!(
        matches!(got, Ok(LockReply::Held { taken: true, .. })),
        "{got:?}"
    );
    let again = acquire(&store, "b").await;
    assert!(
        matches!(again, LockReply::Held { taken: false, .. }),
        "{again:?}"
    );
}
