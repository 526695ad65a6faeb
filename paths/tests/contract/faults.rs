// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that change while they are sent, and peers that fail.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};
use rustix::process::{Resource, Rlimit};

use paths::{
    Batch, Destination, Error, Feed, MappedFile, Open, PathFault, PathReport, Piece, QUOTE_BYTES,
    SEGMENTS_MAX, SendError, SendStats, SystemCalls, Transport,
};

use crate::asset::{Asset, HEAD_BYTES, SEGMENT_BYTES, Shape};
use crate::harness::network::{self, Owner, sh};
use crate::harness::ports::free_port;
use crate::peer::{Peer, assert_received};
use crate::{send_from, stream_paths};

const PAGE_BYTES: u64 = 4096;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Checks that all packets before a file's cut arrive, and that the send then returns the file's
/// end. Further bytes lie in the page of the cut: correct up to it, and zeroes or none behind.
fn cut_while_sent(sent_before: u32, cut_of: impl Fn(&Asset, Feed) -> u64, segments_max: u32) {
    for (spec, feed, mut path) in stream_paths() {
        let asset = Asset::new(Shape { offset: 100, ..Shape::full(200) });
        let cut = cut_of(&asset, feed);
        let what = format!("{spec} cut at {cut} after {sent_before} packets");
        let mut peer = Peer::on_loopback();
        let mut to = peer.destination();
        to.limit_segments(segments_max);
        let mut stats = SendStats::default();
        if sent_before > 0 {
            let pieces = asset.pieces(0..sent_before);
            let batch = asset.batch(feed, 0..sent_before, &pieces);
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(sent_before), "{what}");
        }
        asset.source(feed).file().set_len(cut).unwrap();
        let mut send_on = |first, peer: &mut Peer, stats: &mut SendStats| {
            send_from(first, &asset, (feed, &mut *path), &mut to, peer, stats)
        };
        let end = send_on(sent_before, &mut peer, &mut stats);
        assert_eq!(end, Err(SendError::Shrunk { at: cut }), "{what}");

        let end_of = |packet: &u32| {
            let bytes = SEGMENT_BYTES - if feed == Feed::Gathered { HEAD_BYTES } else { 0 };
            asset.offset_of(feed, *packet) + bytes as u64
        };
        let whole = (0..asset.packets()).take_while(|packet| end_of(packet) <= cut).count();
        let received = peer.all(whole.max(sent_before as usize));
        assert!(received.len() >= whole, "{what}: {} of {whole} arrived", received.len());
        assert_eq!(stats.packets, received.len() as u64, "{what}: stats");
        let intact = whole.max(sent_before as usize);
        assert_received(&received[..intact], &asset.datagrams[..intact], &what);

        let reach = cut.next_multiple_of(PAGE_BYTES);
        for (number, got) in received.iter().enumerate().skip(intact) {
            let packet = number as u32;
            let start = asset.offset_of(feed, packet);
            let head_bytes = if feed == Feed::Gathered { HEAD_BYTES } else { 0 };
            let right = head_bytes + cut.saturating_sub(start) as usize;
            let right = right.min(got.len());
            assert!(got[..right] == asset.datagrams[number][..right], "{what}: {number} is cut");
            assert!(got[right..].iter().all(|byte| *byte == 0), "{what}: {number} has bytes");
            let end = start + (got.len() - head_bytes) as u64;
            assert!(end <= reach, "{what}: {number} reaches beyond the page of the cut");
            assert!(spec.copies_per_byte < 2, "{what}: {number} was read");
        }
        // The stream has ended, and returns that again without sending.
        let mut stats = SendStats::default();
        let again = send_on(whole as u32 + 8, &mut peer, &mut stats);
        assert_eq!(again, Err(SendError::Shrunk { at: cut }), "{what}: again");
        assert_eq!(stats.packets, 0, "{what}: again");
        assert_eq!(peer.all(0).len(), 0, "{what}: again");
    }
}

