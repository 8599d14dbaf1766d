//! Comparing contents by streaming, so that a large file costs no memory.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;

use sha2::{Digest, Sha256};
use similar::TextDiff;

use super::desired::{Content, DesiredFile, ShowDiff, Template};
use super::edit;
use super::observed::read_whole;
use super::template;
use crate::{ReadAccess, StepError};

/// The maximum size of content that is edited or rendered, as it is held in memory.
const LARGEST_EDITED: u64 = 64 << 20;
/// The maximum size for a diff. Larger files are reported by their checksums only.
const LARGEST_DIFFED: u64 = 256 << 10;

/// The result of comparing the new content with the old.
pub(super) struct Comparison {
    pub(super) same: bool,
    /// The checksum of the old content, if the contents differ.
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
    pub(super) diff: Option<String>,
    pub(super) wanted: ContentLocation,
}

/// The location of the new content.
pub(super) enum ContentLocation {
    /// In the declaration itself.
    Declared,
    Made(Vec<u8>),
    At(String),
    /// Nowhere: edits of a file that does not exist and is not to be created.
    Nothing,
}

/// Compares contents. `old` is the existing file, with its size when it was opened.
pub(super) fn compare(
    desired: &DesiredFile,
    mut old: Option<File>,
    size: u64,
    access: &ReadAccess<'_>,
) -> Result<Comparison, StepError> {
    let wanted = match wanted(desired, old.as_mut(), access) {
        Ok(wanted) => wanted,
        // Noop: an earlier resource may create a source on this machine, and no other.
        Err(_) if access.may_appear() && may_be_created(desired) => {
            return Ok(Comparison {
                same: false,
                old: None,
                new: None,
                diff: None,
                wanted: ContentLocation::Nothing,
            });
        }
        Err(error) => return Err(error),
    };
    if matches!(wanted, ContentLocation::Nothing) {
        return Ok(Comparison {
            same: true,
            old: None,
            new: None,
            diff: None,
            wanted,
        });
    }
    let cannot = |error| StepError::because("cannot compare the content", error);
    let same = match &mut old {
        None => false,
        Some(old) => {
            // Only edits have read the file at this point.
            if matches!(desired.content, Content::Edits(_)) {
                old.rewind().map_err(cannot)?;
            }
            is_same(desired, &wanted, (old, size), access)?
        }
    };
    if same {
        return Ok(Comparison {
            same,
            old: None,
            new: None,
            diff: None,
            wanted,
        });
    }
    let old_sum = match &mut old {
        None => None,
        Some(old) => {
            old.rewind().map_err(cannot)?;
            Some(checksum(old).map_err(cannot)?)
        }
    };
    let new_sum = checksum(&mut *open(desired, &wanted, access)?).map_err(cannot)?;
    check_source(desired, &new_sum)?;
    let diff = if may_show_diff(desired, old.as_ref()) {
        diff(desired, old, &wanted, access)?
    } else {
        None
    };
    Ok(Comparison {
        same,
        old: old_sum,
        new: Some(new_sum),
        diff,
        wanted,
    })
}

/// Returns true if the content comes from a path of this machine.
fn may_be_created(desired: &DesiredFile) -> bool {
    let addresses = match &desired.content {
        Content::Source { addresses, .. } => addresses,
        Content::Template {
            of: Template::Source(addresses),
            ..
        } => addresses,
        _ => return true,
    };
    let is_local = |address: &String| address.starts_with('/') || address.starts_with("file:");
    addresses.iter().any(is_local)
}

fn check_source(desired: &DesiredFile, sum: &str) -> Result<(), StepError> {
    match &desired.content {
        Content::Source {
            checksum: Some(expected),
            addresses,
        } if expected != sum => Err(StepError::new(format!(
            "{} has the checksum {sum} instead of {expected}",
            addresses.join(", ")
        ))),
        _ => Ok(()),
    }
}

fn wanted(
    desired: &DesiredFile,
    old: Option<&mut File>,
    access: &ReadAccess<'_>,
) -> Result<ContentLocation, StepError> {
    Ok(match &desired.content {
        Content::Bytes(_) => ContentLocation::Declared,
        Content::Unmanaged => ContentLocation::Nothing,
        Content::Source { addresses, .. } => {
            ContentLocation::At(first_source(addresses, access)?.0)
        }
        Content::Template { of, context } => {
            let text = match of {
                Template::Text(text) => text.clone(),
                Template::Source(addresses) => {
                    let (address, mut source) = first_source(addresses, access)?;
                    let bytes = read_whole(&mut source, LARGEST_EDITED, &address)?;
                    String::from_utf8(bytes).map_err(|error| {
                        StepError::because(format!("{address} is not valid UTF-8"), error)
                    })?
                }
            };
            let rendered = template::render(&text, access.facts(), access.labels(), context);
            let rendered = rendered.map_err(|error| StepError::because("no content", error))?;
            ContentLocation::Made(rendered.into_bytes())
        }
        Content::Edits(edits) => match old {
            None if !desired.create => ContentLocation::Nothing,
            None => ContentLocation::Made(edit::edited(edits, b"")),
            Some(old) => ContentLocation::Made(edit::edited(
                edits,
                &read_whole(old, LARGEST_EDITED, "the file to edit")?,
            )),
        },
    })
}

