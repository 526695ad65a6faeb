// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input of a receiving thread from RTSP connections, in interleaved frames.
//!
//! The task that reads a connection queues the RTP packets of each read with the time of the read.
//! The receiving thread empties the queues between its calls for datagrams, so that only this
//! thread changes a stream. A queue is bounded: when the thread falls behind, or no block is free
//! for a fragment, reading stops, and TCP flow control slows down the server.
//!
//! Sources: RFC 2326 §10.12.
//! Does not read connections (`client` does).

use std::collections::HashMap;
use std::net::SocketAddr;

use client::FrameQueue;
use client::rtp_receiver::ArrivalClock;
use paths::ReceiveStats;

use crate::receiving_thread::{Streams, lock};
use crate::relay::RelaySocket;

/// Connections of a receiving thread.
#[derive(Debug, Default)]
pub(crate) struct FrameInput {
    connections: Vec<Connection>,
    packets: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Connection {
    key: u32,
    from: SocketAddr,
    /// `None` between two sessions of the stream.
    frames: Option<FrameQueue>,
}

impl FrameInput {
    /// Adds the frame queue of a stream's new session; replaces the queue of an earlier session.
    pub(crate) fn add(&mut self, key: u32, frames: FrameQueue) {
        self.connections.retain(|connection| connection.key != key);
        self.connections.push(Connection { key, from: frames.from, frames: Some(frames) });
    }

    /// Drops the queue of a stream. The stream stays listed, so that its time still advances.
    pub(crate) fn remove(&mut self, key: u32) {
        let found = self.connections.iter_mut().find(|connection| connection.key == key);
        if let Some(connection) = found {
            connection.frames = None;
        }
    }

    /// Keys of the streams, and the addresses of their servers.
    pub(crate) fn senders(&self) -> impl Iterator<Item = (u32, SocketAddr)> {
        self.connections.iter().map(|connection| (connection.key, connection.from))
    }

    /// Adds the packets and bytes of these connections to the statistics of a path.
    pub(crate) fn added_to(&self, mut stats: ReceiveStats) -> ReceiveStats {
        stats.packets += self.packets;
        stats.bytes += self.bytes;
        stats
    }

    /// Hands queued packets to the streams, a bounded number to each; returns true if there were
    /// any. Streams without room get none, unless the packets are their last.
    pub(crate) fn receive(
        &mut self,
        ended: EndedFrames,
        streams: &Streams,
        clock: &ArrivalClock,
        copiers: &mut HashMap<u32, RelaySocket>,
    ) -> bool {
        let packets_at_first = self.packets;
        for Connection { key, from, frames } in &self.connections {
            let Some(frames) = frames else { continue };
            let Some(stream) = streams.get(*key as usize) else { continue };
            let are_last = match ended {
                EndedFrames::None => false,
                EndedFrames::Of(of) => of == *key,
                EndedFrames::All => true,
            };
            let (bytes_before, packets_before) = (self.bytes, self.packets);
            while self.bytes - bytes_before < BYTES_MAX
                && self.packets - packets_before < PACKETS_MAX
            {
                let mut stream = lock(stream);
                if !are_last && !stream.has_room() {
                    break;
                }
                let Some(batch) = frames.next() else { break };
                if are_last && stream.drop_beyond_memory(batch.bytes()) {
                    continue;
                }
                let mut copier = copiers.get_mut(key);
                for packet in batch.packets() {
                    self.packets += 1;
                    self.bytes += packet.len() as u64;
                    let is_sent_on = stream.take(packet, *from, clock.since(batch.at));
                    if let Some(copier) = copier.as_mut().filter(|_| is_sent_on) {
                        copier.send(packet);
                    }
                }
            }
        }
        self.packets > packets_at_first
    }
}

/// Streams whose queued packets are their last.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EndedFrames {
    None,
    /// Of the stream with this key.
    Of(u32),
    All,
}

/// Limits for one connection in a call of [`FrameInput::receive`], so that a fast connection does
/// not delay the others. A batch that reaches a limit is still processed to its end.
const BYTES_MAX: u64 = 4 << 20;
const PACKETS_MAX: u64 = 4096;
