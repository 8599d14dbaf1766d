//! A certificate authority that lives as long as a test.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::etcd::EtcdIdentity;

/// Signs certificates for members and clients on loopback.
pub struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl TestAuthority {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().expect("a key can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority signs itself");
        Self { issuer }
    }

    pub fn ca_pem(&self) -> String {
        self.issuer.pem()
    }

    /// Creates an identity for both sides of a connection: members talk to each other as clients.
    pub fn identity(&self, name: &str) -> EtcdIdentity {
        let addresses = ["127.0.0.1", "localhost"].map(str::to_owned);
        let mut params =
            CertificateParams::new(addresses.to_vec()).expect("loopback names are valid");
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("the authority signs");
        EtcdIdentity {
            cert_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}
