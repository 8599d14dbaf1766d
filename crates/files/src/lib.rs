//! Files that are complete or absent, even after a crash.
//!
//! New content is written to a temporary file in the same directory and synced. Then it is moved
//! into place, and the directory is synced. A crash leaves the old file or the new one.
//!
//! [`replace`] and [`create`] handle content that is in memory. [`StagedFile`] handles content that
//! arrives in pieces or has to be checked first, and works in a directory that is already open.
//! [`move_into_place`] handles files that another program wrote. Not included: reading formats,
//! locks, and retries.

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
