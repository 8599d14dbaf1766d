//! A queue from one sender to one receiver that is small while it is empty.
//!
//! There are fifty thousand of these queues, nearly always empty. Tokio's
//! channel allocates room for 32 values in advance; this one allocates with the
//! first value.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Holds one permit, so a value that comes before the wait is not missed.
    changed: Notify,
}

struct Queue<T> {
    values: VecDeque<T>,
    closed: bool,
}

pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    most: usize,
}

pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

/// Creates a queue with a maximum length.
pub fn channel<T>(most: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue {
            values: VecDeque::new(),
            closed: false,
        }),
        changed: Notify::new(),
    });
    let sender = Sender {
        shared: Arc::clone(&shared),
        most,
    };
    (sender, Receiver { shared })
}

impl<T> Shared<T> {
    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Sender<T> {
    /// Sends a value. Returns true if there was room, even if the receiver is gone.
    pub fn send(&self, value: T) -> bool {
        let mut queue = self.shared.queue();
        if queue.values.len() >= self.most {
            return false;
        }
        queue.values.push_back(value);
        drop(queue);
        self.shared.changed.notify_one();
        true
    }

    /// Same as [`Sender::send`], unless an equivalent value is already queued.
    pub fn send_once(&self, value: T, same: impl Fn(&T) -> bool) -> bool {
        if self.shared.queue().values.iter().any(same) {
            return true;
        }
        self.send(value)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.queue().closed = true;
        self.shared.changed.notify_one();
    }
}

impl<T> Receiver<T> {
    /// Returns the next value, or `None` when the sender is gone and the queue
    /// is empty. Dropping the future early loses nothing.
    pub async fn recv(&mut self) -> Option<T> {
        loop {
            {
                let mut queue = self.shared.queue();
                if let Some(value) = queue.values.pop_front() {
                    if queue.values.is_empty() {
                        // Free the memory after a burst.
                        queue.values = VecDeque::new();
                    }
                    return Some(value);
                }
                if queue.closed {
                    return None;
                }
            }
            self.shared.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn values_come_in_order_and_then_the_end() {
        let (sender, mut receiver) = channel(8);
        assert!(sender.send(1) && sender.send(2));
        drop(sender);
        assert_eq!(receiver.recv().await, Some(1));
        assert_eq!(receiver.recv().await, Some(2));
        assert_eq!(receiver.recv().await, None);
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn a_full_queue_takes_nothing_more_until_something_is_taken() {
        let (sender, mut receiver) = channel(2);
        assert!(sender.send(1) && sender.send(2) && !sender.send(3));
        assert_eq!(receiver.recv().await, Some(1));
        assert!(sender.send(4));
        assert_eq!(receiver.recv().await, Some(2));
        assert_eq!(receiver.recv().await, Some(4));
    }

    #[tokio::test]
    async fn who_waits_is_woken_by_a_value_and_by_the_end() {
        let (sender, mut receiver) = channel(8);
        let received = tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(value) = receiver.recv().await {
                all.push(value);
            }
            all
        });
        for value in 0..1_000 {
            while !sender.send(value) {
                tokio::task::yield_now().await;
            }
            tokio::task::yield_now().await;
        }
        drop(sender);
        assert_eq!(received.await.unwrap(), (0..1_000).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn what_waits_already_is_not_queued_again() {
        let (sender, mut receiver) = channel(2);
        for _ in 0..10 {
            assert!(sender.send_once(1, |waiting| *waiting == 1));
        }
        assert!(sender.send(2));
        assert_eq!(receiver.recv().await, Some(1));
        assert_eq!(receiver.recv().await, Some(2));
        assert!(sender.send_once(1, |waiting| *waiting == 1));
        assert_eq!(receiver.recv().await, Some(1));
    }

    #[tokio::test]
    async fn giving_up_a_wait_loses_no_value() {
        let (sender, mut receiver) = channel(8);
        let patience = std::time::Duration::from_millis(5);
        assert!(
            tokio::time::timeout(patience, receiver.recv())
                .await
                .is_err()
        );
        assert!(sender.send(1));
        assert_eq!(receiver.recv().await, Some(1));
    }
}
