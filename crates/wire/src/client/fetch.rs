//! A reply with its head: for conditional requests, ranges and encodings.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response};

use super::{Call, Client, ClientError, ConnectionKind};

impl Client {
    /// Fetches a body unchanged, with these request headers. "Not modified" is a reply; an
    /// error status is an error.
    pub async fn fetch(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Bytes>, ClientError> {
        self.fetch_with(Method::GET, path, headers).await
    }

    /// Like [`Client::fetch`], without the body.
    pub async fn head(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Bytes>, ClientError> {
        self.fetch_with(Method::HEAD, path, headers).await
    }

    async fn fetch_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response<Bytes>, ClientError> {
        let mut call = Call::new(method, path);
        call.accept = "*/*";
        for (name, value) in headers {
            let name: Result<HeaderName, _> = name.parse();
            match (name, HeaderValue::from_str(value)) {
                (Ok(name), Ok(value)) => call.headers.push((name, value)),
                _ => return Err(ClientError::InvalidPath(path.to_owned())),
            }
        }
        let limit = self.options().request_timeout;
        let reply = self.send(call, ConnectionKind::Shared, limit).await?;
        let (head, body) = reply.response.into_parts();
        let body = Response::from_parts(http::response::Parts::clone(&head), body);
        let body = self.whole_body(body, &reply.server, reply.deadline).await?;
        Ok(Response::from_parts(head, body))
    }
}
