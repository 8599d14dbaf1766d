//! The dialect: translates Salt's Jinja for the template engine.
//!
//! - `{% load_yaml as x %}…{% endload %}`, `{% import_yaml 'f' as x %}` and their `json` and `text`
//!   variants become assignments.
//! - Every `{% set x = … %}` passes its value through `__own`, which creates lists and maps that
//!   `{% do x.append(…) %}` can change.
//! - Text gets invisible marks with its line, wherever it can only go to the output, so that a
//!   position in the rendered text leads back here.
//!
//! Lines are never added or removed, so line numbers of errors stay correct.
//! [`RewrittenTemplate::original`] maps columns back.

use std::fmt::Write as _;

use super::percent;

/// The marks around `FILE:LINE`. Unicode reserves these two noncharacters for such use, and no text
/// may contain them. A source that does gets no marks.
pub(crate) const MARK_BEGIN: char = '\u{FDD0}';
pub(crate) const MARK_END: char = '\u{FDD1}';

/// A rewritten template.
#[derive(Clone, Debug, Default)]
pub(crate) struct RewrittenTemplate {
    pub(crate) text: String,
    /// The starts of copied parts, in the new and the old text.
    parts: Vec<(usize, usize)>,
}

impl RewrittenTemplate {
    /// Maps a position in this text to the original text.
    pub(crate) fn original(&self, at: usize) -> usize {
        match self.parts.partition_point(|(new, _)| *new <= at) {
            0 => 0,
            index => {
                let (new, old) = self.parts[index - 1];
                let next_old = self.parts.get(index).map_or(usize::MAX, |(_, old)| *old);
                (old + at - new).min(next_old)
            }
        }
    }
}

/// Rewrites a template. `preamble` is inserted at the start of the first line.
pub(crate) fn rewrite(source: &str, preamble: &str, marks: Option<usize>) -> RewrittenTemplate {
    let marks = marks.filter(|_| !source.contains([MARK_BEGIN, MARK_END]));
    let mut rewriter = Rewriter {
        source,
        at: 0,
        line: 1,
        line_has_text: false,
        marks,
        captures: Vec::new(),
        out: RewrittenTemplate::default(),
    };
    rewriter.out.text.push_str(preamble);
    rewriter.out.parts.push((preamble.len(), 0));
    rewriter.run();
    rewriter.out
}

struct Rewriter<'a> {
    source: &'a str,
    at: usize,
    line: usize,
    /// This line has already produced output, or may have.
    line_has_text: bool,
    marks: Option<usize>,
    /// The open blocks whose text does not go directly to the output.
    captures: Vec<&'static str>,
    out: RewrittenTemplate,
}

