//! The newest acknowledged revision, stored next to the database.
//!
//! SQLite ends its log at the first frame that does not verify. That is right for an interrupted
//! write. But when a frame in the middle decays or the log is truncated, it silently drops
//! acknowledged writes too. The witness makes that visible: a store that opens with less than was
//! acknowledged is damaged.
//!
//! The witness is written after the database's own fsync and is not synced itself, so it can only
//! be behind. It costs no disk wait and never causes a false alarm. In exchange, damage within the
//! seconds before a power failure may go unnoticed.
//!
//! To continue with the remaining data, remove the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::StoreError;

const NAME: &str = "acknowledged";
/// Twenty digits, a space, the checksum and a line feed. Fits into one disk sector.
const LENGTH: usize = 30;

#[derive(Debug)]
pub(super) struct Witness {
    file: File,
}

impl Witness {
    /// Returns the revision that an earlier process acknowledged; `None` without a witness.
    pub(super) fn read(directory: &Path) -> Result<Option<u64>, StoreError> {
        let path = path(directory);
        match std::fs::read(&path) {
            Ok(text) => match parse(&text) {
                Some(revision) => Ok(Some(revision)),
                None => Err(StoreError::Damaged {
                    path,
                    what: "it does not contain a revision with its checksum".to_owned(),
                }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Io {
                doing: format!("read {}", path.display()),
                source,
            }),
        }
    }

    /// Opens the file, and makes it durable. A new file appears with its content, so a process
    /// that is killed here does not leave an empty one, which would count as damaged.
    pub(super) fn open(directory: &Path, revision: u64) -> Result<Self, StoreError> {
        let path = path(directory);
        let opened = || {
            if !path.exists() {
                bunraku_files::replace(&path, &render(revision), 0o600)?;
            }
            let file = OpenOptions::new().write(true).open(&path)?;
            file.write_all_at(&render(revision), 0)?;
            file.sync_all()?;
            Ok(file)
        };
        opened()
            .map(|file| Self { file })
            .map_err(|source| StoreError::Io {
                doing: format!("write {}", path.display()),
                source,
            })
    }

    pub(super) fn record(&self, revision: u64) -> io::Result<()> {
        self.file.write_all_at(&render(revision), 0)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

fn render(revision: u64) -> Vec<u8> {
    let digits = format!("{revision:020}");
    let checksum = crc32fast::hash(digits.as_bytes());
    format!("{digits} {checksum:08x}\n").into_bytes()
}

fn parse(text: &[u8]) -> Option<u64> {
    if text.len() != LENGTH {
        return None;
    }
    let revision = std::str::from_utf8(&text[..20]).ok()?.parse().ok()?;
    (render(revision) == text).then_some(revision)
}

#[cfg(test)]
mod tests {
    use super::{LENGTH, parse, render};

    #[test]
    fn what_is_rendered_is_parsed_and_nothing_else() {
        for revision in [0, 1, 42, u64::MAX] {
            let text = render(revision);
            assert_eq!(text.len(), LENGTH);
            assert_eq!(parse(&text), Some(revision));
            for place in 0..LENGTH {
                let mut flipped = text.clone();
                flipped[place] ^= 1;
                assert_eq!(parse(&flipped), None, "flipped at {place}");
            }
        }
        assert_eq!(parse(b""), None);
    }
}
