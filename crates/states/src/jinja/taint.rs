//! Facts as a node sends them must not become structure.
//!
//! A file is rendered twice: with the facts, and with facts in which every character that YAML
//! could read as structure is replaced by a stand-in from Unicode's private use area. YAML reads
//! stand-ins as ordinary content. If both texts, parsed, contain the same, then no fact created
//! structure. Templates compute on text in any way they like: nothing has to be tracked.
//!
//! A control character of a fact is refused wherever its stand-in reaches the text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::{Environment, Error, State, Value};
use serde_json::{Map, Value as Json};

use super::mutable::List;
use super::rewrite::{MARK_BEGIN, MARK_END};
use crate::yaml::{Node, Yaml};

/// The stand-in of a character is the character above this one.
const BASE: u32 = 0xF_0000;
/// The same within a text that a filter quoted: there, control characters are harmless.
const QUOTED: u32 = 0x10_0000;

/// Facts without characters that this crate gives a meaning of its own.
pub(crate) fn clean(facts: &Map<String, Json>) -> Map<String, Json> {
    let is_ours = |c: char| is_stand_in(c) || matches!(c, MARK_BEGIN | MARK_END);
    let text = |text: &str, _: bool| text.replace(is_ours, "\u{FFFD}");
    match changed(&Json::Object(facts.clone()), &text) {
        Json::Object(facts) => facts,
        _ => Map::new(),
    }
}

/// Returns the data with stand-ins for characters that YAML could read as structure.
pub(crate) fn encoded(data: &Map<String, Json>) -> Map<String, Json> {
    match encoded_value(&Json::Object(data.clone())) {
        Json::Object(data) => data,
        _ => Map::new(),
    }
}

pub(crate) fn encoded_value(data: &Json) -> Json {
    changed(data, &encoded_text)
}

fn changed(data: &Json, text: &impl Fn(&str, bool) -> String) -> Json {
    match data {
        Json::String(value) => Json::String(text(value, false)),
        Json::Array(items) => items.iter().map(|item| changed(item, text)).collect(),
        Json::Object(members) => {
            let members = members.iter();
            let members = members.map(|(key, value)| (text(key, true), changed(value, text)));
            Json::Object(members.collect())
        }
        other => other.clone(),
    }
}

/// Returns all texts of some data, one after the other.
pub(crate) fn texts(data: &Json) -> String {
    match data {
        Json::String(text) => format!("{text}\0"),
        Json::Array(items) => items.iter().map(texts).collect(),
        Json::Object(members) => {
            let members = members.iter();
            let members = members.map(|(key, value)| format!("{key}\0{}", texts(value)));
            members.collect()
        }
        _ => String::new(),
    }
}

fn encoded_text(text: &str, is_key: bool) -> String {
    let is_dots = matches!(text, "." | "..");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let next = rest.peek().copied();
        let is_structure = match c {
            _ if c.is_control() => true,
            '\u{2028}' | '\u{2029}' | '\u{FEFF}' => true,
            ',' | '[' | ']' | '{' | '}' | '"' | '\'' | '\\' | '#' | '&' | '*' | '!' | '|' | '>'
            | '%' | '@' | '`' => true,
            // In addresses it is content.
            ':' => next.is_none_or(|next| next.is_whitespace() || ",[]{}\"'".contains(next)),
            '-' | '?' => next.is_none_or(char::is_whitespace),
            // A path of the state tree must not get more steps from a fact.
            '/' => !is_key,
            '.' => is_dots && !is_key,
            _ => false,
        };
        out.push(if is_structure { stand_in(c) } else { c });
    }
    out
}

fn stand_in(c: char) -> char {
    char::from_u32(BASE + u32::from(c)).unwrap_or('\u{FFFD}')
}

fn is_stand_in(c: char) -> bool {
    u32::from(c) >= BASE
}

fn is_quoted(c: char) -> bool {
    u32::from(c) >= QUOTED
}

