//! Content by its address.

use axum::body::Body as HttpBody;
use axum::response::{IntoResponse, Response};
use bunraku_model::{ContentId, Role};
use bunraku_store::blobs::{BlobError, BlobStream};
use bunraku_wire::endpoints::ShowContent;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use bunraku_compile::content::no_such_content;
use bunraku_control::ServiceError;

use super::Services;
use crate::http::byte_range::{self, RequestedRange};
use crate::http::caller::Caller;
use crate::http::endpoint::{Call, HandlerResult, Routes};
use crate::http::gzip;
use crate::http::reply::ErrorReply;

/// Adds the handlers of this module.
pub(crate) fn add_routes(routes: Routes) -> Routes {
    routes.add(ShowContent, show)
}

async fn show(call: Call<ShowContent>) -> HandlerResult<ShowContent> {
    let (id, headers) = (call.path, &call.headers);
    may_read(&call.services, call.caller()?, id).await?;
    let size = call.services.contents.size(id).await?;
    let entity_tag = format!("\"{id}\"");
    if byte_range::is_known(headers, &entity_tag) {
        return Ok((StatusCode::NOT_MODIFIED, common(&entity_tag)).into_response());
    }
    let (status, part, length) = match byte_range::requested(headers, &entity_tag, size) {
        RequestedRange::Unsatisfiable => return Ok(unsatisfiable(&entity_tag, size)),
        RequestedRange::Everything => (StatusCode::OK, None, size),
        RequestedRange::Part(part) => {
            let length = part.end - part.start;
            (StatusCode::PARTIAL_CONTENT, Some(part), length)
        }
    };
    let mut reply = common(&entity_tag);
    if let Some(part) = &part {
        let range = format!("bytes {}-{}/{size}", part.start, part.end - 1);
        reply.insert(header::CONTENT_RANGE, ascii(&range));
    }
    let packed = part.is_none() && size >= gzip::WORTH_IT && gzip::is_accepted(headers);
    if packed {
        reply.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    } else {
        reply.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    };
    if call.method == Method::HEAD {
        return Ok((status, reply).into_response());
    }
    let verified = first_verified(call.services.contents.open(id, part).await?).await?;
    let body = if packed {
        HttpBody::from_stream(gzip::pieces(verified))
    } else {
        HttpBody::from_stream(verified)
    };
    Ok((status, reply, body).into_response())
}

/// Checks access. For a node, only the files of its own catalogs and its environment's plugins
/// exist.
async fn may_read(services: &Services, caller: &Caller, id: ContentId) -> Result<(), ServiceError> {
    if caller.role != Role::Node {
        return Ok(());
    }
    let (board, contents) = (&services.board, &services.contents);
    let known = board.catalogs_of(&caller.name).await?;
    if contents.is_named_by(id, &known).await? {
        return Ok(());
    }
    let newest = board.newest_catalogs_of(&caller.name).await?;
    if newest != known && contents.is_named_by(id, &newest).await? {
        return Ok(());
    }
    let planned = services.orchestration.held_catalog(&caller.name).await?;
    if let Some(planned) = planned
        && contents.is_named_by(id, &[planned]).await?
    {
        return Ok(());
    }
    if services.compiles.is_plugins_of(&caller.name, id).await? {
        return Ok(());
    }
    Err(no_such_content(id))
}

/// Reads the first piece before sending the head, so that content damaged from the start gets
/// a proper error reply.
async fn first_verified(
    mut stream: BlobStream,
) -> Result<impl Stream<Item = Result<Bytes, BlobError>> + Send + Unpin, ServiceError> {
    let first = match stream.next().await {
        None => None,
        Some(Ok(piece)) => Some(Ok(piece)),
        Some(Err(error)) => return Err(ServiceError::content("cannot read content", error)),
    };
    let rest = stream.inspect(|piece| {
        if let Err(error) = piece {
            tracing::error!(error = %error, "sending content was interrupted");
        }
    });
    Ok(stream::iter(first).chain(rest))
}

fn common(entity_tag: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ETAG, ascii(entity_tag));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    // The content at an address never changes, but access to it does.
    let cache = HeaderValue::from_static("private, max-age=31536000, immutable");
    headers.insert(header::CACHE_CONTROL, cache);
    headers
}

fn unsatisfiable(entity_tag: &str, size: u64) -> Response {
    let mut response = ErrorReply::unsatisfiable_range(size).into_response();
    let headers = response.headers_mut();
    headers.insert(header::ETAG, ascii(entity_tag));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_RANGE, ascii(&format!("bytes */{size}")));
    response
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("hashes and numbers are ASCII")
}
