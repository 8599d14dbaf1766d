//! Values as JSON that keeps their kind, to pass them to Ruby and back.
//!
//! Data is plain JSON. Everything else is an object with `__ptype`, as in Puppet's rich data. So is
//! a hash whose keys are not all text. Secrets are included.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{Float, Hash, Value, types::Type};
use crate::reference::Reference;

const KIND: &str = "__ptype";
const INNER: &str = "__pvalue";

impl Value {
    /// Returns the value as JSON, with its kind and with secrets.
    pub fn to_rich(&self) -> Json {
        match self {
            Self::Undef => Json::Null,
            Self::Boolean(value) => Json::from(*value),
            Self::Integer(value) => Json::from(*value),
            Self::Float(Float(value)) => Json::from(*value),
            Self::String(text) => Json::from(&**text),
            Self::Array(list) => list.items.iter().map(Self::to_rich).collect(),
            Self::Hash(table) => rich_hash(&table.entries),
            Self::Default => json!({ KIND: "Default" }),
            Self::Regex(pattern) => json!({ KIND: "Regexp", INNER: &**pattern }),
            Self::Sensitive(inner) => json!({ KIND: "Sensitive", INNER: inner.to_rich() }),
            Self::Type(of) => json!({ KIND: "Type", INNER: of.to_string() }),
            Self::Reference(reference) => json!({
                KIND: "Reference", "type": reference.type_name, "title": reference.title
            }),
        }
    }

    /// Converts such JSON to a value. The error is the kind of a value that this crate does not
    /// have.
    pub fn from_rich(json: &Json) -> Result<Self, String> {
        match json {
            Json::Array(items) => {
                let items = items.iter().map(Self::from_rich);
                Ok(Self::list(items.collect::<Result<_, _>>()?))
            }
            Json::Object(members) => match members.get(KIND).and_then(Json::as_str) {
                None => {
                    let one = |(key, value): (&String, &Json)| {
                        Ok((Self::text(key), Self::from_rich(value)?))
                    };
                    let entries = members.iter().map(one);
                    Ok(Self::table(entries.collect::<Result<_, String>>()?))
                }
                Some(kind) => object(kind, members),
            },
            plain => Ok(Self::from_json(plain)),
        }
    }
}

fn rich_hash(entries: &Hash) -> Json {
    let is_plain = |key: &Value| key.as_str().is_some_and(|key| key != KIND);
    if entries.keys().all(is_plain) {
        let members = entries.iter();
        let members = members.map(|(key, value)| (key.to_string(), value.to_rich()));
        return Json::Object(members.collect());
    }
    let flat = entries.iter();
    let flat: Vec<Json> = flat
        .flat_map(|(key, value)| [key.to_rich(), value.to_rich()])
        .collect();
    json!({ KIND: "Hash", INNER: flat })
}

fn object(kind: &str, members: &Map<String, Json>) -> Result<Value, String> {
    let text = |name: &str| members.get(name).and_then(Json::as_str).unwrap_or_default();
    let inner = members.get(INNER).unwrap_or(&Json::Null);
    Ok(match kind {
        "Default" => Value::Default,
        "Regexp" => Value::Regex(Arc::from(text(INNER))),
        "Sensitive" => Value::Sensitive(Box::new(Value::from_rich(inner)?)),
        "Reference" => Value::Reference(Arc::new(Reference::new(text("type"), text("title")))),
        "ResourceType" => {
            let name = crate::reference::capitalized(text(INNER));
            Value::Type(Arc::new(Type::Resource(Some(Arc::from(name)))))
        }
        "Hash" => {
            let flat = inner.as_array().map(Vec::as_slice).unwrap_or_default();
            let mut entries = Hash::new();
            for pair in flat.chunks_exact(2) {
                entries.insert(Value::from_rich(&pair[0])?, Value::from_rich(&pair[1])?);
            }
            Value::table(entries)
        }
        other => return Err(other.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &Value) {
        assert_eq!(Value::from_rich(&value.to_rich()).as_ref(), Ok(value));
    }

    #[test]
    fn every_kind_of_value_returns_as_it_was() {
        let reference = Value::Reference(Arc::new(Reference::new("Web", "a")));
        let resource = Type::Resource(Some(Arc::from("Shop::Web")));
        check(&Value::Undef);
        check(&Value::Default);
        check(&Value::Integer(7));
        check(&Value::Float(Float(0.5)));
        check(&Value::Regex(Arc::from("^a$")));
        check(&Value::Sensitive(Box::new(Value::text("secret"))));
        check(&Value::list(vec![reference.clone(), Value::Boolean(true)]));
        let by_reference = Hash::from_iter([(reference, Value::text("b"))]);
        check(&Value::table(by_reference));
        let with_kind = Hash::from_iter([(Value::text("__ptype"), Value::text("Regexp"))]);
        check(&Value::table(with_kind));
        let answer = json!({ "__ptype": "ResourceType", "__pvalue": "shop::web" });
        let expected = Value::Type(Arc::new(resource));
        assert_eq!(Value::from_rich(&answer), Ok(expected));
    }

    #[test]
    fn a_kind_that_plans_do_not_have_is_named() {
        let answer = json!([{ "__ptype": "Timestamp", "__pvalue": "now" }]);
        assert_eq!(Value::from_rich(&answer), Err("Timestamp".to_owned()));
    }
}
