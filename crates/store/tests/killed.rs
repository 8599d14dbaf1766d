//! Support for writers that are killed in the middle of their work.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;

/// Waits for the end of a process, and checks that it was killed.
pub(crate) fn was_killed(child: Child) {
    let ended = child.wait_with_output().expect("it ended");
    assert_eq!(
        ended.status.signal(),
        Some(9),
        "it was not killed: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
}
