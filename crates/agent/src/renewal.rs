//! Renews the certificate before it expires.

use std::time::Duration;

use bunraku_model::ContentId;
use bunraku_wire::api::{IssuedCertificate, RenewRequest};
use bunraku_wire::endpoints::RenewCertificate;
use bunraku_wire::tls::Identity;
use bunraku_wire::{Request, client::BackOff};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::Shared;
use crate::join::use_stored;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The longest time between two checks of the certificate's age: clocks may jump.
const LONGEST: Duration = Duration::from_secs(60);

/// The shortest time between two checks.
const SHORTEST: Duration = Duration::from_secs(1);

/// Renews the certificate when two thirds of its lifetime have passed. Runs until cancelled.
pub(crate) async fn keep_certificate(shared: &Shared, shutdown: &CancellationToken) {
    let retry = BackOff {
        first: Duration::from_secs(10),
        longest: Duration::from_secs(600),
    };
    let mut failures = 0;
    // Renewals are spread over the fleet: each name has its own moment, the same at every start.
    let id = ContentId::of(shared.options.name.as_str().as_bytes());
    let jitter = f64::from(id.as_bytes()[0]) / 255.0;
    loop {
        let wait = match renew_if_due(shared, jitter).await {
            Ok(()) => {
                failures = 0;
                until_due(shared, jitter)
            }
            Err(error) => {
                tracing::warn!(error = %error, "cannot renew the certificate; retrying");
                failures += 1;
                retry.random_wait(failures - 1)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn until_due(shared: &Shared, jitter: f64) -> Duration {
    let due = match shared.credentials.identity() {
        Ok(Some(identity)) => identity.certificate().renew_at(jitter),
        _ => return LONGEST,
    };
    let left = due.duration_since(Timestamp::now());
    Duration::try_from(left)
        .unwrap_or(SHORTEST)
        .clamp(SHORTEST, LONGEST)
}

async fn renew_if_due(shared: &Shared, jitter: f64) -> Result<(), BoxError> {
    let Some(identity) = shared.credentials.identity()? else {
        return Ok(());
    };
    if !identity
        .certificate()
        .needs_renewal(Timestamp::now(), jitter)
    {
        return Ok(());
    }
    renew(shared).await
}

/// Renews the certificate now, whatever its age.
pub(crate) async fn renew(shared: &Shared) -> Result<(), BoxError> {
    let key = shared.credentials.load_or_create_key()?;
    let certificate_request = Request::create(&shared.options.name, &key)?;
    let request = RenewRequest {
        certificate_request,
        proof: None,
    };
    let issued: IssuedCertificate = shared.client.call_with(RenewCertificate, &request).await?;
    let identity = Identity::from_pem(&issued.certificate, &key)?;
    let serial = identity.certificate().serial.clone();
    shared.credentials.save(&issued.certificate, &issued.ca)?;
    use_stored(shared)?;
    // The next request uses the new certificate, and so does the stream. Otherwise the server would
    // close the stream when the old certificate expires.
    shared.client.reconnect().await;
    shared.renewed.notify_one();
    tracing::info!(%serial, "the certificate was renewed");
    Ok(())
}