impl Rewriter<'_> {
    fn run(&mut self) {
        while self.at < self.source.len() {
            let rest = &self.source[self.at..];
            let next = ["{{", "{%", "{#"]
                .iter()
                .filter_map(|open| rest.find(open))
                .min();
            let text = next.unwrap_or(rest.len());
            self.text(text);
            if next.is_some() {
                self.tag();
            }
        }
    }

    /// Copies literal text, with marks before the first word of each line.
    fn text(&mut self, length: usize) {
        let end = self.at + length;
        let mut from = self.at;
        while from < end {
            let line_end = self.source[from..end]
                .find('\n')
                .map_or(end, |at| from + at + 1);
            let line = &self.source[from..line_end];
            let blank = line.len() - line.trim_start().len();
            if !line.trim().is_empty() {
                self.copy(from, from + blank);
                self.mark();
                self.copy(from + blank, line_end);
            } else {
                self.copy(from, line_end);
            }
            if line.ends_with('\n') {
                self.line += 1;
                self.line_has_text = false;
            }
            from = line_end;
        }
        self.at = end;
    }

    fn mark(&mut self) {
        if let Some(file) = self.marks
            && self.captures.is_empty()
            && !self.line_has_text
        {
            let _ = write!(self.out.text, "{MARK_BEGIN}{file}:{}{MARK_END}", self.line);
        }
        self.line_has_text = true;
    }

    fn copy(&mut self, from: usize, to: usize) {
        if from < to {
            self.out.parts.push((self.out.text.len(), from));
            self.out.text.push_str(&self.source[from..to]);
        }
    }

    fn put(&mut self, text: &str) {
        self.out.parts.push((self.out.text.len(), self.at));
        self.out.text.push_str(text);
    }

    fn tag(&mut self) {
        let open = &self.source[self.at..self.at + 2];
        let (close, strings) = match open {
            "{{" => ("}}", true),
            "{%" => ("%}", true),
            _ => ("#}", false),
        };
        let end = end_of_tag(self.source, self.at + 2, close, strings);
        let whole = &self.source[self.at..end];
        match open {
            "{{" => {
                if !whole.starts_with("{{-") {
                    self.mark();
                }
                self.expression(self.at, end);
            }
            "{%" => self.statement(end),
            _ => self.copy(self.at, end),
        }
        self.line += self.source[self.at..end].matches('\n').count();
        self.at = end;
        if is_raw(whole) {
            self.raw();
        }
    }

    /// Copies everything up to `{% endraw %}` as text.
    fn raw(&mut self) {
        let rest = &self.source[self.at..];
        let mut from = 0;
        while let Some(found) = rest[from..].find("{%") {
            let start = from + found;
            let inside = rest[start + 2..]
                .trim_start_matches(['-', '+'])
                .trim_start();
            if inside.starts_with("endraw") {
                self.text(start);
                return;
            }
            from = start + 2;
        }
        self.text(rest.len());
    }

    fn statement(&mut self, end: usize) {
        let whole = &self.source[self.at..end];
        let head = if whole.starts_with("{%-") || whole.starts_with("{%+") {
            3
        } else {
            2
        };
        let tail = if whole.ends_with("-%}") || whole.ends_with("+%}") {
            3
        } else {
            2
        };
        // The template engine refuses a tag that does not end.
        if whole.len() < head + tail || !whole.ends_with("%}") {
            return self.copy(self.at, end);
        }
        let inside = &whole[head..whole.len() - tail];
        let opening = whole[..head].to_owned();
        let closing = whole[whole.len() - tail..].to_owned();
        let word = inside.split_whitespace().next().unwrap_or_default();
        // Line breaks inside a tag are kept, so that line numbers stay in step.
        let breaks = "\n".repeat(inside.matches('\n').count());
        let changed = match word {
            "load_yaml" | "load_json" | "load_text" => {
                self.captures.push("set");
                as_name(inside).map(|(_, name, _)| format!(" set {name} | __{word} {breaks}"))
            }
            "endload" => {
                self.captures.pop();
                Some(format!(" endset {breaks}"))
            }
            "import_yaml" | "import_json" | "import_text" => {
                as_name(inside).map(|(path, name, context)| {
                    let path = path.trim().trim_start_matches(word).trim();
                    format!(" set {name} = __own(__{word}(({path}), {context})) {breaks}")
                })
            }
            // Assignments in an included file stay in it.
            "include" => {
                let inside = inside.to_owned();
                self.put(&format!(
                    "{opening} with %}}{{%{inside}%}}{{% endwith {closing}"
                ));
                return;
            }
            "profile" => Some(format!(" if true {breaks}")),
            "endprofile" => Some(format!(" endif {breaks}")),
            "set" => match assignment(inside) {
                Some(equals) => return self.owned_set(end - tail, self.at + head + equals, end),
                None => {
                    self.captures.push("set");
                    None
                }
            },
            "macro" | "call" | "filter" | "block" => {
                self.captures.push("block");
                None
            }
            "endmacro" | "endcall" | "endfilter" | "endblock" | "endset" => {
                self.captures.pop();
                None
            }
            _ => None,
        };
        match changed {
            Some(changed) => self.put(&format!("{opening}{changed}{closing}")),
            None => self.expression(self.at, end),
        }
    }

    /// Copies the inside of a tag. Python's `'%s' % x` becomes `'%s'|format(x)`.
    fn expression(&mut self, from: usize, to: usize) {
        let mut at = from;
        for (operator, operand) in percent::formats(&self.source[from..to]) {
            self.copy(at, from + operator.start);
            self.out.text.push_str("|format(");
            self.copy(from + operand.start, from + operand.end);
            self.out.text.push(')');
            // Line breaks between the two are kept.
            let between = &self.source[from + operator.start..from + operand.start];
            let breaks = between.matches('\n').count();
            self.out.text.push_str(&"\n".repeat(breaks));
            at = from + operand.end;
            if self.source[at..to].starts_with(')')
                && self.source[from + operand.start - 1..].starts_with('(')
            {
                at += 1;
            }
        }
        self.copy(at, to);
    }

    /// Rewrites `set x = EXPR` as `set x = __own((EXPR))`.
    fn owned_set(&mut self, inside_end: usize, equals: usize, end: usize) {
        self.copy(self.at, equals + 1);
        self.out.text.push_str(" __own((");
        self.expression(equals + 1, inside_end);
        self.out.text.push_str("))");
        self.copy(inside_end, end);
    }
}

