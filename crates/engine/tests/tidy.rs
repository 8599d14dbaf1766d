//! Rules about the sources that no compiler checks.

use std::path::{Path, PathBuf};

fn sources() -> Vec<(PathBuf, String)> {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let text = std::fs::read_to_string(&path).expect("a source file");
                found.push((path, text));
            }
        }
    }
    assert!(found.len() > 20);
    found
}

/// A clock that is set back or forth must not end a command early or let it
/// run for ever: only the monotonic clock counts time. The wall clock is for
/// the time of a backup, which decides nothing.
#[test]
fn no_wait_looks_at_the_wall_clock() {
    for (path, text) in sources() {
        let allowed = path.ends_with("types/file/backup.rs");
        for word in ["SystemTime", "Timestamp::now", "Zoned::now"] {
            assert!(
                allowed || !text.contains(word),
                "{} uses {word}",
                path.display()
            );
        }
    }
}

#[test]
fn the_library_prints_nothing() {
    for (path, text) in sources() {
        for word in ["println!", "eprintln!", "print!(", "dbg!"] {
            assert!(!text.contains(word), "{} prints", path.display());
        }
    }
}
