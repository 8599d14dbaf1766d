//! The answers to pings, from the body of the request that opened a command stream.

use axum::body::Body;
use http_body_util::BodyExt;

/// The longest line: the digits of the largest number.
const LONGEST_LINE: usize = 20;

/// The body of the request, read line by line.
pub struct PingBody {
    body: Body,
    /// The line that is not complete yet.
    line: Vec<u8>,
}

impl PingBody {
    pub(crate) fn new(body: Body) -> Self {
        Self {
            body,
            line: Vec::new(),
        }
    }

    /// Returns the highest number that arrived, or nothing when the agent has closed its side or
    /// sent something else. Dropping the future before it completes loses nothing.
    pub(crate) async fn next(&mut self) -> Option<u64> {
        loop {
            let frame = self.body.frame().await?.ok()?;
            let Some(bytes) = frame.data_ref() else {
                continue;
            };
            if let Some(number) = self.take(bytes)? {
                return Some(number);
            }
        }
    }

    /// Returns the highest number of the complete lines, if there is one; nothing if a line is not
    /// a number.
    fn take(&mut self, bytes: &[u8]) -> Option<Option<u64>> {
        let mut highest = None;
        for byte in bytes {
            if *byte == b'\n' {
                let number = std::str::from_utf8(&self.line).ok()?.parse().ok()?;
                highest = highest.max(Some(number));
                self.line.clear();
            } else if self.line.len() < LONGEST_LINE {
                self.line.push(*byte);
            } else {
                return None;
            }
        }
        Some(highest)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    async fn numbers(pieces: &'static [&'static str]) -> Vec<Option<u64>> {
        let pieces = pieces
            .iter()
            .map(|piece| Ok::<_, std::convert::Infallible>(Bytes::from_static(piece.as_bytes())));
        let mut body = PingBody::new(Body::from_stream(futures::stream::iter(pieces)));
        let mut numbers = Vec::new();
        loop {
            numbers.push(body.next().await);
            if numbers.last() == Some(&None) {
                return numbers;
            }
        }
    }

    #[tokio::test]
    async fn lines_may_arrive_in_any_pieces() {
        assert_eq!(
            numbers(&["1\n", "2\n3\n4", "5\n"]).await,
            [Some(1), Some(3), Some(45), None]
        );
    }

    #[tokio::test]
    async fn anything_but_a_number_ends_it() {
        assert_eq!(numbers(&["1\nhello\n"]).await, [None]);
        assert_eq!(numbers(&["111111111111111111111111"]).await, [None]);
        assert_eq!(numbers(&["7\n", "\n"]).await, [Some(7), None]);
    }
}
