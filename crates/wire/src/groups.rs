//! The groups in an operator's certificate, as text and in DER.
//!
//! They are in Puppet's `pp_authorization` extension, which no authority copies from a request:
//! `bunraku:groups=ops,dba`.

use std::collections::BTreeSet;

use bunraku_model::access::{GroupName, MOST_GROUPS};

/// Puppet's `pp_authorization`.
pub(crate) const GROUPS_OID: &[u64] = &[1, 3, 6, 1, 4, 1, 34380, 1, 3, 1];
/// What precedes the groups in our own extension, after our prefix.
const WORD: &str = "groups=";

/// Returns the extension's text, without our prefix.
pub(crate) fn to_text(groups: &BTreeSet<GroupName>) -> String {
    let names: Vec<&str> = groups.iter().map(GroupName::as_str).collect();
    format!("{WORD}{}", names.join(","))
}

/// Reads the extension's text, without our prefix.
pub(crate) fn from_text(text: &str) -> Option<BTreeSet<GroupName>> {
    let names = text.strip_prefix(WORD)?.split(',');
    let groups: BTreeSet<GroupName> = names.map(str::parse).collect::<Result<_, _>>().ok()?;
    (groups.len() <= MOST_GROUPS).then_some(groups)
}

/// Returns a text as a DER `UTF8String`.
pub(crate) fn der_text(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).expect("names and groups are short");
    let mut der = vec![0x0c];
    match u8::try_from(length) {
        Ok(length) if length < 0x80 => der.push(length),
        Ok(length) => der.extend([0x81, length]),
        Err(_) => {
            der.push(0x82);
            der.extend(length.to_be_bytes());
        }
    }
    der.extend_from_slice(text.as_bytes());
    der
}
