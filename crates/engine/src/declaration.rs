//! One resource as its type reads it: plain values, checked one by one.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::catalog::{RequisiteKind, Resource, ResourceReference, RichData, plain};
use bunraku_model::parse_span;
use serde_json::{Map, Value};

/// In a map this small, comparing names is faster than hashing one.
const FEW: usize = 8;

/// A resource's parameters with every rich value resolved. Most resources have no rich
/// values, and their parameters are borrowed from the catalog.
#[derive(Clone, Debug)]
pub struct Declaration<'a> {
    reference: Arc<ResourceReference>,
    name_parameter: &'static str,
    parameters: Cow<'a, Map<String, Value>>,
    sensitive: Vec<String>,
    state: bool,
    runs_on_condition: bool,
}

/// The reason why a type cannot use a declaration.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("`{parameter}` must be {expected}, not {found}")]
    Value {
        parameter: String,
        expected: String,
        found: String,
    },
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    pub fn other(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }
}

impl<'a> Declaration<'a> {
    /// Resolves a resource's parameters.
    pub fn new(resource: &'a Resource, name_parameter: &'static str) -> Self {
        Self::of(resource, Arc::new(resource.reference()), name_parameter)
    }

    /// Like [`Declaration::new`], for callers that already have the reference.
    pub(crate) fn of(
        resource: &'a Resource,
        reference: Arc<ResourceReference>,
        name_parameter: &'static str,
    ) -> Self {
        let parameters = &resource.parameters;
        let as_written =
            |value: &Value| !value.is_null() && matches!(plain(value), Cow::Borrowed(_));
        Self {
            reference,
            name_parameter,
            parameters: if parameters.values().all(as_written) {
                Cow::Borrowed(parameters)
            } else {
                Cow::Owned(opened(parameters))
            },
            sensitive: (parameters.keys())
                .filter(|name| resource.is_sensitive(name))
                .cloned()
                .collect(),
            state: resource.state.is_some(),
            runs_on_condition: resource.requisites.iter().any(|requisite| {
                use RequisiteKind::{OnChanges, OnFail, Prereq};
                matches!(requisite.kind, OnChanges | OnFail | Prereq)
            }),
        }
    }

