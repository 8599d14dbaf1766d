//! A variable in /etc/environment: an extension module in Rust.
//!
//! Reads one question per line from standard input and answers each with one
//! line on standard output, until the input ends.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

fn main() -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let question: Value = serde_json::from_str(&line?)?;
        let mut answer = answer(&question).unwrap_or_else(|error| json!({"error": error}));
        answer["id"] = question["id"].clone();
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(question: &Value) -> Result<Value, String> {
    match question["method"].as_str() {
        Some("hello") => Ok(json!({"protocol": 1})),
        Some("describe") => Ok(json!({"types": [
            {"name": "environment_variable", "properties": ["ensure", "value"]},
        ]})),
        Some("observe") => observe(question),
        Some("apply") => apply(question),
        other => Err(format!("there is no method {other:?}")),
    }
}

fn text<'a>(question: &'a Value, parameter: &str) -> Option<&'a str> {
    question["parameters"][parameter].as_str()
}

/// The file, below the root that is managed.
fn path(question: &Value) -> PathBuf {
    let target = text(question, "target").unwrap_or("/etc/environment");
    match question["root"].as_str() {
        Some(root) => PathBuf::from(root).join(target.trim_start_matches('/')),
        None => target.into(),
    }
}

fn lines(question: &Value) -> Result<Vec<String>, String> {
    match std::fs::read_to_string(path(question)) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// The value, if the line sets the variable.
fn value<'a>(line: &'a str, variable: &str) -> Option<&'a str> {
    line.strip_prefix(variable)?.strip_prefix('=')
}

fn observe(question: &Value) -> Result<Value, String> {
    let variable = text(question, "variable").ok_or("there is no name")?;
    let lines = lines(question)?;
    let found = lines.iter().rev().find_map(|line| value(line, variable));
    Ok(match found {
        Some(value) => json!({"state": {"ensure": "present", "value": value}}),
        None => json!({"state": {"ensure": "absent"}}),
    })
}

fn apply(question: &Value) -> Result<Value, String> {
    let variable = text(question, "variable").ok_or("there is no name")?;
    let mut lines = lines(question)?;
    lines.retain(|line| value(line, variable).is_none());
    if text(question, "ensure") == Some("present") {
        let value = text(question, "value").unwrap_or_default();
        lines.push(format!("{variable}={value}"));
    }
    let path = path(question);
    let new = path.with_extension("new");
    let all: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&new, all)
        .and_then(|()| std::fs::rename(&new, &path))
        .map_err(|error| error.to_string())?;
    Ok(json!({"message": format!("wrote {}", path.display())}))
}
