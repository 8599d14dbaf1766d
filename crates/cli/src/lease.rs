//! A lease that is renewed for as long as work goes on.

use std::future::Future;
use std::time::Duration;

use bunraku_wire::ClientError;
use tokio::time::Instant;

/// Renews a lease until it is lost. Returns the reason.
///
/// `granted` is the time at which the lease was requested: it lives at least `ttl` from then.
pub(crate) async fn renew_until_lost<R, F>(ttl: Duration, granted: Instant, renew: R) -> String
where
    R: Fn() -> F,
    F: Future<Output = Result<(), ClientError>>,
{
    let mut lives_until = granted + ttl;
    let mut pause = ttl / 3;
    loop {
        let next = (Instant::now() + pause).min(lives_until);
        tokio::time::sleep_until(next).await;
        let asked = Instant::now();
        match tokio::time::timeout_at(lives_until, renew()).await {
            Ok(Ok(())) => {
                lives_until = asked + ttl;
                pause = ttl / 3;
            }
            Ok(Err(error)) if matches!(error.status(), Some(400..=404 | 409)) => {
                return error.to_string();
            }
            outcome => {
                if Instant::now() >= lives_until {
                    return match outcome {
                        Ok(Err(error)) => format!("the lease could not be renewed: {error}"),
                        _ => "the lease could not be renewed in time".to_owned(),
                    };
                }
                // An unreachable server may be back before the lease ends.
                pause = ttl / 20;
            }
        }
    }
}
