//! The ways to a signer: a child process, a socket on this machine, another machine.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_process::{Child, Program};
use futures::future::BoxFuture;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// The time to reach a signer on another machine.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection to a signer.
pub trait SignerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> SignerStream for T {}

/// A way to a signer.
pub trait Dial: Send + Sync {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn SignerStream>>>;
    /// Returns the address, for messages.
    fn address(&self) -> String;
}

/// A signer that listens on a socket of this machine.
pub struct UnixSigner {
    pub path: PathBuf,
}

impl Dial for UnixSigner {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn SignerStream>>> {
        Box::pin(async {
            let stream = UnixStream::connect(&self.path).await?;
            Ok(Box::new(stream) as Box<dyn SignerStream>)
        })
    }

    fn address(&self) -> String {
        format!("unix:{}", self.path.display())
    }
}

/// A signer on another machine.
pub struct TlsSigner {
    /// `HOST:PORT`.
    pub address: String,
    /// Accepts exactly the signer's certificate, and presents this server's.
    pub config: Arc<ClientConfig>,
}

impl Dial for TlsSigner {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn SignerStream>>> {
        Box::pin(async {
            let connecting = async {
                let stream = TcpStream::connect(&self.address).await?;
                stream.set_nodelay(true)?;
                // The certificate's fingerprint counts, whatever its name.
                let name = ServerName::try_from("signer").expect("a valid name");
                let stream = TlsConnector::from(Arc::clone(&self.config))
                    .connect(name, stream)
                    .await?;
                Ok(Box::new(stream) as Box<dyn SignerStream>)
            };
            tokio::time::timeout(CONNECT, connecting)
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        })
    }

    fn address(&self) -> String {
        self.address.clone()
    }
}

/// A signer that this process starts, and starts again when it is needed and gone.
pub struct ChildSigner {
    program: Box<dyn Fn() -> Program + Send + Sync>,
    child: Mutex<Option<Child>>,
}

impl ChildSigner {
    /// Creates it. `program` returns the signer, which talks on its standard input.
    pub fn new(program: impl Fn() -> Program + Send + Sync + 'static) -> Self {
        Self {
            program: Box::new(program),
            child: Mutex::new(None),
        }
    }
}

impl Dial for ChildSigner {
    /// Ends the former child, which no longer answers, and starts another one. Only the child
    /// has the other end of the connection, so nobody else can use it.
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn SignerStream>>> {
        Box::pin(async {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            let program = (self.program)()
                .stdin(OwnedFd::from(theirs))
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::inherit())
                .ends_with_us();
            // Dropping the former handle kills its process.
            drop(self.lock().take());
            let child = program.start()?;
            tracing::info!(process = child.id(), "started the signer");
            *self.lock() = Some(child);
            Ok(Box::new(UnixStream::from_std(ours)?) as Box<dyn SignerStream>)
        })
    }

    fn address(&self) -> String {
        "the signer of this server".to_owned()
    }
}

impl ChildSigner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
