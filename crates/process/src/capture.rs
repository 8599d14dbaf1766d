//! Bounded buffers for a child's output.
//!
//! Everything here takes bytes and never blocks. Bytes that do not fit are dropped, so that a child
//! never waits for a reader.

/// The part of a stream that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CapturePart {
    /// Keeps the first bytes; the rest is read and dropped.
    First(usize),
    /// Keeps the last bytes.
    Last(usize),
    /// Keeps everything. More than this is an error, and the child is killed.
    AtMost(usize),
}

/// The kept part of one stream.
#[derive(Debug)]
pub struct CapturedStream {
    keep: CapturePart,
    bytes: Vec<u8>,
    cut: bool,
}

impl CapturedStream {
    pub fn new(keep: CapturePart) -> Self {
        Self {
            keep,
            bytes: Vec::new(),
            cut: false,
        }
    }

    /// Adds bytes. Returns whether the stream is still within its limit.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        match self.keep {
            CapturePart::First(limit) | CapturePart::AtMost(limit) => {
                let room = limit.saturating_sub(self.bytes.len());
                let kept = &bytes[..bytes.len().min(room)];
                self.bytes.extend_from_slice(kept);
                self.cut |= kept.len() < bytes.len();
            }
            CapturePart::Last(limit) => {
                self.bytes.extend_from_slice(bytes);
                self.cut |= drop_front(&mut self.bytes, limit);
            }
        }
        !(self.cut && matches!(self.keep, CapturePart::AtMost(_)))
    }

    /// Returns the number of bytes that are kept.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether some bytes were dropped.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The last bytes of a stream.
#[derive(Clone, Debug)]
pub struct Tail {
    limit: usize,
    bytes: Vec<u8>,
}

impl Tail {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: Vec::new(),
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // The buffer grows to twice the limit before bytes are moved: that makes many small writes
        // cheap.
        if self.bytes.len() > 2 * self.limit {
            drop_front(&mut self.bytes, self.limit);
        }
    }

    pub fn text(&self) -> String {
        let start = self.bytes.len().saturating_sub(self.limit);
        String::from_utf8_lossy(&self.bytes[start..]).into_owned()
    }

    /// Returns the text and forgets it.
    pub fn take(&mut self) -> String {
        let text = self.text();
        self.bytes.clear();
        text
    }
}

fn drop_front(bytes: &mut Vec<u8>, limit: usize) -> bool {
    let surplus = bytes.len().saturating_sub(limit);
    bytes.drain(..surplus);
    surplus > 0
}

/// Splits a stream into lines. A line that is too long is split into pieces.
#[derive(Debug)]
pub struct LineSplitter {
    longest: usize,
    line: Vec<u8>,
}

impl LineSplitter {
    pub fn new(longest: usize) -> Self {
        Self {
            longest,
            line: Vec::new(),
        }
    }

    /// Passes on every line that these bytes complete, without its line end.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= self.longest {
                self.finish(&mut each);
            }
        }
    }

    /// Passes on the last line, which has no line end.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.line.is_empty() {
            each(String::from_utf8_lossy(&self.line).trim_end_matches(['\n', '\r']));
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(keep: CapturePart) -> (String, bool, bool) {
        let mut captured = CapturedStream::new(keep);
        let within = captured.push(b"abc") && captured.push(b"def");
        let cut = captured.is_cut();
        (
            String::from_utf8(captured.into_bytes()).unwrap(),
            cut,
            within,
        )
    }

    #[test]
    fn each_rule_keeps_its_part_and_says_when_there_was_more() {
        assert_eq!(
            captured(CapturePart::First(4)),
            ("abcd".to_owned(), true, true)
        );
        assert_eq!(
            captured(CapturePart::Last(4)),
            ("cdef".to_owned(), true, true)
        );
        assert_eq!(
            captured(CapturePart::AtMost(4)),
            ("abcd".to_owned(), true, false)
        );
        assert_eq!(
            captured(CapturePart::AtMost(6)),
            ("abcdef".to_owned(), false, true)
        );
    }

    #[test]
    fn a_tail_holds_the_last_bytes_however_they_arrive() {
        let mut tail = Tail::new(3);
        for byte in b"abcdefghij" {
            tail.push(&[*byte]);
        }
        assert_eq!(tail.text(), "hij");
        assert_eq!(tail.take(), "hij");
        assert_eq!(tail.text(), "");
    }

    #[test]
    fn lines_are_joined_over_pieces_and_long_ones_are_split() {
        let mut lines = Vec::new();
        let mut splitter = LineSplitter::new(4);
        for bytes in [&b"a"[..], b"b\r\nlonger\n\nend"] {
            splitter.push(bytes, |line| lines.push(line.to_owned()));
        }
        splitter.finish(|line| lines.push(line.to_owned()));
        assert_eq!(lines, ["ab", "longer", "", "end"]);
    }
}
