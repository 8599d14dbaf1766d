//! The keyspace of etcd's v2 API, which etcd 2 serves, and 3.4 and 3.5 with `--enable-v2`.
//!
//! It is separate from the keyspace of [`EtcdStore`](super::EtcdStore). This module has only the
//! operations that triggers need: set a key with a time to live, and wait for changes below the
//! root.
//!
//! Absent: use as a store. The v2 API has no transactions and no leases.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use rustls::ClientConfig;
use serde::Deserialize;

use super::options::EtcdOptions;
use super::plain_http::{self, address};
use super::probe;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// etcd's error code for a key that does not exist.
const KEY_NOT_FOUND: u32 = 100;
/// etcd's error code for an index whose events are gone.
const INDEX_CLEARED: u32 = 401;

/// Errors of v2 requests.
#[derive(Debug, thiserror::Error)]
pub enum EtcdV2Error {
    #[error("cannot reach etcd at {endpoint}")]
    Unreachable {
        endpoint: String,
        #[source]
        source: Source,
    },
    /// This etcd does not serve the v2 API.
    #[error("etcd at {endpoint} does not serve its v2 API")]
    NotServed { endpoint: String },
    /// The events after the requested index are gone: read all keys, then continue to wait.
    #[error("etcd no longer has the events since index {0}")]
    Cleared(u64),
    #[error("etcd refused the request: {0}")]
    Refused(String),
}

/// A key below the root, with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdV2Entry {
    pub key: String,
    pub value: String,
}

/// Keys that were set, and the index from which to wait for more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdV2Changes {
    pub entries: Vec<EtcdV2Entry>,
    pub next: u64,
}

/// A client. Each request asks the first member that answers.
#[derive(Clone)]
pub struct EtcdV2 {
    endpoints: Vec<String>,
    tls: Option<Arc<ClientConfig>>,
    /// The root, with a slash at both ends.
    root: String,
    timeout: Duration,
}

#[derive(Deserialize, Default)]
struct Answer {
    #[serde(default)]
    action: String,
    node: Option<Node>,
    #[serde(rename = "errorCode")]
    code: Option<u32>,
    message: Option<String>,
    cause: Option<String>,
}

#[derive(Deserialize)]
struct Node {
    key: Option<String>,
    value: Option<String>,
    #[serde(rename = "modifiedIndex", default)]
    modified: u64,
    #[serde(default)]
    nodes: Vec<Node>,
}

impl EtcdV2 {
    /// Creates a client for these members, without connecting yet.
    pub fn new(options: &EtcdOptions) -> Result<Self, EtcdV2Error> {
        let tls = options
            .tls
            .as_ref()
            .map(|tls| probe::config(tls, b"http/1.1"));
        let tls = tls.transpose().map_err(|source| EtcdV2Error::Unreachable {
            endpoint: options.endpoints.join(","),
            source,
        })?;
        Ok(Self {
            endpoints: options.endpoints.clone(),
            tls: tls.map(Arc::new),
            root: format!("/{}/", options.root.trim_matches('/')),
            timeout: options.request_timeout,
        })
    }

    /// Returns the index of the newest change.
    pub async fn newest(&self) -> Result<u64, EtcdV2Error> {
        let (_, index) = self.send(Method::GET, "", "quorum=true", None).await?;
        Ok(index)
    }

    /// Sets a key that is deleted after this time.
    pub async fn set(&self, key: &str, value: &str, ttl: Duration) -> Result<(), EtcdV2Error> {
        let seconds = ttl.as_secs().max(1);
        let body = format!("ttl={seconds}&value={}", encoded(value, false));
        let (answer, _) = self.send(Method::PUT, key, "", Some(body)).await?;
        match answer.code {
            None => Ok(()),
            Some(_) => Err(EtcdV2Error::Refused(reason(&answer))),
        }
    }

    /// Returns all keys below the root.
    pub async fn all(&self) -> Result<EtcdV2Changes, EtcdV2Error> {
        let query = "recursive=true&quorum=true";
        let (answer, index) = self.send(Method::GET, "", query, None).await?;
        let mut entries = Vec::new();
        if let Some(node) = answer.node {
            self.flatten(node, &mut entries);
        }
        let next = index + 1;
        Ok(EtcdV2Changes { entries, next })
    }