/// Returns the character that a stand-in stands for.
pub(super) fn original(c: char) -> char {
    let base = if is_quoted(c) { QUOTED } else { BASE };
    let original = u32::from(c).checked_sub(base).and_then(char::from_u32);
    original.unwrap_or(c)
}

/// Returns the text for a filter that quotes it.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    moved(text, |c| is_stand_in(c) && !is_quoted(c), QUOTED - BASE)
}

/// Returns data for a filter that quotes every text.
pub(super) fn quoted_value(data: Json) -> Json {
    changed_texts(data, |text| quoted(text).into_owned())
}

/// Returns data that was read from a text that a filter quoted.
fn unquoted_value(data: Json) -> Json {
    let back = BASE.wrapping_sub(QUOTED);
    changed_texts(data, |text| moved(text, is_quoted, back).into_owned())
}

fn moved(text: &str, which: impl Fn(char) -> bool, by: u32) -> Cow<'_, str> {
    if !text.contains(&which) {
        return text.into();
    }
    let moved = text.chars().map(|c| {
        let other = char::from_u32(u32::from(c).wrapping_add(by));
        if which(c) { other.unwrap_or(c) } else { c }
    });
    moved.collect::<String>().into()
}

fn changed_texts(data: Json, text: impl Fn(&str) -> String) -> Json {
    match &data {
        Json::Null | Json::Bool(_) | Json::Number(_) => data,
        _ => changed(&data, &|one, _| text(one)),
    }
}

/// Returns the text with the original characters.
pub(crate) fn decoded(text: &str) -> Cow<'_, str> {
    if text.contains(is_stand_in) {
        text.chars().map(original).collect::<String>().into()
    } else {
        text.into()
    }
}

/// Returns data with the original characters.
pub(super) fn decoded_value(data: Json) -> Json {
    changed_texts(data, |text| decoded(text).into_owned())
}

/// Returns what `parse` reads from a text. A text that is a fact is read as such, and what it
/// contains are facts.
pub(super) fn parsed<E>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<Json, E>,
) -> Result<Json, E> {
    let begins_with_fact = |c: char| is_stand_in(c) && !is_quoted(c);
    if text.trim_start().starts_with(begins_with_fact) {
        return parse(&decoded(text)).map(|data| encoded_value(&data));
    }
    parse(text).map(unquoted_value)
}

/// A difference between a text and the same text with facts as content.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Injection {
    pub(crate) what: InjectionKind,
    /// The position in the text.
    pub(crate) line: usize,
    pub(crate) column: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InjectionKind {
    /// A control character, such as a line break.
    Control(char),
    /// Something that YAML reads as more than a value.
    Structure,
    /// Steps of a path in the state tree.
    Path,
}

/// Finds a control character of a fact in the rendered text.
pub(crate) fn control_character(shadow: &str) -> Option<Injection> {
    for (line, text) in shadow.lines().enumerate() {
        let found = text
            .chars()
            .enumerate()
            .find(|(_, c)| is_stand_in(*c) && !is_quoted(*c) && original(*c).is_control());
        if let Some((column, c)) = found {
            return Some(Injection {
                what: InjectionKind::Control(original(c)),
                line: line + 1,
                column: column + 1,
            });
        }
    }
    None
}

/// Compares what was read with the facts and with stand-ins.
pub(crate) fn difference(real: &Node, shadow: &Node, may_target: bool) -> Option<Injection> {
    let here = |what| {
        Some(Injection {
            what,
            line: real.line,
            column: real.column,
        })
    };
    match (&real.value, &shadow.value) {
        (Yaml::List(items), Yaml::List(others)) if items.len() == others.len() => {
            let mut pairs = items.iter().zip(others);
            pairs.find_map(|(item, other)| difference(item, other, may_target))
        }
        (Yaml::Map(pairs), Yaml::Map(others)) if pairs.len() == others.len() => {
            let mut both = pairs.iter().zip(others);
            both.find_map(|((key, value), (other_key, other))| {
                difference(key, other_key, may_target)
                    .or_else(|| difference(value, other, may_target))
            })
        }
        (Yaml::Text(text), Yaml::Text(other)) => {
            if *text != decoded(other) {
                here(InjectionKind::Structure)
            } else if !may_target && has_steps_from_facts(other) {
                here(InjectionKind::Path)
            } else {
                None
            }
        }
        // A plain scalar with a stand-in is text, and without one it may be a number.
        (value, other) if value == other => None,
        _ => here(InjectionKind::Structure),
    }
}

