//! What a type wants to change, and what came of it.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// One property that is not as it should be.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// What differs: `content`, `mode`, `ensure`.
    pub property: String,
    pub from: Shown,
    pub to: Shown,
    /// A unified diff, where one helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// A value in a change, as far as it may be seen.
#[derive(Clone, PartialEq, Debug)]
pub enum Shown {
    Absent,
    Value(Value),
    /// There is a value, and it is a secret.
    Secret,
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Value(value) => value.serialize(serializer),
            Self::Secret => serializer.serialize_str("[secret]"),
        }
    }
}

impl<T: Into<Value>> From<T> for Shown {
    fn from(value: T) -> Self {
        match value.into() {
            Value::Null => Self::Absent,
            value => Self::Value(value),
        }
    }
}

impl Change {
    pub fn new(property: impl Into<String>, from: impl Into<Shown>, to: impl Into<Shown>) -> Self {
        Self {
            property: property.into(),
            from: from.into(),
            to: to.into(),
            diff: None,
        }
    }

    pub fn with_diff(mut self, diff: Option<String>) -> Self {
        self.diff = diff;
        self
    }

    /// The same change with nothing in it that could tell the value.
    pub(crate) fn hidden(mut self) -> Self {
        for side in [&mut self.from, &mut self.to] {
            if matches!(side, Shown::Value(_)) {
                *side = Shown::Secret;
            }
        }
        self.diff = None;
        self
    }
}

/// What a provider has to say after it acted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Applied {
    /// A sentence for people, where the changes do not say it all.
    pub message: Option<String>,
    /// What later resources may read: `stdout`, `rc`, ….
    pub outputs: Map<String, Value>,
    /// It turned out while acting that nothing changed after all.
    pub no_change: bool,
}

/// Why observing or applying failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// What there is to read all the same: the output of a failed command.
    pub outputs: Map<String, Value>,
    /// Trying again cannot help: the run was interrupted.
    pub interrupted: bool,
    /// The changes were made all the same: the command ran, and then failed.
    pub changes_made: bool,
    /// It needs outputs that are not there: in a noop run, not there yet.
    pub(crate) needs_outputs: bool,
}

impl StepError {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            source: None,
            outputs: Map::new(),
            interrupted: false,
            changes_made: false,
            needs_outputs: false,
        }
    }

    /// An output that is needed is not there.
    pub(crate) fn unknown_outputs(message: impl Into<String>) -> Self {
        Self {
            needs_outputs: true,
            ..Self::new(message)
        }
    }

    /// `message`, because of `source`.
    pub fn because(
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(source.into()),
            ..Self::new(message)
        }
    }

    /// The run was interrupted while the step was at work.
    pub fn interrupted() -> Self {
        Self {
            interrupted: true,
            ..Self::new("interrupted")
        }
    }

    /// The changes were made although it failed.
    pub fn with_changes_made(mut self) -> Self {
        self.changes_made = true;
        self
    }

    pub fn with_outputs(mut self, outputs: Map<String, Value>) -> Self {
        self.outputs = outputs;
        self
    }

    /// The whole chain in one line.
    pub fn chain(&self) -> String {
        let mut text = self.message.clone();
        let mut next = std::error::Error::source(self);
        while let Some(error) = next {
            text.push_str(": ");
            text.push_str(&error.to_string());
            next = error.source();
        }
        text
    }
}
