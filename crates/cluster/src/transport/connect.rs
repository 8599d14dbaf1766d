//! Connections to another member.

use std::io;
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_wire::ReloadableClientTls;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Hello, PeerAnswer, PeerQuestion, Purpose, frame};

/// A member that takes longer to accept a connection is treated as away.
const CONNECT: Duration = Duration::from_secs(2);
/// The idle time after which the kernel probes whether the other side is still there.
const SILENCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(4);

/// The reason why a member did not answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("`{name}` at {address} does not answer")]
    Away {
        name: NodeName,
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("`{name}` refused: {why}")]
    Refused { name: NodeName, why: String },
}

/// Opens connections.
#[derive(Clone)]
pub struct Dialer {
    pub tls: ReloadableClientTls,
    pub cluster: String,
    /// The epoch of this member, as sent to the other side.
    pub epoch: tokio::sync::watch::Receiver<u64>,
}

impl Dialer {
    pub(super) async fn gossip(
        &self,
        name: &NodeName,
        address: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.open(name, address, Purpose::Gossip).await
    }

    /// Opens a connection to exactly this member: its certificate contains its name.
    async fn open(
        &self,
        name: &NodeName,
        address: &str,
        purpose: Purpose,
    ) -> io::Result<TlsStream<TcpStream>> {
        let connecting = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            bunraku_wire::keep_alive::watch_for_dead_peer(&stream, SILENCE, PATIENCE)?;
            let server = ServerName::try_from(name.to_string())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let connector = TlsConnector::from(self.tls.config());
            let mut stream = connector.connect(server, stream).await?;
            let hello = Hello {
                cluster: self.cluster.clone(),
                epoch: *self.epoch.borrow(),
                purpose,
            };
            frame::write_json(&mut stream, &hello).await?;
            Ok(stream)
        };
        match tokio::time::timeout(CONNECT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Asks a member, and waits at most this long for its answer.
pub async fn ask(
    dialer: &Dialer,
    name: &NodeName,
    address: &str,
    question: &PeerQuestion,
    patience: Duration,
) -> Result<PeerAnswer, RequestError> {
    let asking = async {
        let mut stream = dialer.open(name, address, Purpose::Question).await?;
        frame::write_json(&mut stream, question).await?;
        frame::read_json::<PeerAnswer>(&mut stream).await
    };
    let answered = match tokio::time::timeout(patience, asking).await {
        Ok(answered) => answered,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    match answered {
        Ok(PeerAnswer::Refused { why }) => Err(RequestError::Refused {
            name: name.clone(),
            why,
        }),
        Ok(answer) => Ok(answer),
        Err(source) => Err(RequestError::Away {
            name: name.clone(),
            address: address.to_owned(),
            source,
        }),
    }
}