fn has_steps_from_facts(text: &str) -> bool {
    let is_step = |c: char| is_stand_in(c) && matches!(original(c), '/' | '.');
    text.strip_prefix("salt://")
        .is_some_and(|path| path.contains(is_step))
}

/// Lets the usual operations on text see the original characters.
///
/// `facts` are the texts of all facts: what is decoded from one of them is a fact as well.
pub(super) fn make_transparent(environment: &mut Environment<'_>, facts: String) {
    // What a template encoded, so that decoding it is the fact again.
    let known: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    let encoding = Arc::clone(&known);
    environment.add_filter("base64_encode", move |text: &str| {
        let out = super::digest::base64_encoded(&decoded(text));
        if text.contains(is_stand_in) {
            let mut known = encoding.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(out.clone(), text.to_owned());
        }
        out
    });
    environment.add_filter(
        "base64_decode",
        move |text: &str| -> Result<String, Error> {
            let text = decoded(text);
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(fact) = known.get(text.trim()) {
                return Ok(fact.clone());
            }
            let plain = super::digest::base64_decoded(&text)?;
            let is_fact = facts.contains(text.trim());
            Ok(if is_fact {
                encoded_text(&plain, false)
            } else {
                plain
            })
        },
    );
    environment.set_unknown_method_callback(method);
    environment.add_filter(
        "replace",
        |text: &Value, old: &Value, new: &Value, count: Option<usize>| {
            let [text, old, new] = [text, old, new].map(super::python::text);
            replaced(&text, &decoded(&old), &new, count.unwrap_or(usize::MAX))
        },
    );
    environment.add_filter(
        "split",
        |text: &str, separator: Option<&str>| match separator {
            Some(separator) if !separator.is_empty() => list(split(text, separator)),
            _ => list(words(text)),
        },
    );
}

fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let text = value.as_str().filter(|text| text.contains(is_stand_in));
    let argument = |at: usize| arguments.get(at).and_then(Value::as_str);
    if let Some(text) = text {
        let plain = decoded(text);
        match (method, argument(0), arguments.len()) {
            ("split", Some(separator), 1) if !separator.is_empty() => {
                return Ok(list(split(text, separator)));
            }
            ("split", None, 0) => return Ok(list(words(text))),
            ("splitlines", None, 0) => return Ok(list(lines(text))),
            ("startswith", Some(start), 1) => return Ok(plain.starts_with(start).into()),
            ("endswith", Some(end), 1) => return Ok(plain.ends_with(end).into()),
            ("count", Some(part), 1) if !part.is_empty() => {
                return Ok(plain.matches(part).count().into());
            }
            ("replace", Some(from), 2) => {
                if let Some(to) = argument(1) {
                    return Ok(replaced(text, from, to, usize::MAX)?.into());
                }
            }
            _ => {}
        }
    }
    super::methods::unknown(state, value, method, arguments)
}

fn list(parts: Vec<String>) -> Value {
    List::value(parts.into_iter().map(Value::from))
}

