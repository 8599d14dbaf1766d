//! Small files whose content is in memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use crate::staged::StagedFile;

/// The largest text file that is read. A larger one is not ours.
const LARGEST: u64 = 64 << 20;

/// Replaces a file in one step. The new file has this mode.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace_for(path, content, mode, None)
}

/// Replaces a file in one step. The new file belongs to another user and group.
pub fn replace_for(
    path: &Path,
    content: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    written(path, content, mode, owner)?.publish()
}

/// Creates a file in one step. An existing file stays, and causes an error of kind
/// [`io::ErrorKind::AlreadyExists`]. Of two concurrent calls, one wins.
pub fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    written(path, content, mode, None)?.publish_new()
}

fn written(
    path: &Path,
    content: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<StagedFile> {
    let mut staged = StagedFile::create(path)?;
    staged.write_all(content)?;
    staged.set_access(owner.unzip(), mode)?;
    Ok(staged)
}

/// Reads a small text file.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is too large",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_created_file_is_private_and_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        create(&path, b"one", 0o600).unwrap();
        let again = create(&path, b"two", 0o600).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_text(&path).unwrap(), "one");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_replaced_file_takes_the_new_mode_and_leaves_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("certificate");
        std::fs::write(&path, "old").unwrap();
        replace(&path, b"new", 0o644).unwrap();
        assert_eq!(read_text(&path).unwrap(), "new");
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    }
}
