//! The encoding of messages between members: JSON with a length prefix.
//!
//! The traffic is a few hundred bytes per second between a handful of servers:
//! readable captures are worth more than a small size.

use bytes::{Buf, BufMut};
use foca::{Header, Member};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MemberIdentity;

/// The reason why bytes are not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error("the message is incomplete")]
    CutOff,
    #[error("the message is too large")]
    NoRoom,
    #[error("the message is not valid")]
    Form(#[from] serde_json::Error),
}

pub(super) struct JsonCodec;

fn encode(value: &impl Serialize, mut buffer: impl BufMut) -> Result<(), CodecError> {
    let text = serde_json::to_vec(value)?;
    let length = u16::try_from(text.len()).map_err(|_| CodecError::NoRoom)?;
    if buffer.remaining_mut() < text.len() + 2 {
        return Err(CodecError::NoRoom);
    }
    buffer.put_u16(length);
    buffer.put_slice(&text);
    Ok(())
}

fn decode<T: DeserializeOwned>(mut buffer: impl Buf) -> Result<T, CodecError> {
    let length = usize::from(buffer.try_get_u16().map_err(|_| CodecError::CutOff)?);
    if buffer.remaining() < length {
        return Err(CodecError::CutOff);
    }
    let text = buffer.copy_to_bytes(length);
    Ok(serde_json::from_slice(&text)?)
}

impl foca::Codec<MemberIdentity> for JsonCodec {
    type Error = CodecError;

    fn encode_header(
        &mut self,
        header: &Header<MemberIdentity>,
        buffer: impl BufMut,
    ) -> Result<(), CodecError> {
        encode(header, buffer)
    }

    fn decode_header(&mut self, buffer: impl Buf) -> Result<Header<MemberIdentity>, CodecError> {
        decode(buffer)
    }

    fn encode_member(
        &mut self,
        member: &Member<MemberIdentity>,
        buffer: impl BufMut,
    ) -> Result<(), CodecError> {
        encode(member, buffer)
    }

    fn decode_member(&mut self, buffer: impl Buf) -> Result<Member<MemberIdentity>, CodecError> {
        decode(buffer)
    }
}
