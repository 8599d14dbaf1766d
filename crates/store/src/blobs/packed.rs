//! Chunks as they are stored: compressed if that saves space.
//!
//! Hashes and sizes are those of the uncompressed bytes, so nothing else changes. A compressed chunk
//! is always shorter than its content: a stored value of the full length is the content itself. So
//! chunks that were written without compression stay readable.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Fast, and still a tenth of the size for catalogs.
const LEVEL: Compression = Compression::new(3);
/// Shorter chunks are not worth the header.
const SHORTEST: usize = 128;

/// Returns the bytes as a gzip file.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), LEVEL);
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    packed.expect("writing to memory does not fail")
}

/// Returns the content of a gzip file that should have this length. If it is longer, returns one
/// byte more, which is enough to notice.
pub(super) fn gunzip(stored: &[u8], length: usize) -> Option<Bytes> {
    let mut decoder = GzDecoder::new(stored).take(length as u64 + 1);
    let mut bytes = Vec::with_capacity(length);
    decoder.read_to_end(&mut bytes).ok()?;
    Some(bytes.into())
}

/// Returns the bytes to store: compressed, if that saves at least an eighth.
pub(super) fn pack(bytes: Bytes) -> Bytes {
    if bytes.len() < SHORTEST {
        return bytes;
    }
    let packed = gzip(&bytes);
    if packed.len() < bytes.len() / 8 * 7 {
        packed.into()
    } else {
        bytes
    }
}

/// Returns the content of a stored chunk that has this length. Damaged bytes are returned as they
/// are: the caller verifies the hash.
pub(super) fn unpack(stored: Bytes, length: usize) -> Bytes {
    if stored.len() >= length {
        return stored;
    }
    gunzip(&stored, length).unwrap_or(stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_stored_in_a_fraction_of_its_size() {
        let resource = |number: u32| {
            format!(
                r#"{{"type":"File","title":"/etc/app/{number}.conf","parameters":{{"ensure":"file","owner":"root","mode":"0644"}},"tags":["file","app"]}}"#
            )
        };
        let text: String = (0..100).map(resource).collect();
        let packed = pack(text.clone().into());
        assert!(packed.len() * 8 < text.len(), "{} bytes", packed.len());
        assert_eq!(unpack(packed, text.len()), text);
    }

    #[test]
    fn what_claims_to_be_longer_than_its_chunk_is_not_expanded() {
        let packed = pack(vec![b'x'; 500_000].into());
        let expanded = unpack(packed, 10_000);
        assert_eq!(expanded.len(), 10_001, "and the caller refuses it");
    }

    proptest! {
        #[test]
        fn every_chunk_comes_back(
            bytes in proptest::collection::vec(any::<u8>(), 0..2_000), repeat in 1_usize..20
        ) {
            let bytes = Bytes::from(bytes.repeat(repeat));
            let packed = pack(bytes.clone());
            prop_assert!(packed.len() <= bytes.len());
            prop_assert_eq!(unpack(packed, bytes.len()), bytes.clone());
            // As written before there was compression.
            prop_assert_eq!(unpack(bytes.clone(), bytes.len()), bytes);
        }

        #[test]
        fn damaged_bytes_are_not_a_reason_to_fail(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), length in 0_usize..400
        ) {
            unpack(bytes.into(), length);
        }
    }
}
