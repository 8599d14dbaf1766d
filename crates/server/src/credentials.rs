//! The certificates that a server issues for itself and its first operator.

use bunraku_model::{NodeName, Role};
use bunraku_store::StoreError;
use bunraku_wire::api::IssueRequest;
use bunraku_wire::credentials::{CredentialsError, serves};
use bunraku_wire::tls::Identity;
use bunraku_wire::{Credentials, PrivateKey, Request};

use bunraku_control::{Certificates, Clock, ServiceError, Signer};

/// The required contents of the certificate.
pub(crate) struct RequiredIdentity<'a> {
    pub(crate) name: &'a NodeName,
    pub(crate) role: Role,
    /// Names and addresses that the server answers to.
    pub(crate) server_names: &'a [String],
}

/// Creates missing credentials, renews those that expire soon, and keeps the rest. While
/// nothing can be written, also keeps credentials that expire soon.
pub(crate) async fn ensure(
    credentials: &Credentials,
    certificates: &Certificates,
    clock: &Clock,
    wanted: &RequiredIdentity<'_>,
) -> Result<Identity, ServiceError> {
    let key = blocking(credentials, Credentials::load_or_create_key).await?;
    let fitting = matching_identity(credentials, &key, wanted);
    let now = clock.now();
    if let Some(identity) = &fitting
        && !identity.certificate().needs_renewal(now, 0.0)
        && certificates.is_of_wanted_issuer(identity.certificate())
    {
        let trusted = certificates.authority_pem();
        blocking(credentials, move |credentials| {
            if credentials.authority_pem()?.as_ref() == Some(&trusted) {
                return Ok(());
            }
            credentials.save_authority(&trusted)
        })
        .await?;
        return Ok(identity.clone());
    }
    let certificate_request = Request::create(wanted.name, &key)
        .map_err(|error| ServiceError::internal("cannot create a certificate request", error))?;
    let server_names = wanted.server_names.to_vec();
    let request = IssueRequest {
        certificate_request,
        role: wanted.role,
        server_names,
        groups: std::collections::BTreeSet::new(),
        proof: None,
    };
    let issued = match (
        certificates.issue(&request, Signer::ThisServer).await,
        fitting,
    ) {
        (
            Err(
                error @ (ServiceError::Store(StoreError::Unavailable(_))
                | ServiceError::Unavailable { .. }),
            ),
            Some(identity),
        ) if now < identity.certificate().not_after => {
            tracing::warn!(name = %wanted.name, error = %error, "cannot renew the certificate yet");
            return Ok(identity);
        }
        (issued, _) => issued?,
    };
    let identity = Identity::from_pem(&issued.certificate, &key)
        .map_err(|error| ServiceError::internal("cannot use the new certificate", error))?;
    blocking(credentials, move |credentials| {
        credentials.save(&issued.certificate, &issued.ca)
    })
    .await?;
    Ok(identity)
}

/// Returns the identity on disk if it matches the required contents.
fn matching_identity(
    credentials: &Credentials,
    key: &PrivateKey,
    wanted: &RequiredIdentity<'_>,
) -> Option<Identity> {
    let text = std::fs::read_to_string(credentials.certificate_path()).ok()?;
    let identity = Identity::from_pem(&text, key).ok()?;
    let certificate = identity.certificate();
    let fits = certificate.name().ok().as_ref() == Some(wanted.name)
        && certificate.role == wanted.role
        && wanted
            .server_names
            .iter()
            .all(|name| serves(certificate, name));
    fits.then_some(identity)
}

async fn blocking<T: Send + 'static>(
    credentials: &Credentials,
    work: impl FnOnce(&Credentials) -> Result<T, CredentialsError> + Send + 'static,
) -> Result<T, ServiceError> {
    let credentials = credentials.clone();
    tokio::task::spawn_blocking(move || work(&credentials))
        .await
        .map_err(|error| ServiceError::internal("a file operation was interrupted", error))?
        .map_err(|error| ServiceError::internal("cannot use the server's own certificate", error))
}
