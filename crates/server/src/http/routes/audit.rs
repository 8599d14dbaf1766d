//! The audit log: operators read it. Nobody writes it through the API.

use axum::body::Body;
use bunraku_control::ServiceError;
use bunraku_control::audit::AuditFilter;
use bunraku_wire::endpoints::{ExportAudit, FollowAudit, ListAudit, ShowAuditHead};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;

use crate::http::endpoint::{Call, HandlerResult, LineBody, Routes};

/// Default number of records on a page.
const PAGE: usize = 50;
const LARGEST_PAGE: usize = 1_000;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes
        .add(ListAudit, list)
        .add(ShowAuditHead, head)
        .add(ExportAudit, export)
        .add(FollowAudit, follow)
}

async fn list(call: Call<ListAudit>) -> HandlerResult<ListAudit> {
    let query = call.query;
    let filter = AuditFilter {
        who: query.who,
        action: query.action,
        object: query.object,
        outcome: query.outcome,
        request_id: query.request_id,
        since: query.since,
        until: query.until,
        limit: query.limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE),
        before: query.before,
    };
    Ok(call.services.audit.list(&filter).await?)
}

async fn head(call: Call<ShowAuditHead>) -> HandlerResult<ShowAuditHead> {
    Ok(call.services.audit.head().await?)
}

async fn export(call: Call<ExportAudit>) -> HandlerResult<ExportAudit> {
    let after = call.query.after.unwrap_or(0);
    let lines = call.services.audit.lines_after(after).await?;
    let pieces = stream::try_unfold(lines, |mut lines| async move {
        match lines.next().await {
            Ok(some) => Ok(some.map(|some| (joined(&some), lines))),
            // The reader sees a broken reply, not a short log.
            Err(error) => {
                tracing::warn!(error = %error, "an export of the audit log failed");
                Err(std::io::Error::other(error))
            }
        }
    });
    Ok(LineBody::from_body(Body::from_stream(pieces)))
}

async fn follow(call: Call<FollowAudit>) -> HandlerResult<FollowAudit> {
    let services = call.services;
    let followed = services.audit.follow(call.query.after).await?;
    let pieces = stream::unfold(
        (services, followed),
        |(services, mut followed)| async move {
            let piece = tokio::select! {
                () = services.shutdown.cancelled() => return None,
                some = followed.next() => joined(&some.map_err(log_error).ok()?),
                () = tokio::time::sleep(services.heartbeat) => Bytes::from_static(b"\n"),
            };
            Some((Ok::<_, std::io::Error>(piece), (services, followed)))
        },
    );
    Ok(LineBody::from_body(Body::from_stream(pieces)))
}

/// Returns lines exactly as they are stored, because their hashes cover every byte.
fn joined(lines: &[Bytes]) -> Bytes {
    let mut text = BytesMut::new();
    for line in lines {
        text.extend_from_slice(line);
        text.put_u8(b'\n');
    }
    text.freeze()
}

fn log_error(error: ServiceError) {
    tracing::warn!(error = %error, "an audit stream ended; the reader reconnects");
}
