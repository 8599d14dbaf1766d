//! Values in paths: typed, and escaped when they are written.

use std::fmt::{self, Display, Write};
use std::str::FromStr;

use bunraku_model::{
    AppName, CatalogId, CommandId, ContentId, EnvironmentName, LockName, NodeName, NodeRunId,
    ReleaseNumber, RepositoryName, TriggerName,
};
use serde_json::{Value, json};

/// A type that may be in a path.
pub trait PathValue: FromStr<Err: Display> + Display + Send + 'static {
    /// The JSON schema, for the OpenAPI document.
    fn schema() -> Value {
        json!({"type": "string"})
    }
}

impl PathValue for String {}
impl PathValue for AppName {}
impl PathValue for CatalogId {}
impl PathValue for CommandId {}
impl PathValue for ContentId {}
impl PathValue for EnvironmentName {}
impl PathValue for LockName {}
impl PathValue for NodeName {}
impl PathValue for NodeRunId {}
impl PathValue for ReleaseSelector {}
impl PathValue for RepositoryName {}
impl PathValue for TriggerName {}

impl PathValue for u64 {
    fn schema() -> Value {
        json!({"type": "integer", "format": "int64", "minimum": 0})
    }
}

/// One release of an environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseSelector {
    /// The newest.
    Current,
    Number(ReleaseNumber),
}

impl ReleaseSelector {
    /// The number, unless it is the newest release.
    pub fn number(self) -> Option<ReleaseNumber> {
        match self {
            Self::Current => None,
            Self::Number(number) => Some(number),
        }
    }
}

impl Display for ReleaseSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("current"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl FromStr for ReleaseSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "current" {
            return Ok(Self::Current);
        }
        let number = text.parse().map_err(|_| {
            format!("`{text}` is not a release: use its number, or `current` for the newest")
        })?;
        Ok(Self::Number(number))
    }
}

/// All values of a path, in its order.
pub trait PathParameters: Sized + Send + 'static {
    /// The same, as callers of the client have them.
    type Borrowed<'a>: Copy;

    /// How many there are.
    const COUNT: usize;

    /// The values as text.
    fn write(values: Self::Borrowed<'_>) -> Vec<String>;

    /// The typed values, or why one of them is not valid.
    fn parse(values: &[&str]) -> Result<Self, String>;

    /// One JSON schema for each value.
    fn schemas() -> Vec<Value>;
}

impl PathParameters for () {
    type Borrowed<'a> = ();
    const COUNT: usize = 0;

    fn write((): ()) -> Vec<String> {
        Vec::new()
    }

    fn parse(_: &[&str]) -> Result<Self, String> {
        Ok(())
    }

    fn schemas() -> Vec<Value> {
        Vec::new()
    }
}

impl<A: PathValue> PathParameters for A {
    type Borrowed<'a> = &'a A;
    const COUNT: usize = 1;

    fn write(value: &A) -> Vec<String> {
        vec![value.to_string()]
    }

    fn parse(values: &[&str]) -> Result<Self, String> {
        parsed(values, 0)
    }

    fn schemas() -> Vec<Value> {
        vec![A::schema()]
    }
}

impl<A: PathValue, B: PathValue> PathParameters for (A, B) {
    type Borrowed<'a> = (&'a A, &'a B);
    const COUNT: usize = 2;

    fn write((first, second): (&A, &B)) -> Vec<String> {
        vec![first.to_string(), second.to_string()]
    }

    fn parse(values: &[&str]) -> Result<Self, String> {
        Ok((parsed(values, 0)?, parsed(values, 1)?))
    }

    fn schemas() -> Vec<Value> {
        vec![A::schema(), B::schema()]
    }
}

fn parsed<T: PathValue>(values: &[&str], at: usize) -> Result<T, String> {
    let text = values.get(at).ok_or("the path has too few values")?;
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// The template with these values in place of its `{…}`, escaped.
pub(super) fn fill(template: &str, values: &[String]) -> String {
    let mut path = String::with_capacity(template.len() + 32);
    let mut values = values.iter();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        path.push_str(before);
        let value = values.next().map_or("", String::as_str);
        escape(&mut path, value);
        rest = after.split_once('}').map_or("", |(_, rest)| rest);
    }
    path.push_str(rest);
    path
}

/// Escapes everything that is not unreserved in a URL (RFC 3986).
fn escape(path: &mut String, value: &str) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            _ => write!(path, "%{byte:02X}").expect("a string takes everything"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_in_the_path() {
        let values = ["a/b c".to_owned(), "ü".to_owned()];
        assert_eq!(fill("/v1/x/{a}/y/{b}", &values), "/v1/x/a%2Fb%20c/y/%C3%BC");
        assert_eq!(fill("/v1/x", &[]), "/v1/x");
    }

    #[test]
    fn a_release_is_a_number_or_the_current_one() {
        assert_eq!("current".parse(), Ok(ReleaseSelector::Current));
        let number = ReleaseSelector::Number("7".parse().expect("a number"));
        assert_eq!("7".parse(), Ok(number));
        assert_eq!(number.to_string(), "7");
        assert!("newest".parse::<ReleaseSelector>().is_err());
    }
}