#[test]
fn a_file_cut_while_it_is_sent_is_sent_up_to_the_cut() {
    for segments_max in [SEGMENTS_MAX, 7, 1] {
        for sent_before in [0, 20] {
            // The cut lies in the middle of a packet, then on the border between two.
            cut_while_sent(sent_before, |a, feed| a.offset_of(feed, 60) + 700, segments_max);
            cut_while_sent(sent_before, |a, feed| a.offset_of(feed, 61), segments_max);
            // The cut lies on the border between two pages.
            cut_while_sent(sent_before, |_, _| 15 * PAGE_BYTES, segments_max);
            cut_while_sent(sent_before, |_, _| 0, segments_max);
        }
    }
}

/// Packets of a cut file are not sent in front of the next asset's packets.
#[test]
fn a_cut_file_leaves_nothing_behind_in_the_socket() {
    // The cut lies in the middle of a packet, then on the border between two.
    let of_all = |cut_bytes| stream_paths().into_iter().map(move |path| (path, cut_bytes));
    for ((spec, feed, mut path), cut_bytes) in [0, 1, 5].into_iter().flat_map(of_all) {
        let asset = Asset::new(Shape::full(60));
        let other = Asset::new(Shape { segment_bytes: 700, last_bytes: 700, ..Shape::full(60) });
        let mut peer = Peer::on_loopback();
        let mut to = peer.destination();
        let mut stats = SendStats::default();
        let cut = asset.offset_of(feed, 30) + cut_bytes;
        asset.source(feed).file().set_len(cut).unwrap();
        let end = send_from(0, &asset, (feed, &mut *path), &mut to, &mut peer, &mut stats);
        assert!(matches!(end, Err(SendError::Shrunk { .. })), "{spec}: {end:?}");
        peer.all(30);
        send_from(0, &other, (feed, &mut *path), &mut to, &mut peer, &mut stats).unwrap();
        assert_received(&peer.all(60), &other.datagrams, &spec.to_string());
    }
}

/// A file that is both shorter than the batch and unreadable, as on a failing disk, ends the stream
/// with an error for either fault.
#[test]
fn a_file_that_ends_early_and_cannot_be_read_ends_the_stream() {
    let (packets, segment_bytes) = (20, SEGMENT_BYTES as u32);
    let whole = [Piece { offset: 0, bytes: u64::from(packets * segment_bytes) }];
    let named = tempfile::NamedTempFile::new().unwrap();
    named.as_file().write_all_at(&[0xee; 5 * SEGMENT_BYTES + 100], 0).unwrap();
    for (spec, feed, mut path) in stream_paths() {
        let file = std::fs::File::options().write(true).open(named.path()).unwrap();
        let source = MappedFile::open(file, "an unreadable file").unwrap();
        let batch = match feed {
            Feed::Gathered => Batch::gathered(&source, packets, segment_bytes, &[], &whole),
            Feed::Image => Batch::image(&source, packets, segment_bytes, 0, whole[0].bytes),
        };
        let mut to = Peer::on_loopback().destination();
        let mut stats = SendStats::default();
        let end = path.send(&batch, &mut to, &mut stats);
        assert!(matches!(end, Err(SendError::Host { .. })), "{spec}: {end:?}");
        assert_eq!(stats.packets, 0, "{spec}");
    }
}

#[test]
fn a_file_that_grows_while_it_is_sent_is_sent_as_planned() {
    for (spec, feed, mut path) in stream_paths() {
        let asset = Asset::new(Shape::full(200));
        let mut peer = Peer::on_loopback();
        let mut to = peer.destination();
        let mut stats = SendStats::default();
        let pieces = asset.pieces(0..20);
        let batch = asset.batch(feed, 0..20, &pieces);
        assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(20), "{spec}");
        let source = asset.source(feed);
        source.file().write_all_at(&[0xee; 100_000], source.bytes()).unwrap();
        send_from(20, &asset, (feed, &mut *path), &mut to, &mut peer, &mut stats).unwrap();
        assert_received(&peer.all(200), &asset.datagrams, &spec.to_string());
    }
}

