//! The chunks to read so that every event comes once.
//!
//! Agents send a batch again if its reply was lost, and may cut it at another place. So chunks may
//! overlap, and one may contain another.

use super::EventChunk;

/// Returns the fewest chunks that contain all stored events from `from` on, in order. Two neighbours
/// may still overlap, or have a gap between them if its events are stored elsewhere: the reader
/// skips the events that it has, and notices a gap.
pub fn cover(mut chunks: Vec<EventChunk>, from: u64) -> Vec<EventChunk> {
    // Of those with the same beginning, the longest comes first.
    chunks.sort_by_key(|chunk| (chunk.first, std::cmp::Reverse(chunk.end)));
    let mut chosen: Vec<EventChunk> = Vec::new();
    let mut reached = from;
    let mut best: Option<EventChunk> = None;
    for chunk in chunks {
        if chunk.first > reached {
            if let Some(longest) = best.take().filter(|best| best.end > reached) {
                reached = longest.end;
                chosen.push(longest);
            }
            reached = reached.max(chunk.first);
        }
        if best.as_ref().is_none_or(|best| chunk.end > best.end) {
            best = Some(chunk);
        }
    }
    chosen.extend(best.filter(|best| best.end > reached));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn check(chunks: &[(u64, u64)], from: u64, expected: &[(u64, u64)]) {
        let chunks = chunks.iter().map(|(first, end)| EventChunk {
            first: *first,
            end: *end,
            content: Bytes::new(),
        });
        let chosen = cover(chunks.collect(), from);
        let chosen: Vec<(u64, u64)> = chosen.iter().map(|it| (it.first, it.end)).collect();
        assert_eq!(chosen, expected);
    }

    #[test]
    fn neighbours_are_all_needed() {
        check(&[(0, 1), (1, 5), (5, 9)], 0, &[(0, 1), (1, 5), (5, 9)]);
    }

    #[test]
    fn a_chunk_within_another_is_left_out() {
        check(&[(0, 1), (0, 5), (2, 3), (5, 9)], 0, &[(0, 5), (5, 9)]);
    }

    #[test]
    fn of_overlapping_chunks_the_fewest_are_read() {
        check(
            &[(0, 4), (2, 6), (3, 8), (7, 9)],
            0,
            &[(0, 4), (3, 8), (7, 9)],
        );
    }

    #[test]
    fn reading_begins_with_the_chunk_that_contains_the_number() {
        check(&[(0, 4), (4, 8), (8, 9)], 5, &[(4, 8), (8, 9)]);
        check(&[(0, 4)], 4, &[]);
    }

    #[test]
    fn chunks_after_a_gap_are_read_too() {
        check(&[(0, 2), (3, 5), (4, 5)], 0, &[(0, 2), (3, 5)]);
        check(&[(3, 5)], 0, &[(3, 5)]);
        check(&[], 0, &[]);
    }
}
