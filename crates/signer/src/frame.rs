//! Messages on a byte stream: a length of four bytes, then JSON.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest message: a list of several hundred thousand revoked certificates.
const LONGEST: usize = 64 << 20;

pub(crate) async fn write<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len())
        .ok()
        .filter(|_| text.len() <= LONGEST)
        .ok_or_else(|| invalid("the message is too long"))?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&text).await?;
    stream.flush().await
}

/// Reads the next message, or `None` at the end of the stream.
pub(crate) async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(invalid("the message is too long"));
    }
    // Grows with what arrives, so that a length alone costs no memory.
    let mut text = Vec::new();
    stream.take(length as u64).read_to_end(&mut text).await?;
    if text.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&text)?))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
