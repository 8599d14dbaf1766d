//! Symbolic links that are replaced in one step.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Uid, chownat, renameat, symlinkat, unlinkat};

use crate::staged::temporary_name;

/// Creates a link and replaces any file or link that has this name. The caller syncs the
/// directory.
pub fn replace_link_in(
    directory: impl AsFd,
    name: &OsStr,
    target: &Path,
    (uid, gid): (Option<u32>, Option<u32>),
) -> io::Result<()> {
    let beside = temporary_name(name);
    symlinkat(target, &directory, &beside)?;
    let placed = || {
        if uid.is_some() || gid.is_some() {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            chownat(&directory, &beside, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        renameat(&directory, &beside, &directory, name)
    };
    placed().map_err(|error| {
        let _ = unlinkat(&directory, &beside, AtFlags::empty());
        error.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_takes_the_place_of_another_and_leaves_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(place.path()).unwrap();
        for target in ["one", "two"] {
            let name = OsStr::new("current");
            replace_link_in(&directory, name, Path::new(target), (None, None)).unwrap();
        }
        let target = std::fs::read_link(place.path().join("current")).unwrap();
        assert_eq!(target, Path::new("two"));
        assert_eq!(place.path().read_dir().unwrap().count(), 1);
    }
}
