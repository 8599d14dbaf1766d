//! Keeps the operator's credentials current: trusted CAs, revocation list, certificate.
//!
//! A command asks at most once an hour, before its own work. Whatever fails here is not an error
//! of the command: it continues with what it has.

use std::time::{Duration, SystemTime};

use bunraku_model::Role;
use bunraku_wire::api::RenewRequest;
use bunraku_wire::endpoints::RenewCertificate;
use bunraku_wire::{
    Client, Credentials, OperatorProof, PrivateKey, ReloadableClientTls, Request,
    RequestedCertificate, trust,
};
use jiff::Timestamp;

use crate::failure::Failure;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_secs(3600);

/// The longest time that a look may delay a command.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file whose age tells when the last look was.
const LOOKED: &str = "trust-checked";

/// Updates the credentials if the last look is old.
pub(crate) async fn refresh_if_due(
    client: &Client,
    tls: &ReloadableClientTls,
    credentials: &Credentials,
) {
    let stamp = credentials.directory().join(LOOKED);
    let age = std::fs::metadata(&stamp)
        .and_then(|metadata| metadata.modified())
        .ok()
        .and_then(|modified| SystemTime::now().duration_since(modified).ok());
    if age.is_some_and(|age| age < INTERVAL) {
        return;
    }
    match tokio::time::timeout(PATIENCE, refresh(client, tls, credentials)).await {
        Ok(Ok(())) => {
            let _ = bunraku_files::replace(&stamp, b"", 0o644);
        }
        Ok(Err(failure)) => {
            tracing::debug!(reason = failure.message(), "cannot update the credentials");
        }
        Err(_) => tracing::debug!("cannot update the credentials in time"),
    }
}

async fn refresh(
    client: &Client,
    tls: &ReloadableClientTls,
    credentials: &Credentials,
) -> Result<(), Failure> {
    let mut change = trust::refresh(client, credentials).await?;
    let Some(identity) = credentials.identity()? else {
        return Ok(());
    };
    let certificate = identity.certificate();
    let is_due = change.must_renew || certificate.needs_renewal(Timestamp::now(), 0.0);
    if certificate.role == Role::Operator && is_due {
        let key = PrivateKey::load(&credentials.key_path())?;
        let certificate_request = Request::create(&certificate.name()?, &key)?;
        let proof = OperatorProof::create(
            certificate,
            &key,
            &RequestedCertificate {
                certificate_request: &certificate_request,
                role: Role::Operator,
                server_names: &[],
                groups: &certificate.groups,
            },
            Timestamp::now(),
        )?;
        let request = RenewRequest {
            certificate_request,
            proof: Some(proof),
        };
        let issued = client.call_with(RenewCertificate, &request).await?;
        credentials.save(&issued.certificate, &issued.ca)?;
        use_stored(tls, credentials)?;
        client.reconnect().await;
        // Tells the server that the new certificate is in use.
        change = trust::refresh(client, credentials).await?;
    }
    if change.is_changed {
        use_stored(tls, credentials)?;
        client.reconnect().await;
    }
    Ok(())
}

fn use_stored(tls: &ReloadableClientTls, credentials: &Credentials) -> Result<(), Failure> {
    let identity = credentials.identity()?;
    tls.reload(&trust::client_tls(credentials, identity)?)?;
    Ok(())
}