/// The parts of a text between the places where the original text has the separator.
pub(super) fn split(text: &str, separator: &str) -> Vec<String> {
    let (characters, plain): (Vec<char>, Vec<char>) =
        text.chars().map(|c| (c, original(c))).unzip();
    let separator: Vec<char> = separator.chars().collect();
    if separator.is_empty() {
        // A place before each character, and one at the end.
        return vec![String::new(); plain.len() + 2];
    }
    let mut parts = vec![String::new()];
    let mut at = 0;
    while at < plain.len() {
        if plain[at..].starts_with(&separator) {
            parts.push(String::new());
            at += separator.len();
        } else {
            if let Some(last) = parts.last_mut() {
                last.push(characters[at]);
            }
            at += 1;
        }
    }
    parts
}

fn words(text: &str) -> Vec<String> {
    let is_space = |c: char| original(c).is_whitespace();
    let words = text.split(is_space).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn lines(text: &str) -> Vec<String> {
    let mut lines = split(text, "\n");
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    let without_return = |line: String| match line.strip_suffix([stand_in('\r'), '\r']) {
        Some(line) => line.to_owned(),
        None => line,
    };
    lines.into_iter().map(without_return).collect()
}

fn replaced(text: &str, old: &str, new: &str, count: usize) -> Result<String, Error> {
    let parts = split(text, old);
    let replacements = parts.len().saturating_sub(1).min(count);
    if text.len() + replacements.saturating_mul(new.len()) > super::LONGEST_RESULT {
        return Err(super::filters::too_long());
    }
    if old.is_empty() {
        return Ok(text.replacen(old, new, count));
    }
    let mut out = String::with_capacity(text.len());
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            out.push_str(if number <= count { new } else { old });
        }
        out.push_str(part);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_are_content_and_can_be_undone() {
        for text in [
            "a\nb: c",
            "{a: [b, 'c', \"d\"]}",
            "- x",
            "# y",
            "*z &z !z |z >z %z @z `z",
            "C:\\x\u{85}\u{2028}\t",
            "..",
            "key:",
        ] {
            let hidden = encoded_text(text, false);
            assert_eq!(decoded(&hidden), text);
            let document = format!("a: {hidden}\n");
            let read = crate::yaml::parse(&document).expect("plain content");
            let [(_, value)] = read.as_map().expect("a map") else {
                panic!("one pair: {read:?}")
            };
            assert_eq!(value.as_text(), Some(&*hidden), "{text:?}");
        }
        for plain in ["web-1.example.com", "fe80::1", "aa:bb:cc", "12.5", "a b"] {
            assert_eq!(encoded_text(plain, false), plain);
        }
    }

    #[test]
    fn what_is_quoted_and_read_again_is_a_fact_again() {
        let fact = Json::from(encoded_text("a\nb: {c}", false));
        let text = quoted_value(fact.clone()).to_string();
        assert_eq!(control_character(&text), None);
        let again = parsed(&text, |text| serde_json::from_str(text));
        assert_eq!(again.expect("JSON"), fact);
        let whole = encoded_text("{\"a\": \"x\\ny\"}", false);
        let read = parsed(&whole, |text| serde_json::from_str::<Json>(text));
        assert_eq!(decoded_value(read.expect("JSON"))["a"], "x\ny");
    }

    #[test]
    fn operations_see_the_original_characters() {
        let text = encoded_text("web,db\napp", false);
        assert_eq!(split(&text, ",").len(), 2);
        assert_eq!(lines(&text).len(), 2);
        let replaced = replaced(&text, ",", "-", usize::MAX);
        assert_eq!(replaced.expect("short").matches('-').count(), 1);
        assert_eq!(words(&encoded_text("a\nb\tc", false)).len(), 3);
    }

    #[test]
    fn a_node_cannot_send_stand_ins_or_marks() {
        let facts = serde_json::json!({"a\u{FDD0}": "x\u{F000A}y\u{FDD1}"});
        let cleaned = clean(facts.as_object().expect("a map"));
        let text = Json::Object(cleaned).to_string();
        assert!(!text.contains(|c| is_stand_in(c) || matches!(c, MARK_BEGIN | MARK_END)));
    }
}
