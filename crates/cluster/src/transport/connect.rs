//! To another member.

use std::io;
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_wire::ReloadableClientTls;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Answer, Hello, Purpose, Question, frame};

/// A member that takes longer to take a connection is as good as away.
const CONNECT: Duration = Duration::from_secs(2);
/// Then the kernel asks whether the other side is still there.
const SILENCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(4);

/// Why a member did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
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

/// How connections are opened.
#[derive(Clone)]
pub struct Dialer {
    pub tls: ReloadableClientTls,
    pub cluster: String,
    /// Of this member, as the other side should know it.
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

    /// A connection to exactly this member: its certificate says its name.
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

/// Asks a member, and waits for its answer at most so long.
pub async fn ask(
    dialer: &Dialer,
    name: &NodeName,
    address: &str,
    question: &Question,
    patience: Duration,
) -> Result<Answer, AskError> {
    let asking = async {
        let mut stream = dialer.open(name, address, Purpose::Question).await?;
        frame::write_json(&mut stream, question).await?;
        frame::read_json::<Answer>(&mut stream).await
    };
    let answered = match tokio::time::timeout(patience, asking).await {
        Ok(answered) => answered,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    match answered {
        Ok(Answer::Refused { why }) => Err(AskError::Refused {
            name: name.clone(),
            why,
        }),
        Ok(answer) => Ok(answer),
        Err(source) => Err(AskError::Away {
            name: name.clone(),
            address: address.to_owned(),
            source,
        }),
    }
}
