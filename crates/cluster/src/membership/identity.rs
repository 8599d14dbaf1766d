//! One life of one member.

use bunraku_model::NodeName;
use serde::{Deserialize, Serialize};

/// A member as the others gossip about it. The name stays; each start, and
/// each return from the dead, is a newer life.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberIdentity {
    pub name: NodeName,
    /// `HOST:PORT` where it takes messages of members.
    pub address: String,
    /// Grows with every start; from a clock that may jump, so the others'
    /// newer knowledge of it is taken over when it is ahead.
    pub life: u64,
    /// It says goodbye: down, but not by failure.
    pub leaving: bool,
}

impl foca::Identity for MemberIdentity {
    type Addr = NodeName;

    fn renew(&self) -> Option<Self> {
        Some(Self {
            life: self.life + 1,
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
