//! Random operations, compared with a model that is too simple to be wrong.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{all, newest, next_batch, watch};
use crate::{
    Change, Compare, KeyValue, Operation, Revision, SharedStore, Transaction, TransactionOutcome,
    WatchBatch, WatchStart,
};

/// The store in memory: no concurrency, no disk, no leases.
struct Model {
    keys: BTreeMap<String, KeyValue>,
    revision: u64,
    history: Vec<WatchBatch>,
}

impl Model {
    fn commit(&mut self, transaction: &Transaction) -> TransactionOutcome {
        if !transaction
            .compares
            .iter()
            .all(|compare| self.holds(compare))
        {
            let reads = &transaction.reads_on_failure;
            let read = reads.iter().map(|key| self.keys.get(key).cloned());
            return TransactionOutcome::Refused(read.collect());
        }
        let mut changes = Vec::new();
        for operation in &transaction.operations {
            self.operate(operation, &mut changes);
        }
        if !changes.is_empty() {
            self.revision += 1;
            let revision = Revision(self.revision);
            self.history.push(WatchBatch { revision, changes });
        }
        TransactionOutcome::Committed(Revision(self.revision))
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent(key) => !self.keys.contains_key(key),
            Compare::Exists(key) => self.keys.contains_key(key),
            Compare::Modified(key, modified) => {
                self.keys
                    .get(key)
                    .map_or(Revision(0), |found| found.modified)
                    == *modified
            }
            Compare::Version(key, version) => {
                self.keys.get(key).map_or(0, |found| found.version) == *version
            }
            Compare::Value(key, value) => {
                self.keys.get(key).is_some_and(|found| found.value == value)
            }
        }
    }

    fn operate(&mut self, operation: &Operation, changes: &mut Vec<Change>) {
        let revision = Revision(self.revision + 1);
        let deleted = match operation {
            Operation::Put { key, value, .. } => {
                let before = self.keys.get(key);
                let entry = KeyValue {
                    key: key.clone(),
                    value: value.clone(),
                    created: before.map_or(revision, |before| before.created),
                    modified: revision,
                    version: before.map_or(0, |before| before.version) + 1,
                    lease: None,
                };
                self.keys.insert(key.clone(), entry.clone());
                changes.push(Change::Put(entry));
                return;
            }
            Operation::Delete { key } => vec![key.clone()],
            Operation::DeletePrefix { prefix } => {
                let keys = self.keys.keys().filter(|key| key.starts_with(prefix));
                keys.cloned().collect()
            }
        };
        for key in deleted {
            if self.keys.remove(&key).is_some() {
                changes.push(Change::Delete { key });
            }
        }
    }
}

/// A reproducible pseudo-random sequence for each seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// Returns the seed in `BUNRAKU_TEST_SEED`, or else a new one each time.
    pub fn seed() -> u64 {
        match std::env::var("BUNRAKU_TEST_SEED") {
            Ok(text) => text.parse().expect("BUNRAKU_TEST_SEED is a number"),
            Err(_) => uuid::Uuid::new_v4().as_u64_pair().0,
        }
    }
}

const KEYS: [&str; 9] = [
    "a",
    "a/",
    "a/1",
    "a/2",
    "a0",
    "b",
    "b/ÿ",
    "b/ÿ/1",
    "\u{10ffff}",
];
const PREFIXES: [&str; 6] = ["a", "a/", "b/ÿ", "c", "\u{10ffff}", ""];

fn transaction(random: &mut Random, model: &Model) -> Transaction {
    let mut transaction = Transaction::new();
    for _ in 0..random.below(3) {
        let key = KEYS[random.below(9) as usize].to_owned();
        // Mostly compares that hold, so that many transactions are committed.
        let found = model.keys.get(&key).filter(|_| random.below(8) != 0);
        transaction = transaction.when(match (random.below(5), found) {
            (0, Some(_)) => Compare::Exists(key),
            (1, Some(found)) => Compare::Modified(key, found.modified),
            (2, Some(found)) => Compare::Version(key, found.version),
            (3, Some(found)) => Compare::Value(key, found.value.clone()),
            (4, None) => Compare::Version(key, random.below(2)),
            _ => Compare::Absent(key),
        });
    }
    for _ in 0..random.below(4) {
        let key = KEYS[random.below(9) as usize];
        transaction = match random.below(8) {
            0..5 => transaction.put(key, Bytes::from(random.below(3).to_string())),
            5 | 6 => transaction.delete(key),
            _ => transaction.delete_prefix(PREFIXES[random.below(6) as usize]),
        };
    }
    for _ in 0..random.below(3) {
        transaction = transaction.read_on_failure(KEYS[random.below(9) as usize]);
    }
    transaction
}

pub async fn random_operations_do_what_the_model_does(store: SharedStore) {
    let seed = Random::seed();
    println!("BUNRAKU_TEST_SEED={seed}");
    let mut random = Random(seed);
    let start = newest(&store).await;
    let mut model = Model {
        keys: BTreeMap::new(),
        revision: start.0,
        history: Vec::new(),
    };
    for step in 0..600 {
        let transaction = transaction(&mut random, &model);
        let context = || format!("seed {seed}, step {step}: {transaction:?}");
        if crate::limits::check_transaction(&transaction).is_err() {
            super::is_invalid(store.commit(transaction.clone()).await);
            continue;
        }
        let expected = model.commit(&transaction);
        let found = store.commit(transaction.clone()).await.expect("an answer");
        assert_eq!(found, expected, "{}", context());
        if step % 20 == 0 {
            let prefix = PREFIXES[random.below(6) as usize];
            let expected: Vec<KeyValue> = model
                .keys
                .values()
                .filter(|entry| entry.key.starts_with(prefix))
                .cloned()
                .collect();
            assert_eq!(all(&store, prefix).await, expected, "{}", context());
        }
    }
    let begin = WatchStart::At(Revision(start.0 + 1));
    let mut stream = watch(&store, "", begin).await;
    for expected in &model.history {
        assert_eq!(next_batch(&mut stream).await, *expected, "seed {seed}");
    }
}
