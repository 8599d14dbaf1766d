//! Answers and requests that get lost on the way to a member: some are repeated, others are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bunraku_store::etcd::{EtcdOptions, EtcdStore};
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{
    Compare, KeyValue, Revision, Store, StoreError, Transaction, TransactionOutcome,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

const PASS: u8 = 0;
const LOSE_ANSWERS: u8 = 1;
const LOSE_REQUESTS: u8 = 2;

/// A connection to a member that can lose messages.
struct Line {
    endpoint: String,
    mode: Arc<AtomicU8>,
}

impl Line {
    async fn to(endpoint: &str) -> Self {
        let target = endpoint.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let mode = Arc::new(AtomicU8::new(PASS));
        let shared = Arc::clone(&mode);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let member = TcpStream::connect(&target)
                    .await
                    .expect("the member listens");
                let (from_client, to_client) = client.into_split();
                let (from_member, to_member) = member.into_split();
                let mode = Arc::clone(&shared);
                tokio::spawn(forward(
                    from_client,
                    to_member,
                    LOSE_REQUESTS,
                    Arc::clone(&mode),
                ));
                tokio::spawn(forward(from_member, to_client, LOSE_ANSWERS, mode));
            }
        });
        Self { endpoint, mode }
    }

    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, loses: u8, mode: Arc<AtomicU8>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let lost = mode.load(Ordering::SeqCst) == loses;
        if !lost && to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

struct Setting {
    line: Line,
    /// Uses the line first, then the direct connection.
    store: EtcdStore,
    /// Uses the direct connection only.
    witness: EtcdStore,
    _cluster: EtcdCluster,
}

impl Setting {
    /// Creates a new line for each case: a line that lost something is useless afterwards.
    async fn new() -> Self {
        let cluster = EtcdCluster::start(1).await;
        let straight = cluster.options("/lost/");
        let witness = EtcdStore::connect(straight.clone())
            .await
            .expect("connects");
        let line = Line::to(&straight.endpoints[0]).await;
        let store = EtcdStore::connect(EtcdOptions {
            endpoints: vec![line.endpoint.clone(), straight.endpoints[0].clone()],
            request_timeout: Duration::from_secs(2),
            ..straight
        })
        .await
        .expect("connects over the line");
        Self {
            line,
            store,
            witness,
            _cluster: cluster,
        }
    }

    async fn read_key(&self) -> Option<KeyValue> {
        self.witness.get("key").await.expect("reads")
    }

    /// Checks that the outcome of this write is unknown.
    async fn is_unknown(&self, transaction: Transaction) {
        let outcome = self.store.commit(transaction).await;
        assert!(
            matches!(outcome, Err(StoreError::OutcomeUnknown(_))),
            "{outcome:?}"
        );
    }

    async fn write_first(&self) -> Revision {
        let put = Transaction::new().put("key", "first");
        match self.witness.commit(put).await.expect("commits") {
            TransactionOutcome::Committed(at) => at,
            TransactionOutcome::Refused(_) => panic!("there was no compare"),
        }
    }
}

fn second_after(first: Revision) -> Transaction {
    Transaction::new()
        .when(Compare::Modified("key".to_owned(), first))
        .put("key", "second")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_is_not_done_again() {
    let setting = Setting::new().await;
    setting.line.set(LOSE_ANSWERS);
    setting
        .is_unknown(Transaction::new().put("key", "value"))
        .await;
    assert_eq!(
        setting.read_key().await.expect("was done").version,
        1,
        "once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_lost_itself_is_not_known_to_be() {
    let setting = Setting::new().await;
    setting.line.set(LOSE_REQUESTS);
    setting
        .is_unknown(Transaction::new().put("key", "value"))
        .await;
    assert_eq!(setting.read_key().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compare_and_swap_whose_answer_is_lost_is_done_once() {
    let setting = Setting::new().await;
    let first = setting.write_first().await;
    setting.line.set(LOSE_ANSWERS);
    setting.is_unknown(second_after(first)).await;
    assert_eq!(
        setting.read_key().await.expect("was done").version,
        2,
        "once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compare_and_swap_that_is_lost_is_done_at_the_next_member() {
    let setting = Setting::new().await;
    let first = setting.write_first().await;
    setting.line.set(LOSE_REQUESTS);
    let outcome = setting.store.commit(second_after(first)).await;
    let outcome = outcome.expect("can be done again");
    let known = setting.read_key().await.expect("was done");
    assert_eq!(outcome, TransactionOutcome::Committed(known.modified));
    assert_eq!(known.version, 2, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_and_leases_continue_at_the_next_member() {
    let setting = Setting::new().await;
    setting.write_first().await;
    setting.line.set(LOSE_ANSWERS);
    let known = setting.store.get("key").await.expect("reads elsewhere");
    assert_eq!(known.expect("is there").value, "first");
    setting
        .store
        .lease_grant(Duration::from_secs(60))
        .await
        .expect("grants");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_a_lease_whose_answer_is_lost_is_done() {
    let setting = Setting::new().await;
    let lease = setting
        .store
        .lease_grant(Duration::from_secs(60))
        .await
        .expect("grants");
    setting.line.set(LOSE_ANSWERS);
    setting.store.lease_revoke(lease).await.expect("is revoked");
    let status = setting.witness.lease_status(lease).await.expect("reads");
    assert_eq!(status, None);
    let again = setting.store.lease_revoke(lease).await;
    assert!(
        matches!(again, Err(StoreError::LeaseNotFound(id)) if id == lease),
        "{again:?}"
    );
}
