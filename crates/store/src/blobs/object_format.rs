//! One content as one object: a gzip file that can be read in parts.
//!
//! Each chunk is a gzip member of its own, so a range of the object is a range of the content. The
//! chunks' hashes and packed lengths follow as extra fields of empty members, and a last empty
//! member of a fixed length says where they begin. So `gunzip < OBJECT | sha256sum` gives the id, in
//! any tool and any language, and an agent that gets a URL needs nothing of ours to read it.
//!
//! A second object for the index was considered and rejected: it doubles the requests. So was
//! `Content-Encoding: gzip`: some object stores then decode objects on the fly, and ranges break.

use bunraku_model::ContentId;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::manifest::{CHUNK_SIZE, Manifest};
use super::packed;

const HASH: usize = 32;
/// A hash and a packed length.
const ENTRY: usize = HASH + 4;
/// The entries of one member: its extra field has at most 65,531 bytes.
const ENTRIES: usize = 1_800;
const MAGIC: &[u8; 16] = b"bunraku object1\0";
/// Magic, size, chunk size, length of the index, a hash.
const FOOTER: usize = 16 + 8 + 8 + 8 + HASH;

/// Header with the extra flag, the length of the extra fields, and the header of ours.
const BEFORE: usize = 10 + 2 + 4;
/// An empty deflate block, a checksum, a length.
const AFTER: [u8; 10] = [3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const OVERHEAD: usize = BEFORE + AFTER.len();

/// The length of the end that every object has.
pub(super) const LAST_MEMBER: usize = OVERHEAD + FOOTER;

/// The order of the chunks in an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ObjectIndex {
    pub(super) manifest: Manifest,
    /// The position of each chunk, and the end of the last one.
    pub(super) positions: Vec<u64>,
}

/// Returns a chunk as a gzip member.
pub(super) fn pack_chunk(bytes: &Bytes) -> Vec<u8> {
    packed::gzip(bytes)
}

/// Returns the chunk of this length. Damaged bytes are returned as they are: the caller verifies
/// the hash.
pub(super) fn unpack_chunk(stored: Bytes, length: usize) -> Bytes {
    packed::gunzip(&stored, length).unwrap_or(stored)
}

/// Returns the end of an object, after its chunks.
pub(super) fn encode_end(manifest: &Manifest, packed_lengths: &[u32]) -> Vec<u8> {
    let mut index = Vec::with_capacity(manifest.chunks.len() * ENTRY);
    for (hash, length) in manifest.chunks.iter().zip(packed_lengths) {
        index.extend_from_slice(hash.as_bytes());
        index.extend_from_slice(&length.to_le_bytes());
    }
    let mut end = Vec::new();
    for some in index.chunks(ENTRIES * ENTRY) {
        add_empty_member(&mut end, some);
    }
    let mut footer = Vec::with_capacity(FOOTER);
    footer.extend_from_slice(MAGIC);
    footer.extend_from_slice(&manifest.size.to_le_bytes());
    footer.extend_from_slice(&(CHUNK_SIZE as u64).to_le_bytes());
    footer.extend_from_slice(&(end.len() as u64).to_le_bytes());
    let hash = Sha256::new()
        .chain_update(&index)
        .chain_update(&footer)
        .finalize();
    footer.extend_from_slice(&hash);
    add_empty_member(&mut end, &footer);
    end
}

fn add_empty_member(end: &mut Vec<u8>, extra: &[u8]) {
    let length = u16::try_from(extra.len()).expect("an extra field is cut to its limit");
    // gzip, deflate, extra fields, no time, no flags, any system.
    end.extend_from_slice(&[0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff]);
    end.extend_from_slice(&(length + 4).to_le_bytes());
    end.extend_from_slice(b"Bk");
    end.extend_from_slice(&length.to_le_bytes());
    end.extend_from_slice(extra);
    end.extend_from_slice(&AFTER);
}

/// Returns the extra field of the empty member at the beginning of `bytes`, and the rest.
fn split_empty_member(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (before, rest) = bytes.split_at_checked(BEFORE)?;
    if before[..4] != [0x1f, 0x8b, 8, 4] || &before[12..14] != b"Bk" {
        return None;
    }
    let length = usize::from(u16::from_le_bytes([before[14], before[15]]));
    let (extra, rest) = rest.split_at_checked(length)?;
    let (_, rest) = rest.split_at_checked(AFTER.len())?;
    Some((extra, rest))
}

/// Returns the length of the end of an object, from its last bytes.
pub(super) fn end_length(tail: &[u8]) -> Result<u64, &'static str> {
    let footer = footer(tail)?;
    number(footer, 32)
        .checked_add(LAST_MEMBER as u64)
        .ok_or("its end is corrupt")
}

fn footer(tail: &[u8]) -> Result<&[u8], &'static str> {
    let at = tail
        .len()
        .checked_sub(LAST_MEMBER)
        .ok_or("it is truncated")?;
    let (footer, rest) = split_empty_member(&tail[at..]).ok_or("its end is corrupt")?;
    let is_ours = footer.len() == FOOTER && footer.starts_with(MAGIC) && rest.is_empty();
    if !is_ours || number(footer, 24) != CHUNK_SIZE as u64 {
        return Err("its end is corrupt");
    }
    Ok(footer)
}

