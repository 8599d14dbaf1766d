//! The log of everything that the signer signed, handed out or replaced.
//!
//! One JSON object per line, appended and synced before the answer leaves. Each line contains
//! the hash of the line before it, so that a changed or missing line shows
//! ([`SignatureLog::verify`]). The first line has no predecessor. Several signers on one
//! directory take turns with a lock.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bunraku_model::ContentId;
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Map, Value};

/// The most bytes at the end of the log that are read to find its last line.
const TAIL: u64 = 1 << 20;

/// The reason why a log is not what the signer wrote.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot read the log")]
    Io(#[from] io::Error),
    #[error("line {0} of the log was changed, or a line before it is missing")]
    Broken(usize),
}

/// The log. Nothing ever rewrites it.
pub struct SignatureLog {
    path: PathBuf,
}

impl SignatureLog {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an entry. When this returns, it is on disk.
    pub fn append(&self, at: Timestamp, mut entry: Map<String, Value>) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .append(true)
            .read(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let last = Tail::of(&mut file)?;
        entry.insert("at".to_owned(), Value::String(at.to_string()));
        entry.insert(
            "after".to_owned(),
            last.hash.map_or(Value::Null, Value::String),
        );
        let mut line = String::new();
        if last.is_torn {
            line.push('\n');
        }
        line.push_str(&Value::Object(entry).to_string());
        line.push('\n');
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }

    /// Returns the newest entries, at most about a megabyte of them.
    pub fn recent(&self) -> io::Result<Vec<Map<String, Value>>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let text = read_tail(&mut file, 16 * TAIL)?;
        let lines = text.split(|byte| *byte == b'\n');
        Ok(lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect())
    }

    /// Checks every line against the one before it, and returns the number of entries.
    pub fn verify(&self) -> Result<usize, LogError> {
        let mut last: Option<String> = None;
        let mut count = 0;
        for (index, line) in BufReader::new(File::open(&self.path)?)
            .split(b'\n')
            .enumerate()
        {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            let entry: Value =
                serde_json::from_slice(&line).map_err(|_| LogError::Broken(index + 1))?;
            if entry.get("after").and_then(Value::as_str) != last.as_deref() {
                return Err(LogError::Broken(index + 1));
            }
            last = Some(ContentId::of(&line).to_string());
            count += 1;
        }
        Ok(count)
    }
}

/// The end of the log.
struct Tail {
    hash: Option<String>,
    /// The last line was cut off by a crash.
    is_torn: bool,
}

impl Tail {
    fn of(file: &mut File) -> io::Result<Self> {
        let text = read_tail(file, TAIL)?;
        let is_torn = text.last().is_some_and(|byte| *byte != b'\n');
        let last = text
            .split(|byte| *byte == b'\n')
            .rfind(|line| !line.is_empty());
        Ok(Self {
            hash: last.map(|line| ContentId::of(line).to_string()),
            is_torn,
        })
    }
}

fn read_tail(file: &mut File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(what: &str) -> Map<String, Value> {
        let mut entry = Map::new();
        entry.insert("what".to_owned(), what.into());
        entry
    }

    #[test]
    fn a_changed_or_missing_line_shows() {
        let directory = tempfile::tempdir().unwrap();
        let log = SignatureLog::new(directory.path().join("log"));
        for what in ["a", "b", "c"] {
            log.append(Timestamp::UNIX_EPOCH, entry(what)).unwrap();
        }
        assert_eq!(log.verify().unwrap(), 3);
        assert_eq!(log.recent().unwrap().len(), 3);
        let text = std::fs::read_to_string(log.path()).unwrap();
        std::fs::write(log.path(), text.replace("\"b\"", "\"x\"")).unwrap();
        assert!(matches!(log.verify(), Err(LogError::Broken(3))));
        let lines: Vec<&str> = text.lines().collect();
        std::fs::write(log.path(), format!("{}\n{}\n", lines[0], lines[2])).unwrap();
        assert!(matches!(log.verify(), Err(LogError::Broken(2))));
    }

    #[test]
    fn an_entry_after_a_cut_off_line_starts_on_its_own_line() {
        let directory = tempfile::tempdir().unwrap();
        let log = SignatureLog::new(directory.path().join("log"));
        log.append(Timestamp::UNIX_EPOCH, entry("a")).unwrap();
        let text = std::fs::read_to_string(log.path()).unwrap();
        std::fs::write(log.path(), format!("{text}{{\"what\":")).unwrap();
        log.append(Timestamp::UNIX_EPOCH, entry("b")).unwrap();
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(log.recent().unwrap().len(), 2);
        assert!(matches!(log.verify(), Err(LogError::Broken(2))));
    }
}
