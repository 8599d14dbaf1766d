//! The part of a request's body that nobody read.
//!
//! A refusal is ready before the body is read. If it goes out at once, the stream (HTTP/2) or the
//! connection (HTTP/1) is reset while the client still sends, and many clients report the reset
//! instead of the refusal. So what is left of the body is read and dropped before the reply goes
//! out, within limits: a client that sends more than that is cut off.
//!
//! A body that the client holds back (`Expect: 100-continue`) is not read, because reading asks
//! for it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// Bytes that are read and dropped at most.
const MOST_BYTES: usize = 1 << 20;
/// How long that may take.
const LONGEST: Duration = Duration::from_secs(5);

/// A body that goes back to its lender when it is dropped before its end.
pub(super) struct LentBody {
    body: Option<Incoming>,
    returned: ReturnSlot,
}

type ReturnSlot = Arc<Mutex<Option<Incoming>>>;

/// The lender's side. Contains `None` if the rest of the body must not be read.
pub(super) struct Lender(Option<ReturnSlot>);

/// Lends the body to the handler of the request.
pub(super) fn lend_body(request: hyper::Request<Incoming>) -> (hyper::Request<LentBody>, Lender) {
    let returned = ReturnSlot::default();
    let lender = Lender((!is_held_back(&request)).then(|| Arc::clone(&returned)));
    let request = request.map(|body| LentBody {
        body: Some(body),
        returned,
    });
    (request, lender)
}

/// Returns whether the client sends the body only when it is asked to.
fn is_held_back(request: &hyper::Request<Incoming>) -> bool {
    let expected = request.headers().get(hyper::header::EXPECT);
    expected.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl Lender {
    /// Reads the rest of a body that was dropped before its end.
    pub(super) async fn read_rest(self) {
        let Some(slot) = self.0 else { return };
        let returned = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut body) = returned else { return };
        let reading = async {
            let mut left = MOST_BYTES;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                match left.checked_sub(length) {
                    Some(rest) => left = rest,
                    None => return,
                }
            }
        };
        // Too slow is as good as too much.
        let _ = tokio::time::timeout(LONGEST, reading).await;
    }
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = self.body.as_mut() else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(body).poll_frame(context);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *self.returned.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}
