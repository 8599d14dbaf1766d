//! One byte sequence per JSON value, so that equal values have equal hashes.
//!
//! Object keys are sorted by their UTF-8 bytes, and no white space is written. Numbers are written
//! as `serde_json` writes them: `1` and `1.0` differ, as they do for the programs that read
//! catalogs and facts.

use serde_json::Value;

use crate::ContentId;

/// The canonical text of a value.
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

/// The address of a value's canonical text.
pub fn content_id_of_json(value: &Value) -> ContentId {
    ContentId::of(canonical_json(value).as_bytes())
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| key.as_bytes());
            out.push('{');
            for (index, (key, member)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_value(member, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let one = json!({"b": [1, {"y": 1, "x": 2}], "a": null});
        let other = json!({"a": null, "b": [1, {"x": 2, "y": 1}]});
        assert_eq!(canonical_json(&one), r#"{"a":null,"b":[1,{"x":2,"y":1}]}"#);
        assert_eq!(content_id_of_json(&one), content_id_of_json(&other));
    }

    #[test]
    fn the_order_of_items_does() {
        assert_ne!(
            content_id_of_json(&json!([1, 2])),
            content_id_of_json(&json!([2, 1]))
        );
    }

    proptest! {
        #[test]
        fn canonical_text_parses_back_to_the_same_value(keys in proptest::collection::btree_map(".*", ".*", 0..8)) {
            let value = serde_json::to_value(&keys).expect("a map of strings");
            let back: Value = serde_json::from_str(&canonical_json(&value)).expect("canonical text is JSON");
            prop_assert_eq!(value, back);
        }
    }
}
