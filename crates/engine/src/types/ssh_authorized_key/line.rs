//! Lines of `authorized_keys`: options, kind, key, comment.

use crate::types::config_file::{self, LineEdit};

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Key {
    pub(super) options: Vec<String>,
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) comment: String,
}

/// Returns true if this word names a kind of key and not an option.
pub(super) fn is_kind(word: &str) -> bool {
    ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"]
        .iter()
        .any(|prefix| word.starts_with(prefix))
        && !word.contains([',', '"', '='])
}

impl Key {
    pub(super) fn read(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let (first, _) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let (options, rest) = if is_kind(first) {
            (Vec::new(), line)
        } else {
            let end = options_end(line)?;
            (split_options(&line[..end])?, line[end..].trim_start())
        };
        let (kind, rest) = rest.split_once([' ', '\t'])?;
        let rest = rest.trim_start();
        let (key, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        (is_kind(kind) && !key.is_empty()).then(|| Self {
            options,
            kind: kind.to_owned(),
            key: key.to_owned(),
            comment: comment.trim().to_owned(),
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if !self.options.is_empty() {
            text.push_str(&self.options.join(","));
            text.push(' ');
        }
        text.push_str(&format!("{} {}", self.kind, self.key));
        if !self.comment.is_empty() {
            text.push_str(&format!(" {}", self.comment));
        }
        text
    }
}

/// Returns the end of the options: the first white space outside of quotes.
fn options_end(line: &str) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ' ' | '\t' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Splits options at the commas outside of quotes. Returns `None` if a quote stays open
/// or something would end the line's options early.
pub(super) fn split_options(text: &str) -> Option<Vec<String>> {
    let mut options = vec![String::new()];
    let mut quoted = false;
    let mut escaped = false;
    for c in text.chars() {
        if c.is_control() || (c == ' ' && !quoted) {
            return None;
        }
        match c {
            ',' if !quoted => {
                options.push(String::new());
                continue;
            }
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        options.last_mut().expect("it starts with one").push(c);
    }
    let whole = !quoted && options.iter().all(|option| !option.is_empty());
    whole.then_some(options)
}

pub(super) fn find(content: &[u8], is: impl Fn(&Key) -> bool) -> Option<Key> {
    config_file::lines(content)
        .filter_map(|line| Key::read(&config_file::text(line)))
        .find(is)
}

/// Returns the file with the key exactly once, or without it.
pub(super) fn put(content: &[u8], key: Option<&Key>, is: impl Fn(&Key) -> bool) -> Vec<u8> {
    let entry = key.map(Key::text);
    let mut first = entry.clone();
    config_file::rewrite(content, entry, |line| match Key::read(line) {
        Some(found) if is(&found) => first.take().map_or(LineEdit::Remove, LineEdit::Become),
        _ => LineEdit::Keep,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_with_spaces_commas_and_quotes_are_one_option() {
        let line =
            r#"no-pty,command="echo \"a, b\" c",from="*.example.com" ssh-rsa AAAA ada at home"#;
        let key = Key::read(line).unwrap();
        assert_eq!(
            key.options,
            [
                "no-pty",
                r#"command="echo \"a, b\" c""#,
                r#"from="*.example.com""#
            ]
        );
        assert_eq!(
            (key.key.as_str(), key.comment.as_str()),
            ("AAAA", "ada at home")
        );
        assert_eq!(key.text(), line);
        assert_eq!(split_options(r#"command="open"#), None);
        assert_eq!(split_options("no-pty ssh-rsa EVIL"), None);
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_left_alone(line: String) {
            let _ = Key::read(&line);
        }
    }
}
