//! The certificate that a member presents to other members and datastores.
//!
//! It comes from the members' own authority, not from the one that signs nodes: a
//! node's certificate gives no access to a datastore, whatever its role says. Each
//! member signs its own certificate, so that renewal works while the store is down.

use std::net::IpAddr;

use bunraku_model::{NodeName, Role};
use bunraku_store::etcd::{EtcdIdentity, EtcdTls};
use bunraku_wire::credentials::serves;
use bunraku_wire::tls::{ClientTls, Identity, ServerTls};
use bunraku_wire::{Authority, Credentials, Grant, Request};
use jiff::{SignedDuration, Timestamp};

use crate::directory::{Directory, DirectoryError};

/// The certificate's lifetime. It is renewed after two thirds.
pub(crate) const LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 30);

/// The reason why a member has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot use the members' CA")]
    Directory(#[from] DirectoryError),
    #[error("cannot use the member's credentials")]
    Credentials(#[from] bunraku_wire::credentials::CredentialsError),
    #[error("cannot create a certificate request")]
    Request(#[from] bunraku_wire::request::RequestError),
    #[error("cannot sign the member's certificate")]
    Sign(#[from] bunraku_wire::authority::SignError),
    #[error("the new certificate is missing")]
    Missing,
}

/// A member's certificate, with the authority that the member trusts.
#[derive(Clone)]
pub struct MemberTls {
    identity: Identity,
    authority_pem: String,
    etcd: EtcdTls,
    /// The certificate was just created.
    pub renewed: bool,
}

impl MemberTls {
    /// Returns the certificate on disk, or a new one if that one expires soon.
    pub fn ensure(
        directory: &Directory,
        name: &NodeName,
        host: &str,
        now: Timestamp,
    ) -> Result<Self, IdentityError> {
        Self::ensure_for(directory, name, host, LIFETIME, now)
    }

    /// Like `ensure`, with the lifetime of a new certificate.
    pub fn ensure_for(
        directory: &Directory,
        name: &NodeName,
        host: &str,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<Self, IdentityError> {
        let credentials = directory.credentials();
        credentials.load_or_create_key()?;
        let fits = |identity: &Identity| {
            let certificate = identity.certificate();
            !certificate.needs_renewal(now, 0.0) && serves(certificate, host)
        };
        // An unreadable certificate is treated as missing.
        let known = credentials.identity().ok().flatten().filter(fits);
        let renewed = known.is_none();
        if renewed {
            let authority = directory.authority()?;
            sign(&authority, &credentials, name, host, lifetime, now)?;
        }
        let identity = credentials.identity()?.ok_or(IdentityError::Missing)?;
        let authority_pem = credentials.authority_pem()?.ok_or(IdentityError::Missing)?;
        let read = |path| std::fs::read_to_string(path).map_err(|_| IdentityError::Missing);
        let etcd = EtcdTls {
            ca_pem: authority_pem.clone(),
            identity: Some(EtcdIdentity {
                cert_pem: read(credentials.certificate_path())?,
                key_pem: read(credentials.key_path())?,
            }),
        };
        Ok(Self {
            identity,
            authority_pem,
            etcd,
            renewed,
        })
    }

    pub fn server(&self) -> ServerTls {
        ServerTls {
            identity: self.identity.clone(),
            authority_pem: self.authority_pem.clone(),
            revocation_lists_pem: String::new(),
        }
    }

    pub fn client(&self) -> ClientTls {
        ClientTls {
            identity: Some(self.identity.clone()),
            authority_pem: self.authority_pem.clone(),
            revocation_lists_pem: String::new(),
        }
    }

    pub fn etcd(&self) -> &EtcdTls {
        &self.etcd
    }
}

fn sign(
    authority: &Authority,
    credentials: &Credentials,
    name: &NodeName,
    host: &str,
    lifetime: SignedDuration,
    now: Timestamp,
) -> Result<(), IdentityError> {
    let key = credentials.load_or_create_key()?;
    let request = Request::from_pem(&Request::create(name, &key)?)?;
    let address: Option<IpAddr> = host.parse().ok();
    let mut dns_names = vec![name.to_string(), "localhost".to_owned()];
    if address.is_none() {
        dns_names.push(host.to_owned());
    }
    // Its own datastore is also reached through loopback.
    let mut ip_addresses = vec![IpAddr::from([127, 0, 0, 1])];
    ip_addresses.extend(address);
    ip_addresses.dedup();
    let grant = Grant {
        name: name.clone(),
        role: Role::Server,
        groups: std::collections::BTreeSet::new(),
        lifetime,
        dns_names,
        ip_addresses,
        serial: None,
    };
    let signed = authority.sign(&request, &grant, now)?;
    credentials.save(&signed.pem, &authority.certificates_pem())?;
    Ok(())
}