fn is_raw(tag: &str) -> bool {
    tag.starts_with("{%")
        && tag[2..]
            .trim_start_matches(['-', '+'])
            .trim_start()
            .split([' ', '-', '%', '\n'])
            .next()
            == Some("raw")
}

/// Splits `WORD … as NAME` at the last ` as `, and says whether it has `with context`.
fn as_name(inside: &str) -> Option<(&str, &str, bool)> {
    let inside = inside.trim();
    let without = inside.strip_suffix("without context");
    let with = inside
        .strip_suffix("with context")
        .filter(|_| without.is_none());
    let inside = without.or(with).unwrap_or(inside);
    let (before, name) = inside.trim_end().rsplit_once(" as ").or_else(|| {
        // `{% load_yaml as x %}` has nothing between the word and `as`.
        inside.split_once("as ")
    })?;
    Some((before, name.trim(), with.is_some()))
}

/// Returns the position of the `=` of an assignment, if the statement has one.
fn assignment(inside: &str) -> Option<usize> {
    let bytes = inside.as_bytes();
    let mut depth = 0;
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'|' if depth == 0 => return None,
            b'=' if depth == 0 => return (bytes.get(index + 1) != Some(&b'=')).then_some(index),
            _ => {}
        }
    }
    None
}

/// Returns the end of a tag. A `%}` inside a string does not end it.
fn end_of_tag(source: &str, from: usize, close: &str, strings: bool) -> usize {
    let bytes = source.as_bytes();
    let mut quote = None;
    let mut at = from;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'\'' | b'"')) if strings => quote = Some(byte),
            (None, _) if source.as_bytes()[at..].starts_with(close.as_bytes()) => {
                return at + close.len();
            }
            _ => {}
        }
        at += 1;
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(source: &str) -> String {
        rewrite(source, "", None).text
    }

    #[test]
    fn assignments_own_their_values() {
        assert_eq!(
            plain("{%- set x = [1, '%}'] -%}"),
            "{%- set x = __own(( [1, '%}'] ))-%}"
        );
        assert_eq!(
            plain("{% set x = a == b %}"),
            "{% set x = __own(( a == b ))%}"
        );
        assert_eq!(plain("{% set ns.x = 1 %}"), "{% set ns.x = __own(( 1 ))%}");
        assert_eq!(
            plain("{% set x %}=y{% endset %}"),
            "{% set x %}=y{% endset %}"
        );
    }

    #[test]
    fn salts_own_tags_become_assignments() {
        assert_eq!(
            plain("{% load_yaml as x %}a: 1{% endload %}"),
            "{% set x | __load_yaml %}a: 1{% endset %}"
        );
        assert_eq!(
            plain("{% import_yaml 'as a.yml' as x with context %}"),
            "{% set x = __own(__import_yaml(('as a.yml'), true)) %}"
        );
    }

    #[test]
    fn marks_stand_only_where_text_goes_to_the_output() {
        let marked = rewrite(
            "a\n  b{{ c }}\n{% macro m() %}\nd\n{% endmacro %}\n{{ e }}\n",
            "",
            Some(7),
        )
        .text;
        let shown = marked.replace(MARK_BEGIN, "<").replace(MARK_END, ">");
        assert_eq!(
            shown,
            "<7:1>a\n  <7:2>b{{ c }}\n{% macro m() %}\nd\n{% endmacro %}\n<7:6>{{ e }}\n"
        );
    }

    #[test]
    fn raw_text_is_left_alone() {
        let source = "{% raw %}{% set x = 1 %}{{ y }}{% endraw %}";
        assert_eq!(plain(source), source);
    }

    #[test]
    fn places_lead_back_to_the_original() {
        let source = "{% set x = boom %}";
        let new = rewrite(source, "{% set q = 1 %}", None);
        let at = new.text.find("boom").expect("copied");
        assert_eq!(new.original(at), source.find("boom").expect("there"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic_and_lines_stay(source in "[{}%# \\n'\"\\-=|a-zü]{0,60}") {
            let new = rewrite(&source, "", Some(0));
            let expected = source.matches('\n').count();
            proptest::prop_assert_eq!(new.text.matches('\n').count(), expected);
        }
    }
}
