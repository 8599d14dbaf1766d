//! Lines of `/etc/fstab` and of the kernel's mount table.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;

use crate::Change;
use crate::types::config_file::{self, LineEdit};

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Line {
    pub(super) device: String,
    pub(super) name: String,
    pub(super) fstype: String,
    pub(super) options: String,
    pub(super) dump: u8,
    pub(super) pass: u8,
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        if line.trim_start_matches([' ', '\t']).starts_with('#') {
            return None;
        }
        // Only these separate fields. Other white space is part of a field.
        let mut fields = line.split([' ', '\t']).filter(|field| !field.is_empty());
        let mut next = || fields.next().map(|field| unescape(field.as_bytes()));
        let mut text = || Some(String::from_utf8_lossy(&next()?).into_owned());
        Some(Self {
            device: text()?,
            name: text()?,
            fstype: text()?,
            options: text().unwrap_or_else(|| "defaults".to_owned()),
            dump: text().and_then(|text| text.parse().ok()).unwrap_or(0),
            pass: text().and_then(|text| text.parse().ok()).unwrap_or(0),
        })
    }

    fn text(&self) -> String {
        let [device, name, fstype, options] =
            [&self.device, &self.name, &self.fstype, &self.options].map(|field| escape(field));
        format!(
            "{device}\t{name}\t{fstype}\t{options}\t{}\t{}",
            self.dump, self.pass
        )
    }

    /// Returns the changes that turn this line into `new`.
    pub(super) fn differences(&self, new: &Self) -> Vec<Change> {
        let pairs = [
            ("device", json!(self.device), json!(new.device)),
            ("fstype", json!(self.fstype), json!(new.fstype)),
            ("options", json!(self.options), json!(new.options)),
            ("dump", json!(self.dump), json!(new.dump)),
            ("pass", json!(self.pass), json!(new.pass)),
        ];
        (pairs.into_iter())
            .filter(|(_, old, new)| old != new)
            .map(|(property, old, new)| Change::new(property, old, new))
            .collect()
    }
}

pub(super) fn find(content: &[u8], name: &str) -> Option<Line> {
    config_file::lines(content)
        .filter_map(|line| Line::read(&config_file::text(line)))
        .find(|line| same_place(&line.name, name))
}

fn same_place(one: &str, other: &str) -> bool {
    one == other || (one.len() > 1 && one.trim_end_matches('/') == other)
}

/// Returns the table with this line exactly once, or without it.
pub(super) fn put(content: &[u8], name: &str, line: Option<&Line>) -> Vec<u8> {
    let entry = line.map(Line::text);
    let mut first = entry.clone();
    config_file::rewrite(content, entry, |text| match Line::read(text) {
        Some(found) if same_place(&found.name, name) => {
            first.take().map_or(LineEdit::Remove, LineEdit::Become)
        }
        _ => LineEdit::Keep,
    })
}

/// Returns the device of the topmost mount at a path, from `/proc/self/mountinfo`.
pub(super) fn mounted_at(table: &str, path: &Path) -> Option<String> {
    // The last line is the mount on top.
    (table.lines().rev()).find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let place = unescape(before.split(' ').nth(4)?.as_bytes());
        let device = unescape(after.split(' ').nth(1)?.as_bytes());
        (place == path.as_os_str().as_bytes())
            .then(|| String::from_utf8_lossy(&device).into_owned())
    })
}

/// Decodes escapes: `\040` is a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

fn escape(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    for c in field.chars() {
        match c {
            ' ' => out.push_str("\\040"),
            '\t' => out.push_str("\\011"),
            '\n' => out.push_str("\\012"),
            '\\' => out.push_str("\\134"),
            // At the start of a line it would begin a comment.
            '#' if out.is_empty() => out.push_str("\\043"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(
            device in "\\PC{1,10}", name in "/[ -~]{0,10}", options in "[a-z=,]{1,9}", pass in 0_u8..3,
        ) {
            let line = Line { device, name, fstype: "ext4".to_owned(), options, dump: 0, pass };
            prop_assert_eq!(Line::read(&line.text()), Some(line));
        }
    }

    #[test]
    fn the_topmost_mount_at_a_path_counts() {
        let table = "1 0 0:1 / / rw - ext4 /dev/a rw\n\
                     2 1 0:2 / /a\\040b rw shared:1 - tmpfs one rw\n\
                     3 1 0:3 / /a\\040b rw - tmpfs two rw\n";
        assert_eq!(mounted_at(table, Path::new("/a b")).as_deref(), Some("two"));
        assert_eq!(mounted_at(table, Path::new("/a")), None);
    }
}
