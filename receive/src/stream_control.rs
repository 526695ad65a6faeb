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
use std::time::Duration;

use client::rtp_receiver::ArrivalClock;
use client::{ClientLogin, RecordedMedia, TrackContainer, TransportChoice};
use paths::Port;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::described_source::DescribedSource;
use crate::receiver_reports;
use crate::receiving_thread::{PortCommand, Streams, add_port, lock};
use crate::recording::StreamState;
use crate::recording_session::RecordingSession;
use crate::stream_source::StreamSource;

/// Control of one stream.
pub(crate) struct StreamControl {
    pub(crate) key: usize,
    pub(crate) url: String,
    pub(crate) shown: String,
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
    pub(crate) is_endless: bool,
    pub(crate) transport: TransportChoice,
    pub(crate) container: TrackContainer,
    pub(crate) media: RecordedMedia,
    pub(crate) stopped: watch::Receiver<bool>,
    /// Dropped when the ports of a description are bound.
    pub(crate) listens: Option<Sender<Infallible>>,
}

impl StreamControl {
    /// Runs until the task is stopped, or the source has ended.
    pub(crate) async fn run(mut self) {
        let (stream, shared) = (&self.streams[self.key], &self.shared[self.key]);
        if let StreamSource::Udp(port) = &self.source
            && self.is_endless
            && !self.bind(port.clone(), &mut self.stopped.clone()).await
        {
            return;
        }
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
                    clock: self.clock,
                    reports: self.reports,
                    container: self.container,
                    media: self.media,
                    is_endless: self.is_endless,
                };
                recorded.run(self.stopped, self.listens).await;
            }
            StreamSource::Rtsp(_) => {
                let asked = RecordingSession {
                    url: &self.url,
                    shown: &self.shown,
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
                    is_endless: self.is_endless,
                    reports: self.reports,
                    transport: self.transport,
                    container: self.container,
                    media: self.media,
                };
                asked.run(self.stopped).await;
            }
        }
    }

    /// Has the port of a camera bound, as often as is needed; returns false once it is stopped.
    async fn bind(&self, port: Port, stopped: &mut watch::Receiver<bool>) -> bool {
        let trouble = &self.shared[self.key].trouble;
        while let Err(why) = add_port(&self.receiver, self.key as u32, port.clone()) {
            let before = lock(trouble).replace(why.clone());
            if before.as_ref() != Some(&why) {
                let (shown, seconds) = (&self.shown, BIND_WAIT.as_secs());
                tracing::warn!("{shown}: {why}; trying again every {seconds} s");
            }
            tokio::select! {
                () = sleep(BIND_WAIT) => {}
                _ = stopped.changed() => return false,
            }
        }
        *lock(trouble) = None;
        true
    }
}

/// Interval between attempts to bind a port, whose address the host may not have yet.
const BIND_WAIT: Duration = Duration::from_secs(10);
