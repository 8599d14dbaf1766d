//! The parameters that control how any resource runs, regardless of its type.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::resource_schedule::ResourceSchedule;
use crate::{Declaration, Refusal, TypeSpec};

/// The parsed parameters that every resource has.
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
    /// Puppet's `schedule`.
    pub(crate) schedule: Option<Arc<ResourceSchedule>>,
}

/// Salt's `retry`, which waits the same time before each attempt, and `backoff`, the
/// factor by which each wait is longer than the one before.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Retry {
    pub(crate) attempts: u32,
    pub(crate) interval: Duration,
    /// The result that ends the retries.
    pub(crate) until: bool,
    backoff: f64,
    longest: Duration,
    /// The maximum delay that is added, so that many nodes do not retry in step.
    splay: Duration,
}

impl Retry {
    /// Returns the time to wait after this attempt (the first is 1). `fraction`,
    /// between 0 and 1, is the share of the splay that is added.
    pub(crate) fn wait(&self, attempt: u32, fraction: f64) -> Duration {
        let grown =
            self.interval.as_secs_f64() * self.backoff.powf(f64::from(attempt.saturating_sub(1)));
        let limited = grown.min(self.longest.as_secs_f64()).max(0.0);
        Duration::from_secs_f64(limited) + self.splay.mul_f64(fraction.clamp(0.0, 1.0))
    }
}

/// The parameters that [`Control::read`] looks for.
const NAMES: [&str; 9] = [
    "check_cmd",
    "creates",
    "failhard",
    "noop",
    "onlyif",
    "register",
    "retry",
    "schedule",
    "unless",
];

impl Control {
    /// Reads the parameters, or returns `usual` if there are none. Parameters that the
    /// type handles itself (`onlyif` of an `exec`) are left to it.
    pub(super) fn read(
        declaration: &Declaration,
        spec: &TypeSpec,
        usual: &Arc<Self>,
        schedules: &Schedules,
    ) -> Result<Arc<Self>, Refusal> {
        // Most resources have no such parameters.
        let mut names = declaration.parameters().keys();
        if !names.any(|name| NAMES.contains(&name.as_str())) {
            return Ok(Arc::clone(usual));
        }
        let texts = |name: &str| {
            if spec.takes(name) {
                return Ok(Vec::new());
            }
            Ok(declaration.texts(name)?.unwrap_or_default())
        };
        Ok(Arc::new(Self {
            onlyif: texts("onlyif")?,
            unless: texts("unless")?,
            creates: texts("creates")?,
            check_cmd: texts("check_cmd")?,
            retry: retry(declaration)?,
            failhard: declaration.boolean("failhard")?.unwrap_or(false),
            register: declaration.text("register")?,
            noop: declaration.boolean("noop")?.unwrap_or(false),
            schedule: if spec.takes("schedule") {
                None
            } else {
                schedule(declaration, schedules)?
            },
        }))
    }

    /// Returns true if it adds commands or waits to the step.
    pub(crate) fn runs_commands(&self) -> bool {
        self.has_guards()
            || self.schedule.is_some()
            || !self.check_cmd.is_empty()
            || self.retry.is_some()
    }

    pub(crate) fn has_guards(&self) -> bool {
        !(self.onlyif.is_empty() && self.unless.is_empty() && self.creates.is_empty())
    }
}

/// The schedules of a catalog, by name.
pub(super) type Schedules = HashMap<String, Result<Arc<ResourceSchedule>, String>>;

/// Finds the schedule that a resource names.
fn schedule(
    declaration: &Declaration,
    schedules: &Schedules,
) -> Result<Option<Arc<ResourceSchedule>>, Refusal> {
    let Some(name) = declaration.text("schedule")? else {
        return Ok(None);
    };
    match schedules.get(&name) {
        Some(Ok(schedule)) => Ok(Some(Arc::clone(schedule))),
        Some(Err(why)) => Err(Refusal::other(format!(
            "the schedule `{name}` is invalid: {why}"
        ))),
        None => match ResourceSchedule::built_in(&name) {
            Some(schedule) => Ok(Some(Arc::new(schedule))),
            None => Err(Refusal::other(format!(
                "no schedule `{name}` in the catalog"
            ))),
        },
    }
}

/// Reads `retry: true`, or a map, or Salt's list of one-key maps.
fn retry(declaration: &Declaration) -> Result<Option<Retry>, Refusal> {
    let refuse = || {
        let wanted = "true or a map of attempts, interval, backoff, max_interval, splay and until";
        declaration.refuse("retry", wanted)
    };
    let seconds = |value: &Value| {
        (value.as_f64())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(refuse)
    };
    let usual = Retry {
        attempts: 2,
        interval: Duration::from_secs(30),
        until: true,
        backoff: 1.0,
        longest: Duration::from_secs(3_600),
        splay: Duration::ZERO,
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
            "interval" => retry.interval = seconds(&value)?,
            "max_interval" => retry.longest = seconds(&value)?,
            "splay" => retry.splay = seconds(&value)?,
            "backoff" => {
                let factor = value
                    .as_f64()
                    .filter(|factor| (1.0..=100.0).contains(factor));
                retry.backoff = factor.ok_or_else(refuse)?;
            }
            "until" => retry.until = value.as_bool().ok_or_else(refuse)?,
            _ => return Err(refuse()),
        }
    }
    Ok(Some(retry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_by_the_factor_up_to_the_longest() {
        let retry = Retry {
            attempts: 9,
            interval: Duration::from_secs(2),
            until: true,
            backoff: 3.0,
            longest: Duration::from_secs(20),
            splay: Duration::from_secs(4),
        };
        let waits: Vec<u64> = (1..=5)
            .map(|attempt| retry.wait(attempt, 0.0).as_secs())
            .collect();
        assert_eq!(waits, [2, 6, 18, 20, 20]);
        assert_eq!(retry.wait(1, 0.5), Duration::from_secs(4));
        assert_eq!(retry.wait(u32::MAX, 1.0), Duration::from_secs(24));
    }
}
