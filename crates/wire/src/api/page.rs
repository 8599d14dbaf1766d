//! Lists that are returned one page at a time.
//!
//! A page is a JSON array. Its headers say where the next page begins and how many
//! entries the whole list has. A cursor is opaque to clients: it is the hex form of
//! a key that sorts like the list, so entries that appear or disappear between two
//! requests move no others.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// The reply header with the cursor of the next page. Absent on the last page.
pub const NEXT_PAGE_HEADER: &str = "bunraku-next-page";
/// The reply header with the number of entries in the whole list, if it is known.
pub const TOTAL_HEADER: &str = "bunraku-total";
/// The largest page, and the page of a request without a limit.
pub const LARGEST_PAGE: usize = 1_000;

/// The page of a list to return.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// Entries per page, at most 1000. Default: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The cursor in the `bunraku-next-page` header of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// One page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// The cursor of the next page, if there is one.
    pub next: Option<String>,
    /// The number of entries in the whole list, if it is known.
    pub total: Option<usize>,
}

impl PageQuery {
    /// Returns the largest number of entries to return.
    pub fn size(&self) -> usize {
        self.limit.unwrap_or(LARGEST_PAGE).clamp(1, LARGEST_PAGE)
    }

    /// Returns the key that the page begins after.
    ///
    /// Fails if the cursor is not one that a server returned.
    pub fn after_key(&self) -> Result<Option<String>, InvalidCursor> {
        let Some(after) = &self.after else {
            return Ok(None);
        };
        let key = hex::decode(after).map_err(|_| InvalidCursor)?;
        String::from_utf8(key).map(Some).map_err(|_| InvalidCursor)
    }

    /// Cuts the page out of a whole list that is sorted by `key`.
    pub fn cut<T>(
        &self,
        mut items: Vec<T>,
        key: impl Fn(&T) -> String,
    ) -> Result<Page<T>, InvalidCursor> {
        let total = items.len();
        if let Some(after) = self.after_key()? {
            items.retain(|item| key(item) > after);
        }
        let is_more = items.len() > self.size();
        items.truncate(self.size());
        let next = items.last().filter(|_| is_more);
        Ok(Page {
            next: next.map(|item| cursor(&key(item))),
            items,
            total: Some(total),
        })
    }
}

/// A cursor that no server returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`after` is not the cursor of a page")]
pub struct InvalidCursor;

/// Returns the cursor of the entries after a key.
pub fn cursor(key: &str) -> String {
    hex::encode(key)
}

/// Returns a key that sorts newer entries first.
pub fn newest_first(time: Timestamp, id: impl std::fmt::Display) -> String {
    let micros = u64::try_from(time.as_microsecond()).unwrap_or(0);
    format!("{:016x}/{id}", u64::MAX - micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows all pages of a list of names, which `change` alters after each page.
    fn follow(mut names: Vec<&str>, limit: usize, change: impl Fn(&mut Vec<&str>)) -> String {
        let mut query = PageQuery {
            limit: Some(limit),
            after: None,
        };
        let mut pages = Vec::new();
        loop {
            let page = query.cut(names.clone(), |name| (*name).to_owned());
            let page = page.expect("a cursor of ours");
            let total = page.total.expect("it is known");
            pages.push(format!("{} of {total}", page.items.join(" ")));
            match page.next {
                None => return pages.join(" | "),
                next => query.after = next,
            }
            change(&mut names);
        }
    }

    #[test]
    fn every_entry_is_on_one_page() {
        let names = vec!["a", "b", "c", "d", "e"];
        assert_eq!(
            follow(names.clone(), 2, |_| ()),
            "a b of 5 | c d of 5 | e of 5"
        );
        assert_eq!(follow(names, 5, |_| ()), "a b c d e of 5");
        assert_eq!(follow(Vec::new(), 5, |_| ()), " of 0");
    }

    #[test]
    fn entries_that_disappear_or_appear_move_no_others() {
        let names = vec!["a", "b", "c", "d", "e"];
        let removed = follow(names.clone(), 2, |names| names.retain(|name| *name != "b"));
        assert_eq!(removed, "a b of 5 | c d of 4 | e of 4");
        let added = follow(names, 3, |names| names.insert(0, "Z"));
        assert_eq!(added, "a b c of 5 | d e of 6");
    }

    #[test]
    fn a_page_is_bounded_whatever_the_caller_asks_for() {
        for (limit, size) in [
            (None, LARGEST_PAGE),
            (Some(0), 1),
            (Some(9_999), LARGEST_PAGE),
        ] {
            assert_eq!(PageQuery { limit, after: None }.size(), size);
        }
        let query = PageQuery {
            limit: None,
            after: Some("no hex".to_owned()),
        };
        assert_eq!(query.cut(vec![1], |_| String::new()), Err(InvalidCursor));
    }

    #[test]
    fn newer_entries_sort_first() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        assert!(newest_first(at(20), "a") < newest_first(at(10), "b"));
    }
}
