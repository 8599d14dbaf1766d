//! The loop that reads, decides and writes, over a store that loses answers and has other writers.
//!
//! Most tests add names to a list: a missing name was lost, and a name that appears twice was added
//! twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bunraku_store::testing::{
    Call, CallWork, CutPoint, CutStore, InterferingStore, MemoryStore, Overlay,
};
use bunraku_store::{
    Compare, Settled, SharedStore, Store, StoreError, Swap, Transaction, TransactionOutcome,
    compare_and_swap, read_together, settle,
};
use bunraku_testkit::Chance;

const LIST: &str = "list";
const GUARD: &str = "guard";

fn memory() -> SharedStore {
    Arc::new(MemoryStore::new())
}

/// Any error of these tests.
#[derive(Debug)]
enum Failure {
    Exists,
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

async fn put(store: &dyn Store, key: &str, value: &str) {
    let put = Transaction::new().put(key, value.to_owned());
    store.commit(put).await.expect("written");
}

async fn text(store: &dyn Store, key: &str) -> Option<String> {
    let entry = store.get(key).await.expect("read")?;
    Some(String::from_utf8(entry.value.to_vec()).expect("text"))
}

/// Adds a name to the list, once. Returns the number of decisions.
async fn add(store: &dyn Store, name: &str) -> Result<usize, Failure> {
    let decisions = AtomicUsize::new(0);
    compare_and_swap(store, |_| async {
        decisions.fetch_add(1, Ordering::SeqCst);
        let list = store.get(LIST).await?;
        let old = list
            .as_ref()
            .map(|list| String::from_utf8_lossy(&list.value).into_owned());
        let old = old.unwrap_or_default();
        if old.lines().any(|line| line == name) {
            return Ok(Swap::Done(()));
        }
        let transaction = Transaction::new()
            .when_unchanged(LIST, list.as_ref())
            .put(LIST, format!("{old}{name}\n"));
        Ok::<_, Failure>(Swap::Write(transaction, ()))
    })
    .await?;
    Ok(decisions.into_inner())
}

/// Creates the list, or fails if it exists.
async fn create(store: &dyn Store, name: &str) -> Result<(), Failure> {
    compare_and_swap(store, |_| async {
        let list = store.get(LIST).await?;
        if list.is_some() {
            return Err(Failure::Exists);
        }
        let transaction = Transaction::new().when_unchanged(LIST, None);
        Ok(Swap::Write(transaction.put(LIST, format!("{name}\n")), ()))
    })
    .await
}

/// Commits, then loses the answer.
struct LostAnswers {
    inner: SharedStore,
    /// The number of answers that are lost.
    lost: AtomicU64,
    /// Another writer appends to the list after each lost answer.
    hides: bool,
}

impl Overlay for LostAnswers {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let lost = &self.lost;
        let loses = lost
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |lost| {
                lost.checked_sub(1)
            })
            .is_ok();
        let outcome = self.inner.commit(transaction).await?;
        if !loses {
            return Ok(outcome);
        }
        if self.hides {
            add(&*self.inner, "other").await.expect("added");
        }
        Err(StoreError::OutcomeUnknown("the answer was lost".into()))
    }
}

/// Loses requests and answers by chance.
struct UnreliableStore {
    inner: SharedStore,
    chance: Chance,
}

