//! Finds out why no member answers, for error messages.
//!
//! A member that rejects our certificate says so after the handshake. The gRPC client only sees a
//! connection that ends, and retries until the time is up. This module makes one plain TLS
//! connection to learn the reason.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::options::{EtcdOptions, EtcdTls};
use crate::tls::{ClientIdentity, client_config};

type Source = Box<dyn std::error::Error + Send + Sync>;

const PATIENCE: Duration = Duration::from_secs(3);
/// The first message of an HTTP/2 client, with empty settings. A member that accepts us answers
/// with its own settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("cannot connect to etcd at {endpoint}")]
    Connect {
        endpoint: String,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "cannot trust etcd at {endpoint}: its certificate is not from the given CA or not for this address"
    )]
    Trust {
        endpoint: String,
        #[source]
        source: std::io::Error,
    },
    #[error("etcd at {endpoint} refused our client certificate")]
    Refused {
        endpoint: String,
        #[source]
        source: std::io::Error,
    },
    #[error("etcd at {endpoint} requires a client certificate, and none is configured")]
    NoCertificate {
        endpoint: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot use the certificates for etcd")]
    Settings(#[source] Source),
}

/// Returns the first reason that any member gives.
pub(super) async fn explain(options: &EtcdOptions) -> Option<Source> {
    let tls = options.tls.as_ref()?;
    for endpoint in &options.endpoints {
        let probed = tokio::time::timeout(PATIENCE, probe(endpoint, tls)).await;
        if let Ok(Err(reason)) = probed {
            return Some(Box::new(reason));
        }
    }
    None
}

async fn probe(endpoint: &str, tls: &EtcdTls) -> Result<(), ProbeError> {
    let config = config(tls, b"h2").map_err(ProbeError::Settings)?;
    let address = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, rest)| rest);
    let address = address.trim_end_matches('/');
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name = ServerName::try_from(host).map_err(|error| ProbeError::Settings(error.into()))?;
    let at = || endpoint.to_owned();
    let tcp = TcpStream::connect(address)
        .await
        .map_err(|source| ProbeError::Connect {
            endpoint: at(),
            source,
        })?;
    let mut connection = TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
        .map_err(|source| ProbeError::Trust {
            endpoint: at(),
            source,
        })?;
    exchange_hello(&mut connection).await.map_err(|source| {
        let endpoint = at();
        if tls.identity.is_none() {
            ProbeError::NoCertificate { endpoint, source }
        } else {
            ProbeError::Refused { endpoint, source }
        }
    })
}

async fn exchange_hello(
    connection: &mut tokio_rustls::client::TlsStream<TcpStream>,
) -> std::io::Result<()> {
    // The rejection may have been sent already; reading it tells more than a failed write.
    let _ = connection.write_all(HELLO).await;
    let _ = connection.flush().await;
    let mut answer = [0; 9];
    connection.read_exact(&mut answer).await.map(drop)
}

/// Returns a TLS client configuration for one protocol.
pub(super) fn config(tls: &EtcdTls, protocol: &[u8]) -> Result<ClientConfig, Source> {
    let identity = tls.identity.as_ref().map(|identity| ClientIdentity {
        cert_pem: &identity.cert_pem,
        key_pem: &identity.key_pem,
    });
    client_config(&tls.ca_pem, identity, protocol)
}
