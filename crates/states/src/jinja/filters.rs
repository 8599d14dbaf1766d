//! The filters, tests and globals that Salt adds and that are in common use.

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use regex::{Regex, RegexBuilder};
use sha2::Digest as _;

use super::conversion::{KeyOrder, from_json, json_in_order, to_json};
use super::digest;
use super::emit::{self, Lines};
use super::json::{JsonStyle, written};
use super::list_filters::{self, is_list};
use super::mutable::{Dict, List, owned, pairs_of, within_depth};
use super::python;
use super::taint;
use super::traverse::traverse;

pub(super) fn add(environment: &mut Environment<'_>) {
    data(environment);
    text(environment);
    list_filters::add(environment);
    patterns(environment);
    digest::add(environment);
}

pub(super) fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

fn data(environment: &mut Environment<'_>) {
    environment.add_filter(
        "yaml",
        |state: &State<'_, '_>, value: &Value, flow_style: Option<bool>, options: Kwargs| {
            let named: Option<bool> = options.get("flow_style")?;
            options.assert_all_used()?;
            let json = plain_json(value, KeyOrder::SortedUnlessOrdered)?;
            limited(match flow_style.or(named) {
                Some(false) => emit::block(&json, lines(state)),
                _ => emit::flow(&json, lines(state)),
            })
        },
    );
    environment.add_filter(
        "json",
        |value: &Value, sort_keys: Option<bool>, indent: Option<usize>, options: Kwargs| {
            let sort_keys = sort_keys.or(options.get("sort_keys")?).unwrap_or(true);
            let indent = indent.or(options.get("indent")?);
            options.assert_all_used()?;
            let order = if sort_keys {
                KeyOrder::Sorted
            } else {
                KeyOrder::Kept
            };
            let is_for_html = false;
            let style = JsonStyle {
                indent,
                is_for_html,
            };
            limited(written(&plain_json(value, order)?, style))
        },
    );
    // This one is Jinja's own: it does not sort, and its text is safe in HTML.
    environment.add_filter(
        "tojson",
        |value: &Value, indent: Option<usize>, options: Kwargs| {
            let indent = indent.or(options.get("indent")?);
            options.assert_all_used()?;
            let is_for_html = true;
            let style = JsonStyle {
                indent,
                is_for_html,
            };
            limited(written(&plain_json(value, KeyOrder::Kept)?, style))
        },
    );
    environment.add_filter("yaml_encode", |value: &Value| match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            limited(emit::double_quoted(&taint::quoted(text)))
        }
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            Err(invalid("yaml_encode needs a scalar"))
        }
        _ => Ok(emit::flow(
            &plain_json(value, KeyOrder::Sorted)?,
            Lines::Whole,
        )),
    });
    environment.add_filter("yaml_dquote", |text: &str| {
        limited(emit::double_quoted(&taint::quoted(text)))
    });
    environment.add_filter("yaml_squote", |text: &str| {
        limited(emit::single_quoted(text))
    });
    environment.add_filter(
        "replace",
        |text: &Value, old: &Value, new: &Value, count: Option<usize>| {
            let (text, old, new) = (python::text(text), python::text(old), python::text(new));
            replace(&text, &old, &new, count.unwrap_or(usize::MAX))
        },
    );
    for name in ["load_yaml", "__load_yaml"] {
        environment.add_filter(name, |text: &Value| load_yaml(&python::text(text)));
    }
    for name in ["load_json", "__load_json"] {
        environment.add_filter(name, |text: &Value| load_json(&python::text(text)));
    }
    for name in ["load_text", "__load_text"] {
        environment.add_filter(name, |text: &Value| python::text(text));
    }
    environment.add_filter(
        "traverse",
        |value: &Value, path: &str, default: Option<Value>, delimiter: Option<&str>| {
            traverse(value, path, delimiter.unwrap_or(":"))
                .or(default)
                .unwrap_or_default()
        },
    );
    environment.add_filter(
        "dict_to_sls_yaml_params",
        |value: &Value| -> Result<String, Error> {
            let members = plain_json(value, KeyOrder::Kept)?;
            let items: Vec<_> = (members.as_object().into_iter().flatten())
                .map(|(key, member)| serde_json::json!({key: member}))
                .collect();
            Ok(emit::block(&serde_json::Value::Array(items), Lines::Whole))
        },
    );
    environment.add_filter(
        "set_dict_key_value",
        |value: &Value, path: &str, new: &Value| set_at(value, path, new),
    );
    for name in ["default", "d"] {
        environment.add_filter(
            name,
            |value: &Value, default: Option<Value>, boolean: Option<bool>, named: Kwargs| {
                let default = default.or(named.get("default_value")?);
                let boolean = boolean.or(named.get("boolean")?).unwrap_or(false);
                named.assert_all_used()?;
                let is_missing = value.is_undefined() || boolean && !value.is_true();
                Ok::<_, Error>(if is_missing {
                    default.map_or_else(|| Value::from(""), |value| owned(&value))
                } else {
                    value.clone()
                })
            },
        );
    }
    environment.add_filter("is_list", |value: &Value| is_list(value));
    environment.add_filter("is_iter", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map
        )
    });
    environment.add_filter("to_bool", |value: &Value| to_bool(value));
    environment.add_filter("to_num", |value: &Value| to_number(value));
    environment.add_filter("str_to_num", |value: &Value| to_number(value));
    environment.add_filter("string", |value: &Value| python::text(value));
    environment.add_function("raise", |message: &str| -> Result<Value, Error> {
        Err(invalid(message))
    });
    environment.add_function("ifelse", |arguments: Rest<Value>| ifelse(&arguments));
    environment.add_function("odict", |pairs: Option<&Value>| -> Result<Value, Error> {
        Ok(Dict::ordered(pairs_of(pairs)?))
    });
    // Lists and maps in a namespace change in place, as everywhere else.
    environment.add_function("namespace", |defaults: Option<ValueOrKwargs>| {
        let Some(defaults) = defaults.map(ValueOrKwargs::into_value) else {
            return minijinja::functions::namespace(None);
        };
        let keys = defaults.try_iter()?;
        let pairs = keys.map(|key| {
            let value = defaults.get_item(&key).unwrap_or_default();
            (key, owned(&value))
        });
        minijinja::functions::namespace(Some(Dict::value(pairs).into()))
    });
    environment.add_function("__own", |value: &Value| within_limits(owned(value)));
}

