//! Who is on the other end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use bunraku_model::{NodeName, Role};
use bunraku_wire::PeerIdentity;
use http::request::Parts;

/// What is known of a connection; every request on it carries this.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) address: SocketAddr,
    pub(crate) identity: Option<Arc<PeerIdentity>>,
}

/// The holder of a certificate that was valid when the request came.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) name: NodeName,
    pub(crate) role: Role,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = super::reply::Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            super::reply::Refusal::unauthenticated("this needs a client certificate", "join first")
        })
    }
}

/// The address a request came from, for logs and lists.
pub(crate) struct From(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for From {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let address = parts
            .extensions
            .get::<ConnectionInfo>()
            .map(|connection| connection.address.ip().to_string());
        Ok(Self(address.unwrap_or_else(|| "unknown".to_owned())))
    }
}
