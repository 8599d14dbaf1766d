//! A long-lived stream of JSON values, one per line.
//!
//! The stream has its own HTTP/1.1 connection, which ends with it. An empty line is a
//! heartbeat: it is not a value, but it proves that the server is alive. Silence longer than
//! the idle timeout is an error.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::Stream;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::call::CallBody;
use super::{Call, Client, ClientError, ConnectionKind, ServerAddress};

/// An open stream.
pub struct Lines<T> {
    server: ServerAddress,
    body: Incoming,
    buffer: BytesMut,
    /// The length of the part of the buffer that is known to have no line end.
    searched: usize,
    idle_timeout: Duration,
    longest: usize,
    ended: bool,
    /// The body of the request, while the server expects answers to its pings.
    answers: Option<watch::Sender<u64>>,
    values: PhantomData<fn() -> T>,
}

impl Client {
    /// Opens a stream. The reply must start within the request timeout. After that, the
    /// stream lives as long as the server sends.
    pub async fn stream<T: DeserializeOwned>(&self, path: &str) -> Result<Lines<T>, ClientError> {
        self.open_stream(Call::new(Method::GET, path), None).await
    }

    /// Opens a stream on which the caller answers pings ([`Lines::answer_ping`]).
    pub async fn answered_stream<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Lines<T>, ClientError> {
        let (answers, numbers) = watch::channel(0);
        let mut call = Call::new(Method::GET, path);
        call.body = CallBody::Numbers(numbers);
        self.open_stream(call, Some(answers)).await
    }

    async fn open_stream<T: DeserializeOwned>(
        &self,
        mut call: Call,
        answers: Option<watch::Sender<u64>>,
    ) -> Result<Lines<T>, ClientError> {
        call.accept = "application/x-ndjson";
        let limit = self.options().request_timeout;
        let reply = self.send(call, ConnectionKind::Own, limit).await?;
        Ok(Lines {
            server: reply.server,
            body: reply.response.into_body(),
            buffer: BytesMut::new(),
            searched: 0,
            idle_timeout: self.options().idle_timeout,
            longest: self.options().largest_reply,
            ended: false,
            answers,
            values: PhantomData,
        })
    }
}

impl<T: DeserializeOwned> Lines<T> {
    /// Returns the next value, or `None` if the server ended the stream properly. Nothing
    /// follows an error. Dropping the future before it completes loses nothing.
    pub async fn next(&mut self) -> Option<Result<T, ClientError>> {
        let line = self.next_line().await?;
        Some(line.and_then(|line| self.decode(&line)))
    }

    /// Returns the bytes of the next line that is not empty, without its line break, like
    /// [`Lines::next`]. For lines whose bytes matter.
    pub async fn next_line(&mut self) -> Option<Result<BytesMut, ClientError>> {
        while !self.ended {
            match self.take_line() {
                Ok(Some(line)) if line.iter().all(u8::is_ascii_whitespace) => continue,
                Ok(Some(line)) => return Some(Ok(line)),
                Ok(None) => {}
                Err(error) => return Some(Err(self.end(error))),
            }
            match tokio::time::timeout(self.idle_timeout, self.body.frame()).await {
                Err(_) => {
                    let silent = ClientError::TimedOut {
                        server: self.server.clone(),
                        what: "the stream was idle",
                        after: self.idle_timeout,
                    };
                    return Some(Err(self.end(silent)));
                }
                Ok(Some(Ok(frame))) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.buffer.extend_from_slice(bytes);
                    }
                }
                Ok(Some(Err(error))) => {
                    let lost = ClientError::Lost {
                        server: self.server.clone(),
                        source: error.into(),
                    };
                    return Some(Err(self.end(lost)));
                }
                Ok(None) => return self.finish().map(Err),
            }
        }
        None
    }

    /// Answers a ping. Never waits; a newer answer replaces one that is not sent yet.
    pub fn answer_ping(&self, number: u64) {
        if let Some(answers) = &self.answers {
            answers.send_replace(number);
        }
    }

    /// Returns the server that sends the stream.
    pub fn server(&self) -> &ServerAddress {
        &self.server
    }

    /// Converts the lines to a `Stream`.
    pub fn into_stream(self) -> impl Stream<Item = Result<T, ClientError>> + Send {
        futures::stream::unfold(self, |mut lines| async move {
            lines.next().await.map(|item| (item, lines))
        })
    }

    fn take_line(&mut self) -> Result<Option<BytesMut>, ClientError> {
        let end = self.buffer[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        match end {
            Some(offset) => {
                let line = self.buffer.split_to(self.searched + offset);
                self.buffer.advance(1);
                self.searched = 0;
                if self.buffer.is_empty() {
                    // An idle stream uses no memory.
                    self.buffer = BytesMut::new();
                }
                Ok(Some(line))
            }
            None if self.buffer.len() > self.longest => {
                Err(self.invalid("a line exceeds the maximum length", None))
            }
            None => {
                self.searched = self.buffer.len();
                Ok(None)
            }
        }
    }

    fn decode(&mut self, line: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(line).map_err(|source| {
            let bad = self.invalid("a line is not the expected JSON", Some(source.into()));
            self.end(bad)
        })
    }

    /// Returns an error if the last line has no end, because it was cut off.
    fn finish(&mut self) -> Option<ClientError> {
        self.ended = true;
        let cut = !self.buffer.iter().all(u8::is_ascii_whitespace);
        cut.then(|| self.invalid("the stream ends in the middle of a line", None))
    }

    fn invalid(&self, why: &'static str, source: Option<super::BoxError>) -> ClientError {
        ClientError::BadReply {
            server: self.server.clone(),
            why,
            source,
        }
    }

    fn end(&mut self, error: ClientError) -> ClientError {
        self.ended = true;
        error
    }
}

impl<T> std::fmt::Debug for Lines<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lines({})", self.server)
    }
}
