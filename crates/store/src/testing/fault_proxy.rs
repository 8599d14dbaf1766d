//! A proxy in front of a real server, which can be slow, refuse, reset and answer with errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does with connections, new ones and open ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProxyFault {
    None,
    /// Each piece of data waits for this long.
    Slow(Duration),
    /// Accepts connections and never answers.
    Silent,
    /// Closes connections at once.
    Reset,
    /// Answers every request with this status and this S3 error code.
    Answer(u16, &'static str),
    /// Like `Answer`, for requests that write.
    AnswerWrites(u16, &'static str),
}

/// A proxy on loopback. It ends when it is dropped.
pub struct FaultProxy {
    port: u16,
    fault: watch::Sender<ProxyFault>,
    connections: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy for a server on loopback.
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (fault, faults) = watch::channel(ProxyFault::None);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(client, server, faults.clone()));
            }
        });
        Self {
            port,
            fault,
            connections,
            accepting,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the fault. Open connections are closed.
    pub fn set(&self, fault: ProxyFault) {
        self.fault.send_replace(fault);
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(client: TcpStream, server: u16, mut faults: watch::Receiver<ProxyFault>) {
    let fault = faults.borrow_and_update().clone();
    let work = async {
        match fault {
            ProxyFault::None => pass(client, server, Duration::ZERO, Vec::new()).await,
            ProxyFault::Slow(delay) => pass(client, server, delay, Vec::new()).await,
            ProxyFault::Silent => std::future::pending().await,
            ProxyFault::Reset => Ok(()),
            ProxyFault::Answer(status, code) => answer(client, status, code).await,
            ProxyFault::AnswerWrites(status, code) => {
                let mut client = client;
                let head = read_head(&mut client).await?;
                if head.starts_with(b"GET") || head.starts_with(b"HEAD") {
                    pass(client, server, Duration::ZERO, head).await
                } else {
                    answer_after(client, head, status, code).await
                }
            }
        }
    };
    tokio::select! {
        _ = work => {}
        _ = faults.changed() => {}
    }
}

/// Copies both directions, after `sent`, which was already read.
async fn pass(
    client: TcpStream,
    server: u16,
    delay: Duration,
    sent: Vec<u8>,
) -> std::io::Result<()> {
    let mut upstream = TcpStream::connect(("127.0.0.1", server)).await?;
    upstream.write_all(&sent).await?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = upstream.into_split();
    let (there, back) = tokio::join!(
        copy(from_client, to_server, delay),
        copy(from_server, to_client, delay)
    );
    there.and(back)
}

async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    delay: Duration,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        tokio::time::sleep(delay).await;
        to.write_all(&buffer[..length]).await?;
    }
}

async fn read_head(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if client.read_buf(&mut head).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

async fn answer(mut client: TcpStream, status: u16, code: &str) -> std::io::Result<()> {
    let head = read_head(&mut client).await?;
    answer_after(client, head, status, code).await
}

/// Reads the rest of the request and answers it.
async fn answer_after(
    mut client: TcpStream,
    head: Vec<u8>,
    status: u16,
    code: &str,
) -> std::io::Result<()> {
    let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = text
        .split_once("content-length: ")
        .and_then(|(_, rest)| rest.split("\r\n").next()?.trim().parse().ok())
        .unwrap_or(0_usize);
    let begin = head.windows(4).position(|four| four == b"\r\n\r\n");
    let mut left = (begin.unwrap_or(0) + 4 + length).saturating_sub(head.len());
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        let read = client.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        left = left.saturating_sub(read);
    }
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>injected</Message></Error>"
    );
    let answer = format!(
        "HTTP/1.1 {status} Injected\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await
}
