// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control of a stream: one task exchanges RTSP with a server, or RTCP with a sender.
//!
//! All tasks run on one thread, and handle no packet of media.
//!
//! Does not implement the protocols ([`crate::recording_session`] and [`crate::receiver_reports`]
//! do).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use client::rtp_receiver::ArrivalClock;
use client::{ClientLogin, TrackContainer, TransportChoice};
use tokio::sync::watch;

use crate::described_source::DescribedSource;
use crate::receiver_reports;
use crate::receiving_thread::{PortCommand, Streams};
use crate::recording::StreamState;
use crate::recording_session::RecordingSession;
use crate::stream_source::StreamSource;

/// Control of one stream.
pub(crate) struct StreamControl {
    pub(crate) key: usize,
    pub(crate) url: String,
    pub(crate) login: ClientLogin,
    pub(crate) source: StreamSource,
    /// Ports of all streams.
    pub(crate) ports: Arc<[SocketAddr]>,
    pub(crate) streams: Streams,
    pub(crate) shared: Arc<[StreamState]>,
    pub(crate) receiver: Sender<PortCommand>,
    pub(crate) clock: ArrivalClock,
    pub(crate) reports: bool,
    pub(crate) is_live: bool,
    pub(crate) transport: TransportChoice,
    pub(crate) container: TrackContainer,
    pub(crate) stopped: watch::Receiver<bool>,
    /// Dropped when the ports of a description are bound.
    pub(crate) listens: Option<Sender<Infallible>>,
}

impl StreamControl {
    /// Runs until the task is stopped, or the source has ended.
    pub(crate) async fn run(mut self) {
        let (stream, shared) = (&self.streams[self.key], &self.shared[self.key]);
        match &self.source {
            StreamSource::Udp(port) if self.reports => {
                let next = port.address.port().wrapping_add(1);
                let is_free = self.ports.iter().all(|other| other.port() != next) && next != 0;
                tokio::select! {
                    () = receiver_reports::of_port(port, is_free, stream, &shared.rtcp) => {}
                    // An error means that the recording was dropped.
                    _ = self.stopped.changed() => {}
                }
            }
            StreamSource::Udp(_) => {}
            StreamSource::Sdp(path) => {
                let recorded = DescribedSource {
                    path,
                    key: self.key as u32,
                    stream,
                    shared,
                    receiver: self.receiver,
                    reports: self.reports,
                    container: self.container,
                };
                recorded.run(self.stopped, self.listens).await;
            }
            StreamSource::Rtsp(_) => {
                let asked = RecordingSession {
                    url: &self.url,
                    login: &self.login,
                    key: self.key as u32,
                    stream,
                    rtcp: &shared.rtcp,
                    receiver: self.receiver,
                    clock: self.clock,
                    sessions: &shared.sessions,
                    is_over: &shared.is_over,
                    progress: &shared.progress,
                    trouble: &shared.trouble,
                    tracks: &shared.tracks,
                    refusal: &shared.refusal,
                    is_live: self.is_live,
                    reports: self.reports,
                    transport: self.transport,
                    container: self.container,
                };
                asked.run(self.stopped).await;
            }
        }
    }
}
