//! Replies that may be stale: which routes allow them, and how they are marked.
//!
//! While no majority of the datastores answers, read-only requests are answered from a single
//! datastore and from memory. Requests that decide something are refused: every write, and
//! the few reads that callers act on.

use axum::body::Body;
use axum::response::Response;
use bunraku_store::Store;
use bunraku_store::stale::{AllowedStream, Permission};
use bunraku_wire::api::OLD_DATA_HEADER;
use bunraku_wire::endpoints::{self, OldData};
use http::{HeaderValue, Method};

/// Returns `true` if this route may be answered with stale data.
pub(super) fn is_allowed_for(method: &Method, route: &str) -> bool {
    endpoints::find(method, route).is_some_and(|known| known.old_data == OldData::Allowed)
}

/// Marks the reply if it may be stale. Its body is read with the same permission.
pub(super) fn mark(response: Response, permission: &Permission, store: &dyn Store) -> Response {
    let Some(lasting) = permission.used().or_else(|| store.without_majority_for()) else {
        return response;
    };
    if !response.status().is_success() {
        return response;
    }
    let permission = permission.clone();
    let mut response = response
        .map(|body| Body::from_stream(AllowedStream::new(permission, body.into_data_stream())));
    let seconds = HeaderValue::from(lasting.as_secs());
    response.headers_mut().insert(OLD_DATA_HEADER, seconds);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_is_never_answered_with_what_is_old() {
        assert!(is_allowed_for(&Method::GET, "/v1/nodes"));
        assert!(is_allowed_for(&Method::HEAD, "/v1/content/{id}"));
        assert!(is_allowed_for(&Method::POST, "/v1/query"));
        assert!(!is_allowed_for(&Method::GET, "/v1/once/{app}/standing"));
        assert!(!is_allowed_for(&Method::GET, "/v1/nodes/{node}/stream"));
        assert!(!is_allowed_for(&Method::POST, "/v1/runs"));
        assert!(!is_allowed_for(&Method::PUT, "/v1/locks/{lock}/lease"));
        assert!(!is_allowed_for(&Method::DELETE, "/v1/nodes/{node}"));
    }
}
