//! Membership: the members, and which of them are alive.
//!
//! SWIM, implemented by the crate `foca`: random probes, indirect probes,
//! suspicion, incarnations, and updates piggybacked on messages. [`Swim`] drives it
//! without its own clock, socket or randomness: those are arguments.
//!
//! Rule: time in which this member itself did not run does not count as silence of
//! another member (see [`health`]).

mod codec;
pub mod health;
mod identity;
mod swim;

pub use codec::CodecError;
pub use identity::MemberIdentity;
pub use swim::{OutgoingMessage, PeerView, Swim, SwimOptions, SwimState};
