//! One definition per endpoint of the HTTP API: method, path, access, request
//! and reply.
//!
//! Routes, access rules, the client and the OpenAPI document are derived from
//! these definitions; paths are written nowhere else. Each endpoint is a unit
//! type, so handler and client agree on its messages at compile time:
//!
//! ```no_run
//! # async fn show(client: &bunraku_wire::Client, node: &bunraku_model::NodeName)
//! # -> Result<(), bunraku_wire::ClientError> {
//! use bunraku_wire::endpoints::{ListNodes, ShowNode};
//! let all = client.call(ListNodes).await?;
//! let one = client.call(ShowNode.at(node)).await?;
//! # Ok(()) }
//! ```
//!
//! Absent: handlers (they are on the server) and messages (they are in
//! [`crate::api`]).

mod access;
mod approvals;
mod audit;
mod authority;
mod catalogs;
mod certificates;
mod cluster;
mod commands;
mod compiles;
mod definition;
mod environments;
mod facts;
mod history;
mod kinds;
mod location;
mod locks;
mod modules;
mod nodes;
mod once;
mod openapi;
mod outputs;
mod path;
mod query;
mod reactors;
mod releases;
mod reports;
mod repositories;
mod restore;
mod runs;
mod server;
mod store;
mod triggers;

pub use access::*;
pub use approvals::*;
pub use audit::*;
pub use authority::*;
pub use catalogs::*;
pub use certificates::*;
pub use cluster::*;
pub use commands::*;
pub use compiles::*;
pub use definition::{
    Access, Audited, BodyLimit, Definition, Endpoint, Needs, OldData, ScopePlace, Verb,
};
pub use environments::*;
pub use facts::*;
pub use history::*;
pub use kinds::{
    BinaryContent, CatalogDocument, Conditional, Json, JsonLines, JsonObject, List, MediaType,
    NoBody, NoContent, NoQuery, OpenMetrics, Package, Paged, Pem, PingAnswers, PlainText,
    ReplyKind, RequestKind, SignedDelivery, Text,
};
pub use location::{Locate, Location};
pub use locks::*;
pub use modules::*;
pub use nodes::*;
pub use once::*;
pub use openapi::openapi_document;
pub use outputs::*;
pub use path::{PathParameters, PathValue, ReleaseSelector};
pub use query::*;
pub use reactors::*;
pub use releases::*;
pub use reports::*;
pub use repositories::*;
pub use restore::*;
pub use runs::*;
pub use server::*;
pub use store::*;
pub use triggers::*;

/// Every endpoint of the API.
pub fn all() -> impl Iterator<Item = &'static Definition> {
    [
        server::DEFINITIONS,
        nodes::DEFINITIONS,
        facts::DEFINITIONS,
        query::DEFINITIONS,
        commands::DEFINITIONS,
        reports::DEFINITIONS,
        access::DEFINITIONS,
        approvals::DEFINITIONS,
        audit::DEFINITIONS,
        authority::DEFINITIONS,
        certificates::DEFINITIONS,
        cluster::DEFINITIONS,
        environments::DEFINITIONS,
        repositories::DEFINITIONS,
        history::DEFINITIONS,
        restore::DEFINITIONS,
        store::DEFINITIONS,
        compiles::DEFINITIONS,
        catalogs::DEFINITIONS,
        releases::DEFINITIONS,
        outputs::DEFINITIONS,
        modules::DEFINITIONS,
        runs::DEFINITIONS,
        once::DEFINITIONS,
        locks::DEFINITIONS,
        triggers::DEFINITIONS,
        reactors::DEFINITIONS,
    ]
    .into_iter()
    .flatten()
}

/// The endpoint with this method and path template. `HEAD` is answered by
/// `GET`.
pub fn find(method: &http::Method, template: &str) -> Option<&'static Definition> {
    let method = match *method {
        http::Method::HEAD => "GET",
        _ => method.as_str(),
    };
    all().find(|known| known.verb.as_str() == method && known.template == template)
}
