//! The hashes of a content's chunks, stored next to it.
//!
//! The same bytes follow the content in a file and are a value in the store: all hashes, then a
//! footer with the size and a hash over the whole manifest, which reveals a damaged manifest.

use bunraku_model::ContentId;
use sha2::{Digest, Sha256};

/// The chunk size: small enough for a value of the store, large enough to keep chunks few.
pub const CHUNK_SIZE: usize = 512 * 1024;

const HASH: usize = 32;
const MAGIC: &[u8; 16] = b"bunraku blob 1\n\0";
/// Magic, size, chunk size, a hash.
pub(super) const FOOTER: usize = 16 + 8 + 8 + HASH;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    pub(super) size: u64,
    pub(super) chunks: Vec<ContentId>,
}

impl Manifest {
    /// Returns the length of chunk `index` in bytes.
    pub(super) fn chunk_length(&self, index: usize) -> usize {
        let before = (index as u64) * (CHUNK_SIZE as u64);
        usize::try_from(self.size.saturating_sub(before))
            .unwrap_or(CHUNK_SIZE)
            .min(CHUNK_SIZE)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.chunks.len() * HASH + FOOTER);
        for chunk in &self.chunks {
            bytes.extend_from_slice(chunk.as_bytes());
        }
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.size.to_le_bytes());
        bytes.extend_from_slice(&(CHUNK_SIZE as u64).to_le_bytes());
        let hash = Sha256::digest(&bytes);
        bytes.extend_from_slice(&hash);
        bytes
    }

    /// Returns the length of the encoded manifest that ends with this footer.
    pub(super) fn encoded_length(footer: &[u8; FOOTER]) -> Result<u64, &'static str> {
        let size = size_in(footer)?;
        let chunks = size.div_ceil(CHUNK_SIZE as u64);
        chunks
            .checked_mul(HASH as u64)
            .and_then(|hashes| hashes.checked_add(FOOTER as u64))
            .ok_or("its size is invalid")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (content, hash) = bytes
            .split_last_chunk::<HASH>()
            .ok_or("its chunk hashes are truncated")?;
        if Sha256::digest(content).as_slice() != hash {
            return Err("its chunk hashes are corrupt");
        }
        let footer = bytes
            .last_chunk::<FOOTER>()
            .ok_or("its chunk hashes are truncated")?;
        let size = size_in(footer)?;
        let (hashes, rest) = bytes[..bytes.len() - FOOTER].as_chunks::<HASH>();
        if !rest.is_empty() || hashes.len() as u64 != size.div_ceil(CHUNK_SIZE as u64) {
            return Err("its chunk hashes do not match its size");
        }
        let chunks = hashes.iter().copied().map(ContentId::from_digest).collect();
        Ok(Self { size, chunks })
    }
}

fn size_in(footer: &[u8; FOOTER]) -> Result<u64, &'static str> {
    let number = |from: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&footer[from..from + 8]);
        u64::from_le_bytes(bytes)
    };
    if &footer[..16] != MAGIC || number(24) != CHUNK_SIZE as u64 {
        return Err("its end is corrupt");
    }
    Ok(number(16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_manifest_comes_back_and_every_flipped_bit_is_noticed(
            chunks in 0_usize..20, short in 0_u64..1000, flip in any::<prop::sample::Index>()
        ) {
            let size = (chunks as u64 * CHUNK_SIZE as u64).saturating_sub(short);
            let manifest = Manifest {
                size,
                chunks: (0..chunks).map(|n| ContentId::of(&n.to_le_bytes())).collect(),
            };
            let mut bytes = manifest.encode();
            prop_assert_eq!(Manifest::decode(&bytes), Ok(manifest));
            let bit = flip.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Manifest::decode(&bytes).is_err());
        }

        #[test]
        fn any_other_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Manifest::decode(&bytes).is_err());
        }
    }
}
