//! One life of one member.

use bunraku_model::NodeName;
use serde::{Deserialize, Serialize};

/// A member as the others gossip about it. The name stays; each start, and each
/// return from the dead, is a newer life.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberIdentity {
    pub name: NodeName,
    /// `HOST:PORT` on which it receives messages from members.
    pub address: String,
    /// Increases with every start. It comes from a clock that may jump. If the
    /// others know a newer life, the member adopts it.
    pub life: u64,
    /// The member says goodbye: it is down, but did not fail.
    pub leaving: bool,
}

impl foca::Identity for MemberIdentity {
    type Addr = NodeName;

    fn renew(&self) -> Option<Self> {
        // Another member may have claimed the last possible life in this one's name.
        let life = self.life.checked_add(1)?;
        Some(Self {
            life,
            ..self.clone()
        })
    }

    fn addr(&self) -> NodeName {
        self.name.clone()
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.life > adversary.life
    }
}