impl Overlay for UnreliableStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send>(&self, call: Call, work: impl CallWork<T>) -> Result<T, StoreError> {
        tokio::task::yield_now().await;
        let unknown = || Err(StoreError::OutcomeUnknown("lost".into()));
        if call == Call::Commit && self.chance.happens(15) {
            return unknown();
        }
        let outcome = work.await;
        tokio::task::yield_now().await;
        if call == Call::Commit && self.chance.happens(15) {
            return unknown();
        }
        outcome
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_neither_a_failure_nor_a_reason_to_write_twice() {
    for done in [true, false] {
        let inner = memory();
        put(&*inner, LIST, "first\n").await;
        let store = CutStore::at_commit(inner.clone(), 0, CutPoint::Unsure { done });
        let decisions = add(&store, "second").await.expect("added");
        assert_eq!(
            (decisions, store.writes()),
            (1, 2),
            "it sends the same again"
        );
        let list = text(&*inner, LIST).await;
        assert_eq!(list.as_deref(), Some("first\nsecond\n"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_was_lost_does_not_exist_already() {
    for done in [true, false] {
        let inner = memory();
        let store = CutStore::at_commit(inner.clone(), 0, CutPoint::Unsure { done });
        create(&store, "mine").await.expect("created");
        assert_eq!(text(&*inner, LIST).await.as_deref(), Some("mine\n"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_another_writer_hides_is_not_repeated() {
    let inner = memory();
    let store = LostAnswers {
        inner: inner.clone(),
        lost: AtomicU64::new(1),
        hides: true,
    };
    add(&store, "mine").await.expect("added");
    assert_eq!(text(&*inner, LIST).await.as_deref(), Some("mine\nother\n"));
}

/// Loses a number of requests. Each time, another writer is faster than the copy that follows.
struct OvertakenWriter {
    inner: SharedStore,
    lost: AtomicU64,
}

impl Overlay for OvertakenWriter {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn do_commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        let left = self.lost.load(Ordering::SeqCst);
        // The copy that settles the outcome gets through, and is refused.
        if left == 0 || self.lost.swap(left - 1, Ordering::SeqCst) % 2 == 1 {
            return self.inner.commit(transaction).await;
        }
        add(&*self.inner, &format!("other-{left}"))
            .await
            .expect("added");
        Err(StoreError::OutcomeUnknown("the request was lost".into()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_is_asked_again_however_often_outcomes_are_hidden() {
    let inner = memory();
    let store = OvertakenWriter {
        inner: inner.clone(),
        lost: AtomicU64::new(8),
    };
    add(&store, "mine").await.expect("added");
    let list = text(&*inner, LIST).await;
    assert_eq!(
        list.as_deref(),
        Some("other-8\nother-6\nother-4\nother-2\nmine\n")
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_may_be_the_consequence_of_its_own_write_is_an_unknown_outcome() {
    let inner = memory();
    let store = LostAnswers {
        inner: inner.clone(),
        lost: AtomicU64::new(1),
        hides: true,
    };
    let error = create(&store, "mine").await.expect_err("it cannot know");
    assert!(
        matches!(error, Failure::Store(StoreError::OutcomeUnknown(_))),
        "{error:?}"
    );
    let error = create(&*inner, "late").await.expect_err("it exists");
    assert!(matches!(error, Failure::Exists), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_leaves_the_outcome_unknown() {
    let inner = memory();
    let store = LostAnswers {
        inner: inner.clone(),
        lost: AtomicU64::new(u64::MAX),
        hides: false,
    };
    let error = create(&store, "mine").await.expect_err("no answer");
    assert!(
        matches!(error, Failure::Store(StoreError::OutcomeUnknown(_))),
        "{error:?}"
    );
    assert_eq!(text(&*inner, LIST).await.as_deref(), Some("mine\n"));
}

#[tokio::test]
async fn after_a_conflict_it_decides_on_the_new_state() {
    let inner = memory();
    put(&*inner, LIST, "first\n").await;
    let other = inner.clone();
    let store = InterferingStore::new(inner.clone(), async move {
        add(&*other, "other").await.expect("added");
    });
    let decisions = add(&store, "mine").await.expect("added");
    assert_eq!(decisions, 2);
    let list = text(&*inner, LIST).await;
    assert_eq!(list.as_deref(), Some("first\nother\nmine\n"));
}

#[tokio::test(start_paused = true)]
async fn it_gives_up_when_others_are_always_faster_and_has_done_nothing() {
    /// Another writer comes first, every time.
    struct Rival(SharedStore);
    impl Overlay for Rival {
        fn inner(&self) -> &SharedStore {
            &self.0
        }
        async fn do_commit(
            &self,
            transaction: Transaction,
        ) -> Result<TransactionOutcome, StoreError> {
            put(&*self.0, LIST, "rival\n").await;
            self.0.commit(transaction).await
        }
    }
    let inner = memory();
    let error = add(&Rival(inner.clone()), "mine").await;
    let error = error.expect_err("it never gets through");
    assert!(
        matches!(error, Failure::Store(StoreError::Contended { .. })),
        "{error:?}"
    );
    assert_eq!(text(&*inner, LIST).await.as_deref(), Some("rival\n"));
}

#[tokio::test(start_paused = true)]
async fn many_writers_on_an_unreliable_store_lose_and_double_nothing() {
    const WRITERS: usize = 8;
    const EACH: usize = 8;
    for seed in 0..20 {
        let inner = memory();
        let store: SharedStore = Arc::new(UnreliableStore {
            inner: inner.clone(),
            chance: Chance::new(seed),
        });
        let writers = (0..WRITERS).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let (mut added, mut unsure) = (Vec::new(), Vec::new());
                for number in 0..EACH {
                    let name = format!("{writer}.{number}");
                    match add(&*store, &name).await {
                        Ok(_) => added.push(name),
                        Err(Failure::Store(StoreError::OutcomeUnknown(_))) => unsure.push(name),
                        Err(error) => panic!("seed {seed}: {error:?}"),
                    }
                }
                (added, unsure)
            })
        });
        let (mut added, mut unsure) = (BTreeSet::new(), BTreeSet::new());
        for writer in futures::future::join_all(writers).await {
            let (a, u) = writer.expect("no writer panics");
            added.extend(a);
            unsure.extend(u);
        }
        let list = text(&*inner, LIST).await.unwrap_or_default();
        let lines: Vec<String> = list.lines().map(str::to_owned).collect();
        let found: BTreeSet<String> = lines.iter().cloned().collect();
        assert_eq!(
            lines.len(),
            found.len(),
            "seed {seed}: a name appears twice"
        );
        let lost: Vec<_> = added.difference(&found).collect();
        assert!(lost.is_empty(), "seed {seed}: lost {lost:?}");
        let invented: Vec<_> = found
            .iter()
            .filter(|name| !added.contains(*name) && !unsure.contains(*name))
            .collect();
        assert!(invented.is_empty(), "seed {seed}: {invented:?}");
        assert!(
            added.len() > WRITERS * EACH / 2,
            "seed {seed}: few got through"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_looks_the_same_before_and_after_proves_nothing() {
    let inner = memory();
    put(&*inner, LIST, "same\n").await;
    put(&*inner, GUARD, "a").await;
    let [list, guard] = read_together(&*inner, [LIST, GUARD]).await.expect("read");
    // Another writer changes the guard, and our transaction never arrives.
    put(&*inner, GUARD, "b").await;
    for transaction in [
        Transaction::new().when_unchanged(LIST, list.as_ref()),
        Transaction::new().when(Compare::Value(LIST.to_owned(), "same\n".into())),
        Transaction::new().when(Compare::Exists(LIST.to_owned())),
    ] {
        let transaction = transaction
            .when_unchanged(GUARD, guard.as_ref())
            .put(LIST, "same\n");
        let store = CutStore::at_commit(inner.clone(), 0, CutPoint::Unsure { done: false });
        let error = settle(&store, transaction)
            .await
            .expect_err("it cannot know");
        assert!(matches!(error, StoreError::OutcomeUnknown(_)), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_and_a_key_with_a_lease_are_recognised() {
    let lease_ttl = std::time::Duration::from_secs(60);
    for done in [true, false] {
        let inner = memory();
        put(&*inner, LIST, "old\n").await;
        let entry = inner.get(LIST).await.expect("read");
        let lease = inner.lease_grant(lease_ttl).await.expect("granted");
        let transaction = Transaction::new()
            .when_unchanged(LIST, entry.as_ref())
            .when(Compare::Absent(GUARD.to_owned()))
            .delete(LIST)
            .put_with_lease(GUARD, "mine", lease);
        let store = CutStore::at_commit(inner.clone(), 0, CutPoint::Unsure { done });
        let settled = settle(&store, transaction).await.expect("settled");
        assert_eq!(settled, Settled::Committed);
        assert_eq!(text(&*inner, LIST).await, None);
        let guard = inner.get(GUARD).await.expect("read").expect("it is there");
        assert_eq!((guard.lease, guard.version), (Some(lease), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_by_another_writer_is_not_ours_if_the_rest_is_missing() {
    let inner = memory();
    put(&*inner, LIST, "old\n").await;
    let entry = inner.get(LIST).await.expect("read");
    let gone = Transaction::new().delete(LIST);
    inner.commit(gone).await.expect("deleted");
    let store = CutStore::at_commit(inner.clone(), 0, CutPoint::Unsure { done: false });
    let transaction = Transaction::new()
        .when_unchanged(LIST, entry.as_ref())
        .when(Compare::Absent(GUARD.to_owned()))
        .delete(LIST)
        .put(GUARD, "mine");
    let error = settle(&store, transaction).await.expect_err("not ours");
    assert!(matches!(error, StoreError::OutcomeUnknown(_)), "{error:?}");
}
