//! The proof that an operator asked for a certificate.
//!
//! The signer does not believe a server that says "an operator wants this". It asks for a
//! signature by the operator's own key over the request, the role and the names. A proof is
//! bound to one request, so somebody who records it can only have the same certificate signed
//! again, for a key that they do not hold.

use std::collections::BTreeSet;

use bunraku_model::Role;
use bunraku_model::access::GroupName;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::certificate::{Certificate, CertificateError};
use crate::key::{KeyError, PrivateKey};

/// The longest difference between the clocks of an operator and a signer.
const CLOCKS: SignedDuration = SignedDuration::from_mins(15);

/// The contents of a certificate that an operator requests. The proof covers all of them.
#[derive(Clone, Copy, Debug)]
pub struct RequestedCertificate<'a> {
    /// PKCS#10, PEM.
    pub certificate_request: &'a str,
    pub role: Role,
    pub server_names: &'a [String],
    pub groups: &'a BTreeSet<GroupName>,
}

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
        requested: &RequestedCertificate<'_>,
        at: Timestamp,
    ) -> Result<Self, KeyError> {
        let text = signed_text(requested, at);
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
        requested: &RequestedCertificate<'_>,
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
        let text = signed_text(requested, self.at);
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
fn signed_text(requested: &RequestedCertificate<'_>, at: Timestamp) -> Vec<u8> {
    let request = requested.certificate_request.trim();
    let (role, names) = (requested.role.to_string(), requested.server_names);
    let text = if requested.groups.is_empty() {
        // The text before there were groups.
        serde_json::to_vec(&("bunraku operator proof 1", request, role, names, at))
    } else {
        let groups = requested.groups;
        serde_json::to_vec(&("bunraku operator proof 2", request, role, names, groups, at))
    };
    text.expect("plain data that JSON can hold")
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
            groups: BTreeSet::new(),
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
            let none = BTreeSet::new();
            let wanted = RequestedCertificate {
                certificate_request: "request",
                role: Role::Operator,
                server_names: &[],
                groups: &none,
            };
            let proof = OperatorProof::create(&alice, &key, &wanted, now).unwrap();
            let trusted = [authority.certificate()];
            let check = |proof: &OperatorProof, wanted: RequestedCertificate<'_>, at| {
                proof
                    .check(&trusted, &wanted, at)
                    .map_err(|error| error.to_string())
            };
            assert!(check(&proof, wanted, now).is_ok());
            let (names, groups) = (["a".to_owned()], BTreeSet::from(["ops".parse().unwrap()]));
            for other in [
                RequestedCertificate {
                    certificate_request: "another",
                    ..wanted
                },
                RequestedCertificate {
                    role: Role::Server,
                    ..wanted
                },
                RequestedCertificate {
                    server_names: &names,
                    ..wanted
                },
                RequestedCertificate {
                    groups: &groups,
                    ..wanted
                },
            ] {
                assert!(check(&proof, other, now).is_err(), "{other:?}");
                // And the other way around.
                let proof = OperatorProof::create(&alice, &key, &other, now).unwrap();
                assert!(check(&proof, other, now).is_ok(), "{other:?}");
                assert!(check(&proof, wanted, now).is_err(), "{other:?}");
            }
            let later = now + SignedDuration::from_mins(30);
            assert!(check(&proof, wanted, later).is_err());
            assert!(proof.check(&[other.certificate()], &wanted, now).is_err());
            let node = signed(&authority, Role::Node, &key);
            let forged = OperatorProof::create(&node, &key, &wanted, now).unwrap();
            assert!(check(&forged, wanted, now).is_err());
            let stranger = PrivateKey::generate(kind).unwrap();
            let stolen = OperatorProof::create(&alice, &stranger, &wanted, now).unwrap();
            assert!(check(&stolen, wanted, now).is_err());
        }
    }
}
