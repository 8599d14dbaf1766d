//! The handle with which a server asks its signer.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_wire::api::cluster::AuthorityFiles;
use bunraku_wire::certificate::CertificateError;
use bunraku_wire::revocation::RevokedCertificate;
use bunraku_wire::{Authority, Certificate, Serial, SignedCertificate};
use jiff::Timestamp;

use crate::caller::Caller;
use crate::dial::{Dial, SignerStream};
use crate::frame;
use crate::message::{Answer, Ask, AuthorityDescription, PuppetLists, Refusal, SignAsk};
use crate::signer::Signer;

/// The longest time for one answer. A signer that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time of requests that sign nothing. A signer in another process uses its own clock anyway.
const NO_TIME: Timestamp = Timestamp::UNIX_EPOCH;

/// The reason why the signer did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    #[error("the signer ({address}) does not answer")]
    Away {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("the signer refused: {0}")]
    Refused(Refusal),
    #[error("the signer gave an answer that does not fit the request")]
    Unexpected,
    #[error("the signer returned an unusable certificate")]
    Certificate(#[source] CertificateError),
}

impl SignerError {
    /// Returns `true` if the signer could not be reached: the same request may succeed later.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. })
    }
}

/// The way to the signer. Cloning shares it.
#[derive(Clone)]
pub struct SignerHandle {
    way: Arc<Way>,
}

enum Way {
    InProcess(Arc<Signer>),
    Remote(Remote),
}

struct Remote {
    dial: Box<dyn Dial>,
    connection: tokio::sync::Mutex<Option<Box<dyn SignerStream>>>,
    /// The file with the last description, for a start without the signer.
    remembered: Option<PathBuf>,
    known: Mutex<Option<AuthorityDescription>>,
}

impl From<Arc<Authority>> for SignerHandle {
    /// A signer in this process, for tests and simulations.
    fn from(authority: Arc<Authority>) -> Self {
        Self {
            way: Arc::new(Way::InProcess(Arc::new(Signer::in_memory(authority)))),
        }
    }
}

impl SignerHandle {
    /// Creates the handle. Connects when the first request is sent.
    pub fn remote(dial: impl Dial + 'static, remembered: Option<PathBuf>) -> Self {
        Self {
            way: Arc::new(Way::Remote(Remote {
                dial: Box::new(dial),
                connection: tokio::sync::Mutex::new(None),
                remembered,
                known: Mutex::new(None),
            })),
        }
    }

    /// Returns the CA. While the signer is away, returns what it said last.
    pub async fn describe(&self) -> Result<AuthorityDescription, SignerError> {
        match self.describe_now().await {
            Err(error) if error.is_away() => self.remembered().ok_or(error),
            described => described,
        }
    }

    async fn describe_now(&self) -> Result<AuthorityDescription, SignerError> {
        match self.ask(Ask::Describe, NO_TIME).await? {
            Answer::Description(description) => Ok(description),
            _ => Err(SignerError::Unexpected),
        }
    }

    /// Signs a certificate. A signer in another process uses its own clock.
    pub async fn sign(
        &self,
        ask: SignAsk,
        now: Timestamp,
    ) -> Result<SignedCertificate, SignerError> {
        let Answer::Signed { certificate } = self.ask(Ask::Sign(Box::new(ask)), now).await? else {
            return Err(SignerError::Unexpected);
        };
        let signed = Certificate::from_pem(&certificate).map_err(SignerError::Certificate)?;
        Ok(SignedCertificate {
            name: signed.name().map_err(SignerError::Certificate)?,
            role: signed.role,
            groups: signed.groups,
            pem: certificate,
            serial: signed.serial,
            fingerprint: signed.fingerprint,
            not_before: signed.not_before,
            not_after: signed.not_after,
        })
    }

    /// Returns the signed lists of these certificates, one for each CA of the signer, in PEM.
    pub async fn revocation_lists(
        &self,
        revoked: Vec<RevokedCertificate>,
        number: u64,
        now: Timestamp,
    ) -> Result<String, SignerError> {
        match self
            .ask(Ask::RevocationLists { revoked, number }, now)
            .await?
        {
            Answer::Lists { pem } => Ok(pem),
            _ => Err(SignerError::Unexpected),
        }
    }

    /// Adds serials to the list of a Puppet CA. Does nothing for another CA.
    pub async fn revoke_in_puppet(
        &self,
        serials: Vec<Serial>,
        now: Timestamp,
    ) -> Result<(), SignerError> {
        self.ask(Ask::RevokeInPuppet { serials }, now)
            .await
            .map(drop)
    }