/// Implements `random`. A run must be reproducible: a node always gets the same choice from a list.
pub(super) fn random(node: &str, list: &Value) -> Result<Value, Error> {
    let items: Vec<Value> = list.try_iter()?.collect();
    let seed = format!("{node}:{}", taint::decoded(&python::text(list)));
    let digest = sha2::Sha256::digest(seed.as_bytes());
    let number = digest
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let chosen = number.checked_rem(items.len() as u64);
    let chosen = chosen.and_then(|at| items.into_iter().nth(at as usize));
    Ok(chosen.unwrap_or_default())
}

/// Refuses a value that is too large: a text that doubles with each loop iteration must have a
/// limit.
fn within_limits(value: Value) -> Result<Value, Error> {
    let length = value.as_str().map(str::len).or_else(|| value.len());
    if length.is_some_and(|length| length > super::LONGEST_VALUE) {
        return Err(too_long());
    }
    within_depth(value)
}

/// Returns a value for a filter whose output escapes every character.
fn plain_json(value: &Value, order: KeyOrder) -> Result<serde_json::Value, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    Ok(taint::quoted_value(json_in_order(value, order)))
}

/// The prefix of the names of templates of managed files, while they are rendered.
pub(super) const FILE_TEMPLATE: &str = "template:";

/// Long lines are broken only in managed files.
pub(super) fn lines(state: &State<'_, '_>) -> Lines {
    if state.name().starts_with(FILE_TEMPLATE) {
        Lines::Broken
    } else {
        Lines::Whole
    }
}

/// Refuses the result of a filter that is too long. Filters that quote double each backslash, so a
/// line with forty of them would need a terabyte.
fn limited(text: String) -> Result<String, Error> {
    if text.len() > super::LONGEST_RESULT {
        return Err(too_long());
    }
    Ok(text)
}

