//! The changes that a type wants to make, and their results.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// One property that differs from the declaration.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// The property that differs: `content`, `mode`, `ensure`.
    pub property: String,
    pub from: DisplayValue,
    pub to: DisplayValue,
    /// A unified diff, if it is useful.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// A value in a change, hidden if it is a secret.
#[derive(Clone, PartialEq, Debug)]
pub enum DisplayValue {
    Absent,
    Value(Value),
    /// A value exists, and it is a secret.
    Secret,
}

impl Serialize for DisplayValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Value(value) => value.serialize(serializer),
            Self::Secret => serializer.serialize_str("[secret]"),
        }
    }
}

impl<T: Into<Value>> From<T> for DisplayValue {
    fn from(value: T) -> Self {
        match value.into() {
            Value::Null => Self::Absent,
            value => Self::Value(value),
        }
    }
}

impl Change {
    pub fn new(
        property: impl Into<String>,
        from: impl Into<DisplayValue>,
        to: impl Into<DisplayValue>,
    ) -> Self {
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

    /// Returns the same change without anything that reveals the value.
    pub(crate) fn hidden(mut self) -> Self {
        for side in [&mut self.from, &mut self.to] {
            if matches!(side, DisplayValue::Value(_)) {
                *side = DisplayValue::Secret;
            }
        }
        self.diff = None;
        self
    }
}

/// The result that a provider returns after it acted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ApplyResult {
    /// A sentence for users, if the changes alone do not explain the result.
    pub message: Option<String>,
    /// The outputs that later resources can read: `stdout`, `rc`, ….
    pub outputs: Map<String, Value>,
    /// The provider found while acting that nothing had to change.
    pub no_change: bool,
}

/// The result of one step of observing or applying.
pub type StepResult<T = ()> = Result<T, StepError>;

/// The reason why observing or applying failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StepError {
    message: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// Outputs that exist despite the failure, such as the output of a failed command.
    pub outputs: Map<String, Value>,
    /// A retry cannot help: the run was interrupted.
    pub interrupted: bool,
    /// The changes were made despite the failure: the command ran, and then failed.
    pub changes_made: bool,
    /// The step needs outputs that do not exist. In a noop run, they do not exist yet.
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

    /// Creates the error for a required output that does not exist.
    pub(crate) fn unknown_outputs(message: impl Into<String>) -> Self {
        Self {
            needs_outputs: true,
            ..Self::new(message)
        }
    }

    /// Creates an error with `message`, caused by `source`.
    pub fn because(
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(source.into()),
            ..Self::new(message)
        }
    }

    /// Creates the error for a run that was interrupted during the step.
    pub fn interrupted() -> Self {
        Self {
            interrupted: true,
            ..Self::new("interrupted")
        }
    }

    /// Marks the changes as made despite the failure.
    pub fn with_changes_made(mut self) -> Self {
        self.changes_made = true;
        self
    }

    pub fn with_outputs(mut self, outputs: Map<String, Value>) -> Self {
        self.outputs = outputs;
        self
    }

    /// Returns the whole error chain on one line.
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
