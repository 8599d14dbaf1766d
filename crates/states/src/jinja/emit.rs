//! Values as YAML text, for Salt's `yaml` filters, as PyYAML writes them: the same order and quotes.
//!
//! In the template of a managed file, lines are broken after 80 columns, as in Salt, so that a file
//! that Salt has written does not change. In state files they are not: there, a broken line would
//! depend on the indentation around it.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::yaml::{Yaml, float_text, resolve};

/// A line that is longer is continued on the next one.
const WIDTH: usize = 80;

/// Texts that PyYAML would read as something else.
static NOT_TEXT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let number = r"[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+";
    let float = r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)";
    let time = r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?";
    Regex::new(&format!("^(?:{number}|{float}|{time}|<<|=|~)$")).ok()
});

/// Formats on as few lines as possible: `{a: 1, b: [x, y]}`.
pub(super) fn flow(value: &Value, lines: Lines) -> String {
    let mut emitter = Emitter::new(lines);
    match value {
        Value::Array(_) | Value::Object(_) => emitter.flow(value, 2),
        scalar => emitter.scalar(scalar, Place::Block, 2),
    }
    emitter.out
}

/// Formats on many lines, indented by two.
pub(super) fn block(value: &Value, lines: Lines) -> String {
    let mut emitter = Emitter::new(lines);
    emitter.block(value, 0, false);
    emitter.out.trim_end().to_owned()
}

/// Formats on many lines, except collections that contain no others.
pub(super) fn mixed(value: &Value, lines: Lines) -> String {
    let mut emitter = Emitter {
        flows_innermost: true,
        ..Emitter::new(lines)
    };
    emitter.block(value, 0, false);
    emitter.out.trim_end().to_owned()
}

/// Whether a text may continue on the next line.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Lines {
    Whole,
    Broken,
}

struct Emitter {
    out: String,
    column: usize,
    flows_innermost: bool,
    lines: Lines,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Key,
    Flow,
    Block,
}

impl Emitter {
    fn new(lines: Lines) -> Self {
        Self {
            out: String::new(),
            column: 0,
            flows_innermost: false,
            lines,
        }
    }

    fn is_full(&self) -> bool {
        self.lines == Lines::Broken && self.column > WIDTH
    }

    fn write(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn line(&mut self, indent: usize) {
        self.out.push('\n');
        self.column = 0;
        self.write(&" ".repeat(indent));
    }

    /// Continues after a comma, on the next line if this one is full.
    fn next(&mut self, indent: usize, first: bool) {
        if !first {
            self.write(",");
        }
        if self.is_full() {
            self.line(indent);
        } else if !first {
            self.write(" ");
        }
    }

    fn flow(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Array(items) => {
                self.write("[");
                for (index, item) in items.iter().enumerate() {
                    self.next(indent, index == 0);
                    self.flow(item, indent + 2);
                }
                self.write("]");
            }
            Value::Object(members) => {
                self.write("{");
                for (index, (key, member)) in members.iter().enumerate() {
                    self.next(indent, index == 0);
                    self.key(key, indent);
                    self.write(": ");
                    self.flow(member, indent + 2);
                }
                self.write("}");
            }
            scalar => self.scalar(scalar, Place::Flow, indent),
        }
    }

    /// Whether a value has lines of its own.
    fn has_lines(&self, value: &Value) -> bool {
        let is_collection = |value: &Value| value.is_array() || value.is_object();
        let (is_empty, is_innermost) = match value {
            Value::Array(items) => (items.is_empty(), !items.iter().any(is_collection)),
            Value::Object(members) => (members.is_empty(), !members.values().any(is_collection)),
            _ => return false,
        };
        !(is_empty || is_innermost && self.flows_innermost)
    }

