//! Functions over texts: paths, and data in a text format.

use minijinja::{Error, State, Value};

use super::Arguments;
use crate::jinja::conversion::{KeyOrder, json_in_order};
use crate::jinja::filters::{invalid, lines, load_json, load_yaml};
use crate::jinja::json::{JsonStyle, written};
use crate::jinja::{emit, python, rendered_file, taint};

/// Implements `slsutil.serialize(serializer, obj, …)` for JSON and YAML.
pub(super) fn serialize(state: &State<'_, '_>, arguments: &Arguments) -> Result<Value, Error> {
    let serializer = arguments.text(0, "serializer")?;
    let value = arguments.required(1, "obj")?;
    let text = match serializer.as_str() {
        "json" => {
            let order = if arguments.is_true(usize::MAX, "sort_keys", false) {
                KeyOrder::Sorted
            } else {
                KeyOrder::Kept
            };
            let json = taint::quoted_value(json_in_order(&value, order));
            let indent = arguments.get(usize::MAX, "indent");
            let indent = indent.and_then(|indent| indent.as_usize());
            written(
                &json,
                JsonStyle {
                    indent,
                    ..JsonStyle::default()
                },
            )
        }
        "yaml" => {
            let json = taint::quoted_value(json_in_order(&value, KeyOrder::Sorted));
            let flow = arguments.get(usize::MAX, "default_flow_style");
            match flow.filter(|flow| !flow.is_none()) {
                None => emit::mixed(&json, lines(state)),
                Some(flow) if flow.is_true() => emit::flow(&json, lines(state)),
                Some(_) => emit::block(&json, lines(state)),
            }
        }
        other => {
            return Err(invalid(format!(
                "the serializer `{other}` is not supported"
            )));
        }
    };
    Ok(Value::from(text))
}

/// Implements `slsutil.deserialize(serializer, stream_or_string)`.
pub(super) fn deserialize(arguments: &Arguments) -> Result<Value, Error> {
    let text = arguments.text(1, "stream_or_string")?;
    match arguments.text(0, "serializer")?.as_str() {
        "json" => load_json(&text),
        "yaml" => load_yaml(&text),
        other => Err(invalid(format!(
            "the serializer `{other}` is not supported"
        ))),
    }
}

/// Implements `slsutil.boolstr(value, true='true', false='false')`.
pub(super) fn boolstr(arguments: &Arguments) -> Result<Value, Error> {
    let (position, word) = if arguments.is_true(0, "value", false) {
        (1, "true")
    } else {
        (2, "false")
    };
    let given = arguments.get(position, word);
    Ok(given.unwrap_or_else(|| Value::from(word)))
}

/// Implements `slsutil.renderer(path, default_renderer='jinja|yaml')` for files of the tree.
pub(super) fn rendered(state: &State<'_, '_>, arguments: &Arguments) -> Result<Value, Error> {
    let path = arguments.text(0, "path")?;
    let renderer = arguments.get(2, "default_renderer");
    let renderer = renderer.map_or("jinja|yaml".to_owned(), |given| python::text(&given));
    let text = rendered_file(state, &path, false)?;
    match renderer.as_str() {
        "jinja|yaml" | "yaml" => load_yaml(&text),
        "jinja|json" | "json" => load_json(&text),
        "jinja" => Ok(Value::from(text)),
        other => Err(invalid(format!("the renderer `{other}` is not supported"))),
    }
}

/// Implements `file.dirname`, `file.basename`, `file.join` and `file.normpath` with Python's rules.
pub(super) fn path(name: &str, arguments: &Arguments) -> Result<Value, Error> {
    if name == "file.join" {
        let mut parts = arguments.positional.iter().map(python::text);
        let first = parts.next().unwrap_or_default();
        return Ok(Value::from(
            parts.fold(first, |path, part| joined(&path, &part)),
        ));
    }
    let path = arguments.text(0, "path")?;
    let (directory, last) = match path.rfind('/') {
        Some(at) => path.split_at(at + 1),
        None => ("", path.as_str()),
    };
    Ok(Value::from(match name {
        "file.basename" => last.to_owned(),
        "file.dirname" => match directory.trim_end_matches('/') {
            "" => directory.to_owned(),
            shorter => shorter.to_owned(),
        },
        _ => normal(&path),
    }))
}

/// Implements `os.path.join` for two paths.
pub(super) fn joined(path: &str, part: &str) -> String {
    if part.starts_with('/') || path.is_empty() {
        part.to_owned()
    } else if path.ends_with('/') {
        format!("{path}{part}")
    } else {
        format!("{path}/{part}")
    }
}

/// Implements `os.path.normpath`.
fn normal(path: &str) -> String {
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    match (is_absolute, parts.join("/")) {
        (true, below) => format!("/{below}"),
        (false, below) if below.is_empty() => ".".to_owned(),
        (false, below) => below,
    }
}
