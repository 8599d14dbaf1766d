//! Accepting connections: an error is never the end of a listener.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// The pause after an error, which is probably a lack of file descriptors. It lets some
/// connections close first.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits for the next connection, however many attempts to accept one fail.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(error = %error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
