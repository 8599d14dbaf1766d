//! The only way from bytes of unknown origin to a module that may run.

use std::sync::Arc;

use crate::archive::{self, ArchiveError, File, Head, Signature};
use crate::{Fingerprint, Manifest, ManifestError, Trust};

/// Reasons to reject a package. Nothing in the package was run.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("it is not a module")]
    Archive(#[from] ArchiveError),
    #[error("it is not signed")]
    Unsigned,
    #[error("it is signed by {0}, which is not trusted here")]
    UnknownKey(String),
    #[error("it is signed by {0}, which was revoked")]
    RevokedKey(Fingerprint),
    #[error("the signature of {0} does not match: the module was changed after it was signed")]
    BadSignature(Fingerprint),
    #[error("its manifest is refused")]
    Manifest(#[from] ManifestError),
    #[error("`{0}` differs from what was signed")]
    Changed(String),
    #[error("`{0}` was signed but is missing")]
    Missing(String),
    #[error("`{0}` is not in the manifest")]
    Added(String),
    #[error("its hash is {found}, expected {expected}")]
    Pinned { expected: String, found: String },
}

/// A module whose origin and content were checked. Only [`verify`] creates one.
#[derive(Clone, Debug)]
pub struct VerifiedModule {
    manifest: Manifest,
    content: String,
    sha256: String,
    signed_by: Fingerprint,
    signer: String,
    /// Shared, because modules are passed around and may be large.
    files: Arc<[File]>,
}

/// Checks a package: its signature first, then every file.
pub fn verify(package: &[u8], trust: &Trust) -> Result<VerifiedModule, VerifyError> {
    let head = Head::of(package)?;
    let signed_by = accepted(&head.manifest, &head.signatures()?, trust)?;
    let manifest = Manifest::parse(&head.manifest)?;
    manifest.check_program()?;
    let files = archive::files(package)?;
    for file in &files {
        let entry = (manifest.files.get(&file.path))
            .ok_or_else(|| VerifyError::Added(file.path.clone()))?;
        if entry.sha256 != archive::sha256(&file.bytes) || entry.executable != file.executable {
            return Err(VerifyError::Changed(file.path.clone()));
        }
    }
    for path in manifest.files.keys() {
        // The reader returns the files sorted by path.
        if files.binary_search_by(|file| file.path.cmp(path)).is_err() {
            return Err(VerifyError::Missing(path.clone()));
        }
    }
    Ok(VerifiedModule {
        content: archive::sha256(&head.manifest),
        manifest,
        sha256: archive::sha256(package),
        signed_by,
        signer: (trust.key(&signed_by)).map_or_else(String::new, |key| key.comment.clone()),
        files: files.into(),
    })
}

/// One valid signature by a trusted key is enough. A signature by a revoked key rejects the
/// package, because the holder of that key could have made the other signatures look normal.
fn accepted(
    manifest: &[u8],
    signatures: &[Signature],
    trust: &Trust,
) -> Result<Fingerprint, VerifyError> {
    let known: Vec<Option<Fingerprint>> = (signatures.iter())
        .map(|one| one.key.parse().ok())
        .collect();
    if let Some(revoked) = known.iter().flatten().find(|key| trust.is_revoked(key)) {
        return Err(VerifyError::RevokedKey(*revoked));
    }
    let message = archive::message(manifest);
    let mut refused = VerifyError::Unsigned;
    for (signature, fingerprint) in signatures.iter().zip(known) {
        let key = fingerprint.and_then(|fingerprint| trust.key(&fingerprint));
        let Some((fingerprint, key)) = fingerprint.zip(key) else {
            let shown = signature.key.chars().take(64);
            let shown = shown.filter(char::is_ascii_alphanumeric).collect();
            refused = VerifyError::UnknownKey(shown);
            continue;
        };
        if key.accepts(&message, &signature.signature) {
            return Ok(fingerprint);
        }
        return Err(VerifyError::BadSignature(fingerprint));
    }
    Err(refused)
}

impl VerifiedModule {
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The hash of the whole package, which a catalog uses to pin it.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The hash of the signed content. Further signatures do not change it.
    pub fn content(&self) -> &str {
        &self.content
    }

    pub fn signed_by(&self) -> Fingerprint {
        self.signed_by
    }

    /// The owner's name in the file of the trusted key.
    pub fn signer(&self) -> &str {
        &self.signer
    }

    pub fn files(&self) -> &[File] {
        &self.files
    }

    /// Checks that this is exactly the package that a catalog pins.
    pub fn check_pin(&self, expected: &str) -> Result<(), VerifyError> {
        if self.sha256 == expected {
            return Ok(());
        }
        Err(VerifyError::Pinned {
            expected: expected.to_owned(),
            found: self.sha256.clone(),
        })
    }
}
