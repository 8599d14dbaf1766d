//! A newtype for every id, so that none is handed over for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The SHA-256 of some bytes: the address of content, and the base of every
/// id that says "nothing changed".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId([u8; 32]);

/// Text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a content id (64 lower-case hexadecimal digits)")]
pub struct ContentIdError(String);

impl ContentId {
    /// The address of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// An address from a digest that was computed while streaming.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The raw digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first eight digits, for people.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContentId({self})")
    }
}

impl FromStr for ContentId {
    type Err = ContentIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ContentIdError(text.to_owned());
        if text.len() != 64 || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(refuse());
        }
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).map_err(|_| refuse())?;
        Ok(Self(digest))
    }
}

impl Serialize for ContentId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// An id that is the hash of something.
macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub ContentId);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// An id that somebody drew at random; the time-ordered kind sorts by birth.
macro_rules! drawn_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

hash_id! {
    /// Hash of a fact set without its volatile facts.
    FactSetId
}

drawn_id! {
    /// One command for one node.
    CommandId
}

drawn_id! {
    /// A plan being carried out over many nodes.
    RunId
}

drawn_id! {
    /// One node's run, from the request for it to its report.
    NodeRunId
}

drawn_id! {
    /// One claim on a thing that is done once, drawn by the claimant.
    ClaimId
}

drawn_id! {
    /// One firing of a trigger.
    FiringId
}

drawn_id! {
    /// One life of a server process: a restart is a new one.
    ServerId
}

/// A release's place in its environment's history, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReleaseNumber(pub u64);

impl fmt::Display for ReleaseNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ReleaseNumber {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The revision of an environment's code: for git, the commit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CodeId(pub String);

impl CodeId {
    /// The first characters, for people.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl fmt::Display for CodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_id_reads_back_what_it_wrote() {
        let id = ContentId::of(b"hello");
        assert_eq!(id.to_string().parse::<ContentId>().expect("own text"), id);
        assert_eq!(id.short(), "2cf24dba");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "abc", &"z".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert!(text.parse::<ContentId>().is_err(), "{text}");
        }
    }
}
