//! A node's target, and the catalog that defines it.

use axum::body::Body as HttpBody;
use axum::response::{IntoResponse, Response};
use bunraku_model::{CatalogId, NodeName, Role};
use bunraku_store::{NoMajority, Store, StoreError};
use bunraku_wire::endpoints::{ShowNodeCatalog, ShowNodePlugins, ShowTarget};
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::Services;
use crate::http::byte_range;
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::gzip;
use crate::http::hidden_secrets;
use crate::http::reply::ErrorReply;
use bunraku_control::ServiceError;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ShowTarget, show)
        .add(ShowNodeCatalog, catalog)
        .add(ShowNodePlugins, plugins)
}

async fn show(call: Call<ShowTarget>) -> HandlerResult<ShowTarget> {
    let Some(known) = call.services.board.get(&call.path).await? else {
        return Err(nothing_known(&*call.services.store, &call.path).into());
    };
    let tag = HeaderValue::from_str(&known.entity_tag).expect("names and numbers are ASCII");
    let common = [
        (header::ETAG, tag),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if byte_range::is_known(&call.headers, &known.entity_tag) {
        return Ok((StatusCode::NOT_MODIFIED, common).into_response());
    }
    Ok((common, axum::Json(&known.stored.target)).into_response())
}

async fn catalog(call: Call<ShowNodeCatalog>) -> HandlerResult<ShowNodeCatalog> {
    let (node, id) = (&call.path.0, call.path.1);
    if call.caller()?.role == Role::Node && !may_read(&call.services, node, id).await? {
        return Err(
            ServiceError::from(bunraku_compile::catalogs::CatalogError::Missing(id)).into(),
        );
    }
    let record = call
        .services
        .catalogs
        .record(id)
        .await
        .map_err(ServiceError::from)?;
    // The id contains the node's name, so it cannot be another node's catalog by chance.
    if record.is_none_or(|record| record.node != *node) {
        return Err(
            ServiceError::from(bunraku_compile::catalogs::CatalogError::Missing(id)).into(),
        );
    }
    let secrets = call.may_view_secrets(node).await?;
    send_catalog(&call.services, id, &call.method, &call.headers, secrets).await
}

/// Returns whether a node may read a catalog: its target, the one before, or the one that the
/// ordered run that holds it planned for it.
async fn may_read(
    services: &Services,
    node: &NodeName,
    id: CatalogId,
) -> Result<bool, ServiceError> {
    Ok(services.board.may_read(node, id).await?
        || services.orchestration.held_catalog(node).await? == Some(id))
}

async fn plugins(call: Call<ShowNodePlugins>) -> HandlerResult<ShowNodePlugins> {
    Ok(call.services.compiles.plugins_of(&call.path).await?)
}

/// Sends the catalog's text, compressed if the caller accepts that. Sensitive values are only for
/// those who may see secrets.
pub(super) async fn send_catalog(
    services: &Services,
    id: CatalogId,
    method: &Method,
    headers: &HeaderMap,
    with_secrets: bool,
) -> Result<Response, ErrorReply> {
    let tag = if with_secrets {
        format!("\"{id}\"")
    } else {
        format!("\"{id}-without-secrets\"")
    };
    let mut reply = HeaderMap::new();
    reply.insert(
        header::ETAG,
        HeaderValue::from_str(&tag).expect("a hash is ASCII"),
    );
    reply.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    reply.insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
    if byte_range::is_known(headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, reply).into_response());
    }
    let (record, mut text) = services
        .catalogs
        .open(id)
        .await
        .map_err(ServiceError::from)?;
    reply.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if !with_secrets {
        let text = hidden_secrets::without_secrets(text).await?;
        return Ok((StatusCode::OK, reply, text).into_response());
    }
    let packed = record.size >= gzip::WORTH_IT && gzip::is_accepted(headers);
    if packed {
        reply.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    } else {
        reply.insert(header::CONTENT_LENGTH, HeaderValue::from(record.size));
    };
    if method == Method::HEAD {
        return Ok((StatusCode::OK, reply).into_response());
    }
    let first = text.next().await.transpose();
    let first = first.map_err(|error| ServiceError::content("cannot read the catalog", error))?;
    let text = futures::stream::iter(first.map(Ok)).chain(text);
    let body = if packed {
        HttpBody::from_stream(gzip::pieces(text))
    } else {
        HttpBody::from_stream(text)
    };
    Ok((StatusCode::OK, reply, body).into_response())
}

/// Returns the error for a missing target. An agent deletes its target when the server
/// reports that there is none, so data of a single datastore, which may be stale, must not
/// cause that.
fn nothing_known(store: &dyn Store, node: &NodeName) -> ServiceError {
    if let Some(lasting) = store.without_majority_for() {
        let source = format!("no released catalog for `{node}` is known here").into();
        let reason = NoMajority { lasting, source };
        return ServiceError::Store(StoreError::Unavailable(Box::new(reason)));
    }
    ServiceError::NotFound {
        what: format!("a released catalog for `{node}`"),
        hint: Some("create a release with `bunraku release create`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bunraku_store::SharedStore;
    use bunraku_store::testing::{MemoryStore, Overlay};

    use super::*;

    /// A store that has had no majority for a minute.
    struct Minority(SharedStore);

    impl Overlay for Minority {
        fn inner(&self) -> &SharedStore {
            &self.0
        }

        fn lost_majority(&self) -> Option<Duration> {
            Some(Duration::from_secs(60))
        }
    }

    #[test]
    fn without_a_majority_no_node_gets_the_answer_that_it_has_no_target() {
        let node = NodeName::new("web-1").expect("a name");
        let store = Arc::new(MemoryStore::new());
        let known = nothing_known(&*store, &node);
        assert!(matches!(known, ServiceError::NotFound { .. }), "{known:?}");
        let unsure = nothing_known(&Minority(store), &node);
        assert!(
            matches!(unsure, ServiceError::Store(StoreError::Unavailable(_))),
            "{unsure:?}"
        );
    }
}
