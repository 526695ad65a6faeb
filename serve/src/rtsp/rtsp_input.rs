// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving side of an RTSP connection: its own bytes, or the decoded bytes of an HTTP
//! tunnel's upload half.
//!
//! An upload half may end and another may follow (clients close a POST after its declared length);
//! the tunnel lives as long as its download half.
//!
//! Sources: `wire::rtsp::tunnel`.
//! Does not send.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::rtsp::Malformed;
use wire::rtsp::tunnel::TunnelDecoder;

use crate::rtsp::tunnels::{TunnelPlace, UploadHalf};

/// Receiving side of one connection.
pub(crate) enum RtspInput {
    /// Bytes of the connection.
    Direct {
        stream: Arc<TcpStream>,
        /// Bytes read before the connection was known to be RTSP.
        first: Vec<u8>,
    },
    /// Bytes of a tunnel.
    Tunnel(Box<TunnelInput>),
}

/// Receiving side of a tunnel.
pub(crate) struct TunnelInput {
    /// The download half; its end is the end of the tunnel.
    download: Arc<TcpStream>,
    place: TunnelPlace,
    upload: UploadHalf,
    decoder: TunnelDecoder,
    buffer: Vec<u8>,
}

/// Reason why no bytes were received.
#[derive(Debug)]
pub(crate) enum NoInput {
    /// The peer has closed or failed.
    Closed,
    /// No bytes arrived within the time-out.
    TimedOut,
    /// The upload half is not base64.
    Malformed(Malformed),
}

impl TunnelInput {
    pub(crate) fn new(
        download: Arc<TcpStream>,
        place: TunnelPlace,
        upload: UploadHalf,
    ) -> TunnelInput {
        let (decoder, buffer) = (TunnelDecoder::new(), vec![0; READ_BYTES]);
        TunnelInput { download, place, upload, decoder, buffer }
    }

    /// Appends decoded bytes to `target`; possibly none, while a base64 group is incomplete.
    async fn read(&mut self, target: &mut Vec<u8>) -> Result<(), NoInput> {
        if !self.upload.first.is_empty() {
            let first = std::mem::take(&mut self.upload.first);
            return self.decoder.decode(&first, target).map_err(NoInput::Malformed);
        }
        let mut spare = [0; 64];
        tokio::select! {
            read = read_some(&self.upload.stream, &mut self.buffer) => match read {
                0 => {
                    // The client may continue with another POST.
                    let next = timeout(NEXT_UPLOAD_WAIT, self.place.next_upload()).await;
                    let Ok(Some(upload)) = next else { return Err(NoInput::Closed) };
                    (self.upload, self.decoder) = (upload, TunnelDecoder::new());
                    Ok(())
                }
                bytes => {
                    let decoded = self.decoder.decode(&self.buffer[..bytes], target);
                    decoded.map_err(NoInput::Malformed)
                }
            },
            upload = self.place.next_upload() => {
                let Some(upload) = upload else { return Err(NoInput::Closed) };
                (self.upload, self.decoder) = (upload, TunnelDecoder::new());
                Ok(())
            }
            // A client sends nothing on the download half; it only closes it.
            read = read_some(&self.download, &mut spare) => match read {
                0 => Err(NoInput::Closed),
                _ => Ok(()),
            },
        }
    }
}

impl RtspInput {
    /// Appends received bytes to `target`; at least one, unless a half of a tunnel begins or ends.
    pub(crate) async fn read(
        &mut self,
        target: &mut Vec<u8>,
        wait: Duration,
    ) -> Result<(), NoInput> {
        let reading = async {
            match self {
                RtspInput::Direct { first, .. } if !first.is_empty() => {
                    target.append(first);
                    Ok(())
                }
                RtspInput::Direct { stream, .. } => {
                    let from = target.len();
                    target.resize(from + READ_BYTES, 0);
                    let read = read_some(stream, &mut target[from..]).await;
                    target.truncate(from + read);
                    if read == 0 { Err(NoInput::Closed) } else { Ok(()) }
                }
                RtspInput::Tunnel(tunnel) => tunnel.read(target).await,
            }
        };
        timeout(wait, reading).await.unwrap_or(Err(NoInput::TimedOut))
    }
}

/// Reads the available bytes; returns 0 if the peer has closed or failed.
pub(crate) async fn read_some(stream: &TcpStream, buffer: &mut [u8]) -> usize {
    loop {
        if stream.readable().await.is_err() {
            return 0;
        }
        match stream.try_read(buffer) {
            Ok(bytes) => return bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return 0,
        }
    }
}

const READ_BYTES: usize = 2048;
/// Time for a client to open the next POST after one has ended.
const NEXT_UPLOAD_WAIT: Duration = Duration::from_secs(10);
