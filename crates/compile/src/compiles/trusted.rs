//! Data from a node's certificate, for code that trusts nothing else.

use std::collections::BTreeMap;

use bunraku_model::NodeName;
use bunraku_wire::trusted_extensions::trusted_extensions;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::Compiles;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The part of a stored certificate that is read here.
#[derive(Deserialize)]
struct SignedCertificate {
    not_before: Timestamp,
    pem: String,
    revoked: Option<Value>,
}

impl Compiles {
    /// Returns the extensions of the node's newest certificate, or nothing if
    /// this server's authority did not sign one.
    pub(super) async fn certificate_extensions(
        &self,
        node: &NodeName,
    ) -> Result<BTreeMap<String, String>, ServiceError> {
        let prefix = keys::certificates_of(node);
        let mut newest: Option<SignedCertificate> = None;
        for entry in document::read_all(&*self.inner.store, &prefix).await? {
            let one: SignedCertificate = document::decode(&entry)?;
            let newer = |known: &SignedCertificate| known.not_before < one.not_before;
            if one.revoked.is_none() && newest.as_ref().is_none_or(newer) {
                newest = Some(one);
            }
        }
        let read = newest.map(|one| trusted_extensions(&one.pem));
        Ok(read.and_then(Result::ok).unwrap_or_default())
    }
}
