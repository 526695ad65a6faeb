// SPDX-License-Identifier: MIT OR Apache-2.0
//! The new process's side of a handover.
//!
//! Sources: see [`crate::handover`].
//! Does not decide which of the sockets are used ([`crate::ListeningSockets::open`] does).

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::link::{self, Link};
use super::link_fault;
use super::offer::{GO, MESSAGE_BYTES_MAX, Offer, READY, REPORT, RTCP, RTP, VERSION};
use crate::error::Error;
use crate::sockets::{ListenerName, ListeningSockets, MediaPair};

/// The server that this process follows.
#[derive(Debug)]
pub struct Predecessor {
    end: OwnedFd,
    notes: BTreeMap<String, String>,
}

/// Link to a predecessor that plays on.
#[derive(Debug)]
pub(crate) struct OldSessions(Link);

impl Predecessor {
    /// Receives the offer of the old process, by the end of the link that it passed.
    ///
    /// # Errors
    /// The old process has ended, or speaks another version.
    pub fn meet(end: OwnedFd) -> Result<(Predecessor, ListeningSockets), Error> {
        let fault = |error: &io::Error| link_fault("offer of the running server", error);
        // The offer was sent before this process was started.
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let received = link::receive(end.as_fd(), &mut buffer).map_err(|error| fault(&error))?;
        let (bytes, descriptors) =
            received.ok_or_else(|| fault(&io::ErrorKind::UnexpectedEof.into()))?;
        let offer: Offer = serde_json::from_slice(&buffer[..bytes])
            .map_err(|error| fault(&io::Error::other(error)))?;
        if offer.version != VERSION || offer.sockets.len() != descriptors.len() {
            let found = format!(
                "version {} with {} sockets, not {VERSION}; restart instead of upgrading",
                offer.version,
                descriptors.len()
            );
            return Err(fault(&io::Error::other(found)));
        }
        let (mut sockets, mut rtp, mut rtcp) = (ListeningSockets::default(), None, None);
        for (socket, descriptor) in offer.sockets.iter().zip(descriptors) {
            let known = ListenerName::ALL.into_iter().find(|n| n.as_str() == socket.name);
            match (known, socket.name.as_str()) {
                (Some(name), _) => {
                    sockets.give(name, TcpListener::from(descriptor), socket.is_managed);
                }
                (None, RTP) => rtp = Some(Arc::new(UdpSocket::from(descriptor))),
                (None, RTCP) => rtcp = Some(Arc::new(UdpSocket::from(descriptor))),
                // The name is of a later version: its socket is closed here, and in the end nobody
                // serves it.
                (None, name) => tracing::warn!("upgrade: this version has no use for {name:?}"),
            }
        }
        sockets.media = rtp.zip(rtcp).map(|(rtp, rtcp)| MediaPair { rtp, rtcp });
        Ok((Predecessor { end, notes: offer.notes }, sockets))
    }

    /// Returns a fact that the old process has sent about itself.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.get(name).map(String::as_str)
    }

    /// Registers the link with the current runtime.
    pub(crate) fn link(&self) -> Result<OldSessions, Error> {
        let end = self.end.try_clone().and_then(Link::new);
        end.map(OldSessions).map_err(|error| link_fault("link to the running server", &error))
    }
}

impl OldSessions {
    /// Reports to the old process that this one serves, and waits until it has stopped accepting,
    /// or has ended.
    pub(crate) async fn follow(&self) {
        let mut buffer = [0; 16];
        // Forwarded reports may fill the link for a moment: then the old process is alive, and
        // would wait for this one in vain.
        while let Err(error) = self.0.send(READY).await {
            let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            if gone.contains(&error.kind()) {
                tracing::warn!("upgrade: the old process has ended before this one served");
                return;
            }
            tracing::debug!("upgrade: telling the old process that this one serves: {error}");
            tokio::time::sleep(RETRY_AFTER).await;
        }
        match self.0.receive(&mut buffer).await {
            Ok(Some(bytes)) if &buffer[..bytes] == GO => {}
            Ok(None) => tracing::warn!("upgrade: the old process ended in the middle of it"),
            Ok(Some(_)) => tracing::warn!("upgrade: an unknown answer of the old process"),
            Err(error) => tracing::warn!("upgrade: waiting for the old process: {error}"),
        }
    }

    /// Forwards a report that may belong to a session of the old process. A report that does not
    /// fit into the link at once is dropped, as the network may do.
    pub(crate) fn pass_on(&self, from: SocketAddr, report: &[u8]) {
        let mut message = Vec::with_capacity(64 + report.len());
        let text = from.to_string();
        message.extend([REPORT, text.len() as u8]);
        let _ = write!(message, "{text}");
        message.extend_from_slice(report);
        let _ = self.0.try_send(&message);
    }
}

const RETRY_AFTER: Duration = Duration::from_millis(20);
