//! One request: its contents, and the rule for sending it again.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Uri};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::watch;

use super::connection::SendFailure;
use super::{Body, ClientError, ServerAddress};
use crate::api::{REASON_HEADER, REQUEST_ID_HEADER};

/// One request. Repeatable as long as its body is.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) content_type: Option<&'static str>,
    pub(super) accept: &'static str,
    /// The same for every attempt, so that logs of several servers show what belongs together.
    pub(super) request_id: String,
    /// Headers in addition to those of every request.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: CallBody,
}

pub(super) enum CallBody {
    /// Can be sent again.
    Bytes(Bytes),
    /// Can be sent once.
    Stream(Option<Body>),
    /// Numbers that are sent while the reply arrives, the newest only. Can be sent again.
    Numbers(watch::Receiver<u64>),
}

impl Call {
    pub(super) fn new(method: Method, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            content_type: None,
            accept: "application/json",
            request_id: uuid::Uuid::now_v7().to_string(),
            headers: Vec::new(),
            body: CallBody::Bytes(Bytes::new()),
        }
    }

    pub(super) fn with_json<B: Serialize + ?Sized>(
        mut self,
        body: &B,
    ) -> Result<Self, ClientError> {
        let text = serde_json::to_vec(body).map_err(ClientError::Encode)?;
        self.content_type = Some("application/json");
        self.body = CallBody::Bytes(text.into());
        Ok(self)
    }

    pub(super) fn request(
        &mut self,
        server: &ServerAddress,
        user_agent: &str,
        reason: Option<&str>,
    ) -> Result<http::Request<Body>, ClientError> {
        let uri = Uri::builder()
            .scheme("https")
            .authority(server.to_string())
            .path_and_query(self.path.as_str())
            .build()
            .map_err(|_| ClientError::InvalidPath(self.path.clone()))?;
        let body = match &mut self.body {
            CallBody::Bytes(bytes) => Full::new(bytes.clone())
                .map_err(|never| match never {})
                .boxed_unsync(),
            CallBody::Stream(body) => body
                .take()
                .expect("a stream is taken back before it is sent again"),
            CallBody::Numbers(numbers) => lines_of(numbers.clone()),
        };
        let mut request = http::Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        if let Some(content_type) = self.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        headers.extend(self.headers.iter().cloned());
        if let CallBody::Numbers(_) = self.body {
            // Without this, a request that only reads is sent without its body.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            // A server that refuses does not wait for a body that ends with the reply.
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        if let Ok(id) = HeaderValue::from_str(&self.request_id) {
            headers.insert(REQUEST_ID_HEADER, id);
        }
        if let Some(reason) = reason
            && let Ok(reason) = HeaderValue::from_bytes(reason.as_bytes())
        {
            headers.insert(REASON_HEADER, reason);
        }
        if let Ok(agent) = HeaderValue::from_str(user_agent) {
            headers.insert(USER_AGENT, agent);
        }
        Ok(request)
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self.body, CallBody::Stream(_))
    }

    /// Returns `true` if the request may go to another server: it certainly was not sent, or
    /// it may have been sent and is idempotent.
    pub(super) fn may_repeat(&self, failure: &SendFailure) -> bool {
        let repeatable = !self.is_stream() && self.method.is_idempotent();
        repeatable || failure.unsent.is_some()
    }

    pub(super) fn take_back(&mut self, failure: SendFailure) {
        if let (CallBody::Stream(body), Some(request)) = (&mut self.body, failure.unsent) {
            *body = Some(request.into_body());
        }
    }
}

/// Returns a body with one line for each new number. It ends when the sender is dropped.
fn lines_of(numbers: watch::Receiver<u64>) -> Body {
    let lines = futures::stream::unfold(numbers, |mut numbers| async move {
        numbers.changed().await.ok()?;
        let line = format!("{}\n", *numbers.borrow_and_update());
        Some((Ok(Frame::data(Bytes::from(line))), numbers))
    });
    StreamBody::new(lines).boxed_unsync()
}
