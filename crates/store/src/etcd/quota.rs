//! The quota of one member, read from its metrics: etcd before 3.6 reports it nowhere else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::HOST;
use http_body_util::Full;
use rustls::ClientConfig;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::plain_http;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The name of the metric.
const METRIC: &str = "etcd_server_quota_backend_bytes";
/// A quota changes only with a restart of the member, so it is read rarely.
const READ_AGAIN: Duration = Duration::from_secs(300);
/// A member that did not say is asked again sooner.
const ASK_AGAIN: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(2);

/// The quota of one member, as last read.
pub(super) struct QuotaReader {
    endpoint: String,
    tls: Option<Arc<ClientConfig>>,
    known: Mutex<Option<(Instant, Option<u64>)>>,
}

impl QuotaReader {
    pub(super) fn new(endpoint: &str, tls: Option<Arc<ClientConfig>>) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            tls,
            known: Mutex::default(),
        }
    }

    /// Returns the quota, or `None` if the member has none or does not say.
    pub(super) async fn bytes(&self) -> Option<u64> {
        let mut known = self.known.lock().await;
        if let Some((at, quota)) = *known {
            let fresh_for = if quota.is_some() {
                READ_AGAIN
            } else {
                ASK_AGAIN
            };
            if at.elapsed() < fresh_for {
                return quota;
            }
        }
        let quota = match tokio::time::timeout(PATIENCE, self.read()).await {
            Ok(Ok(quota)) => quota,
            Ok(Err(error)) => {
                tracing::debug!(%error, member = self.endpoint, "cannot read the quota of etcd");
                known.and_then(|(_, quota)| quota)
            }
            Err(_) => known.and_then(|(_, quota)| quota),
        };
        *known = Some((Instant::now(), quota));
        quota
    }

    async fn read(&self) -> Result<Option<u64>, Source> {
        let stream = plain_http::connect(&self.endpoint, self.tls.as_ref()).await?;
        let request = Request::get("/metrics")
            .header(HOST, plain_http::address(&self.endpoint))
            .body(Full::new(Bytes::new()))?;
        let answer = plain_http::exchange(stream, request).await?;
        if !answer.status.is_success() {
            return Err(format!("its metrics answered {}", answer.status).into());
        }
        Ok(quota_in(&String::from_utf8_lossy(&answer.body)))
    }
}

/// Finds the quota in metrics in Prometheus format. A quota that is not positive is disabled.
fn quota_in(metrics: &str) -> Option<u64> {
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(METRIC)?.strip_prefix(' '))?;
    let number: f64 = value.trim().parse().ok()?;
    // Quotas are far below 2^53, so the number is exact.
    (number >= 1.0).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_is_found_among_the_metrics() {
        let metrics = "# HELP etcd_server_quota_backend_bytes Current backend storage quota size.\n\
                       # TYPE etcd_server_quota_backend_bytes gauge\n\
                       etcd_server_quota_backend_bytes 2.147483648e+09\n\
                       etcd_server_quota_backend_bytes_other 5\n";
        assert_eq!(quota_in(metrics), Some(2_147_483_648));
        assert_eq!(
            quota_in("etcd_server_quota_backend_bytes 2.097152e+07"),
            Some(20_971_520)
        );
        assert_eq!(quota_in("etcd_server_quota_backend_bytes -1"), None);
        assert_eq!(quota_in("process_open_fds 3"), None);
    }
}
