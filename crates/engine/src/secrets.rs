//! The secrets of a catalog, so that no text that leaves the engine contains one.
//!
//! Types already hide the properties that come from sensitive parameters. This is the
//! second line of defence: for a command that prints its password, or an error that
//! quotes a parameter.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

/// The text that replaces a secret.
pub(crate) const HIDDEN: &str = "[secret]";

/// The minimum length of a secret. Shorter texts would blank out half of every message.
const SHORTEST: usize = 4;

/// Every secret text of a catalog.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The longest first, so that a secret inside another leaves no rest.
    texts: BTreeSet<(Reverse<usize>, String)>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.texts.len())
    }
}

/// The secrets of a catalog, and those that steps produced during the run.
#[derive(Debug)]
pub(crate) struct RunSecrets<'a> {
    declared: &'a Secrets,
    given: RwLock<Secrets>,
}

impl<'a> RunSecrets<'a> {
    pub(crate) fn new(declared: &'a Secrets) -> Self {
        Self {
            declared,
            given: RwLock::default(),
        }
    }

    /// Adds a secret. From now on it is hidden everywhere.
    pub(crate) fn add(&self, value: &Value) {
        let mut given = self.given.write().unwrap_or_else(PoisonError::into_inner);
        given.add(value);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.declared.is_empty() && self.given().is_empty()
    }

    pub(crate) fn hide(&self, text: String) -> String {
        self.given().hide(self.declared.hide(text))
    }

    pub(crate) fn hide_in(&self, value: &mut Value) {
        self.declared.hide_in(value);
        self.given().hide_in(value);
    }

    fn given(&self) -> std::sync::RwLockReadGuard<'_, Secrets> {
        self.given.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Secrets {
    /// Adds every text inside a secret value, and each line of a text, as a secret file
    /// is printed line by line.
    pub fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                // In `NAME=value`, as in environments, only the value is the secret.
                let values = text
                    .lines()
                    .filter_map(|line| Some(line.split_once('=')?.1));
                for part in std::iter::once(text.as_str())
                    .chain(text.lines())
                    .chain(values)
                {
                    let part = part.trim();
                    if part.len() >= SHORTEST {
                        self.texts.insert((Reverse(part.len()), part.to_owned()));
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(members) => members.values().for_each(|member| self.add(member)),
            Value::Number(number) => self.add(&Value::String(number.to_string())),
            Value::Null | Value::Bool(_) => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns the text with every secret replaced.
    pub fn hide(&self, text: String) -> String {
        self.texts.iter().fold(text, |text, (_, secret)| {
            if text.contains(secret) {
                text.replace(secret, HIDDEN)
            } else {
                text
            }
        })
    }

    /// Replaces every secret in the texts of a value.
    pub fn hide_in(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => *text = self.hide(std::mem::take(text)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in(item)),
            Value::Object(members) => members.values_mut().for_each(|member| self.hide_in(member)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_secret_is_hidden_everywhere_even_inside_a_longer_one() {
        let mut secrets = Secrets::default();
        secrets.add(&json!(["hunter22", {"key": "hunter22-long"}]));
        assert_eq!(
            secrets.hide("x hunter22-long y hunter22".to_owned()),
            "x [secret] y [secret]"
        );
    }

    #[test]
    fn each_line_of_a_secret_file_is_a_secret() {
        let mut secrets = Secrets::default();
        secrets.add(&json!("first line\nsecond line\n"));
        let mut value = json!({"stdout": ["second line"]});
        secrets.hide_in(&mut value);
        assert_eq!(value, json!({"stdout": ["[secret]"]}));
    }
}
