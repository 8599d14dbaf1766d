//! Nodes that this process plays itself: it has their keys, and says what no agent would say.

use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_wire::api::{
    IssuedCertificate, JoinReply, JoinRequest, NewToken, RenewRequest, TokenRequest,
};
use bunraku_wire::endpoints::{CreateToken, Join, RenewCertificate};
use bunraku_wire::key::KeyKind;
use bunraku_wire::tls::{ClientTls, Identity};
use bunraku_wire::{
    Client, ClientError, ClientOptions, PrivateKey, ReloadableClientTls, Request, ServerAddress,
};

use crate::setup::SiteError;

/// A certificate with its key.
pub(crate) struct OwnNode {
    pub(crate) name: NodeName,
    certificate: String,
    key: PrivateKey,
    authority: String,
}

fn setup(error: impl std::fmt::Display) -> SiteError {
    SiteError::Setup(error.to_string())
}

fn new_key(name: &NodeName) -> Result<(PrivateKey, String), SiteError> {
    let key = PrivateKey::generate(KeyKind::EcdsaP256).map_err(setup)?;
    let request = Request::create(name, &key).map_err(setup)?;
    Ok((key, request))
}

impl OwnNode {
    /// Joins with a token that the operator creates.
    pub(crate) async fn join(operator: &Client, name: &str) -> Result<Self, SiteError> {
        let name = NodeName::new(name).expect("a name");
        let request = TokenRequest {
            ttl_seconds: 86_400,
            node: Some(name.clone()),
        };
        let token: NewToken = operator.call_with(CreateToken, &request).await?;
        let (key, certificate_request) = new_key(&name)?;
        let request = JoinRequest {
            certificate_request,
            token: Some(token.token),
            wait_seconds: 0,
        };
        match operator.call_with(Join, &request).await? {
            JoinReply::Signed { certificate, ca } => Ok(Self {
                name,
                certificate,
                key,
                authority: ca,
            }),
            JoinReply::Waiting { .. } => Err(setup(format!("the token of {name} is ignored"))),
        }
    }

    /// Returns a client of one server that presents this certificate.
    pub(crate) fn client(&self, server: &str) -> Result<Client, SiteError> {
        let identity = Identity::from_pem(&self.certificate, &self.key).map_err(setup)?;
        let tls = ClientTls {
            authority_pem: self.authority.clone(),
            revocation_lists_pem: String::new(),
            identity: Some(identity),
        };
        let tls = ReloadableClientTls::new(&tls).map_err(setup)?;
        let address: ServerAddress = server.parse().map_err(setup)?;
        let mut options = ClientOptions::new(vec![address], tls);
        options.connect_timeout = Duration::from_secs(1);
        options.request_timeout = Duration::from_secs(6);
        Ok(Client::new(options))
    }

    /// Returns true if servers renew this certificate already.
    pub(crate) fn can_be_renewed(&self) -> Result<bool, SiteError> {
        let own = bunraku_wire::Certificate::from_pem(&self.certificate).map_err(setup)?;
        let from = bunraku_wire::certificate::earliest_renewal(own.not_before, own.not_after);
        Ok(from < jiff::Timestamp::now())
    }

    /// Asks for another certificate, with a new key.
    pub(crate) async fn renew(
        &self,
        client: &Client,
    ) -> Result<Result<Self, ClientError>, SiteError> {
        let (key, certificate_request) = new_key(&self.name)?;
        let request = RenewRequest {
            certificate_request,
            proof: None,
        };
        let issued = client.call_with(RenewCertificate, &request).await;
        Ok(issued.map(|issued: IssuedCertificate| Self {
            name: self.name.clone(),
            certificate: issued.certificate,
            key,
            authority: issued.ca,
        }))
    }
}
