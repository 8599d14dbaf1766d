//! The signer's side of a connection.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bunraku_wire::Fingerprint;
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::frame;
use crate::message::{Answer, Ask, Refusal};
use crate::signer::Signer;

/// The most connections at once. Each server needs one.
const MOST: usize = 256;

/// The time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Answers the requests of one connection, one after the other, until it ends.
pub async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin>(
    signer: Arc<Signer>,
    caller: Caller,
    mut stream: S,
) -> io::Result<()> {
    while let Some(ask) = frame::read::<Ask>(&mut stream).await? {
        let (signer, caller) = (Arc::clone(&signer), caller.clone());
        let answer =
            tokio::task::spawn_blocking(move || signer.answer(ask, &caller, Timestamp::now()));
        let answer: Result<Answer, Refusal> = answer.await.map_err(io::Error::other)?;
        if let Err(refusal) = &answer {
            tracing::warn!(reason = %refusal, "refused a request");
        }
        frame::write(&mut stream, &answer).await?;
    }
    Ok(())
}

/// Serves a socket on this machine, which only this user can open, until cancelled.
pub async fn serve_unix(
    signer: Arc<Signer>,
    path: &Path,
    stop: CancellationToken,
) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let places = Arc::new(tokio::sync::Semaphore::new(MOST));
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted?.0,
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let signer = Arc::clone(&signer);
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = serve_connection(signer, Caller::local(), stream).await {
                tracing::warn!(error = %error, "a connection failed");
            }
        });
    }
}

/// Serves the callers whose certificates are known, until cancelled.
pub async fn serve_tls(
    signer: Arc<Signer>,
    listener: TcpListener,
    config: ServerConfig,
    callers: Vec<Caller>,
    stop: CancellationToken,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (callers, places) = (
        Arc::new(callers),
        Arc::new(tokio::sync::Semaphore::new(MOST)),
    );
    loop {
        let (stream, from) = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = bunraku_wire::accept(&listener) => accepted,
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            continue;
        };
        let (signer, acceptor, callers) =
            (Arc::clone(&signer), acceptor.clone(), Arc::clone(&callers));
        tokio::spawn(async move {
            let _place = place;
            let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream));
            let stream = match handshake.await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::warn!(%from, error = %error, "refused a connection");
                    return;
                }
                Err(_) => return,
            };
            let shown = stream.get_ref().1.peer_certificates();
            let fingerprint = shown
                .and_then(|chain| chain.first())
                .map(|der| Fingerprint::of(der));
            // TLS accepts only callers with a known certificate.
            let Some(caller) = callers
                .iter()
                .find(|caller| caller.fingerprint.is_some() && caller.fingerprint == fingerprint)
            else {
                return;
            };
            if let Err(error) = serve_connection(signer, caller.clone(), stream).await {
                tracing::warn!(caller = caller.name, error = %error, "a connection failed");
            }
        });
    }
}