    fn block(&mut self, value: &Value, indent: usize, after_dash: bool) {
        let mut is_first = after_dash;
        let mut start = |emitter: &mut Self| {
            if !std::mem::take(&mut is_first) && !emitter.out.is_empty() {
                emitter.line(indent);
            }
        };
        match value {
            Value::Array(items) if self.has_lines(value) => {
                for item in items {
                    start(self);
                    self.write("- ");
                    self.block(item, indent + 2, true);
                }
            }
            Value::Object(members) if self.has_lines(value) => {
                for (key, member) in members {
                    start(self);
                    self.key(key, indent);
                    self.write(":");
                    match member {
                        // A list is not indented below its key.
                        Value::Array(_) if self.has_lines(member) => {
                            self.block(member, indent, false);
                        }
                        Value::Object(_) if self.has_lines(member) => {
                            self.block(member, indent + 2, false);
                        }
                        _ => {
                            self.write(" ");
                            self.scalar_or_empty(member, indent + 2);
                        }
                    }
                }
            }
            other => self.scalar_or_empty(other, indent.max(2)),
        }
    }

    fn scalar_or_empty(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Array(_) | Value::Object(_) => self.flow(value, indent),
            scalar => self.scalar(scalar, Place::Block, indent),
        }
    }

    /// Keys of YAML maps are text here, also those that were numbers.
    fn key(&mut self, key: &str, indent: usize) {
        if key
            .parse::<i64>()
            .is_ok_and(|number| number.to_string() == key)
        {
            return self.write(key);
        }
        self.text(key, Place::Key, indent);
    }

    fn scalar(&mut self, value: &Value, place: Place, indent: usize) {
        match value {
            Value::Null => self.write("null"),
            Value::Bool(truth) => self.write(if *truth { "true" } else { "false" }),
            Value::Number(number) => match (number.is_f64(), number.as_f64()) {
                (true, Some(float)) => self.write(&float_text(float)),
                _ => self.write(&number.to_string()),
            },
            Value::String(text) => self.text(text, place, indent),
            Value::Array(_) | Value::Object(_) => self.flow(value, indent),
        }
    }

    fn text(&mut self, text: &str, place: Place, indent: usize) {
        let style = match style(text, place) {
            Style::Single if self.lines == Lines::Whole && text.contains('\n') => Style::Double,
            style => style,
        };
        let splits = place != Place::Key;
        match style {
            Style::Plain => self.folded(text, splits, indent),
            Style::Single => {
                self.write("'");
                self.folded(&text.replace('\'', "''"), splits, indent);
                self.write("'");
            }
            Style::Double => self.write(&double_quoted(text)),
        }
    }

    /// Writes a text. A single space in a full line becomes a line break, and a line break two.
    fn folded(&mut self, text: &str, splits: bool, indent: usize) {
        let characters: Vec<char> = text.chars().collect();
        let mut at = 0;
        while at < characters.len() {
            let from = at;
            match characters[at] {
                ' ' => {
                    while characters.get(at) == Some(&' ') {
                        at += 1;
                    }
                    let is_inside = from > 0 && at < characters.len();
                    if at - from == 1 && is_inside && splits && self.is_full() {
                        self.line(indent);
                    } else {
                        self.write(&" ".repeat(at - from));
                    }
                }
                '\n' => {
                    self.out.push('\n');
                    while characters.get(at) == Some(&'\n') {
                        self.out.push('\n');
                        at += 1;
                    }
                    self.column = 0;
                    self.write(&" ".repeat(indent));
                }
                _ => {
                    while at < characters.len() && !matches!(characters[at], ' ' | '\n') {
                        at += 1;
                    }
                    self.write(&characters[from..at].iter().collect::<String>());
                }
            }
        }
    }
}

enum Style {
    Plain,
    Single,
    Double,
}