/// Returns the first source that exists.
fn first_source(
    addresses: &[String],
    access: &ReadAccess<'_>,
) -> Result<(String, Box<dyn Read + Send>), StepError> {
    let mut last = StepError::new("no source");
    for address in addresses {
        match access.sources().open(address) {
            Ok(source) => return Ok((address.clone(), source)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Opens the new content for reading from its beginning.
pub(super) fn open<'a>(
    desired: &'a DesiredFile,
    wanted: &'a ContentLocation,
    access: &ReadAccess<'_>,
) -> Result<Box<dyn Read + Send + 'a>, StepError> {
    Ok(match (wanted, &desired.content) {
        (ContentLocation::Declared, Content::Bytes(bytes)) => Box::new(bytes.as_slice()),
        (ContentLocation::Made(bytes), _) => Box::new(bytes.as_slice()),
        (ContentLocation::At(address), _) => access.sources().open(address)?,
        (ContentLocation::Declared | ContentLocation::Nothing, _) => Box::new(io::empty()),
    })
}

fn is_same(
    desired: &DesiredFile,
    wanted: &ContentLocation,
    (old, size): (&mut File, u64),
    access: &ReadAccess<'_>,
) -> Result<bool, StepError> {
    let cannot = |error| StepError::because("cannot compare the content", error);
    let known = match (wanted, &desired.content) {
        (ContentLocation::Made(bytes), _) | (ContentLocation::Declared, Content::Bytes(bytes)) => {
            Some(bytes)
        }
        _ => None,
    };
    if let Some(bytes) = known {
        return same_as_bytes(old, size, bytes).map_err(cannot);
    }
    let mut new = open(desired, wanted, access)?;
    same_streams(old, &mut *new).map_err(cannot)
}

/// Compares a file with bytes. Most files are small, so one read is enough. A second
/// read is not needed if the file's size matches and the first read was short.
fn same_as_bytes(old: &mut File, size: u64, bytes: &[u8]) -> io::Result<bool> {
    let mut buffer = [0; 4 << 10];
    let mut rest = bytes;
    loop {
        let count = old.read(&mut buffer)?;
        if count == 0 {
            return Ok(rest.is_empty());
        }
        match rest.strip_prefix(&buffer[..count]) {
            Some([]) if count < buffer.len() && size == bytes.len() as u64 => return Ok(true),
            Some(after) => rest = after,
            None => return Ok(false),
        }
    }
}

pub(super) fn same_streams(old: &mut dyn Read, new: &mut dyn Read) -> io::Result<bool> {
    let (mut one, mut other) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let count = fill(old, &mut one)?;
        if count != fill(new, &mut other)? || one[..count] != other[..count] {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Returns the SHA-256 of the rest of the input.
pub(super) fn checksum(from: &mut (impl Read + ?Sized)) -> io::Result<String> {
    struct Sink(Sha256);
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut sink = Sink(Sha256::new());
    io::copy(from, &mut sink)?;
    Ok(hex::encode(sink.0.finalize()))
}

/// The mode of a new file without a declared one, if the umask is the usual one.
const NEW_FILE: u32 = 0o644;
const READ_BY_OTHERS: u32 = 0o004;

/// Returns whether the change of the content may be shown. Anyone who may read reports would
/// otherwise learn what only the owner of the file may read.
fn may_show_diff(desired: &DesiredFile, old: Option<&File>) -> bool {
    match desired.show_diff {
        ShowDiff::Always => true,
        ShowDiff::Never => false,
        ShowDiff::IfReadable => {
            let before = match old.map(File::metadata) {
                None => NEW_FILE,
                Some(Ok(old)) => old.permissions().mode(),
                Some(Err(_)) => return false,
            };
            let mode = desired.file_mode.as_ref();
            let after = mode.map_or(before, |mode| mode.applied_to(before, false));
            before & after & READ_BY_OTHERS != 0
        }
    }
}

/// Returns a unified diff of two small texts.
fn diff(
    desired: &DesiredFile,
    old: Option<File>,
    wanted: &ContentLocation,
    access: &ReadAccess<'_>,
) -> Result<Option<String>, StepError> {
    let small = |reader: &mut dyn Read| {
        let mut bytes = Vec::new();
        let read = reader.take(LARGEST_DIFFED + 1).read_to_end(&mut bytes);
        (read.is_ok() && bytes.len() as u64 <= LARGEST_DIFFED)
            .then(|| String::from_utf8(bytes).ok())
            .flatten()
    };
    let old = match old {
        None => Some(String::new()),
        Some(mut old) => old.rewind().ok().and_then(|()| small(&mut old)),
    };
    let new = small(&mut *open(desired, wanted, access)?);
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(None);
    };
    let text = TextDiff::from_lines(&old, &new)
        .unified_diff()
        .context_radius(3)
        .to_string();
    Ok((!text.is_empty()).then_some(text))
}
