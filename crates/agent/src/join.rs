//! Joining: how a node gets its first certificate.
//!
//! The key is generated on the node and never leaves it. At its first contact, the node trusts the
//! authority's fingerprint, which it received together with the token or from its administrator.

use bunraku_model::ContentId;
use bunraku_wire::api::{JoinReply, JoinRequest};
use bunraku_wire::client::BackOff;
use bunraku_wire::credentials::CredentialsError;
use bunraku_wire::endpoints::Join;
use bunraku_wire::request::RequestError;
use bunraku_wire::tls::{ClientTls, Identity, TlsError, client_config_pinned};
use bunraku_wire::{Client, ClientError, ClientOptions, Credentials, ReloadableClientTls, Request};
use jiff::Timestamp;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::{AgentOptions, Shared};

/// The time for which a server may delay its answer while an operator decides.
const WAIT_SECONDS: u64 = 20;

/// The time limit for joining again with a new token.
const AGAIN: Duration = Duration::from_secs(20);

/// The reason why a node has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error("cannot use the node's credentials")]
    Credentials(#[from] CredentialsError),
    #[error("joining needs the CA fingerprint (`--ca-fingerprint SHA256:…`)")]
    NoFingerprint,
    #[error("cannot set up TLS")]
    Tls(#[from] TlsError),
    #[error("cannot create a certificate request")]
    Request(#[from] RequestError),
    #[error("the server refused the request")]
    Refused(#[source] ClientError),
    #[error("the server returned a certificate for `{got}`, but this node is `{wanted}`")]
    WrongName { got: String, wanted: String },
    #[error("cannot use the certificate from the server")]
    Unusable(#[source] bunraku_wire::tls::IdentityError),
}

/// Returns the node's TLS: from disk if its certificate is valid, otherwise by joining. Returns
/// nothing if it is cancelled before that.
///
/// A token that the node has not used yet makes it join again, even with a valid certificate: the
/// servers may no longer know that certificate, or the CA may be another one.
pub(crate) async fn ensure_identity(
    options: &AgentOptions,
    credentials: &Credentials,
    shutdown: &CancellationToken,
) -> Result<Option<ReloadableClientTls>, JoinError> {
    let key = credentials.load_or_create_key()?;
    let request = Request::create(&options.name, &key)?;
    let known = usable(options, credentials)?;
    let used = UsedToken::of(credentials);
    let signed = match known {
        Some(identity) => {
            let again = used.is_other(options.token.as_deref());
            let signed = if again {
                join_again(options, credentials, &request).await?
            } else {
                None
            };
            match signed {
                Some(signed) => signed,
                None => return Ok(Some(client_tls(credentials, identity)?)),
            }
        }
        None => {
            let client = first_contact(options, credentials)?;
            tokio::select! {
                signed = ask_until_signed(options, &client, &request) => signed?,
                () = shutdown.cancelled() => return Ok(None),
            }
        }
    };
    let identity = Identity::from_pem(&signed.certificate, &key).map_err(JoinError::Unusable)?;
    check_name(options, &identity)?;
    credentials.save(&signed.certificate, &signed.authority)?;
    used.remember(options.token.as_deref());
    tracing::info!(node = %options.name, serial = %identity.certificate().serial, "the node has joined");
    Ok(Some(client_tls(credentials, identity)?))
}

/// Creates TLS with the node's identity, and what the node knows about CAs and revocations.
fn client_tls(
    credentials: &Credentials,
    identity: Identity,
) -> Result<ReloadableClientTls, JoinError> {
    let tls = bunraku_wire::trust::client_tls(credentials, Some(identity))?;
    Ok(ReloadableClientTls::new(&tls)?)
}

/// Makes new connections use what is on disk.
pub(crate) fn use_stored(shared: &Shared) -> Result<(), JoinError> {
    let identity = shared.credentials.identity()?;
    let tls = bunraku_wire::trust::client_tls(&shared.credentials, identity)?;
    shared.tls.reload(&tls)?;
    Ok(())
}

/// Returns a certificate that has not expired and belongs to this node. A certificate with another
/// name is an error: the data directory belongs to another node.
fn usable(
    options: &AgentOptions,
    credentials: &Credentials,
) -> Result<Option<Identity>, JoinError> {
    let Some(identity) = credentials.identity()? else {
        return Ok(None);
    };
    check_name(options, &identity)?;
    Ok((!identity.certificate().is_expired(Timestamp::now())).then_some(identity))
}

fn check_name(options: &AgentOptions, identity: &Identity) -> Result<(), JoinError> {
    let got = identity.certificate().common_name.clone();
    if got == options.name.as_str() {
        return Ok(());
    }
    Err(JoinError::WrongName {
        got,
        wanted: options.name.to_string(),
    })
}

/// Creates a client without a certificate. It trusts the pinned fingerprint, or the authority on
/// disk.
fn first_contact(options: &AgentOptions, credentials: &Credentials) -> Result<Client, JoinError> {
    let tls = match (&options.ca_fingerprint, credentials.authority_pem()?) {
        (Some(fingerprint), _) => {
            ReloadableClientTls::from_config(client_config_pinned(*fingerprint)?.0)
        }
        (None, Some(authority_pem)) => ReloadableClientTls::new(&ClientTls {
            authority_pem,
            revocation_lists_pem: String::new(),
            identity: None,
        })?,
        (None, None) => return Err(JoinError::NoFingerprint),
    };
    Ok(Client::new(ClientOptions::new(
        options.servers.clone(),
        tls,
    )))
}

/// Tries a new token once. Returns nothing if that does not work: then the node continues with the
/// certificate that it has.
async fn join_again(
    options: &AgentOptions,
    credentials: &Credentials,
    request: &str,
) -> Result<Option<SignedCertificate>, JoinError> {
    let client = first_contact(options, credentials)?;
    let join = JoinRequest {
        certificate_request: request.to_owned(),
        token: options.token.clone(),
        wait_seconds: 0,
    };
    match tokio::time::timeout(AGAIN, client.call_with(Join, &join)).await {
        Ok(Ok(JoinReply::Signed { certificate, ca })) => Ok(Some(SignedCertificate {
            certificate,
            authority: ca,
        })),
        Ok(Ok(JoinReply::Waiting { .. })) | Err(_) => Ok(None),
        Ok(Err(error)) => {
            if !error.is_passing() {
                UsedToken::of(credentials).remember(options.token.as_deref());
            }
            tracing::warn!(error = %error, "cannot join with the new token; continuing with the present certificate");
            Ok(None)
        }
    }
}

/// The token that this node used last, as a hash in a file beside its certificate.
struct UsedToken {
    path: std::path::PathBuf,
}

impl UsedToken {
    fn of(credentials: &Credentials) -> Self {
        Self {
            path: credentials.directory().join("used-token"),
        }
    }

    /// Returns `true` if there is a token, and it is not the one that was used.
    fn is_other(&self, token: Option<&str>) -> bool {
        let known = std::fs::read_to_string(&self.path).ok();
        token.is_some_and(|token| known.as_deref().map(str::trim) != Some(hash(token).as_str()))
    }

    fn remember(&self, token: Option<&str>) {
        let Some(token) = token else {
            return;
        };
        if let Err(error) = bunraku_files::replace(&self.path, hash(token).as_bytes(), 0o600) {
            tracing::warn!(error = %error, "cannot note which token was used");
        }
    }
}

fn hash(token: &str) -> String {
    ContentId::of(token.trim().as_bytes()).to_string()
}

struct SignedCertificate {
    certificate: String,
    authority: String,
}

async fn ask_until_signed(
    options: &AgentOptions,
    client: &Client,
    request: &str,
) -> Result<SignedCertificate, JoinError> {
    let join = JoinRequest {
        certificate_request: request.to_owned(),
        token: options.token.clone(),
        wait_seconds: WAIT_SECONDS,
    };
    if options.token.is_none() {
        log_what_to_sign(options, request)?;
    }
    let back_off = BackOff::default();
    let mut failures = 0;
    loop {
        match client.call_with(Join, &join).await {
            Ok(JoinReply::Signed { certificate, ca }) => {
                return Ok(SignedCertificate {
                    certificate,
                    authority: ca,
                });
            }
            Ok(JoinReply::Waiting { .. }) => failures = 0,
            Err(error) if error.is_passing() => {
                tracing::warn!(error = %error, "no server accepted the request yet; retrying");
                tokio::time::sleep(back_off.random_wait(failures)).await;
                failures += 1;
            }
            Err(error) => return Err(JoinError::Refused(error)),
        }
    }
}

/// Logs the request's fingerprint before asking the server, so that people can compare it during
/// the wait.
fn log_what_to_sign(options: &AgentOptions, request: &str) -> Result<(), JoinError> {
    let fingerprint = Request::from_pem(request)?.fingerprint();
    let sign = format!(
        "bunraku cert sign {} --fingerprint {fingerprint}",
        options.name
    );
    tracing::info!(%fingerprint, "waiting for an operator to sign the request: `{sign}`");
    Ok(())
}
