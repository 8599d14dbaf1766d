//! Compressed bodies.
//!
//! Compresses each piece as it is read, so that the content is never held in memory as a
//! whole. An error of the source passes through and cuts off the body, so a body that arrives
//! complete is correct.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt, stream};
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// Minimum size in bytes. Compressing less costs more than it saves.
pub(crate) const WORTH_IT: u64 = 1_024;

/// Returns `true` if the caller accepts gzip: it names gzip without `q=0`, or `*`.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let tokens = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let mut any = None;
    for token in tokens {
        let mut parts = token.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let refused = parts.any(|part| {
            part.strip_prefix("q=")
                .and_then(|weight| weight.parse::<f32>().ok())
                .is_some_and(|weight| weight <= 0.0)
        });
        if coding.eq_ignore_ascii_case("gzip") {
            return !refused;
        }
        if coding == "*" {
            any = Some(!refused);
        }
    }
    any.unwrap_or(false)
}

/// Compresses a stream piece by piece.
pub(crate) fn pieces<S, E>(source: S) -> impl Stream<Item = Result<Bytes, E>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
    E: Send,
{
    let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    stream::try_unfold((source, encoder), |(mut source, encoder)| async move {
        let Some(mut encoder) = encoder else {
            return Ok(None);
        };
        loop {
            let Some(piece) = source.next().await else {
                let rest = encoder.finish().expect("memory takes everything");
                return Ok(Some((Bytes::from(rest), (source, None))));
            };
            encoder.write_all(&piece?).expect("memory takes everything");
            let compressed = std::mem::take(encoder.get_mut());
            if !compressed.is_empty() {
                return Ok(Some((Bytes::from(compressed), (source, Some(encoder)))));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn only_a_caller_who_says_so_gets_gzip() {
        for (value, accepted) in [
            ("gzip", true),
            ("GZIP", true),
            ("br, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip;q=0, *", false),
            ("*;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, value.parse().expect("a header"));
            assert_eq!(is_accepted(&headers), accepted, "{value}");
        }
    }

    #[tokio::test]
    async fn pieces_unpack_to_what_went_in_and_an_error_is_never_a_short_whole() {
        let pieces_in: Vec<Result<Bytes, &str>> = (0..50_u8)
            .map(|n| Ok(Bytes::from(vec![n; 10_000])))
            .collect();
        let packed: Vec<_> = pieces(stream::iter(pieces_in)).collect().await;
        let packed: Vec<u8> = packed
            .into_iter()
            .flat_map(|piece| piece.expect("no error"))
            .collect();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice())
            .read_to_end(&mut unpacked)
            .expect("gzip");
        assert_eq!(unpacked.len(), 500_000);
        assert!(packed.len() < 20_000);
        let broken = stream::iter([Ok(Bytes::from(vec![1; 100_000])), Err("damaged")]);
        let packed: Vec<_> = pieces(broken).collect().await;
        assert_eq!(packed.last(), Some(&Err("damaged")));
    }
}
