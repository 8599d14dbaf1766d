//! A request to the writer, and its answer.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::failure::{Failure, RequestResult};
use super::group::CommitGroup;
use crate::StoreError;

/// The writer's interface to any request. `perform` may run more than once; the last time before
/// `finish` counts.
pub(super) trait Job: Send {
    fn bytes(&self) -> usize;
    fn perform(&mut self, group: &mut CommitGroup<'_>) -> Result<(), Failure>;
    fn finish(self: Box<Self>);
    fn fail(self: Box<Self>, error: StoreError);
}

pub(super) struct JobOf<W, T> {
    pub(super) work: W,
    pub(super) bytes: usize,
    pub(super) arrived: Duration,
    pub(super) answer: Option<Result<T, StoreError>>,
    pub(super) reply: oneshot::Sender<Result<T, StoreError>>,
    /// The request's slot in the queue, released with the answer.
    pub(super) _place: OwnedSemaphorePermit,
}

impl<W, T> Job for JobOf<W, T>
where
    W: FnMut(&mut CommitGroup<'_>) -> RequestResult<T> + Send,
    T: Send,
{
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn perform(&mut self, group: &mut CommitGroup<'_>) -> Result<(), Failure> {
        group.arrived = self.arrived;
        self.answer = Some((self.work)(group)?);
        Ok(())
    }

    fn finish(self: Box<Self>) {
        let this = *self;
        if let Some(answer) = this.answer {
            // The requester may be gone; the request is done anyway.
            let _ = this.reply.send(answer);
        }
    }

    fn fail(self: Box<Self>, error: StoreError) {
        let this = *self;
        let _ = this.reply.send(Err(error));
    }
}
