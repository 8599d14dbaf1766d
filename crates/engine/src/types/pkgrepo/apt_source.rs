//! A source of apt, as a deb822 stanza or as lines of a list.

use crate::Refusal;
use crate::types::config_file::{self, LineEdit};

#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Source {
    pub(super) types: Vec<String>,
    pub(super) uris: Vec<String>,
    pub(super) suites: Vec<String>,
    pub(super) components: Vec<String>,
    pub(super) architectures: Vec<String>,
    pub(super) signed_by: Option<String>,
    pub(super) trusted: bool,
}

impl Source {
    /// Parses `deb [arch=amd64 signed-by=/…] URI suite component …`.
    pub(super) fn read(line: &str) -> Option<Self> {
        let line = line.trim();
        let (kind, mut rest) = line.split_once([' ', '\t'])?;
        if !matches!(kind, "deb" | "deb-src") {
            return None;
        }
        let mut source = Self {
            types: vec![kind.to_owned()],
            ..Self::default()
        };
        rest = rest.trim_start();
        if let Some(inside) = rest.strip_prefix('[') {
            let (options, after) = inside.split_once(']')?;
            for option in options.split_whitespace() {
                match option.split_once('=') {
                    Some(("arch", value)) => {
                        source.architectures = value.split(',').map(str::to_owned).collect()
                    }
                    Some(("signed-by", value)) => source.signed_by = Some(value.to_owned()),
                    Some(("trusted", value)) => source.trusted = value == "yes",
                    _ => {}
                }
            }
            rest = after;
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let mut words = rest.split_whitespace().map(str::to_owned);
        source.uris = vec![words.next()?];
        source.suites = vec![words.next()?];
        source.components = words.collect();
        Some(source)
    }

    pub(super) fn complete(&self) -> Result<(), Refusal> {
        if self.uris.is_empty() {
            return Err(Refusal::Missing("uris"));
        }
        if self.suites.is_empty() {
            return Err(Refusal::Missing("suites"));
        }
        Ok(())
    }

    fn types(&self) -> Vec<String> {
        if self.types.is_empty() {
            vec!["deb".to_owned()]
        } else {
            self.types.clone()
        }
    }

    pub(super) fn deb822(&self, enabled: bool) -> String {
        let mut text = String::new();
        let mut field = |name: &str, values: &[String]| {
            if !values.is_empty() {
                text.push_str(&format!("{name}: {}\n", values.join(" ")));
            }
        };
        field("Types", &self.types());
        field("URIs", &self.uris);
        field("Suites", &self.suites);
        field("Components", &self.components);
        field("Architectures", &self.architectures);
        field("Signed-By", self.signed_by.as_slice());
        if self.trusted {
            field("Trusted", &["yes".to_owned()]);
        }
        if !enabled {
            field("Enabled", &["no".to_owned()]);
        }
        text
    }

    fn options(&self) -> String {
        let mut options = Vec::new();
        if !self.architectures.is_empty() {
            options.push(format!("arch={}", self.architectures.join(",")));
        }
        options.extend(
            self.signed_by
                .iter()
                .map(|path| format!("signed-by={path}")),
        );
        if self.trusted {
            options.push("trusted=yes".to_owned());
        }
        if options.is_empty() {
            String::new()
        } else {
            format!("[{}] ", options.join(" "))
        }
    }

    /// Returns the equivalent lines of a list.
    fn lines(&self, enabled: bool) -> Vec<String> {
        let off = if enabled { "" } else { "# " };
        let mut lines = Vec::new();
        for kind in self.types() {
            for uri in &self.uris {
                for suite in &self.suites {
                    let line = format!(
                        "{off}{kind} {}{uri} {suite} {}",
                        self.options(),
                        self.components.join(" ")
                    );
                    lines.push(line.trim_end().to_owned());
                }
            }
        }
        lines
    }

    /// Returns true if a line describes this source, disabled or not.
    fn is(&self, line: &str) -> bool {
        let line = line.trim_start_matches(['#', ' ']);
        Self::read(line).is_some_and(|found| {
            let slashless = |uri: &String| uri.trim_end_matches('/').to_owned();
            found.types.iter().all(|kind| self.types().contains(kind))
                && found
                    .uris
                    .iter()
                    .all(|uri| self.uris.iter().any(|own| slashless(own) == slashless(uri)))
                && found.suites.iter().all(|suite| self.suites.contains(suite))
        })
    }

    pub(super) fn is_in(&self, content: &[u8]) -> bool {
        config_file::lines(content).any(|line| self.is(&config_file::text(line)))
    }

    /// Returns the list with this source exactly once, or without it.
    pub(super) fn put(&self, content: &[u8], present: bool, enabled: bool) -> Vec<u8> {
        let entry = present.then(|| self.lines(enabled).join("\n"));
        let mut first = entry.clone();
        config_file::rewrite(content, entry, |line| {
            if self.is(line) {
                first.take().map_or(LineEdit::Remove, LineEdit::Become)
            } else {
                LineEdit::Keep
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_survives_a_round_trip() {
        let line = "deb [arch=amd64,arm64 signed-by=/k.asc] https://example.com/debian bookworm main contrib";
        let source = Source::read(line).unwrap();
        assert_eq!(source.lines(true), [line]);
        let list = b"# old\ndeb https://example.com/debian/ bookworm main\ndeb http://other x y\n";
        let put = String::from_utf8(source.put(list, true, true)).unwrap();
        assert_eq!(put, format!("# old\n{line}\ndeb http://other x y\n"));
        assert_eq!(source.put(put.as_bytes(), true, true), put.as_bytes());
        let gone = source.put(put.as_bytes(), false, true);
        assert_eq!(gone, b"# old\ndeb http://other x y\n");
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_left_alone(line: String) {
            let _ = Source::read(&line);
        }
    }
}
