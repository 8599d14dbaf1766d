//! Comparing contents: by streaming, so that a large file costs no memory.

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use sha2::{Digest, Sha256};
use similar::TextDiff;

use super::edit;
use super::look::read_whole;
use super::template;
use super::wish::{Content, Template, Wish};
use crate::{Sight, StepError};

/// Contents that are edited or rendered are held in memory.
const LARGEST_EDITED: u64 = 64 << 20;
/// Larger files are told by their checksums alone.
const LARGEST_DIFFED: u64 = 256 << 10;

/// The new content beside the old one.
pub(super) struct Comparison {
    pub(super) same: bool,
    /// Checksums, if they differ.
    pub(super) old: Option<String>,
    pub(super) new: Option<String>,
    pub(super) diff: Option<String>,
    pub(super) wanted: Wanted,
}

/// Where the new content is to be had.
pub(super) enum Wanted {
    /// In the wish itself.
    Declared,
    Made(Vec<u8>),
    At(String),
    /// Edits of a file that is not there and is not to be made.
    Nothing,
}

/// Compares; `old` is the file that is there, of this size as it was opened.
pub(super) fn compare(
    wish: &Wish,
    mut old: Option<File>,
    size: u64,
    sight: &Sight<'_>,
) -> Result<Comparison, StepError> {
    let wanted = match wanted(wish, old.as_mut(), sight) {
        Ok(wanted) => wanted,
        // Noop: the source may be made by what comes before.
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
            // Only edits have read it by now.
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

/// The first source that exists.
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

/// Opens the new content to be read from its beginning.
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

/// Most files are small: one read tells. There is no need to ask for the rest
/// where the file's size says that there is none and the read came back short.
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

/// The SHA-256 of all that is left to read.
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

/// A unified diff of two small texts.
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
