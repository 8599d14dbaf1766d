//! A report as Puppet writes it: YAML with Ruby's tags.
//!
//! The report comes from a program that runs other people's code, so nothing in it is trusted.
//! Size, depth, counts and aliases are bounded, tags are ignored, and values are text. Not
//! included: the meaning of a report for a run (`events`).

use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A larger file is not a report: 100,000 resources take about 80 MB.
const LARGEST: u64 = 128 << 20;
/// The maximum number of nodes in the YAML tree. 100,000 resources have about 6 million.
const MOST_NODES: usize = 12_000_000;
const DEEPEST: usize = 64;

/// The reason why there is no readable report.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReportError {
    #[error("it does not exist")]
    None,
    #[error("it cannot be read")]
    Io(#[source] std::io::Error),
    #[error("it is larger than {LARGEST} bytes")]
    TooLarge,
    #[error("it is not valid UTF-8")]
    NotText,
    #[error("{0}")]
    Invalid(String),
}

/// The parts of the report that are used.
#[derive(Debug, Deserialize)]
pub(super) struct PuppetReport {
    pub(super) transaction_uuid: String,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) transaction_completed: Option<bool>,
    #[serde(default)]
    pub(super) noop: Option<bool>,
    #[serde(default)]
    pub(super) puppet_version: Option<Value>,
    #[serde(default)]
    pub(super) environment: Option<String>,
    #[serde(default)]
    pub(super) configuration_version: Option<Value>,
    #[serde(default)]
    pub(super) catalog_uuid: Option<String>,
    #[serde(default)]
    pub(super) job_id: Option<String>,
    /// This field follows everything that may be long. A truncated file lacks it.
    #[serde(rename = "corrective_change")]
    _complete: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) logs: Vec<PuppetLog>,
    #[serde(default, deserialize_with = "times_only")]
    pub(super) metrics: TimesByName,
    #[serde(default, deserialize_with = "in_order")]
    pub(super) resource_statuses: Vec<ResourceStatus>,
}

/// Seconds by name.
pub(super) type TimesByName = Vec<(String, f64)>;

/// A log line, as it appears in reports and in Puppet's JSON log files.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub(super) struct PuppetLog {
    pub(super) level: String,
    #[serde(deserialize_with = "as_text")]
    pub(super) message: String,
    #[serde(default)]
    pub(super) source: Option<String>,
    #[serde(default)]
    pub(super) time: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ResourceStatus {
    #[serde(default)]
    pub(super) resource_type: Option<String>,
    #[serde(default, deserialize_with = "as_text")]
    pub(super) title: String,
    #[serde(default)]
    pub(super) file: Option<String>,
    #[serde(default)]
    pub(super) line: Option<u64>,
    #[serde(default)]
    pub(super) evaluation_time: Option<f64>,
    #[serde(default)]
    pub(super) time: Option<String>,
    #[serde(default)]
    pub(super) containment_path: Option<Vec<String>>,
    #[serde(default)]
    pub(super) failed: Option<bool>,
    #[serde(default)]
    pub(super) failed_to_restart: Option<bool>,
    #[serde(default)]
    pub(super) changed: Option<bool>,
    #[serde(default)]
    pub(super) skipped: Option<bool>,
    #[serde(default)]
    pub(super) corrective_change: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) events: Vec<PuppetEvent>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PuppetEvent {
    #[serde(default)]
    pub(super) property: Option<String>,
    #[serde(default)]
    pub(super) previous_value: Value,
    #[serde(default)]
    pub(super) desired_value: Value,
    #[serde(default, deserialize_with = "as_text")]
    pub(super) message: String,
    #[serde(default)]
    pub(super) name: Option<String>,
    /// `success`, `failure`, `noop`, `audit`.
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) redacted: Option<bool>,
    #[serde(default)]
    pub(super) corrective_change: Option<bool>,
}

impl PuppetReport {
    pub(super) fn read(path: &Path) -> Result<Self, ReportError> {
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ReportError::None);
            }
            Err(error) => return Err(ReportError::Io(error)),
        };
        let mut bytes = Vec::new();
        let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
        read.map_err(ReportError::Io)?;
        if bytes.len() as u64 > LARGEST {
            return Err(ReportError::TooLarge);
        }
        Self::parse(std::str::from_utf8(&bytes).map_err(|_| ReportError::NotText)?)
    }

    pub(super) fn parse(text: &str) -> Result<Self, ReportError> {
        let options = serde_saphyr::options! {
            with_snippet: false,
            // Values that are not text stay as they are written.
            ignore_binary_tag_for_string: true,
            budget: serde_saphyr::budget! {
                max_depth: DEEPEST,
                max_documents: 1,
                max_nodes: MOST_NODES,
                max_events: 3 * MOST_NODES,
                max_aliases: 100_000,
                max_anchors: 100_000,
                max_total_scalar_bytes: LARGEST as usize,
                max_reader_input_bytes: Some(LARGEST as usize),
            },
            // Ruby writes a value that is the same object twice as an alias.
            alias_limits: serde_saphyr::alias_limits! {
                max_total_replayed_events: 50_000,
                max_replay_stack_depth: 16,
                max_alias_expansions_per_anchor: 50_000,
            },
        };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let text = error.to_string();
            ReportError::Invalid(text.lines().next().unwrap_or("unreadable").to_owned())
        })
    }
}

/// Deserializes `null` as the default value.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Deserializes any value as text, as people would write it.
fn as_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(text(&Value::deserialize(deserializer)?).unwrap_or_default())
}

pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        value => Some(value.to_string()),
    }
}

/// Returns the statuses in the order of the run, without their names, which they repeat.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ResourceStatus>, D::Error> {
    struct Statuses;
    impl<'de> Visitor<'de> for Statuses {
        type Value = Vec<ResourceStatus>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("statuses by resource")
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut statuses = Vec::new();
            while map.next_key::<IgnoredAny>()?.is_some() {
                statuses.extend(map.next_value::<Option<ResourceStatus>>()?);
            }
            Ok(statuses)
        }
    }
    deserializer.deserialize_any(Statuses)
}

/// Returns only the durations from all metrics.
fn times_only<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TimesByName, D::Error> {
    #[derive(Deserialize)]
    struct Metric {
        #[serde(default)]
        values: Vec<(String, IgnoredAny, Value)>,
    }
    #[derive(Deserialize)]
    struct Metrics {
        #[serde(default)]
        time: Option<Metric>,
    }
    let metrics = Option::<Metrics>::deserialize(deserializer)?;
    let times = metrics.and_then(|metrics| metrics.time);
    let values = times.map(|metric| metric.values).unwrap_or_default();
    let seconds = |(name, _, value): (String, _, Value)| Some((name, value.as_f64()?));
    Ok(values.into_iter().filter_map(seconds).collect())
}

#[cfg(test)]
mod tests;
