//! Heredocs: `@("END"/nt)`, with the text on the following lines.

use super::string::Escapes;
use super::{Lexer, TokenKind, TokenSegment};
use crate::diagnostic::Diagnostic;

impl Lexer<'_> {
    pub(super) fn heredoc_starts(&self) -> bool {
        let after = self.rest()[1..].trim_start_matches([' ', '\t']);
        let Some(inner) = after.strip_prefix('(') else {
            return false;
        };
        inner
            .find([')', '\n'])
            .is_some_and(|at| inner[at..].starts_with(')'))
    }

    pub(super) fn heredoc(&mut self) -> Result<TokenKind, Diagnostic> {
        let start = self.position;
        let rest = self.rest();
        let open = rest.find('(').unwrap_or(0);
        let close = rest.find(')').unwrap_or(open);
        let span = self.span(start, start + close + 1);
        let head = Head::read(&rest[open + 1..close]);
        if head.tag.is_empty() {
            return Err(Diagnostic::new("a heredoc needs an end tag", span)
                .hint("write `@(END)`, or `@(\"END\")` to insert variables"));
        }
        self.position += close + 1;
        let from = match self.after_heredocs {
            Some(from) => from,
            None => self
                .rest()
                .find('\n')
                .map_or(self.text.len(), |at| self.position + at + 1),
        };
        let Some((body, after)) = body(&self.text[from..], head.tag) else {
            return Err(Diagnostic::new("the end of this heredoc is missing", span)
                .hint(format!("end it with a line `| {}`", head.tag)));
        };
        self.after_heredocs = Some(from + after);
        let mut inner = Lexer::new(&body, self.file, self.limits);
        inner.nesting = self.nesting + 1;
        if inner.nesting > self.limits.depth / 2 {
            return Err(Diagnostic::new("strings are nested too deeply", span));
        }
        inner.fixed_span = Some(span);
        let escapes = Escapes {
            known: &head.escapes,
            interpolate: head.interpolate,
        };
        let segments = inner.segments(None, escapes, 0)?;
        Ok(match segments.as_slice() {
            [] => TokenKind::String(String::new()),
            [TokenSegment::Text(text)] => TokenKind::String(text.clone()),
            _ => TokenKind::Interpolated(segments),
        })
    }
}

/// The part between the parentheses.
struct Head<'a> {
    tag: &'a str,
    interpolate: bool,
    escapes: String,
}

impl<'a> Head<'a> {
    fn read(text: &'a str) -> Self {
        let (name, flags) = text
            .rsplit_once('/')
            .map_or((text, None), |(name, flags)| (name, Some(flags)));
        // `:json` names a syntax and has no effect.
        let name = name.split_once(':').map_or(name, |(name, _)| name).trim();
        let quoted = name
            .strip_prefix('"')
            .and_then(|name| name.strip_suffix('"'));
        let escapes = match flags.map(str::trim) {
            None => String::new(),
            Some("") => "nrtsuL$\\".to_owned(),
            Some(flags) => format!("{flags}\\"),
        };
        Self {
            tag: quoted.unwrap_or(name).trim(),
            interpolate: quoted.is_some(),
            escapes,
        }
    }
}

/// Returns the text up to the end tag, and the position where the source continues.
fn body(text: &str, tag: &str) -> Option<(String, usize)> {
    let mut at = 0;
    let mut lines: Vec<&str> = Vec::new();
    for line in text.split_inclusive('\n') {
        at += line.len();
        if let Some((margin, trimmed)) = end_line(line, tag) {
            let mut body: String = lines
                .iter()
                .map(|line| strip_margin(line, margin))
                .collect();
            if trimmed {
                let kept = body.trim_end_matches(['\n', '\r']).len();
                body.truncate(kept);
            }
            return Some((body, at));
        }
        lines.push(line);
    }
    None
}

/// If this line ends the heredoc, returns the margin and whether the last newline is removed.
fn end_line(line: &str, tag: &str) -> Option<(usize, bool)> {
    let content = line.trim_start_matches([' ', '\t']);
    let indent = line.len() - content.len();
    let (margin, content) = match content.strip_prefix('|') {
        Some(content) => (indent, content.trim_start_matches([' ', '\t'])),
        None => (0, content),
    };
    let (trimmed, content) = match content.strip_prefix('-') {
        Some(content) => (true, content.trim_start_matches([' ', '\t'])),
        None => (false, content),
    };
    (content.trim_end() == tag).then_some((margin, trimmed))
}

fn strip_margin(line: &str, margin: usize) -> &str {
    let blank = line
        .bytes()
        .take(margin)
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    &line[blank..]
}
