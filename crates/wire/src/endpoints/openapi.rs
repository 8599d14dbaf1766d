//! The OpenAPI document, derived from the definitions.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::openapi::path::ParameterIn;
use utoipa::{IntoParams, ToSchema};

use super::definition::{Access, Definition, Endpoint};
use super::kinds::{ReplyKind, RequestKind};
use super::path::PathParameters;
use crate::api::Problem;

/// The name of the security scheme: a client certificate.
const CERTIFICATE: &str = "clientCertificate";

/// The schemas that operations refer to, by name.
#[derive(Default)]
pub struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// Keeps the schema of a type, and returns a reference to it.
    pub(super) fn reference<T: ToSchema>(&mut self) -> Value {
        let name = T::name().into_owned();
        if name == "String" {
            return value(&T::schema());
        }
        let mut all = Vec::new();
        T::schemas(&mut all);
        all.push((name.clone(), T::schema()));
        for (name, schema) in all {
            self.0.insert(name, value(&schema));
        }
        json!({"$ref": format!("#/components/schemas/{name}")})
    }
}

fn value<T: serde::Serialize>(part: &T) -> Value {
    serde_json::to_value(part).expect("an OpenAPI document is plain data")
}

/// Parameters, body and replies of one endpoint.
pub(super) fn describe<E: Endpoint>(schemas: &mut Schemas) -> Value {
    let mut operation = Map::new();
    let names = E::DEFINITION.parameters();
    let in_path = names.zip(E::Path::schemas()).map(
        |(name, schema)| json!({"name": name, "in": "path", "required": true, "schema": schema}),
    );
    let in_query = E::Query::into_params(|| Some(ParameterIn::Query));
    let parameters: Vec<Value> = in_path
        .chain(in_query.iter().map(value))
        .chain(E::Reply::parameters())
        .collect();
    if !parameters.is_empty() {
        operation.insert("parameters".to_owned(), parameters.into());
    }
    if let Some((media_type, schema)) = E::Request::describe(schemas) {
        let body = json!({"required": true, "content": {media_type: {"schema": schema}}});
        operation.insert("requestBody".to_owned(), body);
    }
    let replies = E::Reply::describe(schemas).into_iter();
    let mut responses: Map<String, Value> = replies
        .map(|(status, reply)| (status.to_string(), reply))
        .collect();
    for errors in ["4XX", "5XX"] {
        let error = json!({"$ref": "#/components/responses/Error"});
        responses.insert(errors.to_owned(), error);
    }
    operation.insert("responses".to_owned(), responses.into());
    operation.into()
}

fn operation(definition: &Definition, schemas: &mut Schemas) -> Value {
    let mut operation = (definition.describe)(schemas);
    operation["operationId"] = camel_case(definition.name).into();
    operation["tags"] = json!([definition.tag]);
    operation["summary"] = definition.summary().into();
    let mut allowed = format!("Answers {}.", definition.access.description());
    if let Some(needs) = definition.needs {
        allowed.push_str(&format!(" Operators need {needs}."));
    }
    let details = [definition.details(), allowed];
    let details = details.iter().filter(|text| !text.is_empty());
    operation["description"] = details.cloned().collect::<Vec<_>>().join("\n\n").into();
    operation["security"] = match definition.access {
        Access::Anonymous => json!([]),
        _ => json!([{CERTIFICATE: []}]),
    };
    operation
}

fn camel_case(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_ascii_lowercase() + rest
}

/// The OpenAPI 3.1 document of the whole API.
pub fn openapi_document() -> Value {
    let mut schemas = Schemas::default();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for definition in super::all() {
        let operation = operation(definition, &mut schemas);
        let method = definition.verb.as_str().to_ascii_lowercase();
        let path = paths.entry(definition.template).or_default();
        path.insert(method, operation);
    }
    let problem = schemas.reference::<Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Bunraku",
            "description": "An asynchronous control plane for configuration management.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas.0,
            "responses": {
                "Error": {
                    "description": "The request failed. `code` is stable; `message` and `hint` are for people.",
                    "content": {"application/json": {"schema": problem}},
                },
            },
            "securitySchemes": {
                CERTIFICATE: {
                    "type": "mutualTLS",
                    "description": "A certificate signed by the CA of the server. It identifies the caller and the role.",
                },
            },
        },
    })
}
