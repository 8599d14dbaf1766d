//! Our keys inside etcd, all under one root.

use bytes::Bytes;

use crate::{KeyValue, LeaseId, Revision, StoreError, limits};

/// The prefix of all our keys in etcd.
#[derive(Clone, Debug)]
pub(super) struct Root(String);

impl Root {
    pub(super) fn new(root: &str) -> Result<Self, StoreError> {
        if root.is_empty() || !root.ends_with('/') {
            return Err(StoreError::Invalid(format!(
                "the root `{root}` must end with a slash"
            )));
        }
        Ok(Self(root.to_owned()))
    }

    /// Returns the key in etcd.
    pub(super) fn key(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        limits::check_key(key)?;
        Ok(self.join(key))
    }

    /// Returns the prefix in etcd. An empty prefix means everything under the root.
    pub(super) fn prefix(&self, prefix: &str) -> Result<Vec<u8>, StoreError> {
        limits::check_prefix(prefix)?;
        Ok(self.join(prefix))
    }

    fn join(&self, key: &str) -> Vec<u8> {
        [self.0.as_bytes(), key.as_bytes()].concat()
    }

    /// Returns our name for an etcd key; `None` for a key that is not ours.
    pub(super) fn strip(&self, key: &[u8]) -> Option<String> {
        let own = key.strip_prefix(self.0.as_bytes())?;
        String::from_utf8(own.to_vec()).ok()
    }

    pub(super) fn key_value(&self, kv: &etcd_client::KeyValue) -> Option<KeyValue> {
        Some(KeyValue {
            key: self.strip(kv.key())?,
            value: Bytes::copy_from_slice(kv.value()),
            created: revision(kv.create_revision()),
            modified: revision(kv.mod_revision()),
            version: u64::try_from(kv.version()).unwrap_or_default(),
            lease: Some(kv.lease()).filter(|id| *id != 0).map(LeaseId),
        })
    }
}

/// Returns the first key after all keys that start with `prefix`.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < 0xff {
            *last += 1;
            return end;
        }
        end.pop();
    }
    vec![0]
}

/// Converts an etcd revision, which is never negative.
pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

/// Converts a revision to etcd's type.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_its_sibling() {
        assert_eq!(prefix_end(b"/bunraku/"), b"/bunraku0");
        assert_eq!(prefix_end(b"a\xff"), b"b");
        assert_eq!(prefix_end(b"\xff"), b"\0");
    }

    #[test]
    fn a_root_without_a_slash_would_swallow_its_siblings() {
        assert!(Root::new("/bunraku").is_err());
        assert!(Root::new("").is_err());
    }

    #[test]
    fn keys_go_in_and_come_back() {
        let root = Root::new("/bunraku/").expect("a root");
        let key = root.key("nodes/web-1").expect("a key");
        assert_eq!(key, b"/bunraku/nodes/web-1");
        assert_eq!(root.strip(&key).as_deref(), Some("nodes/web-1"));
        assert_eq!(root.strip(b"/other/nodes"), None);
        assert!(root.key("").is_err());
        assert!(root.key("/nodes").is_err());
    }
}
