// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending end: datagrams one by one, and runs that the kernel is to cut (`UDP_SEGMENT`).

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;

use paths::{Batch, Destination, Error, MappedFile, Open, SendStats, StreamPath, Transport};
use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketType};

pub(crate) struct Sender {
    /// Socket that sends runs.
    to: Destination,
    /// Socket of the same address that sends no runs.
    plain: UdpSocket,
}

impl Sender {
    /// Sends from an address of `near` to `target`.
    pub(crate) fn new(near: IpAddr, target: SocketAddr) -> Self {
        let plain = shared(SocketAddr::new(near, 0));
        let cutting = shared(plain.local_addr().unwrap());
        Self::by([plain, cutting], target)
    }

    /// Sends by two sockets of one address.
    pub(crate) fn by([plain, cutting]: [UdpSocket; 2], target: SocketAddr) -> Self {
        plain.connect(target).unwrap();
        cutting.connect(target).unwrap();
        let to: Result<_, Error> = Destination::new(cutting, target.to_string());
        Self { to: to.unwrap(), plain }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.plain.local_addr().unwrap()
    }

    pub(crate) fn one(&self, bytes: &[u8]) {
        assert_eq!(self.plain.send(bytes).unwrap(), bytes.len());
    }

    /// Sends `datagrams` in the longest runs that a call carries: all of one length except the
    /// last.
    pub(crate) fn runs(&mut self, datagrams: &[Vec<u8>]) {
        let bytes = datagrams.concat();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let media = MappedFile::open(file, "datagrams").unwrap();
        let segment_bytes = datagrams[0].len() as u32;
        let all = datagrams.len() as u32;
        let batch = Batch::image(&media, all, segment_bytes, 0, bytes.len() as u64);
        let sent = segmenter().send(&batch, &mut self.to, &mut SendStats::default());
        assert_eq!(sent, Ok(all));
        assert_eq!(self.to.take_segment_limit_lowered(), None, "runs went as runs");
    }
}

/// Returns a socket whose address another socket may share.
pub(crate) fn shared(address: SocketAddr) -> UdpSocket {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::DGRAM, None).unwrap();
    set_socket_reuseport(&socket, true).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    socket.into()
}

fn segmenter() -> Box<dyn StreamPath> {
    let spec = paths::find(Transport::Udp, "sendfile_gso").unwrap();
    let Open::Stream { open, .. } = spec.open else { panic!("a stream path") };
    open().unwrap()
}
