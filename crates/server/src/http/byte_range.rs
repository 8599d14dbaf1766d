//! `Range` and `If-None-Match`, as far as content requests need them.
//!
//! Pure. Serves one range. A request for several ranges gets the whole content, as HTTP
//! permits.

use std::ops::Range;

use http::HeaderMap;
use http::header::{IF_NONE_MATCH, IF_RANGE, RANGE};

/// The part of the content that a `Range` header requests, for content of a known size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestedRange {
    Everything,
    Part(Range<u64>),
    /// The requested range lies outside the content.
    Unsatisfiable,
}

/// Returns `true` if the caller already has this version.
pub(crate) fn is_known(headers: &HeaderMap, entity_tag: &str) -> bool {
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == entity_tag)
}

/// Returns the requested part. Ignores a range that is malformed or that is for another
/// version (`If-Range`).
pub(crate) fn requested(headers: &HeaderMap, entity_tag: &str, size: u64) -> RequestedRange {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let for_this = headers.get(IF_RANGE).is_none() || text(IF_RANGE) == Some(entity_tag);
    match text(RANGE) {
        Some(range) if for_this => parse(range, size),
        _ => RequestedRange::Everything,
    }
}

fn parse(range: &str, size: u64) -> RequestedRange {
    let Some((unit, ranges)) = range.split_once('=') else {
        return RequestedRange::Everything;
    };
    let one = ranges.trim();
    if !unit.trim().eq_ignore_ascii_case("bytes") || one.contains(',') {
        return RequestedRange::Everything;
    }
    match one.split_once('-') {
        Some(("", last)) => suffix(last, size),
        Some((first, "")) => {
            number(first).map_or(RequestedRange::Everything, |first| part(first, size, size))
        }
        Some((first, last)) => match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => {
                part(first, last.saturating_add(1).min(size), size)
            }
            _ => RequestedRange::Everything,
        },
        None => RequestedRange::Everything,
    }
}

fn part(start: u64, end: u64, size: u64) -> RequestedRange {
    if start < size {
        RequestedRange::Part(start..end)
    } else {
        RequestedRange::Unsatisfiable
    }
}

/// Returns the last `length` bytes.
fn suffix(length: &str, size: u64) -> RequestedRange {
    match number(length) {
        None => RequestedRange::Everything,
        Some(0) => RequestedRange::Unsatisfiable,
        Some(length) => part(size.saturating_sub(length), size, size),
    }
}

/// Parses digits only: `+1` and ` 1` are not byte positions. A number with too many digits is
/// far beyond the end of any content.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestedRange::{Everything, Part, Unsatisfiable};

    #[test]
    fn every_form_of_a_range_is_read_as_the_standard_says() {
        for (range, size, expected) in [
            ("bytes=0-0", 10, Part(0..1)),
            ("bytes=2-4", 10, Part(2..5)),
            ("bytes=2-", 10, Part(2..10)),
            ("bytes=2-99999999999999999999999", 10, Part(2..10)),
            ("bytes=-3", 10, Part(7..10)),
            ("bytes=-30", 10, Part(0..10)),
            ("Bytes=0-9", 10, Part(0..10)),
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=10-20", 10, Unsatisfiable),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=-5", 0, Unsatisfiable),
            ("bytes=4-2", 10, Everything),
            ("bytes=0-1,3-4", 10, Everything),
            ("lines=0-1", 10, Everything),
            ("bytes=+1-2", 10, Everything),
            ("bytes=", 10, Everything),
            ("bytes=-", 10, Everything),
            ("bytes=a-b", 10, Everything),
            ("0-1", 10, Everything),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, range.parse().expect("a header"));
            assert_eq!(
                requested(&headers, "\"x\"", size),
                expected,
                "{range} of {size}"
            );
        }
    }

    #[test]
    fn a_range_for_another_version_gets_everything() {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, "bytes=0-1".parse().expect("a header"));
        headers.insert(IF_RANGE, "\"old\"".parse().expect("a header"));
        assert_eq!(requested(&headers, "\"new\"", 10), Everything);
        assert_eq!(requested(&headers, "\"old\"", 10), Part(0..2));
    }

    #[test]
    fn what_the_caller_has_is_recognised_in_any_list() {
        for (value, known) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, value.parse().expect("a header"));
            assert_eq!(is_known(&headers, "\"a\""), known, "{value}");
        }
        assert!(!is_known(&HeaderMap::new(), "\"a\""));
    }
}
