//! A reply that is sent for as long as its reader may view it.

use axum::body::Body;
use axum::response::Response;
use bunraku_model::access::AccessTarget;
use bunraku_wire::endpoints::Needs;
use bytes::Bytes;
use futures::StreamExt;
use http::header;

use super::permit::Permit;
use super::routes::Services;

/// Returns whether a reply is sent line by line, perhaps for hours.
pub(super) fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind == "application/x-ndjson")
}

/// Breaks the body off when the access rules change so that its reader may no longer get it. The
/// reader sees a broken stream and not an end; when it asks again, the refusal says why.
pub(super) fn guard(
    response: Response,
    services: &Services,
    permit: &Permit,
    needs: Needs,
    target: Option<AccessTarget>,
) -> Response {
    let changes = services.access.subscribe();
    let operator = permit.operator().clone();
    let access = services.access.clone();
    response.map(|body| {
        let state = (body.into_data_stream(), changes, access, operator, target);
        let guarded = futures::stream::unfold(Some(state), move |state| async move {
            let (mut body, mut changes, access, operator, target) = state?;
            loop {
                tokio::select! {
                    piece = body.next() => {
                        let piece = piece?.map_err(std::io::Error::other);
                        return Some((piece, Some((body, changes, access, operator, target))));
                    }
                    changed = changes.changed() => {
                        changed.ok()?;
                        let known = changes.borrow_and_update().clone()?;
                        let permit = Permit::new(&access, known, operator.clone());
                        if permit.check(needs, target.clone()).await.is_err() {
                            let revoked = std::io::Error::other("the access rules changed");
                            return Some((Err::<Bytes, _>(revoked), None));
                        }
                    }
                }
            }
        });
        Body::from_stream(guarded)
    })
}