fn number(bytes: &[u8], from: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[from..from + 8]);
    u64::from_le_bytes(number)
}

/// Reads the whole end of an object of this size.
pub(super) fn decode_end(end: &[u8], object_size: u64) -> Result<ObjectIndex, &'static str> {
    let footer = footer(end)?;
    let size = number(footer, 16);
    let (mut index, mut rest) = (Vec::new(), &end[..end.len() - LAST_MEMBER]);
    while !rest.is_empty() {
        let (extra, after) = split_empty_member(rest).ok_or("its chunk hashes are corrupt")?;
        index.extend_from_slice(extra);
        rest = after;
    }
    let (signed, hash) = footer.split_at(FOOTER - HASH);
    let expected = Sha256::new().chain_update(&index).chain_update(signed);
    if expected.finalize().as_slice() != hash {
        return Err("its chunk hashes are corrupt");
    }
    let (entries, rest) = index.as_chunks::<ENTRY>();
    if !rest.is_empty() || entries.len() as u64 != size.div_ceil(CHUNK_SIZE as u64) {
        return Err("its chunk hashes do not match its size");
    }
    let (mut chunks, mut positions, mut at) = (Vec::new(), vec![0], 0);
    for entry in entries {
        let (mut hash, mut length) = ([0; HASH], [0; 4]);
        hash.copy_from_slice(&entry[..HASH]);
        length.copy_from_slice(&entry[HASH..]);
        chunks.push(ContentId::from_digest(hash));
        at += u64::from(u32::from_le_bytes(length));
        positions.push(at);
    }
    if at + end.len() as u64 != object_size {
        return Err("its length differs from the recorded one");
    }
    Ok(ObjectIndex {
        manifest: Manifest { size, chunks },
        positions,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use proptest::prelude::*;

    fn object(content: &[u8]) -> (Vec<u8>, Manifest) {
        let pieces = content.chunks(CHUNK_SIZE).map(Bytes::copy_from_slice);
        let (mut object, mut lengths, mut chunks) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let packed = pack_chunk(&piece);
            lengths.push(u32::try_from(packed.len()).expect("small"));
            chunks.push(ContentId::of(&piece));
            object.extend(packed);
        }
        let size = content.len() as u64;
        let manifest = Manifest { size, chunks };
        object.extend(encode_end(&manifest, &lengths));
        (object, manifest)
    }

    fn index_of(object: &[u8]) -> Result<ObjectIndex, &'static str> {
        let length = usize::try_from(end_length(object)?).expect("small");
        let at = object.len().checked_sub(length).ok_or("too short")?;
        decode_end(&object[at..], object.len() as u64)
    }

    #[test]
    fn any_gzip_program_reads_an_object() {
        for size in [0, 10, CHUNK_SIZE, 2 * CHUNK_SIZE + 5] {
            let content: Vec<u8> = (0..size).map(|number| (number / 100) as u8).collect();
            let (object, manifest) = object(&content);
            let mut decoded = Vec::new();
            flate2::read::MultiGzDecoder::new(&object[..])
                .read_to_end(&mut decoded)
                .expect("gzip");
            assert!(decoded == content, "{size}");
            let index = index_of(&object).expect("an index");
            assert_eq!(index.manifest, manifest);
            for (number, hash) in manifest.chunks.iter().enumerate() {
                let at =
                    |position: usize| usize::try_from(index.positions[position]).expect("small");
                let packed = Bytes::copy_from_slice(&object[at(number)..at(number + 1)]);
                let chunk = unpack_chunk(packed, manifest.chunk_length(number));
                assert_eq!(ContentId::of(&chunk), *hash);
            }
        }
    }

    #[test]
    fn an_index_of_more_than_one_member_comes_back() {
        let chunks: Vec<_> = (0_u32..4_000)
            .map(|n| ContentId::of(&n.to_le_bytes()))
            .collect();
        let size = 4_000 * CHUNK_SIZE as u64;
        let manifest = Manifest { size, chunks };
        let end = encode_end(&manifest, &[7; 4_000]);
        let index = decode_end(&end, 28_000 + end.len() as u64).expect("an index");
        assert_eq!(index.manifest, manifest);
        assert_eq!(index.positions[4_000], 28_000);
    }

    proptest! {
        #[test]
        fn a_flipped_bit_in_the_end_is_noticed(flip in any::<prop::sample::Index>()) {
            let (object, _) = object(&vec![7; CHUNK_SIZE + 9]);
            let length = usize::try_from(end_length(&object).expect("an end")).expect("small");
            let from = object.len() - length;
            let mut damaged = object.clone();
            let bit = flip.index(length * 8);
            damaged[from + bit / 8] ^= 1 << (bit % 8);
            // Only bytes that no reader looks at may differ.
            if let Ok(index) = index_of(&damaged) {
                prop_assert_eq!(Ok(index), index_of(&object));
            }
        }

        #[test]
        fn any_other_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(index_of(&bytes).is_err());
        }
    }
}
