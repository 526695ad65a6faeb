// SPDX-License-Identifier: MIT OR Apache-2.0
//! An RTSP session for those who receive by themselves: the requests, and nothing of the media.
//!
//! For the recorder, whose sockets belong to its receiving thread. The way is that of [`play`]:
//! connect, DESCRIBE, SETUP with the ports the caller has, PLAY, signs of life, TEARDOWN.
//!
//! Sources: RFC 2326 §10, §12.37.
//! Does not do: receive, report (RTCP), or begin again.
//!
//! [`play`]: super::play

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::time::timeout;
use wire::rtsp::client::PlayReply;
use wire::rtsp::{NptRange, NptStart, PortPair};

use super::rtsp_connection::RtspConnection;
use super::socket_pair::SocketPair;
use crate::error::Error;

/// A session with a server.
pub struct ClientSession {
    control: RtspConnection,
    payload_type: u8,
    duration: Option<Duration>,
    timeout: Duration,
}

/// What SETUP granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantedSetup {
    /// Where media comes from.
    pub host: IpAddr,
    /// Whose packets to expect, if the server said.
    pub ssrc: Option<u32>,
    /// Where RTP comes from, if the server said.
    pub rtp: Option<SocketAddr>,
    /// Where RTCP of the sender comes from and receiver reports go, if the server said. At a host
    /// other than the server's nobody may have asked for them: none goes there before media came.
    pub rtcp: Option<SocketAddr>,
}

impl ClientSession {
    /// Connects to the server of a URL and asks for the description.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or has no MPEG transport stream there.
    pub async fn open(url: &str) -> Result<ClientSession, Error> {
        let mut control = RtspConnection::connect(url).await?;
        let described = control.describe().await?;
        let (payload_type, duration) = (described.offer.payload_type, described.offer.duration);
        Ok(ClientSession { control, payload_type, duration, timeout: Duration::ZERO })
    }

    /// This end of the connection: media is received at the same address.
    pub fn local(&self) -> SocketAddr {
        self.control.local
    }

    /// The payload type that the description names.
    pub fn payload_type(&self) -> u8 {
        self.payload_type
    }

    /// The end of the range that the description announces (`a=range:npt=0-60`); none for what has
    /// no end.
    pub fn duration(&self) -> Option<Duration> {
        self.duration
    }

    /// Two neighbouring ports at that address, found free by binding them. The first is let go
    /// again, for the path that will receive; the second comes bound, for RTCP.
    ///
    /// # Errors
    /// Host: no pair is free.
    pub fn ports(&self) -> Result<(PortPair, UdpSocket), Error> {
        let pair = SocketPair::bind(self.control.local)?;
        Ok((pair.ports, pair.rtcp))
    }

    /// Has media sent to these ports.
    ///
    /// # Errors
    /// Peer: refused, or not understood.
    pub async fn set_up(&mut self, ports: PortPair) -> Result<GrantedSetup, Error> {
        let control = &mut self.control;
        let reply = control.ask("SETUP", |client| client.setup(ports)).await?;
        let set_up = control.client.set_up(&reply);
        let set_up = set_up.map_err(|malformed| control.fault("SETUP", malformed))?;
        self.timeout = set_up.timeout;
        let said = set_up.source.as_deref().and_then(|source| source.parse().ok());
        let host = said.unwrap_or(control.remote);
        let rtp = set_up.server.map(|server| SocketAddr::new(host, server.rtp));
        let rtcp = set_up.server.map(|server| SocketAddr::new(host, server.rtcp));
        Ok(GrantedSetup { host, ssrc: set_up.ssrc, rtp, rtcp })
    }

    /// Has it play, from `start` on if that is said.
    ///
    /// # Errors
    /// Peer: refused, or not understood.
    pub async fn play(&mut self, start: Option<Duration>) -> Result<PlayReply, Error> {
        let range = start.map(|start| NptRange { start: NptStart::At(start), end: None });
        let reply = self.control.ask("PLAY", |client| client.play(range)).await?;
        let started = self.control.client.started(&reply);
        started.map_err(|malformed| self.control.fault("PLAY", malformed))
    }

    /// How often a sign of life is due.
    pub fn keep_alive_every(&self) -> Duration {
        (self.timeout / 3).max(KEEP_ALIVE_EVERY_MIN)
    }

    /// A sign of life. A server that does not know the request has seen it all the same.
    ///
    /// # Errors
    /// Peer: the session or the connection is no longer there.
    pub async fn keep_alive(&mut self) -> Result<(), Error> {
        match self.control.ask("GET_PARAMETER", |client| client.get_parameter()).await {
            Err(Error::Refused { status, .. }) if status != SESSION_NOT_FOUND => Ok(()),
            answered => answered.map(drop),
        }
    }

    /// Comes back, with the reason, when the server has closed the connection.
    pub async fn closed(&mut self) -> String {
        self.control.closed().await
    }

    /// Takes leave; a server that does not answer will forget the session by itself.
    pub async fn tear_down(mut self) {
        let leave_session = self.control.ask("TEARDOWN", |client| client.teardown());
        let _ = timeout(LEAVE_WAIT, leave_session).await;
    }
}

/// RFC 2326 §11.3.5.
const SESSION_NOT_FOUND: u16 = 454;
/// A time-out of nothing must not make this client a flood.
const KEEP_ALIVE_EVERY_MIN: Duration = Duration::from_secs(1);
const LEAVE_WAIT: Duration = Duration::from_secs(2);
