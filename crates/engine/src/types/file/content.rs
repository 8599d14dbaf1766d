//! Comparing contents by streaming, so that a large file costs no memory.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use sha2::{Digest, Sha256};
use similar::TextDiff;

use super::edit;
use super::look::read_whole;
use super::template;
use super::wish::{Content, Template, Wish};
use crate::{Sight, StepError};

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
    pub(super) wanted: Wanted,
}

/// The location of the new content.
pub(super) enum Wanted {
    /// In the declaration itself.
    Declared,
    Made(Vec<u8>),
    At(String),
    /// Nowhere: edits of a file that does not exist and is not to be created.
    Nothing,
}

/// Compares contents. `old` is the existing file, with its size when it was opened.
pub(super) fn compare(
    wish: &Wish,
    mut old: Option<File>,
    size: u64,
    sight: &Sight<'_>,
) -> Result<Comparison, StepError> {
    let wanted = match wanted(wish, old.as_mut(), sight) {
        Ok(wanted) => wanted,
        // Noop: an earlier resource may create the source.
        Err(_) if sight.may_appear() => {
            return Ok(Comparison {
                same: false,
                old: None,
                new: None,
                diff: None,
                wanted: Wanted::Nothing,
            });
        }
        Err(error) => return Err(error),
    };
    if matches!(wanted, Wanted::Nothing) {
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
            if matches!(wish.content, Content::Edits(_)) {
                old.rewind().map_err(cannot)?;
            }
            is_same(wish, &wanted, (old, size), sight)?
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
    let new_sum = checksum(&mut *open(wish, &wanted, sight)?).map_err(cannot)?;
    check_source(wish, &new_sum)?;
    let diff = if wish.show_diff {
        diff(wish, old, &wanted, sight)?
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

fn check_source(wish: &Wish, sum: &str) -> Result<(), StepError> {
    match &wish.content {
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

fn wanted(wish: &Wish, old: Option<&mut File>, sight: &Sight<'_>) -> Result<Wanted, StepError> {
    Ok(match &wish.content {
        Content::Bytes(_) => Wanted::Declared,
        Content::Unmanaged => Wanted::Nothing,
        Content::Source { addresses, .. } => Wanted::At(first_source(addresses, sight)?.0),
        Content::Template { of, context } => {
            let text = match of {
                Template::Text(text) => text.clone(),
                Template::Source(addresses) => {
                    let (address, mut source) = first_source(addresses, sight)?;
                    let bytes = read_whole(&mut source, LARGEST_EDITED, &address)?;
                    String::from_utf8(bytes).map_err(|error| {
                        StepError::because(format!("{address} is not text"), error)
                    })?
                }
            };
            let rendered = template::render(&text, sight.facts(), context);
            let rendered =
                rendered.map_err(|error| StepError::because("there is no content", error))?;
            Wanted::Made(rendered.into_bytes())
        }
        Content::Edits(edits) => match old {
            None if !wish.create => Wanted::Nothing,
            None => Wanted::Made(edit::edited(edits, b"")),
            Some(old) => Wanted::Made(edit::edited(
                edits,
                &read_whole(old, LARGEST_EDITED, "the file to edit")?,
            )),
        },
    })
}

/// Returns the first source that exists.
fn first_source(
    addresses: &[String],
    sight: &Sight<'_>,
) -> Result<(String, Box<dyn Read + Send>), StepError> {
    let mut last = StepError::new("there is no source");
    for address in addresses {
        match sight.sources().open(address) {
            Ok(source) => return Ok((address.clone(), source)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Opens the new content for reading from its beginning.
pub(super) fn open<'a>(
    wish: &'a Wish,
    wanted: &'a Wanted,
    sight: &Sight<'_>,
) -> Result<Box<dyn Read + Send + 'a>, StepError> {
    Ok(match (wanted, &wish.content) {
        (Wanted::Declared, Content::Bytes(bytes)) => Box::new(bytes.as_slice()),
        (Wanted::Made(bytes), _) => Box::new(bytes.as_slice()),
        (Wanted::At(address), _) => sight.sources().open(address)?,
        (Wanted::Declared | Wanted::Nothing, _) => Box::new(io::empty()),
    })
}

fn is_same(
    wish: &Wish,
    wanted: &Wanted,
    (old, size): (&mut File, u64),
    sight: &Sight<'_>,
) -> Result<bool, StepError> {
    let cannot = |error| StepError::because("cannot compare the content", error);
    let known = match (wanted, &wish.content) {
        (Wanted::Made(bytes), _) | (Wanted::Declared, Content::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    if let Some(bytes) = known {
        return same_as_bytes(old, size, bytes).map_err(cannot);
    }
    let mut new = open(wish, wanted, sight)?;
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

/// Returns a unified diff of two small texts.
fn diff(
    wish: &Wish,
    old: Option<File>,
    wanted: &Wanted,
    sight: &Sight<'_>,
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
    let new = small(&mut *open(wish, wanted, sight)?);
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(None);
    };
    let text = TextDiff::from_lines(&old, &new)
        .unified_diff()
        .context_radius(3)
        .to_string();
    Ok((!text.is_empty()).then_some(text))
}
