//! Who asks the signer.

use bunraku_wire::Fingerprint;

/// The server that asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its name, for the log.
    pub name: String,
    /// The fingerprint of its TLS certificate, if it asks from another machine.
    pub fingerprint: Option<Fingerprint>,
    /// The names that its certificates may have without an operator's proof. `None`: those of
    /// the policy.
    pub server_names: Option<Vec<String>>,
}

impl Caller {
    /// Returns the server on the same machine.
    pub fn local() -> Self {
        Self {
            name: "this machine".to_owned(),
            fingerprint: None,
            server_names: None,
        }
    }
}