fn replace(text: &str, old: &str, new: &str, count: usize) -> Result<String, Error> {
    let found = text.matches(old).take(count).count();
    if text.len() + found.saturating_mul(new.len()) > super::LONGEST_RESULT {
        return Err(too_long());
    }
    Ok(text.replacen(old, new, count))
}

pub(super) fn too_long() -> Error {
    Error::new(
        ErrorKind::OutOfFuel,
        "the template creates a value that is too long",
    )
}

pub(super) fn load_yaml(text: &str) -> Result<Value, Error> {
    let text = super::marks::without(text);
    taint::parsed(&text, |text| {
        crate::yaml::parse(text).map(|node| node.to_json())
    })
    .map(|data| from_json(&data))
    .map_err(|error| {
        invalid(format!(
            "invalid YAML at line {}: {}",
            error.line, error.message
        ))
    })
}

pub(super) fn load_json(text: &str) -> Result<Value, Error> {
    let text = super::marks::without(text);
    taint::parsed(&text, |text| serde_json::from_str(text.trim()))
        .map(|data| from_json(&data))
        .map_err(|error| invalid(format!("invalid JSON: {error}")))
}

fn set_at(value: &Value, path: &str, new: &Value) -> Result<Value, Error> {
    let mut json = to_json(value);
    let mut current = &mut json;
    for part in path.split(':') {
        if !current.is_object() {
            *current = serde_json::json!({});
        }
        let members = current
            .as_object_mut()
            .ok_or_else(|| invalid("not a map"))?;
        current = members.entry(part).or_insert(serde_json::Value::Null);
    }
    *current = to_json(new);
    Ok(from_json(&json))
}

fn to_bool(value: &Value) -> bool {
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default().to_lowercase();
            matches!(text.as_str(), "yes" | "1" | "true")
        }
        ValueKind::Number => f64::try_from(value.clone()).is_ok_and(|number| number > 0.0),
        _ => value.is_true(),
    }
}

fn to_number(value: &Value) -> Value {
    let text = python::text(value);
    let text = text.trim();
    (text.parse::<i64>().map(Value::from))
        .or_else(|_| text.parse::<f64>().map(Value::from))
        .unwrap_or_else(|_| value.clone())
}

/// Implements `ifelse`: condition, value, condition, value, …, default.
fn ifelse(arguments: &[Value]) -> Result<Value, Error> {
    let mut rest = arguments;
    while let [condition, value, after @ ..] = rest {
        if condition.is_true() {
            return Ok(value.clone());
        }
        rest = after;
    }
    Ok(rest.first().cloned().unwrap_or_else(|| Value::from(())))
}

fn text(environment: &mut Environment<'_>) {
    environment.add_filter("quote", |value: &Value| quote(&python::text(value)));
    environment.add_filter("yesno", |value: &Value, words: Option<&str>| {
        let words: Vec<&str> = words.unwrap_or("yes,no").split(',').collect();
        words
            .get(usize::from(!value.is_true()))
            .copied()
            .unwrap_or_default()
            .to_owned()
    });
    environment.add_filter("contains_whitespace", |text: &str| {
        text.contains(char::is_whitespace)
    });
    environment.add_filter(
        "substring_in_list",
        |text: &str, list: &Value| -> Result<bool, Error> {
            Ok(list
                .try_iter()?
                .any(|item| item.as_str().is_some_and(|item| item.contains(text))))
        },
    );
    environment.add_filter("to_snake_case", |text: &str| {
        let mut out = String::new();
        for (index, character) in text.chars().enumerate() {
            if character.is_uppercase() && index > 0 {
                out.push('_');
            }
            out.extend(character.to_lowercase());
        }
        out
    });
    environment.add_filter("to_camelcase", |text: &str| {
        let mut parts = text.split('_').filter(|part| !part.is_empty());
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let mut characters = part.chars();
            out.extend(characters.next().into_iter().flat_map(char::to_uppercase));
            out.push_str(characters.as_str());
        }
        out
    });
    environment.add_filter("path_join", |first: &str, rest: Rest<String>| {
        rest.iter().fold(first.to_owned(), |path, part| {
            if part.starts_with('/') {
                part.clone()
            } else {
                format!("{}/{part}", path.trim_end_matches('/'))
            }
        })
    });
    environment.add_filter("human_to_bytes", |text: &str| human_to_bytes(text));
    environment.add_filter("is_ip", |text: &str| {
        text.parse::<std::net::IpAddr>().is_ok()
    });
    environment.add_filter("is_ipv4", |text: &str| {
        text.parse::<std::net::Ipv4Addr>().is_ok()
    });
    environment.add_filter("is_ipv6", |text: &str| {
        text.parse::<std::net::Ipv6Addr>().is_ok()
    });
    environment.add_filter("is_hex", |text: &str| {
        !text.is_empty()
            && text
                .trim_start_matches("0x")
                .chars()
                .all(|c| c.is_ascii_hexdigit())
    });
}

