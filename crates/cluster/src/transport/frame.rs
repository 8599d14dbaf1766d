//! Frames: a length, then bytes.

use std::io;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Larger than any message. A connection that announces more is not read further.
const LARGEST: usize = 1 << 20;

pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len())
        .ok()
        .filter(|length| *length as usize <= LARGEST)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
    let mut whole = BytesMut::with_capacity(data.len() + 4);
    whole.extend_from_slice(&length.to_be_bytes());
    whole.extend_from_slice(data);
    stream.write_all(&whole).await?;
    stream.flush().await
}

/// Reads the next frame. Returns `None` at the end of the stream.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
    let length = match stream.read_u32().await {
        Ok(length) => length as usize,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > LARGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message exceeds the maximum length",
        ));
    }
    let mut data = vec![0; length];
    stream.read_exact(&mut data).await?;
    Ok(Some(Bytes::from(data)))
}

pub(super) async fn write_json(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &impl Serialize,
) -> io::Result<()> {
    write(stream, &serde_json::to_vec(value)?).await
}

pub(super) async fn read_json<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<T> {
    let data = read(stream)
        .await?
        .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    Ok(serde_json::from_slice(&data)?)
}
