//! The settings of `bunraku signer`.

use std::path::PathBuf;

use bunraku_signer::{LimitPerRole, SigningPolicy};
use serde::Deserialize;

use super::AuthorityKind;
use crate::duration::HumanDuration;

/// A signer that runs on its own, for servers on this machine or others.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SignerSection {
    pub(crate) kind: AuthorityKind,
    /// The directory of the CA.
    pub(crate) directory: PathBuf,
    /// The directory of the log; the directory of the CA by default.
    pub(crate) state: Option<PathBuf>,
    /// `unix:/PATH`, or `ADDRESS:PORT` for servers on other machines.
    pub(crate) listen: String,
    /// The servers on other machines.
    pub(crate) servers: Vec<SignerServerSection>,
    pub(crate) longest_lifetime: LifetimesSection,
    pub(crate) most_per_hour: RatesSection,
    /// Operators that need no operator's proof. Each name belongs to its first key.
    pub(crate) operators_without_proof: Vec<String>,
    /// Names of servers on this machine.
    pub(crate) server_names: Vec<String>,
}

/// A server that may ask from another machine.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignerServerSection {
    /// Its name in the log.
    pub(crate) name: String,
    /// The fingerprint of the certificate with which it asks.
    pub(crate) fingerprint: String,
    /// Names and addresses that its certificate may have; `*.example.com` allows all below.
    pub(crate) server_names: Vec<String>,
}

/// The longest lifetimes of certificates.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LifetimesSection {
    pub(crate) node: HumanDuration,
    pub(crate) operator: HumanDuration,
    pub(crate) server: HumanDuration,
}

impl Default for LifetimesSection {
    fn default() -> Self {
        let usual = SigningPolicy::default().longest_lifetime;
        let time = |seconds: i64| HumanDuration::from_secs(seconds.unsigned_abs());
        Self {
            node: time(usual.node),
            operator: time(usual.operator),
            server: time(usual.server),
        }
    }
}

/// The most certificates per hour.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RatesSection {
    pub(crate) node: u32,
    pub(crate) operator: u32,
    pub(crate) server: u32,
}

impl Default for RatesSection {
    fn default() -> Self {
        let usual = SigningPolicy::default().most_per_hour;
        let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            node: count(usual.node),
            operator: count(usual.operator),
            server: count(usual.server),
        }
    }
}

impl Default for SignerSection {
    fn default() -> Self {
        Self {
            kind: AuthorityKind::Own,
            directory: PathBuf::from("/var/lib/bunraku/signer"),
            state: None,
            listen: "unix:/run/bunraku/signer.sock".to_owned(),
            servers: Vec::new(),
            longest_lifetime: LifetimesSection::default(),
            most_per_hour: RatesSection::default(),
            operators_without_proof: Vec::new(),
            server_names: Vec::new(),
        }
    }
}

impl SignerSection {
    pub(crate) fn policy(&self) -> SigningPolicy {
        let seconds = |time: &HumanDuration| time.signed().as_secs();
        SigningPolicy {
            longest_lifetime: LimitPerRole {
                node: seconds(&self.longest_lifetime.node),
                operator: seconds(&self.longest_lifetime.operator),
                server: seconds(&self.longest_lifetime.server),
            },
            most_per_hour: self.rates(),
            operators_without_proof: self.operators_without_proof.clone(),
            server_names: self.server_names.clone(),
            shares_key: false,
        }
    }

    pub(crate) fn rates(&self) -> LimitPerRole {
        LimitPerRole {
            node: self.most_per_hour.node.into(),
            operator: self.most_per_hour.operator.into(),
            server: self.most_per_hour.server.into(),
        }
    }
}
