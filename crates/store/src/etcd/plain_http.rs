//! One plain HTTP request to a member, for what its gRPC API does not offer.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::{Either, select};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The maximum size of an answer.
const LARGEST: usize = 16 << 20;

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The answer to one request.
pub(super) struct PlainAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Connects to a member, with TLS if its address requires it.
pub(super) async fn connect(
    endpoint: &str,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Box<dyn Stream>, Source> {
    let address = address(endpoint);
    let tcp = TcpStream::connect(address).await?;
    let Some(tls) = tls.filter(|_| endpoint.starts_with("https")) else {
        return Ok(Box::new(tcp));
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host)?;
    let stream = TlsConnector::from(tls.clone()).connect(name, tcp).await?;
    Ok(Box::new(stream))
}

/// Sends one request and reads the whole answer.
pub(super) async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
) -> Result<PlainAnswer, Source> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let response = sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, LARGEST).collect().await?;
        Ok(PlainAnswer {
            status: parts.status,
            headers: parts.headers,
            body: body.to_bytes(),
        })
    };
    // Whatever ends the connection, the answer shows it.
    match select(pin!(answer), pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, answer)) => answer.await,
    }
}

/// Returns the host and port of a member.
pub(super) fn address(endpoint: &str) -> &str {
    let address = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, rest)| rest);
    address.trim_end_matches('/')
}
