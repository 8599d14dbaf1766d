//! Moves data that an earlier version left under keys that are no longer used.
//!
//! Each entry moves in a transaction of its own that compares what it read. So a server may
//! die midway, and several may start at once: every entry moves once, and none is lost.

use bunraku_store::{Compare, KeyValue, Range, SharedStore, Transaction};

use crate::{ServiceError, keys};

/// Every prefix that was renamed, and its present name.
const RENAMED: [(&str, &str); 2] = [
    (keys::FORMER_PENDING_COMMANDS, keys::PENDING_COMMANDS),
    (keys::FORMER_TARGETS, keys::TARGETS),
];

/// Moves all former keys. Returns how many entries it moved. Writes nothing if there are none.
pub async fn move_former_keys(store: &SharedStore) -> Result<usize, ServiceError> {
    let mut moved = 0;
    for (former, present) in RENAMED {
        loop {
            let page = store.range(Range::prefix(former)).await?;
            if page.items.is_empty() {
                break;
            }
            for entry in &page.items {
                moved += usize::from(move_one(store, entry, former, present).await?);
            }
        }
    }
    if moved > 0 {
        tracing::info!(
            moved,
            "moved entries of an earlier version to their present keys"
        );
    }
    Ok(moved)
}

/// Moves one entry, unless another server did so or changed it meanwhile. An entry that this
/// version already wrote is newer and stays.
async fn move_one(
    store: &SharedStore,
    entry: &KeyValue,
    former: &str,
    present: &str,
) -> Result<bool, ServiceError> {
    let Some(name) = entry.key.strip_prefix(former) else {
        return Ok(false);
    };
    let key = format!("{present}{name}");
    let unchanged = Transaction::new().when(Compare::Modified(entry.key.clone(), entry.modified));
    let transaction = unchanged
        .clone()
        .when(Compare::Absent(key.clone()))
        .delete(entry.key.clone())
        .put(key.clone(), entry.value.clone());
    if store.commit(transaction).await?.is_committed() {
        return Ok(true);
    }
    if store.get(&key).await?.is_some() {
        let obsolete = unchanged.delete(entry.key.clone());
        store.commit(obsolete).await?;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bunraku_model::{CommandId, NodeName};
    use bunraku_store::testing::{CutPoint, CutStore, MemoryStore};
    use uuid::Uuid;

    use super::*;

    fn node(number: u32) -> NodeName {
        NodeName::new(format!("web-{number}")).expect("a name")
    }

    fn id() -> CommandId {
        CommandId(Uuid::from_u128(7))
    }

    /// A store as an earlier version left it: three targets and a command, one target of which
    /// was already written again.
    async fn old_store() -> SharedStore {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let command = format!("{}{}/{}", keys::FORMER_PENDING_COMMANDS, node(1), id());
        let mut transaction = Transaction::new()
            .put(command, "run")
            .put(keys::target(&node(3)), "new");
        for number in 1..=3 {
            let former = format!("{}{}", keys::FORMER_TARGETS, node(number));
            transaction = transaction.put(former, "old");
        }
        store.commit(transaction).await.expect("written");
        store
    }

    async fn value(store: &SharedStore, key: &str) -> Option<String> {
        let found = store.get(key).await.expect("readable");
        found.map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
    }

    async fn check(store: &SharedStore) {
        let target = async |number| value(store, &keys::target(&node(number))).await;
        assert_eq!(target(1).await.as_deref(), Some("old"));
        assert_eq!(target(2).await.as_deref(), Some("old"));
        assert_eq!(target(3).await.as_deref(), Some("new"), "it is newer");
        let command = keys::command_pending(&node(1), id());
        assert_eq!(value(store, &command).await.as_deref(), Some("run"));
        for (former, _) in RENAMED {
            let left = store.range(Range::prefix(former)).await.expect("readable");
            assert!(left.items.is_empty(), "{former}");
        }
    }

    #[tokio::test]
    async fn killed_at_any_write_every_entry_moves_once() {
        for cut in [CutPoint::Before, CutPoint::After] {
            for at in 0.. {
                let inner = old_store().await;
                let faulty = Arc::new(CutStore::at_commit(inner.clone(), at, cut));
                let store: SharedStore = faulty.clone();
                let _ = move_former_keys(&store).await;
                let was_cut = faulty.is_cut();
                move_former_keys(&inner).await.expect("it goes on");
                check(&inner).await;
                assert_eq!(move_former_keys(&inner).await.expect("readable"), 0);
                if !was_cut {
                    break;
                }
            }
        }
    }

    #[tokio::test]
    async fn two_servers_may_move_them_at_once() {
        let store = old_store().await;
        let (one, other) = tokio::join!(move_former_keys(&store), move_former_keys(&store));
        assert_eq!(one.expect("moved") + other.expect("moved"), 3);
        check(&store).await;
    }

    #[test]
    fn commands_sort_before_targets() {
        assert!(keys::PENDING_COMMANDS.starts_with(keys::STREAMS));
        assert!(keys::TARGETS.starts_with(keys::STREAMS));
        assert!(keys::PENDING_COMMANDS < keys::TARGETS);
    }
}
