//! Checksums of archives.

use std::io::Read;

use sha2::{Digest, Sha256, Sha512};

use crate::{Declaration, ReadAccess, Refusal, StepError};

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Checksum {
    long: bool,
    digits: String,
}

impl Checksum {
    pub(super) fn read(declaration: &Declaration) -> Result<Option<Self>, Refusal> {
        let kind = declaration.word("checksum_type", &["sha256", "sha512", "none"])?;
        let Some(text) = declaration.text("checksum")? else {
            return Ok(None);
        };
        let refuse = || Err(declaration.refuse("checksum", "sha256:… or sha512:…"));
        let (name, digits) = match text.split_once([':', '=']) {
            Some((name, digits)) => (Some(name.trim().to_owned()), digits.trim()),
            None => (kind.map(str::to_owned), text.trim()),
        };
        let long = match (name.as_deref(), digits.len()) {
            (Some("sha256") | None, 64) => false,
            (Some("sha512") | None, 128) => true,
            _ => return refuse(),
        };
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return refuse();
        }
        Ok(Some(Self {
            long,
            digits: digits.to_lowercase(),
        }))
    }

    pub(super) fn text(&self) -> String {
        let name = if self.long { "sha512" } else { "sha256" };
        format!("{name}:{}", self.digits)
    }
}

/// A reader that hashes what it reads.
pub(super) struct Hashing<R> {
    inner: R,
    short: Sha256,
    long: Sha512,
    is_long: bool,
}

impl<R: Read> Hashing<R> {
    pub(super) fn new(inner: R, like: Option<&Checksum>) -> Self {
        Self {
            inner,
            short: Sha256::new(),
            long: Sha512::new(),
            is_long: like.is_some_and(|like| like.long),
        }
    }

    /// Reads the rest, and returns the checksum of everything.
    pub(super) fn finish(mut self) -> std::io::Result<String> {
        std::io::copy(&mut self, &mut std::io::sink())?;
        Ok(if self.is_long {
            format!("sha512:{}", hex::encode(self.long.finalize()))
        } else {
            format!("sha256:{}", hex::encode(self.short.finalize()))
        })
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if self.is_long {
            self.long.update(&buffer[..count]);
        } else {
            self.short.update(&buffer[..count]);
        }
        Ok(count)
    }
}

pub(super) fn of_source(address: &str, access: &ReadAccess<'_>) -> Result<String, StepError> {
    let reader = access.sources().open(address)?;
    Hashing::new(reader, None)
        .finish()
        .map_err(|error| StepError::because(format!("cannot read {address}"), error))
}