#[test]
fn a_peer_that_stops_reading_holds_nobody_up() {
    let asset = Asset::new(Shape::full(400));
    for (spec, feed, mut path) in stream_paths() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(socket.local_addr().unwrap()).unwrap();
        let mut to = Destination::new(sender, "a deaf peer").unwrap();
        let mut stats = SendStats::default();
        let pieces = asset.pieces(0..400);
        let batch = asset.batch(feed, 0..400, &pieces);
        assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(400), "{spec}");
        assert_eq!(stats.packets, 400, "{spec}");
    }
}

/// ICMP reports a closed port, which a stranger can forge: no stream ends, every batch leaves
/// whole, and the reports quote sent packets.
#[test]
fn a_peer_that_closes_is_reported_and_ends_nothing() {
    let asset = Asset::new(Shape::full(5));
    for (spec, feed, mut path) in stream_paths() {
        let mut peer = Peer::at(&format!("127.0.0.1:{}", free_port())).unwrap();
        let mut to = peer.destination();
        let mut stats = SendStats::default();
        send_from(0, &asset, (feed, &mut *path), &mut to, &mut peer, &mut stats).unwrap();
        drop(peer);
        let pieces = asset.pieces(0..5);
        let batch = asset.batch(feed, 0..5, &pieces);
        let mut quoted = 0;
        for _ in 0..20 {
            assert_eq!(path.send(&batch, &mut to, &mut stats), Ok(5), "{spec}");
            let reports = to.take_reports();
            let ours = |report: &&PathReport| {
                report.fault == PathFault::PortUnreachable
                    && report.quote().len() == QUOTE_BYTES
                    && asset.datagrams.iter().any(|sent| sent.starts_with(report.quote()))
            };
            quoted += reports.iter().filter(ours).count();
        }
        assert!(quoted >= 10, "{spec}: {quoted} of 20 batches");
        let counted = (stats.packets, to.segments(), stats.refused);
        assert_eq!(counted, (5 + 20 * 5, SEGMENTS_MAX, 0), "{spec}");
    }
}

/// The kernel reports a closed port on the next send, which sends nothing: a peer that has opened
/// its port meanwhile still gets every packet.
#[test]
fn a_report_from_before_the_peer_was_there_loses_no_packet() {
    for (spec, feed, mut path) in stream_paths() {
        let asset = Asset::new(Shape::full(60));
        let address = format!("127.0.0.1:{}", free_port());
        let mut to = Peer::at(&address).unwrap().destination();
        to.socket().send(b"to a closed port").unwrap();
        let mut peer = Peer::at(&address).unwrap();
        let mut stats = SendStats::default();
        send_from(0, &asset, (feed, &mut *path), &mut to, &mut peer, &mut stats).unwrap();
        assert_received(&peer.all(60), &asset.datagrams, &spec.to_string());
    }
}

/// A device whose MTU is less than a packet refuses segmentation; the packets are then sent one by
/// one, in fragments.
#[test]
fn a_packet_larger_than_the_mtu_makes_segments_fall_once() {
    network::run(Owner::User, "ip link set lo up mtu 1000", "faults::inside_a_small_mtu");
}

#[test]
#[ignore = "run by a_packet_larger_than_the_mtu_makes_segments_fall_once"]
fn inside_a_small_mtu() {
    // Fragments are summed by the kernel, page by page: also where they meet at an odd byte.
    for offset in [0, 1] {
        segments_fall_once(&Asset::new(Shape { offset, ..Shape::full(60) }));
    }
}

fn segments_fall_once(asset: &Asset) {
    for (spec, feed, mut path) in stream_paths() {
        let mut peer = Peer::on_loopback();
        let mut to = peer.destination();
        let mut stats = SendStats::default();
        send_from(0, asset, (feed, &mut *path), &mut to, &mut peer, &mut stats).unwrap();
        assert_received(&peer.all(60), &asset.datagrams, &spec.to_string());
        let together = to.segments() == 1;
        let lowered = to.take_segment_limit_lowered().map(|lowered| (lowered.from, lowered.to));
        assert_eq!(lowered, together.then_some((SEGMENTS_MAX, 1)), "{spec}");
        match spec.system_calls {
            SystemCalls::PerPacket(_) => assert!(!together, "{spec}"),
            SystemCalls::PerRun(_) => assert!(together, "{spec}"),
            // A batch has messages that the kernel cuts or packets that it does not.
            SystemCalls::PerBatch(_) | SystemCalls::PerStep(_) => {}
        }
        assert_eq!(to.take_segment_limit_lowered(), None, "{spec}");
    }
}

