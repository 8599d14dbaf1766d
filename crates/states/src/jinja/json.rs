//! Values as JSON text, as Python writes them.

use std::fmt::Write as _;

use serde_json::Value;

/// How a value is written.
#[derive(Clone, Copy, Default)]
pub(super) struct JsonStyle {
    /// The spaces of each level. Without it, everything is on one line.
    pub(super) indent: Option<usize>,
    /// Writes characters that have a meaning in HTML, and those that are not ASCII, as escapes.
    pub(super) is_for_html: bool,
}

pub(super) fn written(value: &Value, style: JsonStyle) -> String {
    let mut out = String::new();
    write_into(&mut out, value, style, 0);
    out
}

fn write_into(out: &mut String, value: &Value, style: JsonStyle, level: usize) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separator(out, style, index, level + 1);
                write_into(out, item, style, level + 1);
            }
            end(out, style, level);
            out.push(']');
        }
        Value::Object(members) if !members.is_empty() => {
            out.push('{');
            for (index, (key, member)) in members.iter().enumerate() {
                separator(out, style, index, level + 1);
                text(out, key, style);
                out.push_str(": ");
                write_into(out, member, style, level + 1);
            }
            end(out, style, level);
            out.push('}');
        }
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        Value::String(content) => text(out, content, style),
        scalar => {
            let _ = write!(out, "{scalar}");
        }
    }
}

fn separator(out: &mut String, style: JsonStyle, index: usize, level: usize) {
    match style.indent {
        Some(indent) => {
            out.push_str(if index > 0 { ",\n" } else { "\n" });
            out.push_str(&" ".repeat(indent * level));
        }
        None if index > 0 => out.push_str(", "),
        None => {}
    }
}

fn end(out: &mut String, style: JsonStyle, level: usize) {
    if let Some(indent) = style.indent {
        out.push('\n');
        out.push_str(&" ".repeat(indent * level));
    }
}

fn text(out: &mut String, content: &str, style: JsonStyle) {
    let quoted = Value::from(content).to_string();
    if !style.is_for_html {
        return out.push_str(&quoted);
    }
    for character in quoted.chars() {
        match character {
            '<' | '>' | '&' | '\'' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            // The stand-ins of facts stay what they are.
            other if other.is_ascii() || other >= '\u{F0000}' => out.push(other),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_has_pythons_spaces_and_indentation() {
        let value = json!({"b": [1, {}], "a": "ü<"});
        let plain = JsonStyle::default();
        assert_eq!(written(&value, plain), r#"{"b": [1, {}], "a": "ü<"}"#);
        let indent = Some(4);
        assert_eq!(
            written(&value, JsonStyle { indent, ..plain }),
            "{\n    \"b\": [\n        1,\n        {}\n    ],\n    \"a\": \"ü<\"\n}"
        );
        let is_for_html = true;
        assert_eq!(
            written(
                &json!("ü<'"),
                JsonStyle {
                    is_for_html,
                    ..plain
                }
            ),
            r#""\u00fc\u003c\u0027""#
        );
    }
}
