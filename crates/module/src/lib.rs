//! Extension modules: their package, who signed it, and whether it may run.
//!
//! A module adds resource types. It is one file: a compressed archive with a
//! manifest, signatures over the manifest, and the files whose hashes the
//! manifest names. [`verify`] turns the bytes of a package into a
//! [`Verified`], and that is the only way to get one: nobody can run, install
//! or unpack what was not checked.
//!
//! Works on bytes: no files are read or written here, nothing is run, and no
//! network is used. Packages are hostile input until they are verified, so
//! every size is bounded and signatures are checked before anything else of a
//! package is looked at.

mod archive;
mod key;
mod known;
mod manifest;
mod trust;
mod verify;
mod version;

#[cfg(test)]
mod tests;

pub use archive::{ArchiveError, File, PackError, pack, sign};
pub use key::{Fingerprint, KeyError, PublicKey, SigningKey};
pub use known::{Known, KnownError};
pub use manifest::{
    FileEntry, Manifest, ManifestError, PROTOCOL, ParameterEntry, StateEntry, TypeEntry,
};
pub use trust::{Trust, TrustError};
pub use verify::{Refused, Verified, verify};
pub use version::{InvalidVersion, Version};

/// How the name of a package ends.
pub const EXTENSION: &str = "bunraku-module";