/// Returns the simplest style that reads back as the same text.
fn style(text: &str, place: Place) -> Style {
    let is_break = |c: char| matches!(c, '\n' | '\u{85}' | '\u{2028}' | '\u{2029}');
    let is_special = |c: char| {
        c != '\n'
            && (c.is_control()
                || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{FEFF}')
                || ('\u{10000}'..'\u{F0000}').contains(&c))
    };
    let has_break = text.contains(is_break);
    if text.contains(is_special)
        || text.contains("\n ")
        || text.contains(" \n")
        || (has_break && place == Place::Key)
    {
        return Style::Double;
    }
    let reads_as_text = matches!(resolve(text), Yaml::Text(_))
        && !NOT_TEXT.as_ref().is_some_and(|known| known.is_match(text));
    let starts_badly = text.starts_with(|c: char| "#,[]{}&*!|>'\"%@` ".contains(c))
        || text.starts_with("---")
        || text.starts_with("...")
        || ["-", "?", ":"].iter().any(|mark| {
            let rest = text.strip_prefix(mark);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        });
    let is_bad_anywhere =
        text.contains(": ") || text.ends_with([' ', ':']) || text.contains(" #") || has_break;
    let is_bad_in_flow = place != Place::Block
        && (text.contains([',', '?', '[', ']', '{', '}']) || text.contains(':'));
    if text.is_empty() || !reads_as_text || starts_badly || is_bad_anywhere || is_bad_in_flow {
        Style::Single
    } else {
        Style::Plain
    }
}

pub(super) fn double_quoted(text: &str) -> String {
    // YAML understands JSON's escapes.
    Value::from(text).to_string()
}

pub(super) fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_lines_are_broken_as_pyyaml_breaks_them() {
        let numbers: Vec<u32> = (0..50).collect();
        assert_eq!(
            flow(&json!(numbers), Lines::Broken),
            "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,\n  \
             23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42,\n  \
             43, 44, 45, 46, 47, 48, 49]"
        );
        let (long, longer) = ("x".repeat(43), "y".repeat(56));
        let text = json!({"a": format!("{long} {longer} zzzzzzzzzzzz"), "b": 2});
        assert_eq!(
            flow(&text, Lines::Broken),
            format!("{{a: {long} {longer}\n    zzzzzzzzzzzz, b: 2}}")
        );
        assert_eq!(
            block(&text, Lines::Broken),
            format!("a: {long} {longer}\n  zzzzzzzzzzzz\nb: 2")
        );
    }

    #[test]
    fn quotes_stand_where_pyyaml_puts_them() {
        for (text, expected) in [
            ("a", "a"),
            ("true", "'true'"),
            ("1", "'1'"),
            ("", "''"),
            ("a'b", "a'b"),
            ("2020-01-01", "'2020-01-01'"),
            ("12:30", "'12:30'"),
            ("0644", "'0644'"),
            ("a b", "a b"),
            (" a", "' a'"),
            ("1e3", "1e3"),
            ("[a]", "'[a]'"),
            ("-", "'-'"),
            ("-a", "-a"),
            ("x\ny", "'x\n\n  y'"),
            ("a\tb", "\"a\\tb\""),
            ("ü", "ü"),
        ] {
            assert_eq!(block(&json!(text), Lines::Broken), expected, "{text:?}");
        }
        assert_eq!(flow(&json!({"80": "a:b"}), Lines::Whole), "{80: 'a:b'}");
    }

    #[test]
    fn blocks_nest() {
        let value = json!({"a": {"y": [1, {"k": "v", "l": []}], "z": {}}, "b": [[1, 2]]});
        assert_eq!(
            block(&value, Lines::Whole),
            "a:\n  y:\n  - 1\n  - k: v\n    l: []\n  z: {}\nb:\n- - 1\n  - 2"
        );
    }

    proptest::proptest! {
        #[test]
        fn every_text_reads_back(text in "[a-z0-9 :#,'\"\\n\\[\\]{}&*!|>%@`?=~.-]{0,120}") {
            let value = json!({"k": [text.clone()]});
            let both = [Lines::Whole, Lines::Broken];
            for written in both.into_iter().flat_map(|lines| [flow(&value, lines), block(&value, lines)]) {
                let read = crate::yaml::parse(&written).map(|node| node.to_json());
                let read = read.map_err(|error| format!("{}: {written:?}", error.message));
                proptest::prop_assert_eq!(read, Ok(json!({"k": [text.clone()]})));
            }
        }
    }
}
