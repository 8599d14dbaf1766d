//! The package as bytes: a gzip-compressed tar with `module.json`, `signatures.json` and `files/…`,
//! in this order.
//!
//! The same content always gives the same bytes: names are sorted, and times and owners are not
//! written. Readers put a limit on every size that a package declares.

use std::collections::BTreeMap;
use std::io::{self, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::manifest::is_inside;
use crate::{FileEntry, Manifest, ManifestError, SigningKey};

/// The largest total size of a module's files, unpacked.
const LARGEST: u64 = 256 << 20;
const LARGEST_MANIFEST: u64 = 1 << 20;
const LARGEST_SIGNATURES: u64 = 64 << 10;
const MOST_FILES: usize = 4096;

const MANIFEST: &str = "module.json";
const SIGNATURES: &str = "signatures.json";
const FILES: &str = "files/";

/// A prefix that ties a signature to a module manifest and to nothing else.
const PURPOSE: &[u8] = b"bunraku module manifest, version 1\n";

/// Errors from reading a package.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("it is not a readable compressed archive")]
    Read(#[source] io::Error),
    #[error("`{expected}` is missing")]
    Missing { expected: &'static str },
    #[error("`{0}` exceeds the maximum size of a module")]
    TooLarge(String),
    #[error("it has more than {MOST_FILES} files")]
    TooMany,
    #[error("`{0}` is not a regular file inside the module")]
    NotPlain(String),
    #[error("`{0}` exists twice")]
    Twice(String),
    #[error("it has trailing data")]
    Behind,
    #[error("cannot read the signatures")]
    Signatures(#[source] serde_json::Error),
}

/// Errors from packing files.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("the manifest is refused")]
    Manifest(#[from] ManifestError),
    #[error("`{0}` is not a valid path in a module")]
    Path(String),
    #[error("it has more than {MOST_FILES} files, or more than 256 MiB")]
    TooLarge,
    #[error("the package is invalid")]
    Archive(#[from] ArchiveError),
}

/// One file of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Relative, with slashes.
    pub path: String,
    pub bytes: Vec<u8>,
    pub executable: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signature {
    /// The fingerprint of the key.
    pub(crate) key: String,
    #[serde(with = "as_base64")]
    pub(crate) signature: Vec<u8>,
}

mod as_base64 {
    use super::{Engine, STANDARD};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

/// Returns the message that a key signs.
pub(crate) fn message(manifest: &[u8]) -> Vec<u8> {
    [PURPOSE, manifest].concat()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Packs a module. Replaces the manifest's own list of files.
pub fn pack(manifest: &[u8], files: &[File]) -> Result<(Manifest, Vec<u8>), PackError> {
    let mut manifest = Manifest::parse(manifest)?;
    let total: u64 = files.iter().map(|file| file.bytes.len() as u64).sum();
    if total > LARGEST || files.len() > MOST_FILES {
        return Err(PackError::TooLarge);
    }
    manifest.files.clear();
    for file in files {
        if !is_inside(&file.path) {
            return Err(PackError::Path(file.path.clone()));
        }
        let entry = FileEntry {
            sha256: sha256(&file.bytes),
            executable: file.executable,
        };
        manifest.files.insert(file.path.clone(), entry);
    }
    manifest.check_program()?;
    let bytes = write(&manifest.to_bytes(), &[], files);
    Ok((manifest, bytes))
}

/// Adds a signature to a package. The signer is responsible for the content: it is checked during
/// verification, not here.
pub fn sign(package: &[u8], key: &SigningKey) -> Result<Vec<u8>, PackError> {
    let head = Head::of(package)?;
    let mut signatures = head.signatures()?;
    let files = files(package)?;
    Manifest::parse(&head.manifest)?;
    let fingerprint = key.public("").fingerprint().to_string();
    signatures.retain(|one| one.key != fingerprint);
    signatures.push(Signature {
        key: fingerprint,
        signature: key.sign(&message(&head.manifest)),
    });
    Ok(write(&head.manifest, &signatures, &files))
}

fn write(manifest: &[u8], signatures: &[Signature], files: &[File]) -> Vec<u8> {
    let signatures = serde_json::to_vec(signatures).expect("signatures are plain data");
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    let mut add = |path: &str, bytes: &[u8], mode: u32| {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_mtime(0);
        header.set_entry_type(tar::EntryType::Regular);
        // Long paths need an entry of their own. The tar library adds it automatically.
        builder.append_data(&mut header, path, bytes)
    };
    let mut written = add(MANIFEST, manifest, 0o644);
    written = written.and_then(|()| add(SIGNATURES, &signatures, 0o644));
    for file in sorted {
        let mode = if file.executable { 0o755 } else { 0o644 };
        let path = format!("{FILES}{}", file.path);
        written = written.and_then(|()| add(&path, &file.bytes, mode));
    }
    written.expect("memory takes every byte, and the paths were checked");
    let compressed = builder.into_inner().and_then(GzEncoder::finish);
    compressed.expect("memory takes every byte")
}

/// The beginning of a package: everything that is read before the signature check.
pub(crate) struct Head {
    pub(crate) manifest: Vec<u8>,
    signatures: Vec<u8>,
}

impl Head {
    pub(crate) fn of(package: &[u8]) -> Result<Self, ArchiveError> {
        let mut archive = open(package);
        let mut entries = archive.entries().map_err(ArchiveError::Read)?;
        let mut member = |expected, most| -> Result<Vec<u8>, ArchiveError> {
            let missing = || ArchiveError::Missing { expected };
            let entry = entries.next().ok_or_else(missing)?;
            let (path, bytes) = read(entry.map_err(ArchiveError::Read)?, most)?;
            (path == expected).then_some(bytes).ok_or_else(missing)
        };
        Ok(Self {
            manifest: member(MANIFEST, LARGEST_MANIFEST)?,
            signatures: member(SIGNATURES, LARGEST_SIGNATURES)?,
        })
    }

    pub(crate) fn signatures(&self) -> Result<Vec<Signature>, ArchiveError> {
        serde_json::from_slice(&self.signatures).map_err(ArchiveError::Signatures)
    }
}

/// Returns the files of a package, sorted by path.
pub(crate) fn files(package: &[u8]) -> Result<Vec<File>, ArchiveError> {
    let mut archive = open(package);
    let mut found: BTreeMap<String, File> = BTreeMap::new();
    let mut left = LARGEST;
    for entry in archive.entries().map_err(ArchiveError::Read)?.skip(2) {
        let entry = entry.map_err(ArchiveError::Read)?;
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
        let (path, bytes) = read(entry, left)?;
        left -= bytes.len() as u64;
        let path = match path.strip_prefix(FILES) {
            Some(inside) if is_inside(inside) => inside.to_owned(),
            _ => return Err(ArchiveError::NotPlain(path)),
        };
        if found.len() == MOST_FILES {
            return Err(ArchiveError::TooMany);
        }
        let file = File {
            path: path.clone(),
            bytes,
            executable,
        };
        if found.insert(path.clone(), file).is_some() {
            return Err(ArchiveError::Twice(path));
        }
    }
    end(archive)?;
    Ok(found.into_values().collect())
}

/// Checks the end of the package: the compression's own checksum comes last, with nothing after it.
fn end(archive: tar::Archive<io::Take<GzDecoder<&[u8]>>>) -> Result<(), ArchiveError> {
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(ArchiveError::Read)?;
    match rest.into_inner().into_inner() {
        [] => Ok(()),
        _ => Err(ArchiveError::Behind),
    }
}

fn open(package: &[u8]) -> tar::Archive<io::Take<GzDecoder<&[u8]>>> {
    // Headers and padding add to the size of the files.
    let most = LARGEST + LARGEST_MANIFEST + LARGEST_SIGNATURES + (MOST_FILES as u64 + 4) * 4096;
    tar::Archive::new(GzDecoder::new(package).take(most))
}

/// Reads one member with its whole content, if it is a regular file.
fn read<R: Read>(
    mut entry: tar::Entry<'_, R>,
    most: u64,
) -> Result<(String, Vec<u8>), ArchiveError> {
    let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    if entry.header().entry_type() != tar::EntryType::Regular {
        return Err(ArchiveError::NotPlain(path));
    }
    if entry.size() > most {
        return Err(ArchiveError::TooLarge(path));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(ArchiveError::Read)?;
    if bytes.len() as u64 != entry.size() {
        let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "it is incomplete");
        return Err(ArchiveError::Read(cut));
    }
    Ok((path, bytes))
}
