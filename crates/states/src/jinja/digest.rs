//! Filters for hashes and encodings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{Environment, Error};
use sha2::Digest as _;

use super::filters::invalid;
use super::taint::decoded;

pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_filter("md5", |text: &str| {
        hex::encode(md5::Md5::digest(&*decoded(text)))
    });
    environment.add_filter("sha1", |text: &str| {
        hex::encode(sha1::Sha1::digest(&*decoded(text)))
    });
    environment.add_filter("sha256", |text: &str| {
        hex::encode(sha2::Sha256::digest(&*decoded(text)))
    });
    environment.add_filter("sha512", |text: &str| {
        hex::encode(sha2::Sha512::digest(&*decoded(text)))
    });
    environment.add_filter("base64_encode", |text: &str| base64_encoded(text));
    environment.add_filter("base64_decode", |text: &str| base64_decoded(text));
    environment.add_filter("uuid", |text: &str| uuid(text));
}

/// Encodes a text, for the filter of both renderings.
pub(super) fn base64_encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// Decodes a text, for the filter of both renderings.
pub(super) fn base64_decoded(text: &str) -> Result<String, Error> {
    let bytes = STANDARD
        .decode(text.trim())
        .map_err(|error| invalid(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| invalid("the decoded value is not valid UTF-8"))
}

/// Returns a version 5 UUID in the DNS name space, like Python's `uuid.uuid5`.
fn uuid(text: &str) -> String {
    let mut hasher = sha1::Sha1::new();
    hasher.update([
        0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30,
        0xc8,
    ]);
    hasher.update(text);
    let digest = hasher.finalize();
    let mut bytes: [u8; 16] = std::array::from_fn(|index| digest[index]);
    bytes[6] = bytes[6] & 0x0f | 0x50;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex::encode(bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..]
    )
}
