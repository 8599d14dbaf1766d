//! Files that are whole or absent, also after a crash.
//!
//! New content is written beside its place and synced, then moved into place;
//! then the directory is synced. A crash leaves the old file or the new one.
//!
//! [`replace`] and [`create`] serve content that is in memory. [`StagedFile`]
//! serves content that arrives in pieces or has to be checked first, and works
//! in a directory that is already open. [`move_into_place`] serves what another
//! program wrote. Absent: reading formats, locks, and retries.

#![forbid(unsafe_code)]

mod directory;
mod error;
mod link;
mod replace;
mod staged;

pub use directory::{create_private_directory, move_into_place, sync_directory, sync_directory_of};
pub use error::FileError;
pub use link::replace_link_in;
pub use replace::{create, read_text, replace, replace_for};
pub use staged::StagedFile;