    /// Returns the same declaration with owned parameters.
    pub(crate) fn into_owned(self) -> Declaration<'static> {
        Declaration {
            parameters: Cow::Owned(self.parameters.into_owned()),
            reference: self.reference,
            name_parameter: self.name_parameter,
            sensitive: self.sensitive,
            state: self.state,
            runs_on_condition: self.runs_on_condition,
        }
    }

    pub fn reference(&self) -> &ResourceReference {
        &self.reference
    }

    pub fn title(&self) -> &str {
        self.reference.title()
    }

    /// Returns true if Salt's rules apply where they differ from Puppet's.
    pub fn is_state(&self) -> bool {
        self.state
    }

    /// Returns true for a state that runs only if something else changed, would change or failed.
    pub(crate) fn runs_on_condition(&self) -> bool {
        self.runs_on_condition
    }

    /// Returns the name of the managed object: the name parameter, or else the title.
    pub fn name(&self) -> Result<String, Refusal> {
        let given = match self.text(self.name_parameter)? {
            None => self.text("name")?,
            given => given,
        };
        Ok(given.unwrap_or_else(|| self.title().to_owned()))
    }

    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub fn is_sensitive(&self, name: &str) -> bool {
        self.sensitive.iter().any(|known| known == name)
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        if self.parameters.len() > FEW {
            return self.parameters.get(name);
        }
        let mut all = self.parameters.iter();
        all.find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Marks these parameters as secret, too.
    pub(crate) fn hide(&mut self, names: Vec<String>) {
        self.sensitive.extend(names);
    }

    pub(crate) fn parameters_mut(&mut self) -> &mut Map<String, Value> {
        self.parameters.to_mut()
    }

    pub fn parameters(&self) -> &Map<String, Value> {
        &self.parameters
    }

    /// Returns text. Numbers and booleans count as their text, as in Puppet.
    pub fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        self.value(name)
            .map(|value| as_text(value).ok_or_else(|| self.refuse(name, "text")))
            .transpose()
    }

    /// Returns content: text, or bytes from a rich `Binary`.
    pub fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        if let Some(rich) = RichData::of(value) {
            let text = rich.value.and_then(Value::as_str);
            return match (rich.type_name, text.and_then(decode_base64)) {
                ("Binary", Some(bytes)) => Ok(Some(bytes)),
                _ => Err(self.refuse(name, "a string or Binary")),
            };
        }
        Ok(self.text(name)?.map(String::into_bytes))
    }

    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Refusal> {
        self.value(name)
            .map(|value| match value {
                Value::Bool(truth) => Ok(*truth),
                Value::String(word) if matches!(word.to_lowercase().as_str(), "true" | "yes") => {
                    Ok(true)
                }
                Value::String(word) if matches!(word.to_lowercase().as_str(), "false" | "no") => {
                    Ok(false)
                }
                _ => Err(self.refuse(name, "true or false")),
            })
            .transpose()
    }

    pub fn integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        self.value(name)
            .map(|value| {
                let text = as_text(value);
                text.and_then(|text| text.trim().parse().ok())
                    .ok_or_else(|| self.refuse(name, "an integer"))
            })
            .transpose()
    }

    /// Returns seconds, with or without a fraction.
    pub fn seconds(&self, name: &str) -> Result<Option<Duration>, Refusal> {
        self.value(name)
            .map(|value| {
                (as_text(value).and_then(|text| text.trim().parse::<f64>().ok()))
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                    .ok_or_else(|| self.refuse(name, "a number of seconds"))
            })
            .transpose()
    }

    /// Returns a duration: `30s`, `2h`.
    pub fn span(&self, name: &str) -> Result<Option<Duration>, Refusal> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match parse_span(&text) {
            Ok(span) => Ok(Some(span)),
            Err(_) => Err(self.refuse(name, "a duration such as `30s` or `2h`")),
        }
    }

    /// Returns a list of texts. A single text is a list of one.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        self.value(name)
            .map(|value| match value {
                Value::Array(items) => items
                    .iter()
                    .map(|item| as_text(item).ok_or_else(|| self.refuse(name, "a list of strings")))
                    .collect(),
                value => as_text(value)
                    .map(|text| vec![text])
                    .ok_or_else(|| self.refuse(name, "a list of strings")),
            })
            .transpose()
    }

    /// Returns one of the allowed words.
    pub fn word(
        &self,
        name: &str,
        allowed: &[&'static str],
    ) -> Result<Option<&'static str>, Refusal> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match allowed.iter().find(|word| **word == text) {
            Some(word) => Ok(Some(word)),
            None => Err(self.refuse(name, &format!("one of {}", allowed.join(", ")))),
        }
    }

    /// Creates a refusal of a parameter's value, which shows the value unless it is secret.
    pub fn refuse(&self, name: &str, expected: &str) -> Refusal {
        let found = match self.value(name) {
            _ if self.is_sensitive(name) => "the given secret".to_owned(),
            Some(value) => format!("`{}`", shortened(&value.to_string())),
            None => "nothing".to_owned(),
        };
        Refusal::Value {
            parameter: name.to_owned(),
            expected: expected.to_owned(),
            found,
        }
    }
}

/// Returns the parameters without null values and with every rich value resolved.
fn opened(parameters: &Map<String, Value>) -> Map<String, Value> {
    (parameters.iter())
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.clone(), plain(value).into_owned()))
        .collect()
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Decodes standard base64, with or without padding. White space is ignored.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=')
    {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn declaration(parameters: Value) -> Declaration<'static> {
        let resource = Resource {
            type_name: "Exec".to_owned(),
            title: "t".to_owned(),
            parameters: parameters.as_object().expect("an object").clone(),
            sensitive_parameters: vec!["password".to_owned()],
            ..Resource::default()
        };
        Declaration::new(&resource, "command").into_owned()
    }

    #[test]
    fn values_are_read_as_puppet_and_salt_write_them() {
        let it = declaration(json!({
            "mode": 644, "flag": "yes", "list": "one", "seconds": "1.5", "gone": null,
            "bytes": {"__ptype": "Binary", "__pvalue": "AP9i"},
        }));
        assert_eq!(it.text("mode"), Ok(Some("644".to_owned())));
        assert_eq!(it.boolean("flag"), Ok(Some(true)));
        assert_eq!(it.texts("list"), Ok(Some(vec!["one".to_owned()])));
        assert_eq!(it.seconds("seconds"), Ok(Some(Duration::from_millis(1500))));
        assert_eq!(it.text("gone"), Ok(None));
        assert_eq!(it.bytes("bytes"), Ok(Some(vec![0, 255, b'b'])));
        assert_eq!(it.name(), Ok("t".to_owned()));
    }

    #[test]
    fn a_refusal_says_what_was_expected_and_never_shows_a_secret() {
        let it = declaration(json!({"flag": "maybe", "password": ["hunter2"]}));
        assert_eq!(
            it.boolean("flag").expect_err("no boolean").to_string(),
            "`flag` must be true or false, not `\"maybe\"`"
        );
        assert_eq!(
            it.boolean("password").expect_err("no boolean").to_string(),
            "`password` must be true or false, not the given secret"
        );
    }
}
