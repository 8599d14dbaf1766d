//! Values that become part of a line of a system file, where a line break would smuggle
//! in another entry.

use crate::{Declaration, Refusal};

/// Returns text without control characters.
pub(crate) fn line(declaration: &Declaration, name: &str) -> Result<Option<String>, Refusal> {
    match declaration.text(name)? {
        Some(text) if text.chars().any(char::is_control) => {
            Err(declaration.refuse(name, "a single line without control characters"))
        }
        other => Ok(other),
    }
}

/// Returns one word: without white space, and not empty.
pub(crate) fn word(declaration: &Declaration, name: &str) -> Result<Option<String>, Refusal> {
    match line(declaration, name)? {
        Some(text) if text.is_empty() || text.contains(char::is_whitespace) => {
            Err(declaration.refuse(name, "one word"))
        }
        other => Ok(other),
    }
}

/// Returns words, each as in [`word`].
pub(crate) fn words(declaration: &Declaration, name: &str) -> Result<Option<Vec<String>>, Refusal> {
    match declaration.texts(name)? {
        Some(texts) if texts.iter().any(|text| !is_word(text)) => {
            Err(declaration.refuse(name, "words without white space"))
        }
        other => Ok(other),
    }
}

/// Returns the name of the object, which must be one word.
pub(crate) fn name_word(declaration: &Declaration) -> Result<String, Refusal> {
    let name = declaration.name()?;
    if is_word(&name) {
        Ok(name)
    } else {
        Err(Refusal::other(format!("`{name}` must be one word")))
    }
}

pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}
