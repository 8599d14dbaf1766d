//! A watch that survives the death of its member.
//!
//! A task reads etcd's stream and remembers the next revision. When the stream breaks, the task
//! opens another one from there, at another member if needed. It passes on a revision only when it
//! is complete, so that an interrupted one is read again as a whole.
//!
//! A slow reader does not hold a stream open: its buffer fills, and the stream is closed. It is
//! reopened from history once the reader is back.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{WatchOptions, WatchResponse};
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;

use super::failure::{Failure, Refusal};
use super::inner::Inner;
use super::keys::{number, revision};
use super::members::{Pause, Repeat};
use crate::{Change, Revision, StoreError, WatchBatch, WatchStart, WatchStream};

/// The number of batches that may wait for the reader before the stream is closed.
const BUFFERED_BATCHES: usize = 64;
/// The time for which a full buffer keeps the stream open.
const READER_PATIENCE: Duration = Duration::from_secs(1);

pub(super) async fn watch(
    inner: Arc<Inner>,
    prefix: &str,
    start: WatchStart,
) -> Result<WatchStream, StoreError> {
    let prefix = inner.root.prefix(prefix)?;
    let next = match start {
        // Do not use the member's idea of now: it may lag behind the cluster and would return
        // earlier changes.
        WatchStart::Now => Revision(inner.newest_revision().await?.0 + 1),
        // For etcd, 0 means "now"; its history begins with 1.
        WatchStart::At(at) => Revision(at.0.max(1)),
    };
    let opened = open(&inner, &prefix, next).await;
    let opened = opened.map_err(|failure| inner.unavailable(failure))?;
    let (sender, receiver) = mpsc::channel(BUFFERED_BATCHES);
    let reader = Reader {
        next,
        inner,
        prefix,
        sender,
        partial: None,
        pause: Pause::default(),
    };
    tokio::spawn(reader.run(opened));
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// A stream whose watch the member has accepted.
struct OpenedWatch {
    member: usize,
    stream: etcd_client::WatchStream,
    /// The first response: the watch is accepted, or it is already over.
    first: WatchResponse,
}

async fn open(inner: &Inner, prefix: &[u8], start: Revision) -> Result<OpenedWatch, Failure> {
    let options = WatchOptions::new()
        .with_prefix()
        .with_fragment()
        .with_progress_notify()
        .with_start_revision(number(start));
    let attempt = |index: usize, mut member: super::members::Member| {
        let options = options.clone();
        async move {
            let mut stream = member.watches.watch(prefix, Some(options)).await?;
            let first = stream.message().await?.ok_or_else(|| {
                etcd_client::Error::WatchError("the stream ended immediately".to_owned())
            })?;
            Ok(OpenedWatch {
                member: index,
                stream,
                first,
            })
        }
    };
    inner.members.call(Repeat::Always, attempt).await
}

/// The reason why reading a stream stopped.
enum End {
    /// The reader is gone.
    ReaderGone,
    /// The watch cannot continue.
    Failed(StoreError),
    /// Open another stream.
    Broken,
    /// The reader is too slow: open another stream once it has taken this batch.
    ReaderSlow(WatchBatch),
}

struct Reader {
    inner: Arc<Inner>,
    prefix: Vec<u8>,
    /// The first revision that was not yet passed on.
    next: Revision,
    sender: Sender<Result<WatchBatch, StoreError>>,
    /// Changes of a revision that may not be complete.
    partial: Option<WatchBatch>,
    pause: Pause,
}

impl Reader {
    async fn run(mut self, opened: OpenedWatch) {
        let mut opened = Some(opened);
        loop {
            let end = match opened.take() {
                Some(opened) => self.read(opened).await,
                None => match self.reopen().await {
                    Ok(again) => {
                        opened = Some(again);
                        continue;
                    }
                    Err(end) => end,
                },
            };
            match end {
                End::ReaderGone => return,
                End::Failed(error) => {
                    let _ = self.sender.send(Err(error)).await;
                    return;
                }
                End::Broken => self.partial = None,
                End::ReaderSlow(batch) => {
                    self.partial = None;
                    if self.sender.send(Ok(batch)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn reopen(&mut self) -> Result<OpenedWatch, End> {
        let work = async {
            self.pause.wait().await;
            open(&self.inner, &self.prefix, self.next).await
        };
        let outcome = tokio::select! {
            biased;
            () = self.sender.closed() => return Err(End::ReaderGone),
            outcome = work => outcome,
        };
        outcome.map_err(|failure| match failure {
            Failure::Refused(Refusal::Compacted) => End::Failed(StoreError::Compacted {
                wanted: self.next,
                oldest: self.next,
            }),
            Failure::Refused(refusal) => End::Failed(refusal.into_error()),
            mendable => {
                tracing::warn!(
                    failure = %mendable.into_source(),
                    "no etcd member accepts the watch; retrying"
                );
                End::Broken
            }
        })
    }

    async fn read(&mut self, opened: OpenedWatch) -> End {
        let OpenedWatch {
            member,
            mut stream,
            first,
        } = opened;
        if let Err(end) = self.take(first).await {
            return end;
        }
        loop {
            let message = tokio::select! {
                biased;
                () = self.sender.closed() => return End::ReaderGone,
                message = stream.message() => message,
            };
            let response = match message {
                Ok(Some(response)) => response,
                Ok(None) => {
                    self.inner.members.failed(member);
                    return End::Broken;
                }
                Err(error) => {
                    tracing::debug!(%error, "the watch stream was interrupted");
                    self.inner.members.failed(member);
                    return End::Broken;
                }
            };
            if let Err(end) = self.take(response).await {
                return end;
            }
        }
    }

    async fn take(&mut self, response: WatchResponse) -> Result<(), End> {
        // etcd 3.4 gives no reason in this case: only the number shows it.
        if response.compact_revision() > 0 {
            return Err(End::Failed(StoreError::Compacted {
                wanted: self.next,
                oldest: revision(response.compact_revision()),
            }));
        }
        if response.canceled() {
            return Err(cancelled(response.cancel_reason()));
        }
        if response.events().is_empty() {
            self.note_progress(&response);
            return Ok(());
        }
        self.pause = Pause::default();
        for event in response.events() {
            self.take_event(event).await?;
        }
        if !response.0.fragment {
            self.flush().await?;
        }
        Ok(())
    }

    /// Records a member's progress. Members report it from time to time, and history up to there
    /// may be compacted without loss. A response that only accepts the watch does not count:
    /// earlier events may still follow.
    fn note_progress(&mut self, response: &WatchResponse) {
        if response.created() || self.partial.is_some() {
            return;
        }
        if let Some(header) = response.header() {
            self.next = self.next.max(Revision(revision(header.revision()).0 + 1));
        }
    }

    async fn take_event(&mut self, event: &etcd_client::Event) -> Result<(), End> {
        let Some(kv) = event.kv() else {
            return Ok(());
        };
        let at = revision(kv.mod_revision());
        if at < self.next {
            return Ok(());
        }
        if self
            .partial
            .as_ref()
            .is_some_and(|partial| partial.revision != at)
        {
            self.flush().await?;
        }
        let change = match event.0.r#type {
            0 => self.inner.root.key_value(kv).map(Change::Put),
            _ => self
                .inner
                .root
                .strip(kv.key())
                .map(|key| Change::Delete { key }),
        };
        let partial = self.partial.get_or_insert_with(|| WatchBatch {
            revision: at,
            changes: Vec::new(),
        });
        partial.changes.extend(change);
        Ok(())
    }

    /// Passes on a complete revision.
    async fn flush(&mut self) -> Result<(), End> {
        let Some(batch) = self.partial.take() else {
            return Ok(());
        };
        self.next = Revision(batch.revision.0 + 1);
        match self.sender.send_timeout(Ok(batch), READER_PATIENCE).await {
            Ok(()) => Ok(()),
            Err(SendTimeoutError::Timeout(Ok(batch))) => Err(End::ReaderSlow(batch)),
            Err(_) => Err(End::ReaderGone),
        }
    }
}

fn cancelled(reason: &str) -> End {
    if reason.contains("permission denied") || reason.contains("invalid auth token") {
        let reason = reason.to_owned();
        return End::Failed(StoreError::Unavailable(reason.into()));
    }
    tracing::debug!(reason, "etcd cancelled the watch; opening another");
    End::Broken
}
