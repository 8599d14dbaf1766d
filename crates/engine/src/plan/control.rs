//! What every resource may say about how it is run, whatever its type.

use std::time::Duration;

use serde_json::Value;

use crate::{Declaration, Refusal, TypeSpec};

/// The parameters of every resource, read.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Control {
    pub(crate) onlyif: Vec<String>,
    pub(crate) unless: Vec<String>,
    pub(crate) creates: Vec<String>,
    pub(crate) check_cmd: Vec<String>,
    pub(crate) retry: Option<Retry>,
    pub(crate) failhard: bool,
    pub(crate) register: Option<String>,
    pub(crate) noop: bool,
}

/// Salt's `retry`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Retry {
    pub(crate) attempts: u32,
    pub(crate) interval: Duration,
    /// The result that ends the trying.
    pub(crate) until: bool,
}

impl Control {
    /// Reads them. What the type takes itself (`onlyif` of an `exec`) is left to it.
    pub(super) fn read(declaration: &Declaration, spec: &TypeSpec) -> Result<Self, Refusal> {
        let texts = |name: &str| {
            if spec.takes(name) {
                return Ok(Vec::new());
            }
            Ok(declaration.texts(name)?.unwrap_or_default())
        };
        Ok(Self {
            onlyif: texts("onlyif")?,
            unless: texts("unless")?,
            creates: texts("creates")?,
            check_cmd: texts("check_cmd")?,
            retry: retry(declaration)?,
            failhard: declaration.boolean("failhard")?.unwrap_or(false),
            register: declaration.text("register")?,
            noop: declaration.boolean("noop")?.unwrap_or(false),
        })
    }

    pub(crate) fn has_guards(&self) -> bool {
        !(self.onlyif.is_empty() && self.unless.is_empty() && self.creates.is_empty())
    }
}

/// `retry: true`, or a map, or Salt's list of one-key maps.
fn retry(declaration: &Declaration) -> Result<Option<Retry>, Refusal> {
    let refuse = || declaration.refuse("retry", "true or a map of attempts, interval and until");
    let usual = Retry {
        attempts: 2,
        interval: Duration::from_secs(30),
        until: true,
    };
    let members = match declaration.value("retry") {
        None | Some(Value::Bool(false)) => return Ok(None),
        Some(Value::Bool(true)) => return Ok(Some(usual)),
        Some(Value::Object(members)) => members.clone(),
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(Value::as_object)
            .flat_map(|item| item.iter().map(|(key, value)| (key.clone(), value.clone())))
            .collect(),
        Some(_) => return Err(refuse()),
    };
    let mut retry = usual;
    for (key, value) in members {
        match key.as_str() {
            "attempts" => {
                let attempts = value
                    .as_u64()
                    .filter(|attempts| (1..=100_000).contains(attempts));
                retry.attempts = attempts.ok_or_else(refuse)? as u32;
            }
            "interval" => {
                retry.interval = (value.as_f64())
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                    .ok_or_else(refuse)?;
            }
            "until" => retry.until = value.as_bool().ok_or_else(refuse)?,
            "splay" => {}
            _ => return Err(refuse()),
        }
    }
    Ok(Some(retry))
}
