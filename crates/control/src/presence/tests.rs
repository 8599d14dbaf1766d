//! Many sessions, slow stores and servers that die. Counts operations, never time.

use std::sync::atomic::AtomicU64;

use bunraku_store::testing::{CutPoint, CutStore, DelayedStore, MemoryStore, WriteCounter};

use super::*;
use crate::Nodes;
use crate::node_events::NoRecorder;

const TTL: Duration = Duration::from_secs(10);

fn node(number: usize) -> NodeName {
    NodeName::new(format!("web-{number}")).expect("a name")
}

fn memory() -> SharedStore {
    Arc::new(MemoryStore::new())
}

async fn presence(store: SharedStore) -> Presence {
    let options = PresenceOptions {
        server_ttl: TTL,
        exclusive: false,
        places: Vec::new(),
    };
    let server = ServerId(Uuid::new_v4());
    let started = Presence::start(
        store,
        Clock::system(),
        server,
        options,
        Arc::new(NoRecorder),
    );
    started.await.expect("started")
}

/// Creates nodes and connects them.
async fn connect(
    store: &SharedStore,
    presence: &Presence,
    numbers: std::ops::Range<usize>,
) -> Vec<Session> {
    let nodes = Nodes::new(store.clone(), Clock::system());
    let mut sessions = Vec::new();
    for number in numbers {
        let node = node(number);
        nodes.register(&node).await.expect("registered");
        let session = presence.connect(&node, &AgentDescription::default()).await;
        sessions.push(session.expect("connected"));
    }
    sessions
}

/// Returns the server that a node is connected to.
async fn server_of(store: &SharedStore, node: &NodeName) -> Option<ServerId> {
    let key = keys::node_connection(node);
    let stored = document::read::<StoredConnection>(&**store, &key).await;
    match stored.expect("readable")?.document.connection {
        Connection::Connected { server, .. } => Some(server),
        _ => None,
    }
}

async fn connected_to(
    store: &SharedStore,
    presence: &Presence,
    numbers: std::ops::Range<usize>,
) -> usize {
    let mut connected = 0;
    for number in numbers {
        let server = server_of(store, &node(number)).await;
        connected += usize::from(server == Some(presence.inner.server));
    }
    connected
}

/// Checks that the lists of sessions are those of the connections.
async fn check_lists(store: &SharedStore, numbers: std::ops::Range<usize>) {
    let listed = document::keys_under(&**store, keys::SERVER_SESSIONS).await;
    let mut expected = Vec::new();
    for number in numbers {
        if let Some(server) = server_of(store, &node(number)).await {
            expected.push(keys::server_session(server, &node(number)));
        }
    }
    expected.sort();
    assert_eq!(listed.expect("readable"), expected);
}

/// Ends the lease of a server, as a death does.
async fn end_lease(store: &SharedStore, presence: &Presence) {
    let lease = presence.lease().await.expect("registered");
    store.lease_revoke(lease).await.expect("revoked");
}

/// Waits for a condition, in virtual time.
async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    for _ in 0..2_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not within 200 virtual seconds: {what}");
}

fn background(presence: &Presence) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let (stop, presence) = (CancellationToken::new(), presence.clone());
    let until = stop.clone();
    (stop, tokio::spawn(async move { presence.run(until).await }))
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_on_a_slow_store_claims_its_sessions_under_one_registration() {
    const SESSIONS: usize = 600;
    let inner = memory();
    let delay = Arc::new(AtomicU64::new(0));
    let slow = Arc::clone(&delay);
    let slow = Arc::new(move || Duration::from_millis(slow.load(Ordering::Relaxed)));
    let delayed: SharedStore = Arc::new(DelayedStore::new(inner.clone(), slow));
    let counter = Arc::new(WriteCounter::new(delayed));
    let (one, other) = (
        presence(counter.clone()).await,
        presence(inner.clone()).await,
    );
    connect(&inner, &one, 0..SESSIONS).await;
    end_lease(&inner, &one).await;
    other.clean_up().await.expect("cleaned up");
    assert_eq!(connected_to(&inner, &one, 0..SESSIONS).await, 0);

    delay.store(500, Ordering::Relaxed);
    counter.take();
    counter.take_requests();
    let (watching, work) = (background(&other), background(&one));
    until("it registers", async || {
        let key = keys::server(one.inner.server);
        inner.get(&key).await.expect("readable").is_some()
    })
    .await;
    let key = keys::server(one.inner.server);
    let registered = inner
        .get(&key)
        .await
        .expect("readable")
        .expect("registered");
    until("all sessions are claimed", async || {
        connected_to(&inner, &one, 0..SESSIONS).await == SESSIONS
    })
    .await;
    let now = inner
        .get(&key)
        .await
        .expect("readable")
        .expect("registered");
    assert_eq!(now.created, registered.created, "the lease ended meanwhile");
    // A second each, so this takes much longer than the lease. Half of the writes are
    // those of the lease.
    let batches = SESSIONS.div_ceil(BATCH);
    let (writes, requests) = (counter.take(), counter.take_requests());
    assert!(
        writes <= 3 * batches + 5,
        "{writes} writes, {batches} batches"
    );
    assert!(
        requests <= batches + 5,
        "{requests} reads, {batches} batches"
    );
    check_lists(&inner, 0..SESSIONS).await;
    for (stop, task) in [watching, work] {
        stop.cancel();
        task.await.expect("ended");
    }
}

