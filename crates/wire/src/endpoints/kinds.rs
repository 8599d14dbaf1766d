//! The kinds of request bodies and replies.
//!
//! Absent: how a kind is read and written. The server and the client each
//! implement that for the kinds that they handle.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::openapi::path::ParameterIn;
use utoipa::{IntoParams, ToSchema};

use super::openapi::Schemas;
use crate::api::{NEXT_PAGE_HEADER, PageQuery, TOTAL_HEADER};

/// The parameters after the `?` of a request.
pub trait QueryParameters: IntoParams + Serialize + DeserializeOwned + Send {}

impl<T: IntoParams + Serialize + DeserializeOwned + Send> QueryParameters for T {}

/// A query without parameters.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct NoQuery {}

impl IntoParams for NoQuery {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<utoipa::openapi::path::Parameter> {
        Vec::new()
    }
}

/// The body of a request.
pub trait RequestKind: Send + 'static {
    /// The media type and its schema, for the OpenAPI document.
    fn describe(schemas: &mut Schemas) -> Option<(&'static str, Value)>;

    /// Returns whether these bytes are such a body. The server reads the kinds that have no type
    /// of their own in their handlers.
    fn can_read(_body: &[u8]) -> bool {
        true
    }
}

/// No body; one that is sent is ignored.
#[derive(Debug)]
pub struct NoBody;

/// A JSON value of one type.
#[derive(Debug)]
pub struct Json<T>(PhantomData<fn() -> T>);

/// A JSON object whose members the API does not fix: facts, catalogs.
#[derive(Debug)]
pub struct JsonObject<T>(PhantomData<fn() -> T>);

/// A signed module package.
#[derive(Debug)]
pub struct Package;

/// A webhook delivery. The server reads the signature or the bearer token in
/// its headers.
#[derive(Debug)]
pub struct SignedDelivery;

/// The numbers of answered pings, one per line, for as long as the reply lasts.
#[derive(Debug)]
pub struct PingAnswers;

impl RequestKind for PingAnswers {
    fn describe(_: &mut Schemas) -> Option<(&'static str, Value)> {
        // OpenAPI has no words for a body that is sent while the reply arrives.
        None
    }
}

impl RequestKind for NoBody {
    fn describe(_: &mut Schemas) -> Option<(&'static str, Value)> {
        None
    }
}

impl<T: ToSchema + DeserializeOwned + 'static> RequestKind for Json<T> {
    fn describe(schemas: &mut Schemas) -> Option<(&'static str, Value)> {
        Some((JSON, schemas.reference::<T>()))
    }

    fn can_read(body: &[u8]) -> bool {
        serde_json::from_slice::<T>(body).is_ok()
    }
}

impl<T: 'static> RequestKind for JsonObject<T> {
    fn describe(_: &mut Schemas) -> Option<(&'static str, Value)> {
        Some((JSON, json!({"type": "object"})))
    }

    fn can_read(body: &[u8]) -> bool {
        serde_json::from_slice::<serde_json::Map<String, Value>>(body).is_ok()
    }
}

impl RequestKind for Package {
    fn describe(_: &mut Schemas) -> Option<(&'static str, Value)> {
        Some((OCTETS, json!({})))
    }
}

impl RequestKind for SignedDelivery {
    fn describe(_: &mut Schemas) -> Option<(&'static str, Value)> {
        Some((JSON, json!({"type": "object"})))
    }
}

/// A successful reply.
pub trait ReplyKind: Send + 'static {
    /// Status and response, for the OpenAPI document.
    fn describe(schemas: &mut Schemas) -> Vec<(u16, Value)>;

    /// True if the reply is one page of a list.
    const IS_PAGED: bool = false;

    /// The query parameters of every endpoint with such a reply.
    fn parameters() -> Vec<Value> {
        Vec::new()
    }
}

/// A JSON array of one type, as a whole: it is small, or as long as the request.
#[derive(Debug)]
pub struct List<T>(PhantomData<fn() -> T>);

/// A JSON array of one type, one page at a time. See [`Page`](crate::api::Page).
#[derive(Debug)]
pub struct Paged<T>(PhantomData<fn() -> T>);

/// Status 204 and no body.
#[derive(Debug)]
pub struct NoContent;

/// A stream of JSON values, one per line; an empty line is a heartbeat.
#[derive(Debug)]
pub struct JsonLines<T>(PhantomData<fn() -> T>);

/// A JSON value with an entity tag, or "not modified".
#[derive(Debug)]
pub struct Conditional<T>(PhantomData<fn() -> T>);

/// A catalog as JSON text, streamed, with an entity tag; may be compressed.
#[derive(Debug)]
pub struct CatalogDocument;

