//! The kinds of places that hold content.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of place that holds content.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ContentPlace {
    /// The place that belongs to the store: a directory, or chunks in the store itself.
    #[default]
    Default,
    /// Objects in an S3-compatible object store.
    S3,
}

impl ContentPlace {
    pub const ALL: [Self; 2] = [Self::Default, Self::S3];

    pub fn is_default(&self) -> bool {
        *self == Self::Default
    }
}

impl fmt::Display for ContentPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::S3 => "s3",
        })
    }
}