    /// Waits for the next change from this index on. The result does not include keys that are
    /// deleted or expire.
    pub async fn wait(&self, from: u64) -> Result<EtcdV2Changes, EtcdV2Error> {
        let query = format!("wait=true&recursive=true&waitIndex={from}");
        let (mut answer, _) = self.send(Method::GET, "", &query, None).await?;
        let node = answer.node.take();
        match (answer.code, node) {
            (Some(INDEX_CLEARED), _) => Err(EtcdV2Error::Cleared(from)),
            (Some(KEY_NOT_FOUND) | None, None) => Ok(EtcdV2Changes {
                entries: Vec::new(),
                next: from,
            }),
            (Some(_), _) => Err(EtcdV2Error::Refused(reason(&answer))),
            (None, Some(node)) => {
                let next = node.modified.max(from) + 1;
                let mut entries = Vec::new();
                let is_set = ["set", "create", "update", "compareAndSwap"];
                if is_set.contains(&answer.action.as_str()) {
                    self.flatten(node, &mut entries);
                }
                Ok(EtcdV2Changes { entries, next })
            }
        }
    }

    fn flatten(&self, node: Node, entries: &mut Vec<EtcdV2Entry>) {
        let key = node
            .key
            .as_deref()
            .and_then(|key| key.strip_prefix(&self.root));
        if let (Some(key), Some(value)) = (key, node.value) {
            let key = key.to_owned();
            entries.push(EtcdV2Entry { key, value });
        }
        for node in node.nodes {
            self.flatten(node, entries);
        }
    }

    /// Asks one member after the other until one answers.
    async fn send(
        &self,
        method: Method,
        key: &str,
        query: &str,
        body: Option<String>,
    ) -> Result<(Answer, u64), EtcdV2Error> {
        let path = format!("{}{key}", self.root);
        let path = encoded(path.trim_end_matches('/'), true);
        let uri = format!("/v2/keys{path}?{query}");
        let mut failure = EtcdV2Error::Refused("no etcd member given".to_owned());
        for endpoint in &self.endpoints {
            match self.ask(endpoint, &method, &uri, body.clone()).await {
                Err(error @ EtcdV2Error::Unreachable { .. }) => failure = error,
                answered => return answered,
            }
        }
        Err(failure)
    }

    async fn ask(
        &self,
        endpoint: &str,
        method: &Method,
        uri: &str,
        body: Option<String>,
    ) -> Result<(Answer, u64), EtcdV2Error> {
        let unreachable = |source: Source| EtcdV2Error::Unreachable {
            endpoint: endpoint.to_owned(),
            source,
        };
        let connected = plain_http::connect(endpoint, self.tls.as_ref());
        let stream = tokio::time::timeout(self.timeout, connected).await;
        let stream = match stream {
            Ok(connected) => connected.map_err(unreachable)?,
            Err(elapsed) => return Err(unreachable(elapsed.into())),
        };
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(HOST, address(endpoint))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| unreachable(error.into()))?;
        let exchanged = plain_http::exchange(stream, request);
        let answer = if uri.contains("?wait=true") {
            // The answer comes with the next change.
            exchanged.await.map_err(unreachable)?
        } else {
            match tokio::time::timeout(self.timeout, exchanged).await {
                Ok(exchanged) => exchanged.map_err(unreachable)?,
                Err(elapsed) => return Err(unreachable(elapsed.into())),
            }
        };
        let index = answer.headers.get("x-etcd-index");
        let index = index.and_then(|index| index.to_str().ok()?.parse().ok());
        let index = index.unwrap_or(0);
        match (serde_json::from_slice(&answer.body), answer.status) {
            (Ok(answer), _) => Ok((answer, index)),
            (Err(_), StatusCode::NOT_FOUND) => Err(EtcdV2Error::NotServed {
                endpoint: endpoint.to_owned(),
            }),
            // A watch that ended without a change has an empty body.
            (Err(_), StatusCode::OK) => Ok((Answer::default(), index)),
            (Err(error), _) => Err(unreachable(error.into())),
        }
    }
}

fn reason(answer: &Answer) -> String {
    let parts = [answer.message.as_deref(), answer.cause.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    parts.join(": ")
}

/// Percent-encodes text for a path or for a form value.
fn encoded(text: &str, path: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || (path && byte == b'/') {
            out.push(char::from(byte))
        } else {
            out.push_str(&format!("%{byte:02X}"))
        }
    }
    out
}
