//! Values as YAML text, for Salt's `yaml` filters.

use serde_json::Value;

use crate::yaml::{Yaml, float_text, resolve};

/// Formats on one line: `{a: 1, b: [x, y]}`.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(flow).collect::<Vec<_>>().join(", ")
        ),
        Value::Object(members) => {
            let inside: Vec<String> = members
                .iter()
                .map(|(key, member)| format!("{}: {}", scalar_text(key), flow(member)))
                .collect();
            format!("{{{}}}", inside.join(", "))
        }
        scalar => scalar_of(scalar),
    }
}

/// Formats on many lines, indented by two.
pub(super) fn block(value: &Value) -> String {
    let mut out = String::new();
    block_into(&mut out, value, 0);
    out.trim_end().to_owned()
}

fn block_into(out: &mut String, value: &Value, indent: usize) {
    let pad = " ".repeat(indent);
    match value {
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                out.push_str(&format!("{pad}-"));
                nested(out, item, indent + 2, true);
            }
        }
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members {
                out.push_str(&format!("{pad}{}:", scalar_text(key)));
                nested(
                    out,
                    member,
                    indent + if member.is_array() { 0 } else { 2 },
                    false,
                );
            }
        }
        other => out.push_str(&format!("{pad}{}\n", flow(other))),
    }
}

fn nested(out: &mut String, value: &Value, indent: usize, after_dash: bool) {
    let has_lines = match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => false,
    };
    if !has_lines {
        out.push_str(&format!(" {}\n", flow(value)));
        return;
    }
    if after_dash {
        let mut inner = String::new();
        block_into(&mut inner, value, indent);
        out.push(' ');
        out.push_str(inner.trim_start());
    } else {
        out.push('\n');
        block_into(out, value, indent);
    }
}

fn scalar_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => match (number.is_f64(), number.as_f64()) {
            (true, Some(float)) => float_text(float),
            _ => number.to_string(),
        },
        Value::String(text) => scalar_text(text),
        Value::Array(_) | Value::Object(_) => flow(value),
    }
}

/// Formats a text plainly if that reads back as the same text, and quoted otherwise.
fn scalar_text(text: &str) -> String {
    let plain = !text.is_empty()
        && matches!(resolve(text), Yaml::Text(_))
        && !text.starts_with(|c: char| c.is_whitespace() || "-?:,[]{}#&*!|>'\"%@`=<~".contains(c))
        && !text.ends_with(|c: char| c.is_whitespace() || c == ':')
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.contains(|c: char| c.is_control() || ",[]{}".contains(c))
        && !looks_like_a_time(text);
    if plain {
        text.to_owned()
    } else if text.contains(|c: char| c.is_control()) {
        double_quoted(text)
    } else {
        single_quoted(text)
    }
}

fn looks_like_a_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-'
}

pub(super) fn double_quoted(text: &str) -> String {
    // YAML understands JSON's escapes.
    Value::from(text).to_string()
}

pub(super) fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
