// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between two processes over a socket pair, some with descriptors.
//!
//! `SOCK_SEQPACKET` preserves message borders and reports the end of the other process; so no
//! message is ever received in part, and no process waits for one that was never sent.
//!
//! Sources: unix(7), recvmsg(2) (`MSG_TRUNC`, `MSG_CTRUNC`).
//! Does not interpret the messages.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// One end, for use on a tokio runtime, which waits for it as for a stream.
#[derive(Debug)]
pub(super) struct Link(UnixStream);

/// Makes both ends.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl Link {
    /// Registers an end with the current runtime.
    pub(super) fn new(end: OwnedFd) -> io::Result<Link> {
        rustix::io::ioctl_fionbio(&end, true)?;
        UnixStream::from_std(end.into()).map(Link)
    }

    /// Sends a message at once, or not at all.
    pub(super) fn try_send(&self, message: &[u8]) -> io::Result<()> {
        send(self.0.as_fd(), message, &[])
    }

    /// Sends a message; waits while the socket has no room.
    pub(super) async fn send(&self, message: &[u8]) -> io::Result<()> {
        loop {
            self.0.writable().await?;
            let sending = || send(self.0.as_fd(), message, &[]);
            match self.0.try_io(Interest::WRITABLE, sending) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return sent,
            }
        }
    }

    /// Receives a message into `buffer`; `None` when the other process has ended.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            self.0.readable().await?;
            let reading = || receive(self.0.as_fd(), buffer);
            match self.0.try_io(Interest::READABLE, reading) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received.map(|received| received.map(|(bytes, _)| bytes)),
            }
        }
    }
}

/// Sends a message with descriptors, [`DESCRIPTORS_MAX`] at most.
pub(super) fn send(end: BorrowedFd<'_>, message: &[u8], with: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() && !control.push(SendAncillaryMessage::ScmRights(with)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(end, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message and its descriptors; `None` when the other process has ended.
pub(super) fn receive(
    end: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(end, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::other("a message that is longer than any of this version"));
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    // No message is empty: an end reads as no byte.
    Ok((received.bytes > 0).then_some((received.bytes, descriptors)))
}

/// Most descriptors of a message: each listener, and two of the media ports.
const DESCRIPTORS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[tokio::test]
    async fn a_message_waits_for_room() {
        let (here, there) = pair().unwrap();
        let (here, there) = (Link::new(here).unwrap(), Link::new(there).unwrap());
        let report = vec![1; 8 << 10];
        let mut queued = 0;
        while here.try_send(&report).is_ok() {
            queued += 1;
        }
        let mut buffer = vec![0; 16 << 10];
        let reading = async {
            for _ in 0..queued {
                assert_eq!(there.receive(&mut buffer).await.unwrap(), Some(report.len()));
            }
            let bytes = there.receive(&mut buffer).await.unwrap().unwrap();
            assert_eq!(&buffer[..bytes], b"ready");
        };
        let (sent, ()) = tokio::join!(here.send(b"ready"), reading);
        sent.unwrap();
    }

    #[tokio::test]
    async fn messages_and_descriptors_arrive_whole_and_the_end_is_seen() {
        let (here, there) = pair().unwrap();
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        send(here.as_fd(), b"with", &[file.as_fd()]).unwrap();
        let mut buffer = [0; 16];
        let (bytes, mut descriptors) = receive(there.as_fd(), &mut buffer).unwrap().unwrap();
        assert_eq!(&buffer[..bytes], b"with");
        let mut text = String::new();
        File::from(descriptors.pop().unwrap()).read_to_string(&mut text).unwrap();
        assert!(text.contains("name = \"serve\"") && descriptors.is_empty());

        let (here, there) = (Link::new(here).unwrap(), Link::new(there).unwrap());
        for message in [&b"one"[..], b"another"] {
            here.try_send(message).unwrap();
        }
        for message in [&b"one"[..], b"another"] {
            let bytes = there.receive(&mut buffer).await.unwrap().unwrap();
            assert_eq!(&buffer[..bytes], message);
        }
        here.try_send(&[1; 17]).unwrap();
        assert!(there.receive(&mut buffer).await.is_err(), "longer than the buffer");
        drop(here);
        assert_eq!(there.receive(&mut buffer).await.unwrap(), None);
        assert!(there.try_send(b"x").is_err());
    }
}
