//! Who is a member, and who of them is alive.
//!
//! SWIM by the crate `foca`: random probes, indirect probes, suspicion,
//! incarnations, news piggybacked on messages. [`Swim`] drives it without a
//! clock, a socket or randomness of its own: those are arguments.
//!
//! Rule: time in which this member itself did not run is nobody's silence
//! (see [`health`]).

mod codec;
pub mod health;
mod identity;
mod swim;

pub use codec::CodecError;
pub use identity::MemberIdentity;
pub use swim::{MemberSight, Outgoing, Swim, SwimOptions, SwimState};
