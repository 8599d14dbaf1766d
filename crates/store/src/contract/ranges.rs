//! Tests of ranges and their pages.

use super::{all, commit, delete, keys, newest, put};
use crate::{Range, RangePage, SharedStore, Transaction};

async fn page(store: &SharedStore, range: Range) -> RangePage {
    store.range(range).await.expect("the store answers")
}

fn page_keys(page: &RangePage) -> Vec<&str> {
    page.items.iter().map(|item| item.key.as_str()).collect()
}

pub async fn a_range_gives_the_keys_under_a_prefix_in_order(store: SharedStore) {
    for key in ["b/2", "a/1", "b/10", "b", "b/1", "c", "b0"] {
        put(&store, key, key).await;
    }
    let found = page(&store, Range::prefix("b/")).await;
    assert_eq!(page_keys(&found), ["b/1", "b/10", "b/2"]);
    assert!(!found.more);
    assert_eq!(found.revision, newest(&store).await);
    assert!(found.items.iter().all(|item| item.value == item.key));
    assert_eq!(
        keys(&store, "").await,
        ["a/1", "b", "b/1", "b/10", "b/2", "b0", "c"]
    );
    assert_eq!(keys(&store, "d").await, Vec::<String>::new());
}

pub async fn pages_join_to_the_whole_range_without_gap_or_overlap(store: SharedStore) {
    let expected: Vec<String> = (0..25).map(|number| format!("p/{number:02}")).collect();
    for key in &expected {
        put(&store, key, "x").await;
    }
    put(&store, "q", "x").await;
    for limit in [1, 2, 7, 24, 25, 26] {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let range = Range {
                after: after.clone(),
                limit,
                ..Range::prefix("p/")
            };
            let page = page(&store, range).await;
            assert!(page.items.len() <= limit);
            found.extend(page_keys(&page).into_iter().map(str::to_owned));
            if !page.more {
                break;
            }
            assert_eq!(page.items.len(), limit);
            after = found.last().cloned();
        }
        assert_eq!(found, expected, "in pages of {limit}");
    }
}

pub async fn a_page_after_a_key_that_is_gone_goes_on_behind_it(store: SharedStore) {
    for key in ["p/1", "p/2", "p/3"] {
        put(&store, key, "x").await;
    }
    delete(&store, "p/2").await;
    let range = |after: &str| Range {
        after: Some(after.to_owned()),
        ..Range::prefix("p/")
    };
    assert_eq!(page_keys(&page(&store, range("p/2")).await), ["p/3"]);
    assert!(page(&store, range("p/3")).await.items.is_empty());
    let before = page(&store, range("a")).await;
    assert_eq!(page_keys(&before), ["p/1", "p/3"], "from before the prefix");
    let behind = page(&store, range("z")).await;
    assert!(behind.items.is_empty() && !behind.more, "from behind it");
}

pub async fn a_range_of_keys_only_leaves_the_values_out(store: SharedStore) {
    let revision = put(&store, "a", "value").await;
    let range = Range {
        keys_only: true,
        ..Range::prefix("a")
    };
    let found = page(&store, range).await;
    assert_eq!(page_keys(&found), ["a"]);
    assert!(found.items[0].value.is_empty());
    assert_eq!(found.items[0].modified, revision);
}

pub async fn a_prefix_ends_where_its_last_character_ends(store: SharedStore) {
    let written = [
        "a\u{7f}",
        "a\u{7f}x",
        "a\u{80}",
        "aÿ",
        "aÿÿ",
        "a\u{7ff}",
        "a\u{800}",
        "a\u{ffff}",
        "a\u{ffff}x",
        "a\u{10000}",
        "a\u{10ffff}",
        "a\u{10ffff}x",
        "b",
    ];
    for key in written {
        put(&store, key, "x").await;
    }
    assert_eq!(keys(&store, "").await, written);
    for prefix in written {
        let expected: Vec<&str> = written
            .into_iter()
            .filter(|key| key.starts_with(prefix))
            .collect();
        assert_eq!(keys(&store, prefix).await, expected, "under {prefix:?}");
    }
}

pub async fn a_large_range_comes_in_pages(store: SharedStore) {
    for chunk in 0..20 {
        let transaction = (0..100).fold(Transaction::new(), |transaction, number| {
            transaction.put(format!("p/{chunk:02}/{number:02}"), vec![b'x'; 2000])
        });
        commit(&store, transaction).await;
    }
    let items = all(&store, "p/").await;
    assert_eq!(items.len(), 2000);
    assert!(items.is_sorted_by(|one, other| one.key < other.key));
    assert!(items.iter().all(|item| item.value.len() == 2000));
}
