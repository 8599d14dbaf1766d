//! References to resources: `Lamp::Mysql[app1]`.

use std::fmt;

/// A resource by type and title.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reference {
    /// The type, capitalized in each part: `Lamp::Mysql`.
    pub type_name: String,
    pub title: String,
}

impl Reference {
    pub fn new(type_name: &str, title: impl Into<String>) -> Self {
        let type_name = capitalized(type_name);
        let title = title.into();
        // A class is named by its title, which is case-insensitive.
        let title = match type_name.as_str() {
            "Class" => lower(&title),
            _ => title,
        };
        Self { type_name, title }
    }

    /// Returns the name of the define or class that this is an instance of: `lamp::mysql`.
    pub fn definition_name(&self) -> String {
        match self.type_name.as_str() {
            "Class" => self.title.clone(),
            name => lower(name),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.type_name, self.title)
    }
}

/// Converts `lamp::mysql` or `LAMP::mySQL` to `Lamp::Mysql`, without a leading `::`.
pub(crate) fn capitalized(name: &str) -> String {
    let name = name.strip_prefix("::").unwrap_or(name);
    let parts = name.split("::").map(|part| {
        let mut characters = part.chars();
        characters.next().map_or_else(String::new, |first| {
            first
                .to_uppercase()
                .chain(characters.flat_map(char::to_lowercase))
                .collect()
        })
    });
    parts.collect::<Vec<_>>().join("::")
}

/// Converts `Lamp::Mysql` to `lamp::mysql`, without a leading `::`.
pub(crate) fn lower(name: &str) -> String {
    name.strip_prefix("::").unwrap_or(name).to_lowercase()
}
