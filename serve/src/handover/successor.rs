// SPDX-License-Identifier: MIT OR Apache-2.0
//! The old process's side of a handover.
//!
//! Sources: see [`crate::handover`].
//! Does not stop the old server ([`crate::Server::drain`] does).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::link::{self, Link};
use super::link_fault;
use super::offer::{
    GO, MESSAGE_BYTES_MAX, Offer, OfferedSocket, READY, REPORT, RTCP, RTP, VERSION,
};
use crate::error::Error;
use crate::sockets::{ListeningSockets, MediaPair};

/// A process that is to follow this server.
#[derive(Debug)]
pub struct Successor(Link);

impl Successor {
    /// Offers sockets to a process that is still to be started; returns the end of the link to
    /// start it with, as its standard input.
    pub(crate) fn offer(
        sockets: &ListeningSockets,
        media: Option<&MediaPair>,
        notes: BTreeMap<String, String>,
    ) -> Result<(Successor, OwnedFd), Error> {
        let fault = |error: std::io::Error| link_fault("offer of this server", &error);
        let mut offer = Offer { version: VERSION, sockets: Vec::new(), notes };
        let mut descriptors: Vec<BorrowedFd<'_>> = Vec::new();
        for (name, listener, is_managed) in sockets.list() {
            offer.sockets.push(OfferedSocket { name: name.as_str().to_owned(), is_managed });
            descriptors.push(listener.as_fd());
        }
        if let Some(media) = media {
            for (name, socket) in [(RTP, &media.rtp), (RTCP, &media.rtcp)] {
                offer.sockets.push(OfferedSocket { name: name.to_owned(), is_managed: false });
                descriptors.push(socket.as_fd());
            }
        }
        let (here, there) = link::pair().map_err(fault)?;
        let text = serde_json::to_vec(&offer).expect("names are text");
        link::send(here.as_fd(), &text, &descriptors).map_err(fault)?;
        Ok((Successor(Link::new(here).map_err(fault)?), there))
    }

    /// Waits until the new process serves; false when it has ended before.
    pub async fn is_ready(&self) -> bool {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        loop {
            match self.0.receive(&mut buffer).await {
                Ok(Some(bytes)) if &buffer[..bytes] == READY => return true,
                // It reads the shared socket from its start on; clients report again.
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Informs the new process that this one accepts no more.
    pub(crate) fn go(&self) {
        if let Err(error) = self.0.try_send(GO) {
            tracing::warn!("upgrade: telling the new process to go on: {error}");
        }
    }

    /// Handles the reports that the new process sends back, until it ends.
    pub(crate) async fn reports(&self, mut pass: impl FnMut(SocketAddr, &[u8])) {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        while let Ok(Some(bytes)) = self.0.receive(&mut buffer).await {
            if let Some((from, report)) = report(&buffer[..bytes]) {
                pass(from, report);
            }
        }
    }
}

/// Reads a forwarded report.
fn report(message: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let [REPORT, length, rest @ ..] = message else { return None };
    let (address, report) = rest.split_at_checked(usize::from(*length))?;
    let address = std::str::from_utf8(address).ok()?.parse().ok()?;
    Some((address, report))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};
    use std::sync::Arc;

    use super::*;
    use crate::handover::Predecessor;
    use crate::sockets::ListenerName;

    #[tokio::test]
    async fn sockets_go_over_and_reports_come_back() {
        let mut sockets = ListeningSockets::default();
        sockets.open(ListenerName::Http, "127.0.0.1:0".parse().unwrap()).unwrap();
        let udp = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let media = MediaPair { rtp: udp(), rtcp: udp() };
        let notes = BTreeMap::from([("sandbox".to_owned(), "off".to_owned())]);
        let (successor, end) = Successor::offer(&sockets, Some(&media), notes).unwrap();
        let (predecessor, given) = Predecessor::meet(end).unwrap();
        assert_eq!(predecessor.note("sandbox"), Some("off"));
        assert_eq!(given.address(ListenerName::Http), sockets.address(ListenerName::Http));
        assert_eq!(given.address(ListenerName::Rtsp), None);
        let rtcp = |pair: &MediaPair| pair.rtcp.local_addr().unwrap();
        assert_eq!(rtcp(given.media.as_ref().unwrap()), rtcp(&media));
        // The old and the new listener share one accept queue: each accepts the connections that
        // the other does not.
        let address = sockets.address(ListenerName::Http).unwrap();
        let client = TcpStream::connect(address).unwrap();
        drop(sockets);
        let listener = given.listener(ListenerName::Http).unwrap().unwrap();
        listener.set_nonblocking(false).unwrap();
        assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap());

        let old = predecessor.link().unwrap();
        drop(predecessor);
        let from: SocketAddr = "[2001:db8::1]:5005".parse().unwrap();
        let new = async {
            old.pass_on(from, b"early");
            old.follow().await;
            old.pass_on(from, b"late");
            drop(old);
        };
        let mut passed = Vec::new();
        let earlier = async {
            assert!(successor.is_ready().await);
            successor.go();
            successor.reports(|from, report| passed.push((from, report.to_vec()))).await;
        };
        tokio::join!(new, earlier);
        assert_eq!(passed, [(from, b"late".to_vec())]);
    }

    #[tokio::test]
    async fn a_process_that_ends_before_it_is_ready_is_seen() {
        let (successor, end) =
            Successor::offer(&ListeningSockets::default(), None, BTreeMap::new()).unwrap();
        drop(end);
        assert!(!successor.is_ready().await);
    }

    #[test]
    fn messages_that_are_no_reports_are_passed_over() {
        for message in [&b""[..], b"\0", b"\x01\x00", b"\0\x09127.0.0.1", b"\0\xff127.0.0.1:1"] {
            assert!(report(message).is_none(), "{message:?}");
        }
        let found = report(b"\0\x0b127.0.0.1:1").unwrap();
        assert_eq!(found, ("127.0.0.1:1".parse().unwrap(), &b""[..]));
    }
}
