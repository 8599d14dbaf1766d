//! Who is on the other end.

use std::net::SocketAddr;
use std::sync::Arc;

use bunraku_model::{NodeName, Role};
use bunraku_wire::PeerIdentity;

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
