//! What servers ask the signer, and what it answers.

use std::collections::BTreeSet;

use bunraku_model::Role;
use bunraku_model::access::GroupName;
use bunraku_wire::OperatorProof;
use bunraku_wire::Serial;
use bunraku_wire::api::cluster::AuthorityFiles;
use bunraku_wire::revocation::RevokedCertificate;
use serde::{Deserialize, Serialize};

/// A request to the signer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// Which CA is this?
    Describe,
    Sign(Box<SignAsk>),
    /// Sign the list of all revoked certificates, for each CA that this signer holds.
    RevocationLists {
        revoked: Vec<RevokedCertificate>,
        number: u64,
    },
    /// Add serials to the list of a Puppet CA.
    RevokeInPuppet {
        serials: Vec<Serial>,
    },
    /// Return the lists of a Puppet CA, unless they are still those with this stamp.
    PuppetLists {
        unless: Option<String>,
    },
    /// Return the serials of all certificates that the signer knows to be revoked.
    Revoked,
    /// Return the CA with its key, for a server that joins the cluster.
    Export,
    /// Create the CA that will replace the current one.
    PrepareNext,
    /// Take over the next CA that another signer with the same current CA created.
    AdoptNext {
        sealed: String,
    },
    /// Make the next CA the current one. The former key is deleted.
    PromoteNext {
        fingerprint: String,
    },
    /// Delete the next CA.
    DropNext,
}

/// A certificate to sign.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignAsk {
    /// PKCS#10, PEM.
    pub certificate_request: String,
    pub role: Role,
    pub lifetime_seconds: i64,
    /// Names and addresses to serve under.
    pub server_names: Vec<String>,
    /// The groups of an operator.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<GroupName>,
    pub proof: Option<OperatorProof>,
    pub issuer: IssuerChoice,
}

/// The CA that signs, while there are two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssuerChoice {
    Current,
    Next,
}

/// The public part of the signer's CA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuthorityDescription {
    /// PEM; the signing certificate first.
    pub certificates: String,
    /// The certificates of the CA that will replace the current one, PEM.
    #[serde(default)]
    pub next: Option<String>,
    /// The next CA with its key, encrypted for holders of the current CA's key.
    #[serde(default)]
    pub sealed_next: Option<String>,
    /// The CA is in a Puppet directory.
    pub is_puppet: bool,
}

/// The revocation lists of a Puppet CA.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PuppetLists {
    pub pem: String,
    pub revoked: Vec<RevokedCertificate>,
    /// Identifies this version of the lists.
    pub stamp: String,
}

/// The signer's answer.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Description(AuthorityDescription),
    /// The signed certificate, PEM.
    Signed {
        certificate: String,
    },
    Lists {
        pem: String,
    },
    PuppetLists {
        lists: Option<PuppetLists>,
    },
    Revoked {
        serials: Vec<Serial>,
    },
    Exported(AuthorityFiles),
    Done,
}

/// The signer says no.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub kind: RefusalKind,
    pub message: String,
    #[serde(default)]
    pub hint: Option<String>,
}

/// Who has to act.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The request is invalid.
    Invalid,
    /// The signer's policy does not allow it.
    Forbidden,
    /// Too many signatures; later.
    Busy,
    /// The signer itself has a problem.
    Failed,
}

impl Refusal {
    pub(crate) fn forbidden(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: RefusalKind::Forbidden,
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self {
            kind: RefusalKind::Invalid,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn failed(what: &str, error: &dyn std::error::Error) -> Self {
        let mut message = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Self {
            kind: RefusalKind::Failed,
            message,
            hint: Some("see the log of the signer".to_owned()),
        }
    }
}