/// Packets to a neighbour that does not answer wait in the kernel and fill the sender's buffer.
#[test]
fn a_full_socket_blocks_and_goes_on_when_it_has_room() {
    let setup = "ip link add left type veth peer name right && ip link set right up \
                 && ip addr add 10.99.0.1/24 dev left && ip link set left up";
    network::run(Owner::User, setup, "faults::inside_a_silent_network");
}

#[test]
#[ignore = "run by a_full_socket_blocks_and_goes_on_when_it_has_room"]
fn inside_a_silent_network() {
    let asset = Asset::new(Shape::full(300));
    let stream: Vec<u8> = asset.datagrams.concat();
    for (number, (spec, feed, mut path)) in stream_paths().into_iter().enumerate() {
        let address = format!("10.99.0.{}", number + 2);
        let wire = Wire::tap();
        let socket = UdpSocket::bind("10.99.0.1:0").unwrap();
        socket.connect((address.as_str(), 5004)).unwrap();
        sockopt::set_socket_send_buffer_size(&socket, 8192).unwrap();
        let mut to = Destination::new(socket, address.as_str()).unwrap();
        let mut stats = SendStats::default();
        let pieces = asset.pieces(0..300);
        let batch = asset.batch(feed, 0..300, &pieces);
        let accepted = path.send(&batch, &mut to, &mut stats).unwrap();
        assert!((1..300).contains(&accepted), "{spec}: {accepted} taken");
        let counted = (u64::from(accepted), u64::from(accepted) * SEGMENT_BYTES as u64);
        assert_eq!((stats.packets, stats.bytes), counted, "{spec}");
        assert_eq!(stats.refused, 1, "{spec}");
        let blocked = path.send(&batch, &mut to, &mut stats);
        assert_eq!(blocked, Err(SendError::Blocked), "{spec}");
        assert_eq!((stats.packets, stats.refused), (counted.0, 2), "{spec}");

        sh(&format!("ip neigh replace {address} lladdr 02:00:00:00:00:02 dev left nud permanent"));
        let mut next = accepted;
        let mut arrived = Vec::new();
        while next < 300 {
            wire.take_in(&mut arrived);
            // A batch fits the tap's queue, which is charged whole pages for some packets.
            let end = (next + 10).min(300);
            let pieces = asset.pieces(next..end);
            match path.send(&asset.batch(feed, next..end, &pieces), &mut to, &mut stats) {
                Ok(accepted) => next += accepted,
                Err(SendError::Blocked) => std::thread::yield_now(),
                Err(error) => panic!("{spec}: {error}"),
            }
        }
        assert_eq!((stats.packets, to.take_segment_limit_lowered()), (300, None), "{spec}");
        let start = Instant::now();
        while arrived.len() < stream.len() && start.elapsed() < TIMEOUT {
            wire.take_in(&mut arrived);
        }
        wire.take_in(&mut arrived);
        assert_eq!(arrived.len(), stream.len(), "{spec}: bytes at the far end");
        assert!(arrived == stream, "{spec}: neither lost nor left from before");
    }
}

/// Without a free descriptor a path either needs none, or names the object that it could not open.
#[test]
fn a_path_without_descriptors_says_so_or_works() {
    network::run(Owner::User, "ip link set lo up", "faults::inside_a_limit_of_files");
}

