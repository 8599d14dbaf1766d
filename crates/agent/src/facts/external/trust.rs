//! Checks whether root may run an executable fact.
//!
//! Root runs only files that nobody but root could have put there: the file and every directory
//! above it belong to root, and nobody else can write to them. (A sticky directory such as /tmp is
//! fine: others cannot replace root's files in it.)

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::parse::ParseProblem;

const STICKY: u32 = 0o1000;

/// Checks an executable. An ordinary user runs it with only its own rights, so there is nothing to
/// check.
pub(super) fn check(path: &Path) -> Result<(), ParseProblem> {
    if rustix::process::geteuid().is_root() {
        check_for_root(path)
    } else {
        Ok(())
    }
}

fn check_for_root(path: &Path) -> Result<(), ParseProblem> {
    let failed = |error: std::io::Error| {
        let problem = format!("cannot be checked: {error}");
        ParseProblem::new(&problem, "repair or remove it")
    };
    // Links on the way are resolved, and their targets are checked. Only a user who can write to a
    // link's directory can replace the link itself.
    let link = path
        .parent()
        .unwrap_or(path)
        .canonicalize()
        .map_err(failed)?;
    let real = path.canonicalize().map_err(failed)?;
    for place in real.ancestors().chain(link.ancestors()) {
        let metadata = place.metadata().map_err(failed)?;
        let name = if place == real {
            "it".to_owned()
        } else {
            place.display().to_string()
        };
        refusal(&metadata_of(&metadata), &name, &place.display().to_string())?;
    }
    Ok(())
}

/// The part of a file's metadata that decides whether it is trusted.
struct Rights {
    uid: u32,
    gid: u32,
    mode: u32,
    is_directory: bool,
}

fn metadata_of(metadata: &std::fs::Metadata) -> Rights {
    Rights {
        uid: metadata.uid(),
        gid: metadata.gid(),
        mode: metadata.mode(),
        is_directory: metadata.is_dir(),
    }
}

fn refusal(rights: &Rights, name: &str, path: &str) -> Result<(), ParseProblem> {
    let refuse = |why: String, advice: String| {
        let problem = format!("is not run as root: {name} {why}");
        Err(ParseProblem::new(&problem, &advice))
    };
    if rights.uid != 0 {
        return refuse(
            format!("belongs to user {}", rights.uid),
            format!("`chown root {path}` if you trust it"),
        );
    }
    if rights.is_directory && rights.mode & STICKY != 0 {
        return Ok(());
    }
    if rights.mode & 0o002 != 0 {
        return refuse(
            "is writable by everyone".to_owned(),
            format!("`chmod o-w {path}` if you trust it"),
        );
    }
    if rights.mode & 0o020 != 0 && rights.gid != 0 {
        return refuse(
            format!("is writable by group {}", rights.gid),
            format!("`chmod g-w {path}` if you trust it"),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(uid: u32, gid: u32, mode: u32, is_directory: bool) -> bool {
        let rights = Rights {
            uid,
            gid,
            mode,
            is_directory,
        };
        refusal(&rights, "it", "/x").is_err()
    }

    #[test]
    fn only_what_root_alone_can_change_is_trusted() {
        assert!(!refused(0, 0, 0o755, false));
        assert!(!refused(0, 0, 0o775, false));
        assert!(refused(1000, 0, 0o755, false));
        assert!(refused(0, 0, 0o757, false));
        assert!(refused(0, 50, 0o775, false));
        assert!(refused(0, 0, 0o777, true));
        assert!(!refused(0, 0, 0o1777, true));
        assert!(refused(0, 0, 0o1777, false));
    }
}