#[tokio::test]
async fn the_work_after_a_death_depends_on_what_the_dead_server_had() {
    let inner = memory();
    let counters = [(); 2].map(|()| Arc::new(WriteCounter::new(inner.clone())));
    let dead = presence(inner.clone()).await;
    let (one, other) = (
        presence(counters[0].clone()).await,
        presence(counters[1].clone()).await,
    );
    connect(&inner, &one, 0..200).await;
    connect(&inner, &other, 200..400).await;
    connect(&inner, &dead, 400..405).await;
    end_lease(&inner, &dead).await;
    for counter in &counters {
        counter.take();
        counter.take_keys_read();
    }
    let (cleaned, also) = tokio::join!(one.clean_up(), other.clean_up());
    cleaned.and(also).expect("cleaned up");
    assert_eq!(connected_to(&inner, &dead, 400..405).await, 0);
    assert_eq!(connected_to(&inner, &one, 0..200).await, 200);
    check_lists(&inner, 0..405).await;
    let read: usize = counters.iter().map(|it| it.take_keys_read()).sum();
    assert!(read <= 40, "{read} keys were read for 5 nodes of 405");
    let mut writes = counters.each_ref().map(|it| it.take());
    writes.sort_unstable();
    assert!(writes[0] <= 1, "both cleaned up: {writes:?}");
    assert_eq!(writes[1], 3, "a claim, a batch and its end");
    let left = document::keys_under(&*inner, keys::SESSION_SERVERS).await;
    assert_eq!(
        left.expect("readable").len(),
        2,
        "the dead one is forgotten"
    );
}

#[tokio::test(start_paused = true)]
async fn if_the_server_that_cleans_up_dies_at_any_write_another_one_finishes() {
    for cut in [CutPoint::Before, CutPoint::After] {
        for at in 0.. {
            let inner = memory();
            let dead = presence(inner.clone()).await;
            connect(&inner, &dead, 0..2 * BATCH).await;
            let other = presence(inner.clone()).await;
            end_lease(&inner, &dead).await;
            let mut one = presence(inner.clone()).await;
            // Its start has cleaned up; do it again, with faults.
            connect_again(&inner, &dead).await;
            let faulty = Arc::new(CutStore::at_commit(inner.clone(), at, cut));
            let parts = Arc::get_mut(&mut one.inner).expect("one handle");
            parts.store = faulty.clone();
            let _ = one.clean_up().await;
            let was_cut = faulty.is_cut();
            end_lease(&inner, &one).await;
            other.clean_up().await.expect("cleaned up");
            assert_eq!(connected_to(&inner, &dead, 0..2 * BATCH).await, 0);
            check_lists(&inner, 0..2 * BATCH).await;
            let left = document::keys_under(&*inner, keys::SERVER_CLEANUPS).await;
            assert_eq!(left.expect("readable"), [""; 0], "{cut:?} {at}");
            if !was_cut {
                break;
            }
        }
    }
}

/// Puts a dead server's sessions back, without its registration.
async fn connect_again(store: &SharedStore, dead: &Presence) {
    dead.renew().await.expect("registered");
    let sessions: Vec<_> = dead.sessions().values().cloned().collect();
    for session in sessions {
        let connected = dead.write_connected(&session, |_| ()).await;
        connected.expect("connected");
    }
    end_lease(store, dead).await;
}