#[test]
#[ignore = "run by a_path_without_descriptors_says_so_or_works"]
fn inside_a_limit_of_files() {
    let asset = Asset::new(Shape::full(20));
    let paths = stream_paths();
    if !paths.iter().any(|(spec, ..)| spec.name.contains("uring")) {
        return super::skip("no path that needs a descriptor of its own can be opened".to_owned());
    }
    let mut refused = 0;
    for (spec, feed, _) in paths {
        let Open::Stream { open, .. } = spec.open else { continue };
        let mut peer = Peer::on_loopback();
        let mut to = peer.destination();
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let none = Rlimit { current: Some(0), ..limit };
        rustix::process::setrlimit(Resource::Nofile, none).unwrap();
        let opened = open();
        let mut sent = Ok(());
        let mut stats = SendStats::default();
        match opened {
            Ok(mut path) => {
                let pieces = asset.pieces(0..20);
                let batch = asset.batch(feed, 0..20, &pieces);
                sent =
                    path.send(&batch, &mut to, &mut stats).map(|accepted| assert_eq!(accepted, 20));
            }
            Err(error) => {
                assert!(error.to_string().ends_with("EMFILE"), "{spec}: {error}");
                refused += 1;
            }
        }
        rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
        assert_eq!(sent, Ok(()), "{spec}");
        peer.all(stats.packets as usize);
    }
    assert!(refused > 0, "the limit was none");
}

/// A socket that receives the packets of all devices of this network.
struct Wire(OwnedFd);

impl Wire {
    /// Ethernet, IPv4 and UDP header.
    const HEADER_BYTES: usize = 14 + 20 + 8;

    fn tap() -> Self {
        let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::NONBLOCK, Some(eth::IP)).unwrap();
        Self(socket)
    }

    /// Appends the payloads of the datagrams that have arrived to `arrived`.
    fn take_in(&self, arrived: &mut Vec<u8>) {
        let mut frame = vec![0; 70_000];
        while let Ok((bytes, _)) = recv(&self.0, &mut frame[..], RecvFlags::empty()) {
            arrived.extend_from_slice(&frame[Self::HEADER_BYTES..bytes]);
        }
    }
}

/// An unprivileged user with many pipes open gets a short one for `sendfile`, which then sends a
/// run in steps. A refusal of the last step must not leave the first corked, nor send it twice.
#[test]
fn a_short_pipe_and_a_refusal_lose_nothing_and_double_nothing() {
    network::run(Owner::User, "ip link set lo up mtu 1000", "faults::inside_a_short_pipe");
    network::run(Owner::User, "ip link set lo up", "faults::inside_a_short_pipe");
}

#[test]
#[ignore = "run by a_short_pipe_and_a_refusal_lose_nothing_and_double_nothing"]
fn inside_a_short_pipe() {
    let soft_pages = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap();
    let pipes = soft_pages.trim().parse::<u64>().unwrap() / 16 + 8;
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
    let wanted = 2 * pipes + 100;
    if limit.current.is_some_and(|files| files < wanted) || pipes > 100_000 {
        eprintln!("skip: {pipes} pipes do not fit the limit of open files, {:?}", limit.current);
        return;
    }
    let held: Vec<_> = (0..pipes).map(|_| std::io::pipe().unwrap()).collect();
    let asset = Asset::new(Shape { offset: 78, ..Shape::full(300) });
    for (spec, feed, mut path) in stream_paths() {
        let mut peer = Peer::on_loopback();
        let mut to = peer.destination();
        let mut stats = SendStats::default();
        send_from(0, &asset, (feed, &mut *path), &mut to, &mut peer, &mut stats).unwrap();
        assert_received(&peer.all(300), &asset.datagrams, &spec.to_string());
        assert_eq!((stats.packets, stats.refused), (300, 0), "{spec}");
        let lowered = to.take_segment_limit_lowered().map(|lowered| lowered.to);
        assert_eq!(lowered.unwrap_or(SEGMENTS_MAX), to.segments(), "{spec}");
    }
    // Its steps would hold two pages.
    let vmsplice = paths::find(Transport::Tcp, "vmsplice").unwrap();
    let Open::Download(open) = vmsplice.open else { panic!("it sends downloads") };
    match open() {
        Err(Error::Host { call: "fcntl F_SETPIPE_SZ", .. }) => {}
        other => panic!("{:?}", other.map(|_| "opened")),
    }
    drop(held);
}
