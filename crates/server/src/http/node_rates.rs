//! The rate at which one node may write.
//!
//! A node that floods its servers fills the datastore and delays everyone else. So each node has
//! two budgets on each server, for requests and for bytes, that fill up again over time. A request
//! beyond them is refused before its body is read. The refusal is sent late, and few at a time: a
//! client that ignores `Retry-After` then waits here, where that costs nothing.
//!
//! Absent here: reads, which store nothing, operators and servers, and the bytes that are stored
//! already (each service limits those, by what the store contains).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bunraku_control::ServiceError;
use bunraku_model::NodeName;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The budgets of each node.
#[derive(Clone, Debug)]
pub struct RateOptions {
    pub requests_per_second: u64,
    /// The number of requests that may arrive at once.
    pub request_burst: u64,
    pub bytes_per_second: u64,
    /// The number of bytes that may arrive at once.
    pub byte_burst: u64,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self {
            requests_per_second: 20,
            request_burst: 1_000,
            bytes_per_second: 1 << 20,
            byte_burst: 64 << 20,
        }
    }
}

/// The number of refusals for one node that are underway at the same time.
const REFUSALS: usize = 4;
/// The delay of a refusal.
const REFUSAL_DELAY: Duration = Duration::from_millis(250);
/// The number of nodes above which those with a full budget are forgotten.
const REMEMBERED: usize = 10_000;

/// The handle on the rates of all nodes on this server.
#[derive(Clone)]
pub struct NodeRates {
    inner: Arc<Inner>,
}

struct Inner {
    options: RateOptions,
    nodes: Mutex<HashMap<NodeName, NodeRate>>,
}

struct NodeRate {
    requests: Bucket,
    bytes: Bucket,
    refusals: Arc<Semaphore>,
}

/// A budget that fills up over time.
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn fill(&mut self, per_second: u64, burst: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * per_second as f64).min(burst as f64);
        self.at = now;
    }

    /// Returns how long it takes until this much is left. More than a full budget is never left,
    /// and is taken from a full one.
    fn wait_for(&self, cost: u64, per_second: u64, burst: u64) -> Duration {
        let missing = (cost.min(burst) as f64) - self.left;
        if missing <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / (per_second.max(1) as f64)).unwrap_or(Duration::MAX)
    }
}

impl NodeRates {
    pub fn new(options: RateOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                options,
                nodes: Mutex::default(),
            }),
        }
    }

    /// Accounts for a request of a node, or refuses it.
    pub(crate) async fn admit(&self, node: &NodeName, bytes: u64) -> Result<(), ServiceError> {
        let (wait, refusals) = match self.take(node, bytes, Instant::now()) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        // Only fails if the semaphore is closed, which nobody does.
        let _turn = refusals.acquire().await;
        tokio::time::sleep(REFUSAL_DELAY).await;
        Err(ServiceError::OverBudget {
            message: format!("`{node}` sends more than its budget allows"),
            retry_after: wait,
        })
    }

    fn take(
        &self,
        node: &NodeName,
        bytes: u64,
        now: Instant,
    ) -> Result<(), (Duration, Arc<Semaphore>)> {
        let options = &self.inner.options;
        let mut nodes = self.nodes();
        if nodes.len() > REMEMBERED {
            nodes.retain(|_, rate| !rate.is_full(options, now));
        }
        let rate = nodes.entry(node.clone()).or_insert_with(|| NodeRate {
            requests: Bucket {
                left: options.request_burst as f64,
                at: now,
            },
            bytes: Bucket {
                left: options.byte_burst as f64,
                at: now,
            },
            refusals: Arc::new(Semaphore::new(REFUSALS)),
        });
        rate.fill(options, now);
        let requests =
            (rate.requests).wait_for(1, options.requests_per_second, options.request_burst);
        let wait = requests.max(rate.bytes.wait_for(
            bytes,
            options.bytes_per_second,
            options.byte_burst,
        ));
        if !wait.is_zero() {
            return Err((wait, Arc::clone(&rate.refusals)));
        }
        rate.requests.left -= 1.0;
        rate.bytes.left -= bytes as f64;
        Ok(())
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<NodeName, NodeRate>> {
        (self.inner.nodes.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeRate {
    fn fill(&mut self, options: &RateOptions, now: Instant) {
        self.requests
            .fill(options.requests_per_second, options.request_burst, now);
        self.bytes
            .fill(options.bytes_per_second, options.byte_burst, now);
    }

    fn is_full(&mut self, options: &RateOptions, now: Instant) -> bool {
        self.fill(options, now);
        self.requests.left >= options.request_burst as f64
            && self.bytes.left >= options.byte_burst as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> NodeRates {
        NodeRates::new(RateOptions {
            requests_per_second: 2,
            request_burst: 4,
            bytes_per_second: 100,
            byte_burst: 1_000,
        })
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).expect("a name")
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_counts() {
        let (rates, now) = (rates(), Instant::now());
        let take = |name: &str, bytes, seconds| {
            let at = now + Duration::from_secs(seconds);
            let refused = rates.take(&node(name), bytes, at);
            refused.err().map_or(0, |(wait, _)| wait.as_millis())
        };
        for _ in 0..4 {
            assert_eq!(take("web-1", 0, 0), 0);
        }
        assert_eq!(take("web-1", 0, 0), 500, "half a second for the next");
        assert_eq!(take("web-2", 0, 0), 0, "another node has its own");
        assert_eq!(take("web-1", 0, 1), 0);
        assert_eq!(take("web-1", 1_000, 1), 0);
        assert_eq!(take("web-1", 500, 2), 4_000, "100 of 500 bytes are back");
        assert_eq!(take("web-1", 0, 2), 0, "and small requests still pass");
        // What is larger than the whole budget passes when the budget is full.
        assert_eq!(take("web-3", 5_000, 0), 0);
        assert_ne!(take("web-3", 1, 10), 0, "and has to be paid back");
    }

    #[tokio::test]
    async fn refusals_are_late_and_few_at_a_time() {
        let rates = rates();
        for _ in 0..4 {
            rates.admit(&node("web-1"), 0).await.expect("within budget");
        }
        let begun = Instant::now();
        let flood = (0..12).map(|_| async {
            let web = node("web-1");
            rates.admit(&web, 1_000_000).await.expect_err("refused");
        });
        futures::future::join_all(flood).await;
        assert!(begun.elapsed() >= REFUSAL_DELAY * 3);
    }
}