/// Bytes by their content id: whole or a range, with an entity tag.
#[derive(Debug)]
pub struct BinaryContent;

/// Text of one media type.
#[derive(Debug)]
pub struct Text<M>(PhantomData<fn() -> M>);

/// The media type of a [`Text`] reply.
pub trait MediaType: 'static {
    const NAME: &'static str;
}

/// `text/plain`.
#[derive(Debug)]
pub struct PlainText;

/// PEM blocks.
#[derive(Debug)]
pub struct Pem;

/// Metrics as Prometheus scrapes them.
#[derive(Debug)]
pub struct OpenMetrics;

impl MediaType for PlainText {
    const NAME: &'static str = "text/plain; charset=utf-8";
}

impl MediaType for Pem {
    const NAME: &'static str = "application/x-pem-file";
}

impl MediaType for OpenMetrics {
    const NAME: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";

impl<T: ToSchema + 'static> ReplyKind for Json<T> {
    fn describe(schemas: &mut Schemas) -> Vec<(u16, Value)> {
        vec![(200, response("Success.", JSON, &schemas.reference::<T>()))]
    }
}

impl<T: 'static> ReplyKind for JsonObject<T> {
    fn describe(_: &mut Schemas) -> Vec<(u16, Value)> {
        vec![(200, response("Success.", JSON, &json!({"type": "object"})))]
    }
}

impl<T: ToSchema + 'static> ReplyKind for List<T> {
    fn describe(schemas: &mut Schemas) -> Vec<(u16, Value)> {
        let items = schemas.reference::<T>();
        let schema = json!({"type": "array", "items": items});
        vec![(200, response("Success.", JSON, &schema))]
    }
}

impl<T: ToSchema + 'static> ReplyKind for Paged<T> {
    const IS_PAGED: bool = true;

    fn describe(schemas: &mut Schemas) -> Vec<(u16, Value)> {
        let items = schemas.reference::<T>();
        let schema = json!({"type": "array", "items": items});
        let mut page = response("One page of the list.", JSON, &schema);
        page["headers"] = json!({
            NEXT_PAGE_HEADER: {
                "description": "The cursor of the next page. Absent on the last page.",
                "schema": {"type": "string"},
            },
            TOTAL_HEADER: {
                "description": "The number of entries in the whole list, if it is known.",
                "schema": {"type": "integer"},
            },
        });
        vec![(200, page)]
    }

    fn parameters() -> Vec<Value> {
        let parameters = PageQuery::into_params(|| Some(ParameterIn::Query));
        let parameters = parameters.iter().map(serde_json::to_value);
        parameters.filter_map(Result::ok).collect()
    }
}

impl ReplyKind for NoContent {
    fn describe(_: &mut Schemas) -> Vec<(u16, Value)> {
        vec![(204, json!({"description": "Success, without a body."}))]
    }
}

impl<T: ToSchema + 'static> ReplyKind for JsonLines<T> {
    fn describe(schemas: &mut Schemas) -> Vec<(u16, Value)> {
        let words = "A stream of JSON values, one per line. An empty line is a heartbeat.";
        let schema = schemas.reference::<T>();
        vec![(200, response(words, "application/x-ndjson", &schema))]
    }
}

impl<T: ToSchema + 'static> ReplyKind for Conditional<T> {
    fn describe(schemas: &mut Schemas) -> Vec<(u16, Value)> {
        let schema = schemas.reference::<T>();
        vec![(200, response("Success.", JSON, &schema)), not_modified()]
    }
}

impl ReplyKind for CatalogDocument {
    fn describe(_: &mut Schemas) -> Vec<(u16, Value)> {
        let schema = json!({"type": "object"});
        let catalog = response("The catalog, in Puppet's format.", JSON, &schema);
        vec![(200, catalog), not_modified()]
    }
}

impl ReplyKind for BinaryContent {
    fn describe(_: &mut Schemas) -> Vec<(u16, Value)> {
        vec![
            (200, response("The whole content.", OCTETS, &json!({}))),
            (206, response("The range in `Range`.", OCTETS, &json!({}))),
            not_modified(),
        ]
    }
}

impl<M: MediaType> ReplyKind for Text<M> {
    fn describe(_: &mut Schemas) -> Vec<(u16, Value)> {
        vec![(
            200,
            response("Success.", M::NAME, &json!({"type": "string"})),
        )]
    }
}

fn not_modified() -> (u16, Value) {
    let words = "`If-None-Match` names the current entity tag.";
    (304, json!({"description": words}))
}

fn response(description: &str, media_type: &str, schema: &Value) -> Value {
    json!({"description": description, "content": {media_type: {"schema": schema}}})
}
