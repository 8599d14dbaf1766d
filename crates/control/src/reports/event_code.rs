//! The stored form of events: JSON, compressed if that saves something.
//!
//! Three forms are read: an array, a compressed array, and compressed lines. Servers of earlier
//! versions wrote the first and the last.

use std::io::{Read, Write};

use bunraku_store::history::EventChunk;
use bunraku_wire::api::{NumberedEvent, OmittedEvents, ReportEvent};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::ServiceError;

/// Smaller events are not compressed.
const SMALL: usize = 512;
/// The first bytes of gzip.
const COMPRESSED: [u8; 2] = [0x1f, 0x8b];

/// Returns the stored form of a batch.
pub(super) fn encode(events: &[NumberedEvent]) -> Bytes {
    let plain = crate::document::encode(&events);
    if plain.len() < SMALL {
        return plain;
    }
    let zipped = compress(&plain);
    if zipped.len() < plain.len() {
        zipped.into()
    } else {
        plain
    }
}

/// Returns the stored form of a whole report: one line per event.
pub(super) fn encode_report(events: &[NumberedEvent]) -> Vec<u8> {
    let mut lines = Vec::new();
    for event in events {
        serde_json::to_writer(&mut lines, event).expect("events are plain data that JSON can hold");
        lines.push(b'\n');
    }
    compress(&lines)
}

fn compress(plain: &[u8]) -> Vec<u8> {
    let mut zipped = GzEncoder::new(Vec::new(), Compression::default());
    zipped.write_all(plain).expect("a Vec takes everything");
    zipped.finish().expect("a Vec takes everything")
}

/// Reads any stored form.
pub(super) fn decode(content: &[u8]) -> Result<Vec<NumberedEvent>, ServiceError> {
    let unreadable =
        |source: std::io::Error| ServiceError::internal("cannot read a report's events", source);
    let mut plain = Vec::new();
    let content = if content.starts_with(&COMPRESSED) {
        let read = GzDecoder::new(content).read_to_end(&mut plain);
        read.map_err(unreadable)?;
        plain.as_slice()
    } else {
        content
    };
    if content.starts_with(b"[") {
        return serde_json::from_slice(content).map_err(|error| unreadable(error.into()));
    }
    content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).map_err(|error| unreadable(error.into())))
        .collect()
}

/// Returns the number after the last event.
pub(super) fn last_end(content: &[u8]) -> Result<u64, ServiceError> {
    Ok(decode(content)?.last().map_or(0, end_of))
}

/// Reads the events from `from` up to the number `end`, each once. The chunks may overlap. Ends
/// before a gap.
pub(super) fn assemble(
    chunks: &[EventChunk],
    from: u64,
    end: u64,
) -> Result<Vec<NumberedEvent>, ServiceError> {
    let mut events = Vec::new();
    let mut reached = None;
    for chunk in chunks {
        for event in decode(&chunk.content)? {
            let event_end = end_of(&event);
            let next = reached.unwrap_or(from);
            if event_end <= next || event.number >= end {
                continue;
            }
            if event.number > next {
                return Ok(events);
            }
            // The first one that is returned may begin before `from`. Later ones continue where
            // the one before ended.
            let event = match reached {
                Some(reached) if event.number < reached => from_number(event, reached),
                _ => event,
            };
            reached = Some(event_end);
            events.push(event);
        }
    }
    Ok(events)
}

/// Returns an event without its numbers before `number`. Only `omitted` has several.
fn from_number(event: NumberedEvent, number: u64) -> NumberedEvent {
    let skipped = number - event.number;
    let event = match event.event {
        ReportEvent::Omitted(omitted) => ReportEvent::Omitted(OmittedEvents {
            count: omitted.count - skipped,
            ..omitted
        }),
        event => event,
    };
    NumberedEvent { number, event }
}

/// The number after the last one of an event.
pub(super) fn end_of(event: &NumberedEvent) -> u64 {
    event.number + event.event.width()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_wire::api::LogLine;
    use jiff::Timestamp;

    fn log(number: u64, message: &str) -> NumberedEvent {
        NumberedEvent {
            number,
            event: ReportEvent::Log(LogLine {
                at: Timestamp::UNIX_EPOCH,
                level: "info".to_owned(),
                source: None,
                message: message.to_owned(),
            }),
        }
    }

    fn omitted(number: u64, count: u64) -> NumberedEvent {
        NumberedEvent {
            number,
            event: ReportEvent::Omitted(OmittedEvents {
                count,
                reason: "no room".to_owned(),
            }),
        }
    }

    fn chunk(events: &[NumberedEvent]) -> EventChunk {
        EventChunk {
            first: events[0].number,
            end: end_of(events.last().expect("some")),
            content: encode(events),
        }
    }

    #[test]
    fn every_form_is_read_with_every_character() {
        let hostile = format!("\0\u{1}\u{fffd}\u{10ffff}'\\\"{}", "x".repeat(2_000));
        let events = vec![log(0, "a"), log(1, &hostile)];
        assert_eq!(decode(&encode(&events)).expect("readable"), events);
        assert_eq!(
            decode(&encode(&events[..1])).expect("readable"),
            &events[..1]
        );
        assert_eq!(decode(&encode_report(&events)).expect("readable"), events);
        let plain = crate::document::encode(&events);
        assert_eq!(decode(&plain).expect("readable"), events);
        assert!(decode(b"{").is_err());
    }

    #[test]
    fn overlapping_chunks_are_read_once_whatever_was_omitted() {
        let one = chunk(&[log(0, "a"), log(1, "b"), log(2, "c")]);
        // The agent had to drop events before it sent them again.
        let two = chunk(&[omitted(1, 4), log(5, "d")]);
        let events = assemble(&[one, two], 0, 6).expect("readable");
        assert_eq!(
            events,
            [
                log(0, "a"),
                log(1, "b"),
                log(2, "c"),
                omitted(3, 2),
                log(5, "d")
            ]
        );
    }

    #[test]
    fn nothing_is_read_after_a_gap() {
        let one = chunk(&[log(0, "a")]);
        let three = chunk(&[log(2, "c")]);
        assert_eq!(
            assemble(&[one, three.clone()], 0, 3).expect("readable"),
            [log(0, "a")]
        );
        assert_eq!(assemble(&[three], 0, 3).expect("readable"), []);
    }

    #[test]
    fn events_beyond_the_acknowledged_ones_are_not_read() {
        let one = chunk(&[log(0, "a"), log(1, "b"), log(2, "c")]);
        assert_eq!(assemble(&[one], 1, 2).expect("readable"), [log(1, "b")]);
    }
}
