//! Labels of the alerts that started a run: environment variables of its commands, and data of its
//! templates.
//!
//! Labels come from outside. The prefix keeps them from setting variables such as `PATH`, and a
//! value is never part of a command line.

use std::collections::BTreeMap;

use bunraku_wire::api::Cause;

/// The prefix of the variables.
const PREFIX: &str = "BUNRAKU_LABEL_";

/// Returns the labels of a run. If several alerts started it, the newest one that has a label
/// decides.
pub(super) fn labels_of(causes: &[Cause]) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for cause in causes {
        if let Cause::Trigger(trigger) = cause {
            labels.extend(trigger.labels.clone());
        }
    }
    labels.retain(|name, value| is_name(name) && !value.contains('\0'));
    labels
}

/// Returns the environment variables for the labels of a run.
pub(super) fn variables_of(causes: &[Cause]) -> Vec<(String, String)> {
    let labels = labels_of(causes).into_iter();
    let variable = |(name, value): (String, String)| {
        let name = format!("{PREFIX}{}", name.to_ascii_uppercase());
        (name, value)
    };
    labels.map(variable).collect()
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_wire::api::TriggerCause;

    fn alert(labels: &[(&str, &str)]) -> Cause {
        let labels = labels.iter();
        Cause::Trigger(TriggerCause {
            labels: labels
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..TriggerCause::new("clean", 7)
        })
    }

    #[test]
    fn labels_become_variables_with_a_prefix() {
        let causes = [
            Cause::Schedule,
            alert(&[("alertname", "DiskFull"), ("severity", "warning")]),
            alert(&[("severity", "$(reboot)"), ("a=b", "x"), ("nul", "a\0")]),
        ];
        let expected = [
            ("BUNRAKU_LABEL_ALERTNAME", "DiskFull"),
            ("BUNRAKU_LABEL_SEVERITY", "$(reboot)"),
        ];
        let variables = variables_of(&causes);
        let variables: Vec<(&str, &str)> = (variables.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(variables, expected);
    }
}
