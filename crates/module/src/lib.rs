//! Extension modules: their packages, their signatures, and the checks before they may run.
//!
//! A module adds resource types. It is one file: a compressed archive with a manifest, signatures
//! over the manifest, and the files whose hashes the manifest lists. [`verify`] turns the bytes of
//! a package into a [`VerifiedModule`]. This is the only way to get one, so nobody can run, install or
//! unpack an unchecked package.
//!
//! This crate works on bytes: it reads and writes no files, runs nothing and uses no network.
//! Packages are hostile input until they are verified, so every size is bounded, and signatures are
//! checked before anything else in a package is read.

mod archive;
mod key;
mod manifest;
mod newest_versions;
mod trust;
mod verify;
mod version;

#[cfg(test)]
mod tests;

pub use archive::{ArchiveError, File, PackError, pack, sign};
pub use key::{Fingerprint, KeyError, PublicKey, SigningKey};
pub use manifest::{
    FileEntry, Manifest, ManifestError, PROTOCOL, ParameterEntry, StateEntry, TypeEntry,
};
pub use newest_versions::{KnownVersionError, KnownVersions};
pub use trust::{Trust, TrustError};
pub use verify::{VerifiedModule, VerifyError, verify};
pub use version::{InvalidVersion, Version};

/// The file name extension of a package.
pub const EXTENSION: &str = "bunraku-module";
