//! The names in `${ NAME… }`: outputs of other states that a value reads.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

/// Calls `act` for each text inside a value.
pub(crate) fn each_text(value: &Value, act: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => act(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, act)),
        Value::Object(members) => members.values().for_each(|member| each_text(member, act)),
        _ => {}
    }
}

pub(crate) fn pattern(cell: &'static OnceLock<Regex>, text: &str) -> &'static Regex {
    cell.get_or_init(|| Regex::new(text).expect("a valid pattern"))
}

/// Collects the names in all `${ NAME… }` inside a value.
pub(crate) fn output_names(value: &Value, names: &mut Vec<String>) {
    static USE: OnceLock<Regex> = OnceLock::new();
    let pattern = pattern(&USE, r"\$\{\s*([A-Za-z_][\w-]*)");
    each_text(value, &mut |text| {
        if text.contains("${") {
            names.extend(pattern.captures_iter(text).map(|found| found[1].to_owned()));
        }
    });
}
