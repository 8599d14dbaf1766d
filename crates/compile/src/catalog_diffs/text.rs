//! Differences between texts, line by line. Pure.

use std::time::Duration;

/// Larger texts are compared by content address only.
pub(super) const LARGEST: u64 = 256 << 10;
/// Number of context lines around a change.
const CONTEXT: usize = 3;
/// After this time, a difference that is hard to compute is shown coarsely.
const PATIENCE: Duration = Duration::from_millis(500);

/// Returns the lines that differ. Returns nothing if either side is not text.
pub(super) fn unified(before: &[u8], after: &[u8]) -> Option<String> {
    let (before, after) = (text(before)?, text(after)?);
    let mut diff = similar::TextDiff::configure();
    diff.timeout(PATIENCE);
    let diff = diff.diff_lines(before, after);
    let printed = diff.unified_diff().context_radius(CONTEXT).to_string();
    (!printed.is_empty()).then_some(printed)
}

fn text(bytes: &[u8]) -> Option<&str> {
    let is_text = !bytes.contains(&0) && bytes.len() as u64 <= LARGEST;
    is_text.then(|| std::str::from_utf8(bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_lines_are_shown_with_context() {
        let printed = unified(b"a\nb\nc\nd\ne\nf\n", b"a\nb\nc\nd\nE\nf\n").expect("text");
        assert_eq!(printed, "@@ -2,5 +2,5 @@\n b\n c\n d\n-e\n+E\n f\n");
    }

    #[test]
    fn binary_or_oversized_content_is_not_shown() {
        assert_eq!(unified(b"a\0", b"b"), None);
        assert_eq!(unified(&[0xff], b"b"), None);
        assert_eq!(unified(&vec![b'a'; 300 << 10], b"b"), None);
        assert_eq!(unified(b"same", b"same"), None);
    }
}
