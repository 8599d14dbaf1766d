//! TLS clients, with the one crypto provider.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// A client certificate with its key, as PEM.
pub(crate) struct ClientIdentity<'a> {
    pub(crate) cert_pem: &'a str,
    pub(crate) key_pem: &'a str,
}

/// Returns a TLS client configuration for one protocol. It trusts the given CAs and no others.
pub(crate) fn client_config(
    ca_pem: &str,
    identity: Option<ClientIdentity<'_>>,
    protocol: &[u8],
) -> Result<ClientConfig, Source> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes())
                .collect::<Result<Vec<_>, _>>()?;
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
            builder.with_client_auth_cert(chain, key)?
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}
