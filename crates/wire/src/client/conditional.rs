//! Conditional and compressed requests.

use http::header::{ACCEPT_ENCODING, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;

use super::{Call, Client, ClientError, ConnectionKind};

/// The result of a conditional request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConditionalReply<T> {
    /// The caller has the newest value.
    Unchanged,
    Changed {
        value: T,
        etag: Option<String>,
        /// `true` if the reply was made without a majority of the datastores, so that a newer
        /// value may exist.
        old: bool,
    },
}

impl Client {
    /// Fetches a value, unless the current one still has this tag.
    pub async fn get_if_changed<T: DeserializeOwned>(
        &self,
        path: &str,
        etag: Option<&str>,
    ) -> Result<ConditionalReply<T>, ClientError> {
        let mut call = Call::new(Method::GET, path);
        if let Some(tag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            call.headers.push((IF_NONE_MATCH, tag));
        }
        let limit = self.options().request_timeout;
        let reply = self.send(call, ConnectionKind::Shared, limit).await?;
        if reply.response.status() == StatusCode::NOT_MODIFIED {
            return Ok(ConditionalReply::Unchanged);
        }
        let headers = reply.response.headers();
        let old = headers.contains_key(crate::api::OLD_DATA_HEADER);
        let tag = headers.get(ETAG);
        let etag = tag.and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let body = self
            .whole_body(reply.response, &reply.server, reply.deadline)
            .await?;
        let value = super::decode(&body, reply.server)?;
        Ok(ConditionalReply::Changed { value, etag, old })
    }

    /// Fetches a large body that may be compressed with gzip. Check its encoding.
    pub async fn download_compressed(&self, path: &str) -> Result<super::Download, ClientError> {
        let gzip = (ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        self.download_with(path, vec![gzip]).await
    }
}
