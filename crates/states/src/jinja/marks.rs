//! Maps a line of rendered text back to the template's line.

use super::rewrite::{MARK_BEGIN, MARK_END};

/// The origin of a rendered line: the file's number, its line, and whether the line has its own
/// mark.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Origin {
    pub(crate) file: usize,
    pub(crate) line: usize,
    pub(crate) own: bool,
}

/// Removes the marks. The result has one origin for each line.
pub(crate) fn take(rendered: &str) -> (String, Vec<Origin>) {
    let mut text = String::with_capacity(rendered.len());
    let mut origins = Vec::new();
    let mut last = Origin {
        file: 0,
        line: 1,
        own: false,
    };
    for line in rendered.split_inclusive('\n') {
        let mut own = None;
        let mut rest = line;
        while let Some(begin) = rest.find(MARK_BEGIN) {
            text.push_str(&rest[..begin]);
            let after = &rest[begin + MARK_BEGIN.len_utf8()..];
            let Some(end) = after.find(MARK_END) else {
                rest = after;
                continue;
            };
            if let Some(origin) = parse(&after[..end]) {
                own.get_or_insert(origin);
                last = Origin {
                    own: false,
                    ..origin
                };
            }
            rest = &after[end + MARK_END.len_utf8()..];
        }
        text.push_str(rest);
        origins.push(own.unwrap_or(last));
    }
    (text, origins)
}

/// Returns the text without marks.
pub(super) fn without(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains(MARK_BEGIN) {
        take(text).0.into()
    } else {
        text.into()
    }
}

fn parse(mark: &str) -> Option<Origin> {
    let (file, line) = mark.split_once(':')?;
    Some(Origin {
        file: file.parse().ok()?,
        line: line.parse().ok()?,
        own: true,
    })
}
