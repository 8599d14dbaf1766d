//! The value under a cue's key. Pure.

use bunraku_model::NodeName;
use bunraku_wire::api::TriggerCause;
use serde::{Deserialize, Deserializer, Serialize};

/// The value of a key. Other programs write the first five fields; the causes are ours.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Message {
    #[serde(default)]
    pub(super) hostname: String,
    #[serde(default, deserialize_with = "one_or_many")]
    pub(super) tags: Vec<String>,
    /// The hosts. If the list is empty, the key `<prefix>/<name>` is for every watcher.
    #[serde(default, deserialize_with = "one_or_many")]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) timestamp: i64,
    pub(super) uuid: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) causes: Vec<TriggerCause>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Reads a list. Puppet writes a list with one element as that element.
fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match Option::<OneOrMany>::deserialize(from)? {
        None => Vec::new(),
        Some(OneOrMany::One(one)) => vec![one],
        Some(OneOrMany::Many(many)) => many,
    })
}

/// Returns the trigger's name if the key is a cue for this host.
pub(super) fn cue_for(host: &NodeName, key: &str, message: &Message) -> Option<String> {
    match key.strip_prefix("hosts/") {
        Some(named) if named == host.as_str() => {
            let named = message.causes.first().map(|cause| cause.name.clone());
            Some(named.unwrap_or_else(|| key.to_owned()))
        }
        Some(_) => None,
        None => {
            let named = message.hosts.iter().any(|named| named == host.as_str());
            (named || message.hosts.is_empty()).then(|| key.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, value: &str) -> Option<String> {
        let host = NodeName::new("lb-1").expect("a name");
        let message: Message = serde_json::from_str(value).expect("a message");
        cue_for(&host, key, &message)
    }

    #[test]
    fn cues_of_the_original_module_are_understood() {
        let original = r#"{"hostname":"web","tags":null,"hosts":["lb-1","lb-2"],"timestamp":1400000000,"uuid":"u"}"#;
        assert_eq!(
            check("refresh load balancers", original).as_deref(),
            Some("refresh load balancers")
        );
        assert_eq!(check("hosts/lb-1", original).as_deref(), Some("hosts/lb-1"));
        assert_eq!(check("hosts/lb-2", original), None);
        assert_eq!(
            check("x", r#"{"hosts":"lb-1","tags":"a","uuid":"u"}"#).as_deref(),
            Some("x")
        );
        assert_eq!(check("x", r#"{"hosts":["other"],"uuid":"u"}"#), None);
        assert_eq!(
            check("x", r#"{"hosts":null,"uuid":"u"}"#).as_deref(),
            Some("x"),
            "for every watcher"
        );
        assert_eq!(
            check("x", r#"{"hosts":[],"uuid":"u"}"#).as_deref(),
            Some("x"),
            "the original writes this when no hosts are given"
        );
    }
}
