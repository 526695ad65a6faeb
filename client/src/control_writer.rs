// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending side of an RTSP connection, which requests and RTCP frames share.
//!
//! A request or frame enters a buffer whole before any of it is written. Where a caller drops its
//! future midway, the rest stays in the buffer, and the next call writes it first, so two messages
//! never mix. The buffer is bounded; a server that stops reading causes an error.
//!
//! In a tunnel each message is encoded in base64 separately, as QuickTime does.
//!
//! Sources: RFC 2326 §10.12; Apple, Tunnelling RTSP and RTP over HTTP (1998); RFC 4648 §4.
//! Does not wait for replies.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::Mutex;

use super::control_stream::StreamWriter;

/// A writer that the requests and the reporter share.
pub(crate) type SharedWriter = Arc<Mutex<ControlWriter>>;

/// Sending side of a connection.
#[derive(Debug)]
pub(crate) struct ControlWriter {
    stream: StreamWriter,
    pending: Vec<u8>,
    is_tunnel: bool,
    /// The sending side of a tunnel's GET connection: dropping it would close that side.
    _get: Option<StreamWriter>,
}

impl ControlWriter {
    /// Writes to an RTSP connection.
    pub(crate) fn new(stream: StreamWriter) -> SharedWriter {
        let writer = ControlWriter { stream, pending: Vec::new(), is_tunnel: false, _get: None };
        Arc::new(Mutex::new(writer))
    }

    /// Writes to the POST connection of a tunnel.
    pub(crate) fn tunnel(post: StreamWriter, get: StreamWriter) -> SharedWriter {
        let (stream, pending) = (post, Vec::new());
        Arc::new(Mutex::new(ControlWriter { stream, pending, is_tunnel: true, _get: Some(get) }))
    }

    /// Writes a message.
    ///
    /// # Errors
    /// The connection is gone, or the server does not read.
    pub(crate) async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.push(message)?;
        self.flush().await
    }

    /// Writes as much of a message as the socket accepts at once; the next call writes the rest.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub(crate) fn try_send(&mut self, message: &[u8]) -> io::Result<()> {
        self.push(message)?;
        while !self.pending.is_empty() {
            match self.stream.try_write(&self.pending) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn push(&mut self, message: &[u8]) -> io::Result<()> {
        if self.pending.len() + message.len() > PENDING_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the server does not read"));
        }
        match self.is_tunnel {
            true => self.pending.extend_from_slice(STANDARD.encode(message).as_bytes()),
            false => self.pending.extend_from_slice(message),
        }
        Ok(())
    }

    /// Writes the bytes left by earlier calls.
    async fn flush(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            match self.stream.write(&self.pending).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => drop(self.pending.drain(..written)),
            }
        }
        self.stream.flush().await
    }
}

const PENDING_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncRead, AsyncReadExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::*;
    use crate::scripted_tls::Certified;

    #[tokio::test]
    async fn an_abandoned_message_is_completed_before_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        abandon(StreamWriter::Plain(stream.into_split().1), server).await;
    }

    #[tokio::test]
    async fn an_abandoned_message_is_completed_over_tls_too() {
        let (client, server) = Certified::new().connected().await;
        let (_reader, writer) = client.into_split();
        abandon(writer, server).await;
    }

    async fn abandon(writer: StreamWriter, mut server: impl AsyncRead + Unpin + Send + 'static) {
        let shared = ControlWriter::new(writer);
        let mut writer = shared.lock().await;
        let message = |number: usize| vec![number as u8; MESSAGE_BYTES];
        let mut sent = 0;
        // The server does not read: one message is abandoned midway, and more are queued until the
        // buffer is full.
        let refused = loop {
            match timeout(Duration::from_millis(50), writer.send(&message(sent))).await {
                Ok(Err(error)) => break error,
                Ok(Ok(())) | Err(_) => sent += 1,
            }
            assert!(sent < 10_000, "no buffer of a socket is so large");
        };
        assert_eq!(refused.to_string(), "the server does not read");
        let reading = tokio::spawn(async move {
            let mut read = vec![0; (sent + 1) * MESSAGE_BYTES];
            server.read_exact(&mut read).await.unwrap();
            read
        });
        while timeout(Duration::from_secs(60), writer.send(&message(sent))).await.unwrap().is_err()
        {
            // Nothing is written while the buffer is full.
            let flushed = writer.flush().await;
            flushed.unwrap();
        }
        let read = reading.await.unwrap();
        for (number, found) in read.chunks(MESSAGE_BYTES).enumerate() {
            assert!(found == message(number), "message {number}");
        }
    }

    const MESSAGE_BYTES: usize = 10_000;
}