#[tokio::test]
async fn a_server_that_was_presumed_dead_registers_before_it_marks_a_node_connected() {
    let store = memory();
    let one = presence(store.clone()).await;
    end_lease(&store, &one).await;
    connect(&store, &one, 0..1).await;
    let registered = store.get(&keys::server(one.inner.server)).await;
    assert!(registered.expect("readable").is_some());
    check_lists(&store, 0..1).await;
}

#[tokio::test]
async fn a_connect_and_a_disconnect_take_one_write_each() {
    let counter = Arc::new(WriteCounter::new(memory()));
    let store: SharedStore = counter.clone();
    let one = presence(store.clone()).await;
    let nodes = Nodes::new(store.clone(), Clock::system());
    nodes.register(&node(1)).await.expect("registered");
    counter.take();
    let session = one.connect(&node(1), &AgentDescription::default()).await;
    assert_eq!(counter.take(), 1);
    let ended = one.disconnect(&session.expect("connected"), "bye").await;
    ended.expect("marked");
    assert_eq!(counter.take(), 1);
    check_lists(&store, 1..2).await;
}

#[tokio::test(start_paused = true)]
async fn sessions_that_end_together_are_marked_together() {
    let delay = Arc::new(|| Duration::from_millis(1));
    let counter = Arc::new(WriteCounter::new(Arc::new(DelayedStore::new(
        memory(),
        delay,
    ))));
    let store: SharedStore = counter.clone();
    let one = presence(store.clone()).await;
    let sessions = connect(&store, &one, 0..3 * BATCH).await;
    counter.take();
    let ended = sessions
        .iter()
        .map(|session| one.disconnect(session, "bye"));
    let ended = futures::future::join_all(ended).await;
    assert!(ended.iter().all(Result::is_ok));
    let writes = counter.take();
    assert!(writes <= 5, "{writes} writes for {} nodes", 3 * BATCH);
    assert!(one.unmarked().is_empty());
    check_lists(&store, 0..3 * BATCH).await;
}

#[tokio::test]
async fn a_node_that_moves_or_is_removed_leaves_the_list_of_its_server() {
    let store = memory();
    let (one, other) = (presence(store.clone()).await, presence(store.clone()).await);
    let sessions = connect(&store, &one, 0..2).await;
    let moved = other.connect(&node(0), &AgentDescription::default()).await;
    moved.expect("connected");
    check_lists(&store, 0..2).await;
    let nodes = Nodes::new(store.clone(), Clock::system());
    nodes.remove(&node(1)).await.expect("removed");
    for session in &sessions {
        one.disconnect(session, "bye").await.expect("marked");
    }
    check_lists(&store, 0..2).await;
    assert_eq!(connected_to(&store, &other, 0..2).await, 1);
}

#[tokio::test]
async fn connections_from_before_there_were_lists_are_found() {
    let store = memory();
    let old = presence(store.clone()).await;
    connect(&store, &old, 0..3).await;
    // As an earlier version would have left it.
    let transaction = Transaction::new()
        .delete(keys::SESSIONS_LISTED)
        .delete_prefix(keys::SERVER_SESSIONS)
        .delete_prefix(keys::SESSION_SERVERS);
    settle(&*store, transaction).await.expect("written");
    end_lease(&store, &old).await;
    let one = presence(store.clone()).await;
    assert_eq!(connected_to(&store, &old, 0..3).await, 0);
    drop(one);
}

#[tokio::test(start_paused = true)]
async fn connections_of_a_server_of_an_earlier_version_are_found_when_it_dies() {
    let store = memory();
    let old = presence(store.clone()).await;
    connect(&store, &old, 0..3).await;
    let lease = old.lease().await.expect("registered");
    let registration = serde_json::json!({ "registered": Timestamp::UNIX_EPOCH });
    let transaction = Transaction::new()
        .put_with_lease(
            keys::server(old.inner.server),
            document::encode(&registration),
            lease,
        )
        .delete_prefix(keys::SERVER_SESSIONS)
        .delete_prefix(keys::SESSION_SERVERS);
    settle(&*store, transaction).await.expect("written");
    let one = presence(store.clone()).await;
    let (stop, task) = background(&one);
    // Let it read the registrations first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    end_lease(&store, &old).await;
    until("its nodes are lost", async || {
        connected_to(&store, &old, 0..3).await == 0
    })
    .await;
    stop.cancel();
    task.await.expect("ended");
}
