//! The peer of a connection and the caller of a request.

use std::net::SocketAddr;
use std::sync::Arc;

use bunraku_control::OperatorIdentity;
use bunraku_cues::CueCaller;
use bunraku_model::{NodeName, Role};
use bunraku_wire::PeerIdentity;

/// Information about a connection. Every request on it carries this.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) address: SocketAddr,
    pub(crate) identity: Option<Arc<PeerIdentity>>,
}

/// The holder of a certificate that was valid when the request arrived.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) name: NodeName,
    pub(crate) role: Role,
    /// The certificate of the connection.
    pub(crate) certificate: Arc<PeerIdentity>,
}

impl Caller {
    /// The caller as access rules see it.
    pub(crate) fn operator(&self) -> OperatorIdentity {
        OperatorIdentity {
            name: self.name.clone(),
            groups: self.certificate.groups.clone(),
        }
    }

    /// The caller as services see it.
    pub(crate) fn for_cues(&self) -> CueCaller<'_> {
        CueCaller {
            name: &self.name,
            role: self.role,
            extensions: &self.certificate.extensions,
        }
    }
}
