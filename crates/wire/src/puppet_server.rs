//! Requests the graph of an environment from a Puppet server.
//!
//! Sends one request over TLS, with the certificate of a node that the Puppet server knows.
//! Trusts only that server's authority. Time and size are limited. Absent: the meaning of the
//! graph (`plan` reads it).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::EnvironmentName;
use bytes::Bytes;
use futures::future::{Either, select};
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ServerAddress;
use crate::client::InvalidAddress;
use crate::tls::{ClientTls, TlsError};

/// The default port of Puppet servers.
const DEFAULT_PORT: u16 = 8140;
/// Maximum length of the excerpt from an invalid answer.
const LONGEST_REASON: usize = 300;

/// A Puppet server.
#[derive(Clone, Debug)]
pub struct PuppetServer {
    pub address: ServerAddress,
    /// The Puppet server's authority, and our own identity.
    pub tls: ClientTls,
    /// Time limit for the whole request.
    pub timeout: Duration,
    /// Maximum size of the answer. A larger one is refused.
    pub largest: usize,
}

/// The reason why there is no graph.
#[derive(Debug, thiserror::Error)]
pub enum PuppetServerError {
    #[error("cannot use the certificates")]
    Tls(#[source] TlsError),
    #[error("cannot reach the Puppet server {0}")]
    Unreachable(ServerAddress, #[source] std::io::Error),
    #[error("TLS to the Puppet server {0} failed: one side does not trust the other")]
    Untrusted(ServerAddress, #[source] std::io::Error),
    #[error("the Puppet server {0} did not answer within {1:?}")]
    TimedOut(ServerAddress, Duration),
    #[error("the Puppet server closed the connection")]
    Broken(#[source] hyper::Error),
    #[error("the Puppet server has no graph of the environment `{0}`")]
    NotThere(EnvironmentName),
    #[error("the Puppet server denies access to the environment `{0}`: {1}")]
    Forbidden(EnvironmentName, String),
    #[error("the Puppet server answered {status}: {reason}")]
    Refused { status: StatusCode, reason: String },
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the answer is not valid UTF-8")]
    NotText,
}

impl PuppetServer {
    /// Parses `https://puppet.example.com`, with or without a port.
    pub fn parse_address(text: &str) -> Result<ServerAddress, InvalidAddress> {
        let address: ServerAddress = text.parse()?;
        let text = text.trim().trim_end_matches('/');
        if text.ends_with(&format!(":{}", address.port())) {
            Ok(address)
        } else {
            ServerAddress::new(address.host(), DEFAULT_PORT)
        }
    }

    /// Returns the environment's graph as JSON text.
    pub async fn environment_graph(
        &self,
        environment: &EnvironmentName,
    ) -> Result<String, PuppetServerError> {
        match tokio::time::timeout(self.timeout, self.fetch(environment)).await {
            Ok(answer) => answer,
            Err(_) => Err(PuppetServerError::TimedOut(
                self.address.clone(),
                self.timeout,
            )),
        }
    }

    async fn fetch(&self, environment: &EnvironmentName) -> Result<String, PuppetServerError> {
        let stream = TokioIo::new(self.connect().await?);
        let (mut sender, connection) = http1::handshake(stream)
            .await
            .map_err(PuppetServerError::Broken)?;
        let request = Request::get(format!("/puppet/v3/environment/{environment}"))
            .header(HOST, self.address.to_string())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, "bunraku")
            .body(Empty::<Bytes>::new())
            .expect("a name of an environment is a part of a path");
        let answer = async {
            let response = sender.send_request(request).await;
            self.read(environment, response.map_err(PuppetServerError::Broken)?)
                .await
        };
        // The answer reports the reason why the connection ended.
        match select(pin!(answer), pin!(connection)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((_, answer)) => answer.await,
        }
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>, PuppetServerError> {
        let mut config = self.tls.config().map_err(PuppetServerError::Tls)?;
        // The server speaks HTTP/1.1 and may not support protocol negotiation.
        config.alpn_protocols.clear();
        let unreachable = |error| PuppetServerError::Unreachable(self.address.clone(), error);
        let place = (self.address.host(), self.address.port());
        let tcp = TcpStream::connect(place).await.map_err(unreachable)?;
        let name = self.address.tls_name();
        let connected = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await;
        connected.map_err(|error| PuppetServerError::Untrusted(self.address.clone(), error))
    }

    async fn read(
        &self,
        environment: &EnvironmentName,
        response: Response<Incoming>,
    ) -> Result<String, PuppetServerError> {
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(PuppetServerError::Broken)?;
            let Some(piece) = frame.data_ref() else {
                continue;
            };
            bytes.extend_from_slice(piece);
            if bytes.len() > self.largest {
                return Err(PuppetServerError::TooLarge(self.largest));
            }
        }
        let reason = || {
            let text = String::from_utf8_lossy(&bytes);
            text.trim().chars().take(LONGEST_REASON).collect::<String>()
        };
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err(PuppetServerError::NotThere(environment.clone()));
            }
            StatusCode::FORBIDDEN => {
                return Err(PuppetServerError::Forbidden(environment.clone(), reason()));
            }
            status => {
                let reason = reason();
                return Err(PuppetServerError::Refused { status, reason });
            }
        }
        String::from_utf8(bytes).map_err(|_| PuppetServerError::NotText)
    }
}
