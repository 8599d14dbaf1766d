//! The proof that an operator asked for a certificate.
//!
//! The signer does not believe a server that says "an operator wants this". It asks for a
//! signature by the operator's own key over the request, the role and the names. A proof is
//! bound to one request, so somebody who records it can only have the same certificate signed
//! again, for a key that they do not hold.

use bunraku_model::Role;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::certificate::{Certificate, CertificateError};
use crate::key::{KeyError, PrivateKey};

/// The longest difference between the clocks of an operator and a signer.
const CLOCKS: SignedDuration = SignedDuration::from_mins(15);

/// An operator's signature over a request for a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OperatorProof {
    /// The operator's certificate, PEM.
    pub certificate: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Hexadecimal.
    pub signature: String,
}

/// The reason why a proof is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    #[error("the operator's certificate cannot be read")]
    Certificate(#[from] CertificateError),
    #[error("`{0}` is not an operator")]
    Role(String),
    #[error("the operator's certificate is not valid at this time")]
    Expired,
    #[error("the operator's certificate was not signed by this CA")]
    Issuer,
    #[error("the signature does not belong to this request")]
    Signature,
    #[error("the proof was created at {0}; check the clocks of both machines")]
    Time(Timestamp),
}

impl OperatorProof {
    /// Signs a request with an operator's key.
    pub fn create(
        operator: &Certificate,
        key: &PrivateKey,
        certificate_request: &str,
        role: Role,
        server_names: &[String],
        at: Timestamp,
    ) -> Result<Self, KeyError> {
        let text = signed_text(certificate_request, role, server_names, at);
        Ok(Self {
            certificate: operator.to_pem(),
            at,
            signature: hex::encode(key.sign(&text)?),
        })
    }

    /// Checks the proof against the CAs that may have signed the operator's certificate, and
    /// returns that certificate. Whether it is revoked is for the caller to check.
    pub fn check(
        &self,
        authorities: &[&Certificate],
        certificate_request: &str,
        role: Role,
        server_names: &[String],
        now: Timestamp,
    ) -> Result<Certificate, ProofError> {
        let operator = Certificate::from_pem(&self.certificate)?;
        if operator.role != Role::Operator || operator.is_authority {
            return Err(ProofError::Role(operator.common_name));
        }
        if now < operator.not_before || now > operator.not_after {
            return Err(ProofError::Expired);
        }
        if !authorities
            .iter()
            .any(|authority| operator.is_signed_by(authority))
        {
            return Err(ProofError::Issuer);
        }
        if now.duration_since(self.at).abs() > CLOCKS {
            return Err(ProofError::Time(self.at));
        }
        let text = signed_text(certificate_request, role, server_names, self.at);
        let signature = hex::decode(&self.signature).map_err(|_| ProofError::Signature)?;
        if operator.verifies(&text, &signature) {
            Ok(operator)
        } else {
            Err(ProofError::Signature)
        }
    }
}

/// Returns the text that an operator signs. No part can be mistaken for another, because it is
/// JSON.
fn signed_text(
    certificate_request: &str,
    role: Role,
    server_names: &[String],
    at: Timestamp,
) -> Vec<u8> {
    let role = role.to_string();
    let parts = (
        "bunraku operator proof 1",
        certificate_request.trim(),
        role,
        server_names,
        at,
    );
    serde_json::to_vec(&parts).expect("plain data that JSON can hold")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;
    use crate::key::KeyKind;
    use crate::request::{Grant, Request};
    use bunraku_model::NodeName;

    fn signed(authority: &Authority, role: Role, key: &PrivateKey) -> Certificate {
        let name = NodeName::new("alice").unwrap();
        let request = Request::from_pem(&Request::create(&name, key).unwrap()).unwrap();
        let grant = Grant {
            name,
            role,
            lifetime: SignedDuration::from_hours(1),
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            serial: None,
        };
        let signed = authority.sign(&request, &grant, Timestamp::now()).unwrap();
        Certificate::from_pem(&signed.pem).unwrap()
    }

    #[test]
    fn a_proof_counts_for_one_request_of_one_operator_of_this_authority() {
        let now = Timestamp::now();
        let authority = Authority::create("ours", now).unwrap();
        let other = Authority::create("other", now).unwrap();
        for kind in [KeyKind::EcdsaP256, KeyKind::Rsa2048] {
            let key = PrivateKey::generate(kind).unwrap();
            let alice = signed(&authority, Role::Operator, &key);
            let proof =
                OperatorProof::create(&alice, &key, "request", Role::Operator, &[], now).unwrap();
            let trusted = [authority.certificate()];
            let check = |proof: &OperatorProof, request: &str, role, names: &[String], at| {
                proof
                    .check(&trusted, request, role, names, at)
                    .map_err(|error| error.to_string())
            };
            assert!(check(&proof, "request", Role::Operator, &[], now).is_ok());
            assert!(check(&proof, "another", Role::Operator, &[], now).is_err());
            assert!(check(&proof, "request", Role::Server, &[], now).is_err());
            assert!(check(&proof, "request", Role::Operator, &["a".to_owned()], now).is_err());
            let later = now + SignedDuration::from_mins(30);
            assert!(check(&proof, "request", Role::Operator, &[], later).is_err());
            assert!(
                proof
                    .check(&[other.certificate()], "request", Role::Operator, &[], now)
                    .is_err()
            );
            let node = signed(&authority, Role::Node, &key);
            let forged =
                OperatorProof::create(&node, &key, "request", Role::Operator, &[], now).unwrap();
            assert!(check(&forged, "request", Role::Operator, &[], now).is_err());
            let stranger = PrivateKey::generate(kind).unwrap();
            let stolen =
                OperatorProof::create(&alice, &stranger, "request", Role::Operator, &[], now)
                    .unwrap();
            assert!(check(&stolen, "request", Role::Operator, &[], now).is_err());
        }
    }
}
