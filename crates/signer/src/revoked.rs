//! The certificates that the signer knows to be revoked.
//!
//! It learns them with every revocation list that it signs, and never forgets one. A server that
//! is restored from an old backup, or lies, cannot make an operator's proof valid again.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bunraku_wire::Serial;

#[derive(Default)]
pub(crate) struct RevokedSerials {
    /// One serial per line.
    path: Option<PathBuf>,
    serials: HashSet<Serial>,
}

impl RevokedSerials {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            path: Some(path.to_owned()),
            // A line that was cut off by a crash is not a serial, and is written again.
            serials: text.lines().filter_map(|line| line.parse().ok()).collect(),
        })
    }

    pub(crate) fn contains(&self, serial: &Serial) -> bool {
        self.serials.contains(serial)
    }

    pub(crate) fn all(&self) -> Vec<Serial> {
        self.serials.iter().cloned().collect()
    }

    pub(crate) fn learn<'a>(
        &mut self,
        serials: impl IntoIterator<Item = &'a Serial>,
    ) -> io::Result<()> {
        let new: Vec<&Serial> = serials
            .into_iter()
            .filter(|serial| !self.serials.contains(*serial))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        if let Some(path) = &self.path {
            let mut file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path)?;
            // Starts on a new line, even after one that was cut off.
            let text: String = new.iter().map(|serial| format!("\n{serial}")).collect();
            file.write_all(format!("{text}\n").as_bytes())?;
            file.sync_data()?;
        }
        self.serials.extend(new.into_iter().cloned());
        Ok(())
    }
}
