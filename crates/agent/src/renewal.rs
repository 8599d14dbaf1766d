//! A new certificate before the old one ends.

use std::time::Duration;

use bunraku_wire::api::{IssuedCertificate, RenewRequest};
use bunraku_wire::tls::Identity;
use bunraku_wire::{Request, client::BackOff};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::Shared;
use crate::join::with_identity;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How often the certificate's age is looked at: short certificates exist in tests.
const LOOK: Duration = Duration::from_secs(60);

/// Renews when two thirds of the lifetime have passed, until cancelled.
pub(crate) async fn keep_certificate(shared: &Shared, shutdown: &CancellationToken) {
    let retry = BackOff {
        first: Duration::from_secs(10),
        longest: Duration::from_secs(600),
    };
    let mut failures = 0;
    // Spread over the fleet: each node has its own moment.
    let jitter =
        f64::from(u8::try_from(shared.options.name.as_str().len() % 10).unwrap_or(0)) / 100.0;
    loop {
        let wait = match renew_if_due(shared, jitter).await {
            Ok(()) => {
                failures = 0;
                LOOK
            }
            Err(error) => {
                tracing::warn!(error = %error, "the certificate could not be renewed; trying again");
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
    let key = shared.credentials.load_or_create_key()?;
    let certificate_request = Request::create(&shared.options.name, &key)?;
    let request = RenewRequest {
        certificate_request,
    };
    let issued: IssuedCertificate = shared
        .client
        .post("/v1/certificates/renew", &request)
        .await?;
    let identity = Identity::from_pem(&issued.certificate, &key)?;
    let serial = identity.certificate().serial.clone();
    shared.credentials.save(&issued.certificate, &issued.ca)?;
    shared.tls.reload(&with_identity(identity, issued.ca))?;
    // The next request shows the new certificate; what is under way is finished.
    shared.client.reconnect().await;
    tracing::info!(%serial, "the certificate was renewed");
    Ok(())
}
