// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTCP on a channel of the RTSP connection.
//!
//! Sources: RFC 2326 §10.12.
//! Does not interpret reports.

use tokio::sync::{Mutex, mpsc};
use wire::rtsp::interleaved_header;

use super::control_writer::SharedWriter;

/// The RTCP channel of a session.
#[derive(Debug)]
pub struct ChannelRtcp {
    inbox: Mutex<mpsc::Receiver<Vec<u8>>>,
    writer: SharedWriter,
    channel: u8,
}

impl ChannelRtcp {
    /// The channel, and the sending end that its incoming packets are queued with.
    pub(crate) fn new(channel: u8, writer: SharedWriter) -> (mpsc::Sender<Vec<u8>>, ChannelRtcp) {
        let (sender, inbox) = mpsc::channel(INBOX_PACKETS);
        (sender, ChannelRtcp { inbox: Mutex::new(inbox), writer, channel })
    }

    /// Waits for a packet; never returns once the connection has ended.
    pub async fn receive(&self) -> Vec<u8> {
        match self.inbox.lock().await.recv().await {
            Some(packet) => packet,
            None => std::future::pending().await,
        }
    }

    /// Sends a packet as a frame; returns false where that failed. Dropping the future does not
    /// truncate the packet.
    pub async fn send(&self, packet: &[u8]) -> bool {
        match self.frame(packet) {
            Some(frame) => self.writer.lock().await.send(&frame).await.is_ok(),
            None => false,
        }
    }

    /// Sends a packet without waiting; returns false where it was not sent.
    pub fn try_send(&self, packet: &[u8]) -> bool {
        let Some(frame) = self.frame(packet) else { return false };
        self.writer.try_lock().is_ok_and(|mut writer| writer.try_send(&frame).is_ok())
    }

    fn frame(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let bytes = u16::try_from(packet.len()).ok()?;
        Some([&interleaved_header(self.channel, bytes)[..], packet].concat())
    }
}

/// Reports queued for the reporter, which reads them at once.
const INBOX_PACKETS: usize = 16;