    /// Returns the lists of a Puppet CA, unless they still have this stamp.
    pub async fn puppet_lists(
        &self,
        unless: Option<String>,
    ) -> Result<Option<PuppetLists>, SignerError> {
        match self.ask(Ask::PuppetLists { unless }, NO_TIME).await? {
            Answer::PuppetLists { lists } => Ok(lists),
            _ => Err(SignerError::Unexpected),
        }
    }

    /// Returns the serials of all certificates that the signer knows to be revoked.
    pub async fn revoked(&self) -> Result<Vec<Serial>, SignerError> {
        match self.ask(Ask::Revoked, NO_TIME).await? {
            Answer::Revoked { serials } => Ok(serials),
            _ => Err(SignerError::Unexpected),
        }
    }

    /// Returns the CA with its key, for a server that joins the cluster.
    pub async fn export(&self) -> Result<AuthorityFiles, SignerError> {
        match self.ask(Ask::Export, NO_TIME).await? {
            Answer::Exported(files) => Ok(files),
            _ => Err(SignerError::Unexpected),
        }
    }

    /// Performs a step of a rotation: [`Ask::PrepareNext`], [`Ask::AdoptNext`],
    /// [`Ask::PromoteNext`] or [`Ask::DropNext`].
    pub async fn rotate(
        &self,
        step: Ask,
        now: Timestamp,
    ) -> Result<AuthorityDescription, SignerError> {
        match self.ask(step, now).await? {
            Answer::Description(description) => Ok(description),
            _ => Err(SignerError::Unexpected),
        }
    }

    async fn ask(&self, ask: Ask, now: Timestamp) -> Result<Answer, SignerError> {
        let answer = match &*self.way {
            // Nothing to sign, so nothing to wait for.
            Way::InProcess(signer) if matches!(ask, Ask::Describe) => {
                signer.answer(ask, &Caller::local(), now)
            }
            Way::InProcess(signer) => {
                let signer = Arc::clone(signer);
                tokio::task::spawn_blocking(move || signer.answer(ask, &Caller::local(), now))
                    .await
                    .map_err(|error| SignerError::Away {
                        address: "this process".to_owned(),
                        source: io::Error::other(error),
                    })?
            }
            Way::Remote(remote) => remote.ask(&ask).await.map_err(|source| SignerError::Away {
                address: remote.dial.address(),
                source,
            })?,
        };
        let answer = answer.map_err(SignerError::Refused)?;
        if let (Way::Remote(remote), Answer::Description(description)) = (&*self.way, &answer) {
            remote.remember(description);
        }
        Ok(answer)
    }

    fn remembered(&self) -> Option<AuthorityDescription> {
        match &*self.way {
            Way::InProcess(_) => None,
            Way::Remote(remote) => {
                let known = remote.lock().clone();
                known.or_else(|| {
                    let text = std::fs::read(remote.remembered.as_ref()?).ok()?;
                    serde_json::from_slice(&text).ok()
                })
            }
        }
    }
}

impl Remote {
    /// Asks on the open connection. If that one is broken, asks once more on a new one: signing
    /// twice is harmless, because only a certificate that the server records counts.
    async fn ask(&self, ask: &Ask) -> io::Result<Result<Answer, Refusal>> {
        let mut connection = self.connection.lock().await;
        if let Some(mut stream) = connection.take()
            && let Ok(answer) = exchange(&mut stream, ask).await
        {
            *connection = Some(stream);
            return Ok(answer);
        }
        let mut stream = self.dial.dial().await?;
        let answer = exchange(&mut stream, ask).await?;
        *connection = Some(stream);
        Ok(answer)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<AuthorityDescription>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, description: &AuthorityDescription) {
        // The encrypted key has no business in the server's directory.
        let public = AuthorityDescription {
            sealed_next: None,
            ..description.clone()
        };
        let mut known = self.lock();
        if known.as_ref() == Some(&public) {
            return;
        }
        if let Some(path) = &self.remembered {
            let text = serde_json::to_vec(&public).expect("texts are JSON");
            if let Err(error) = bunraku_files::replace(path, &text, 0o644) {
                tracing::warn!(error = %error, "cannot store the CA's certificates for a start without the signer");
            }
        }
        *known = Some(public);
    }
}

async fn exchange(
    stream: &mut Box<dyn SignerStream>,
    ask: &Ask,
) -> io::Result<Result<Answer, Refusal>> {
    let exchange = async {
        frame::write(stream, ask).await?;
        frame::read(stream)
            .await?
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    };
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

impl std::fmt::Debug for SignerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignerHandle")
    }
}
