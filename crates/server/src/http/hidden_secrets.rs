//! Catalogs and once tasks for callers who may not see secrets.

use bunraku_control::ServiceError;
use bunraku_model::catalog::is_sensitive;
use bunraku_store::blobs::BlobStream;
use bunraku_wire::api::once::OnceReport;
use futures::StreamExt;
use serde_json::{Value, json};

/// What is shown instead of a secret.
const HIDDEN: &str = "(hidden: needs `view-secrets`)";

/// Returns the text of a catalog in which sensitive values are replaced.
pub(super) async fn without_secrets(mut text: BlobStream) -> Result<String, ServiceError> {
    let mut bytes = Vec::new();
    while let Some(piece) = text.next().await {
        let piece = piece.map_err(|error| ServiceError::internal("cannot read the catalog", error));
        bytes.extend_from_slice(&piece?);
    }
    let mut catalog = serde_json::from_slice(&bytes)
        .map_err(|error| ServiceError::internal("cannot read the catalog", error))?;
    hide(&mut catalog);
    Ok(catalog.to_string())
}

/// Replaces sensitive values: those of a `Sensitive` type, and parameters that their resource
/// names as sensitive.
fn hide(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Object(fields) => {
            let names: Vec<String> = fields
                .get("sensitive_parameters")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect();
            if let Some(Value::Object(parameters)) = fields.get_mut("parameters") {
                for (name, parameter) in parameters.iter_mut() {
                    if names.contains(name) || is_sensitive(parameter) {
                        *parameter = json!(HIDDEN);
                    }
                }
            }
            for (name, field) in fields.iter_mut() {
                if name != "parameters" && is_sensitive_here(field) {
                    *field = json!(HIDDEN);
                } else {
                    hide(field);
                }
            }
        }
        _ => {}
    }
}

/// Returns whether a value itself is of the type `Sensitive`.
fn is_sensitive_here(value: &Value) -> bool {
    value.get("__ptype").is_some_and(|kind| kind == "Sensitive")
}

/// Removes what a task's definition, fragments and log may say.
pub(super) fn hide_once(report: &mut OnceReport) {
    report.definition = None;
    report.log = None;
    for part in report.parts.values_mut() {
        *part = json!(HIDDEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensitive_values_are_hidden_and_others_stay() {
        let mut catalog = json!({"resources": [
            {"type": "User", "title": "u", "parameters": {"password": "one", "shell": "/bin/sh"},
             "sensitive_parameters": ["password"]},
            {"type": "Exec", "title": "e",
             "parameters": {"environment": {"__ptype": "Sensitive", "__pvalue": ["A=two"]}}},
            {"type": "File", "title": "f", "ext_parameters": {"key": {"__ptype": "Sensitive", "__pvalue": "three"}},
             "parameters": {"content": ["x", {"__ptype": "Sensitive", "__pvalue": "four"}]}},
        ]});
        hide(&mut catalog);
        let text = catalog.to_string();
        for secret in ["one", "two", "three", "four"] {
            assert!(!text.contains(&format!("{secret}\"")), "{text}");
        }
        assert!(text.contains("/bin/sh"), "{text}");
        assert_eq!(text.matches("hidden").count(), 4, "{text}");
    }
}