/// Quotes like `shlex.quote`.
fn quote(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !text.is_empty() && text.chars().all(safe) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\"'\"'"))
    }
}

fn human_to_bytes(text: &str) -> Result<u64, Error> {
    let text = text.trim();
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number
        .trim()
        .parse()
        .map_err(|_| invalid(format!("`{text}` is not a size")))?;
    let unit = unit.trim().to_uppercase();
    let step: f64 = if unit.ends_with('B') && unit.len() == 2 {
        1000.0
    } else {
        1024.0
    };
    let power = match unit.chars().next() {
        None | Some('B') => 0,
        Some(letter) => {
            1 + "KMGTPE"
                .find(letter)
                .ok_or_else(|| invalid(format!("`{text}` is not a size")))? as i32
        }
    };
    Ok((number * step.powi(power)) as u64)
}

fn patterns(environment: &mut Environment<'_>) {
    environment.add_filter(
        "regex_search",
        |text: &str, pattern: &str, options: Kwargs| -> Result<Value, Error> {
            let pattern = compiled(pattern, &options)?;
            Ok(pattern
                .captures(text)
                .map_or_else(|| Value::from(()), groups))
        },
    );
    environment.add_filter(
        "regex_match",
        |text: &str, pattern: &str, options: Kwargs| -> Result<Value, Error> {
            let pattern = compiled(&format!("^(?:{pattern})"), &options)?;
            Ok(pattern
                .captures(text)
                .map_or_else(|| Value::from(()), groups))
        },
    );
    environment.add_filter(
        "regex_replace",
        |text: &str, pattern: &str, replacement: &str, options: Kwargs| -> Result<String, Error> {
            let pattern = compiled(pattern, &options)?;
            let replacement = python_replacement(replacement);
            Ok(pattern.replace_all(text, replacement.as_str()).into_owned())
        },
    );
    environment.add_filter("regex_escape", |text: &str| regex::escape(text));
    environment.add_test(
        "match",
        |text: &Value, pattern: &str, options: Kwargs| -> Result<bool, Error> {
            Ok(compiled(&format!("^(?:{pattern})"), &options)?.is_match(&python::text(text)))
        },
    );
    environment.add_test("callable", super::functions::is_callable);
    environment.add_test("list", |value: &Value| is_list(value));
}

fn compiled(pattern: &str, options: &Kwargs) -> Result<Regex, Error> {
    let ignorecase: Option<bool> = options.get("ignorecase")?;
    let multiline: Option<bool> = options.get("multiline")?;
    options.assert_all_used()?;
    RegexBuilder::new(pattern)
        .case_insensitive(ignorecase.unwrap_or(false))
        .multi_line(multiline.unwrap_or(false))
        .size_limit(1 << 20)
        .build()
        .map_err(|error| invalid(format!("invalid pattern: {error}")))
}

fn groups(captures: regex::Captures<'_>) -> Value {
    let groups = captures.iter().skip(1);
    List::value(
        groups.map(|group| {
            group.map_or_else(|| Value::from(()), |group| Value::from(group.as_str()))
        }),
    )
}

/// Converts `\1` and `\g<name>` to the syntax of the regex engine.
fn python_replacement(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('$', _) => out.push_str("$$"),
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                out.push_str(&format!("${{{digit}}}"));
                characters.next();
            }
            ('\\', Some('g')) => {
                characters.next();
                let name: String = characters
                    .by_ref()
                    .skip(1)
                    .take_while(|c| *c != '>')
                    .collect();
                out.push_str(&format!("${{{name}}}"));
            }
            _ => out.push(character),
        }
    }
    out
}
