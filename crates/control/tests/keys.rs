//! The table of keys: generated from `src/keys.rs` into `docs/keys.md`.
//!
//! `UPDATE_EXPECT=1` rewrites the page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expect_test::expect_file;

/// A key, or a prefix of keys.
struct Key {
    name: String,
    /// The pattern, with `<words>` for the variable parts.
    pattern: String,
    documentation: String,
}

impl Key {
    /// Returns whether this is a prefix of many keys, not one key.
    fn is_prefix(&self) -> bool {
        self.pattern.ends_with('/') || self.name.ends_with("_from")
    }
}

/// Reads all keys of `keys.rs`, in file order.
fn keys() -> Vec<Key> {
    let text = std::fs::read_to_string(crates().join("control/src/keys.rs")).expect("keys.rs");
    let mut found: Vec<Key> = Vec::new();
    let mut documentation = Vec::new();
    let mut rest = text.as_str();
    while let Some((line, after)) = rest.split_once('\n') {
        if let Some(words) = line.strip_prefix("///") {
            documentation.push(words.trim().to_owned());
        } else if !line.starts_with("#[") {
            let documentation = std::mem::take(&mut documentation).join(" ");
            if let Some((name, template)) = defined(line, rest) {
                found.push(Key {
                    name: name.to_owned(),
                    pattern: template.to_owned(),
                    documentation,
                });
            }
        }
        rest = after;
    }
    assert!(found.len() > 100, "only {} keys", found.len());
    resolved(found)
}

/// Returns the name and the template of a constant, or of a function that builds a key.
fn defined<'a>(line: &'a str, from_here: &'a str) -> Option<(&'a str, &'a str)> {
    if let Some(constant) = line.strip_prefix("pub const ") {
        let (name, value) = constant.split_once(": &str = ")?;
        return Some((name, value.trim_end_matches(';')));
    }
    let name = line.strip_prefix("pub fn ")?.split('(').next()?;
    let body = from_here.split("\n}").next()?;
    let call = body.split("format!(").nth(1)?;
    Some((name, call.trim_start()))
}

/// Replaces references to other keys in templates, wherever those are defined.
fn resolved(mut keys: Vec<Key>) -> Vec<Key> {
    let templates: BTreeMap<String, String> = (keys.iter())
        .map(|key| (key.name.clone(), key.pattern.clone()))
        .collect();
    for key in &mut keys {
        key.pattern = pattern_of(&key.pattern, &templates);
    }
    keys
}

/// Converts `"{NODES}{node}/record")` to `nodes/<node>/record`.
fn pattern_of(template: &str, templates: &BTreeMap<String, String>) -> String {
    let template = template.strip_prefix('"').expect("a text first");
    let (text, arguments) = template.split_once('"').expect("its end");
    // The part after the text begins with a comma.
    let mut arguments = arguments.split(',').skip(1).map(str::trim);
    let mut pattern = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (hole, after) = after.split_once('}').expect("the end of a hole");
        let name = hole.split(':').next().unwrap_or_default();
        let argument = if name.is_empty() {
            arguments.next().expect("an argument for each hole")
        } else {
            name
        };
        pattern.push_str(before);
        pattern.push_str(&filled(argument, templates));
        rest = after;
    }
    pattern + rest
}

fn filled(argument: &str, templates: &BTreeMap<String, String>) -> String {
    let mut words = argument.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
    let name = words.clone().next().unwrap_or_default();
    if let Some(template) = templates.get(name) {
        return pattern_of(template, templates);
    }
    let variable = words.find(|word| word.starts_with(char::is_lowercase));
    format!("<{}>", variable.unwrap_or(name).replace('_', " "))
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_page_of_keys_is_what_the_code_says() {
    let mut page = String::from(
        "# Keys in the store\n\n\
         Every key that the services write, and its writer. This page is generated from\n\
         `crates/control/src/keys.rs`.\n\n\
         | key | writer |\n|---|---|\n",
    );
    for key in keys().iter().filter(|key| !key.is_prefix()) {
        page.push_str(&format!("| `{}` | {} |\n", key.pattern, key.documentation));
    }
    page.push_str(
        "\nMembers of a cluster write the keys below `cluster/`, and `crates/store/src/blobs` those \
         of blobs\n(`blobs/`, `blob-refs/`, `blob-pins/`, `blob-uploads/`, `blob-chunks/`, `blob-objects/`).\n",
    );
    expect_file!["../../../docs/keys.md"].assert_eq(&page);
}

#[test]
fn every_key_names_its_writer() {
    for key in keys().iter().filter(|key| !key.is_prefix()) {
        let names_it = key.documentation.starts_with("Written");
        assert!(names_it, "`{}`: {}", key.name, key.documentation);
    }
}

#[test]
fn no_two_functions_make_the_same_key() {
    let all = keys();
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for key in all.iter().filter(|key| !key.is_prefix()) {
        if let Some(other) = seen.insert(&key.pattern, &key.name) {
            panic!("`{}` and `{other}` make `{}`", key.name, key.pattern);
        }
    }
}
