// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP packets by the in-kernel engine: `mmap_rtpmsend`, `rtpsendfile`, `krtpsendfile`,
//! `krtpsendfile_gso` and `krtpmsend`.
//!
//! The five differ in the source of the payload (file or map), in the maker of the headers (caller
//! or engine) and in the number of packets a call carries. A call carries a *stretch*: packets
//! whose payloads lie in the file one behind the other. The engine makes the headers of a stretch
//! when it can make all of them ([`crate::rtp::header_series`]); otherwise the caller's headers (a
//! jump in the sequence, more than 12 bytes) are copied in the same call.
//!
//! Some packets are read and written instead, at two calls and two copies: a payload in several
//! pieces (a time stamp before each packet of transport stream), a payload that crosses a page
//! border at an odd byte (reason: [`crate::file_datagrams`]), and a datagram of more fragments than
//! the kernel accepts. Payload of MPEG transport stream in one piece is never such a packet.
//!
//! When the file has been cut, no packet after the last whole one leaves; from a map, the page of
//! the cut is sent to its end, see [`crate::MappedFile`].
//!
//! Sources: `kernel/rtp/include/uapi/linux/pagewire_rtp.h`; `udp(7)` (`UDP_SEGMENT`), `mmap(2)`;
//! the data-paths paper, sections 4 and 5 and table 1-C.
//!
//! Does not work without the module `pagewire_rtp`. Does not let the engine pace.

use std::os::fd::AsFd;

use wire::rtp::HEADER_BYTES;

use crate::batch::{Batch, Cursor};
use crate::destination::Destination;
use crate::error::{Errno, Error, SendError};
use crate::file_datagrams::crosses_oddly;
use crate::rtp::gathered::GatheredPackets;
use crate::rtp::header_series;
use crate::rtp::payload_buffer::PayloadBuffer;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{PacketsPerCall, SegmentRun, SendFailure, StreamPath, send_runs};
use crate::sys::{
    self, ENGINE_CALL, Engine, EngineHeaders, EngineRequest, GIVEN_BYTES_MAX, PACKETS_MAX,
    PAYLOAD_BYTES_MAX, PayloadSource, PlanEntry, Sent,
};

/// `mmap_rtpmsend` of table 1-C of the data-paths paper (n copies, of the header; 1 mmap and n
/// rtpmsend calls): `mmap_writev` without the copy of the payload, whose pages the socket refers
/// to. Costs one copy of the header and one call per packet.
pub(crate) static MMAP_RTPMSEND: Spec = Spec {
    name: "mmap_rtpmsend",
    transport: Transport::Rtp,
    summary: "engine: header and mapped payload per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    system_calls: SystemCalls::PerPacket(1),
    sources: &["the study, table 1-C", "kernel/rtp", "mmap(2)"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || {
            Ok(Box::new(EngineSender::new(Way {
                mapped: true,
                made: false,
                per_call: PacketsPerCall::One,
            })?))
        },
    },
};

/// `rtpsendfile` of table 1-C of the data-paths paper (n copies, of the header; n calls):
/// `rtp_sendfile` in one call instead of four, and without a pipe in between. Costs one copy of the
/// header and one call per packet.
pub(crate) static RTPSENDFILE: Spec = Spec {
    name: "rtpsendfile",
    transport: Transport::Rtp,
    summary: "engine: header and payload from the file per packet; payload not copied",
    copies_per_byte: 0,
    header_copies: 1,
    system_calls: SystemCalls::PerPacket(1),
    sources: &["the study, table 1-C", "kernel/rtp"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || {
            Ok(Box::new(EngineSender::new(Way {
                mapped: false,
                made: false,
                per_call: PacketsPerCall::One,
            })?))
        },
    },
};

/// `krtpsendfile` of table 1-C of the data-paths paper (no copy, 1 call), its best: the kernel puts
/// RTP headers of its own before the payloads. Costs no copy and one call per batch whose payload
/// lies in one stretch of the file; each packet passes the network stack by itself.
pub(crate) static KRTPSENDFILE: Spec = Spec {
    name: "krtpsendfile",
    transport: Transport::Rtp,
    summary: "engine: a batch from the file, headers made in the kernel; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["the study, table 1-C", "kernel/rtp"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || {
            Ok(Box::new(EngineSender::new(Way {
                mapped: false,
                made: true,
                per_call: PacketsPerCall::Batch,
            })?))
        },
    },
};

/// `krtpsendfile` whose packets pass the network stack in runs: between the engine and the device a
/// run is one packet, which is segmented at the end (`UDP_SEGMENT`). The data-paths paper has no
/// such path. Costs no copy and one call per batch whose payload lies in one stretch of the file.
/// It costs as little per packet as `wire_sendfile`, and each session may have headers of its own.
///
/// A device or route that refuses runs lowers the number of segments, as for `mmap_gso`. Needs
/// Linux 6.5: on older kernels the engine sends single packets.
pub(crate) static KRTPSENDFILE_GSO: Spec = Spec {
    name: "krtpsendfile_gso",
    transport: Transport::Rtp,
    summary: "engine: a batch from the file in runs, headers made in the kernel; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["udp(7) UDP_SEGMENT", "kernel/rtp"],
    probe: |host| host.needs_engine().and_then(|()| host.needs_kernel(6, 5)),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || {
            Ok(Box::new(EngineSender::new(Way {
                mapped: false,
                made: true,
                per_call: PacketsPerCall::BatchInRuns,
            })?))
        },
    },
};

/// `krtpmsend` of table 1-C of the data-paths paper (no copy, 1 call): `krtpsendfile` for a program
/// that has already mapped the file. Costs no copy and one call per batch whose payload lies in one
/// stretch of the file; the kernel looks the pages up in the page tables instead of the file.
pub(crate) static KRTPMSEND: Spec = Spec {
    name: "krtpmsend",
    transport: Transport::Rtp,
    summary: "engine: a batch from the mapped file, headers made in the kernel; no copy",
    copies_per_byte: 0,
    header_copies: 0,
    system_calls: SystemCalls::PerBatch(1),
    sources: &["the study, table 1-C", "kernel/rtp", "mmap(2)"],
    probe: |host| host.needs_engine(),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Socket,
        open: || {
            Ok(Box::new(EngineSender::new(Way {
                mapped: true,
                made: true,
                per_call: PacketsPerCall::Batch,
            })?))
        },
    },
};

/// The mode of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// True to send the payload by the addresses of a map instead of from the file.
    pub(super) mapped: bool,
    /// True to let the engine make the headers, where it makes the same ones.
    pub(super) made: bool,
    pub(super) per_call: PacketsPerCall,
}

/// Sends by the engine.
pub(super) struct EngineSender {
    way: Way,
    engine: Engine,
    page_bytes: u64,
    plan: Vec<PlanEntry>,
    /// Buffer for packets that the engine does not send.
    reader: PayloadBuffer,
}

/// Packets whose payloads lie one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    packets: u32,
    offset: u64,
    bytes: u64,
}

impl Stretch {
    /// Returns the stretch from packet `run.first` on, whose payload begins at `start`; no longer
    /// than `run`. It has no packets when the engine cannot send the first.
    fn of(
        packets: &GatheredPackets<'_>,
        run: SegmentRun,
        start: Cursor<'_>,
        page_bytes: u64,
    ) -> Self {
        let mut stretch = Self { packets: 0, offset: 0, bytes: 0 };
        let head_bytes = packets.head_bytes();
        if head_bytes > GIVEN_BYTES_MAX || !head_bytes.is_multiple_of(2) {
            return stretch;
        }
        let mut cursor = start;
        while stretch.packets < run.packets.min(PACKETS_MAX) {
            let payload_bytes = packets.payload_bytes(run.first + stretch.packets);
            if !(1..=u64::from(PAYLOAD_BYTES_MAX)).contains(&payload_bytes) {
                break;
            }
            let (mut first, mut end) = (None, None);
            let mut joined = true;
            cursor.take(payload_bytes, |piece| {
                first = first.or(Some(piece.offset));
                joined = joined && end.is_none_or(|end| end == piece.offset);
                end = piece.offset.checked_add(piece.bytes);
            });
            let (Some(first), Some(_), true) = (first, end, joined) else { break };
            if stretch.packets == 0 {
                stretch.offset = first;
            }
            let behind = first == stretch.offset + stretch.bytes;
            if !behind || crosses_oddly(first, payload_bytes, page_bytes) {
                break;
            }
            stretch.packets += 1;
            stretch.bytes += payload_bytes;
        }
        stretch
    }
}

impl EngineSender {
    pub(super) fn new(way: Way) -> Result<Self, Error> {
        let (engine, page_bytes) = (Engine::new()?, sys::page_bytes());
        Ok(Self { way, engine, page_bytes, plan: Vec::new(), reader: PayloadBuffer::new() })
    }

    /// Sends `run`, or as many of its packets as a call carries; returns their number and the
    /// position of the payload after them.
    fn send_run<'a>(
        &mut self,
        packets: &GatheredPackets<'a>,
        payload: PayloadSource<'a>,
        (run, start): (SegmentRun, Cursor<'a>),
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(u32, Cursor<'a>), SendFailure> {
        let stretch = Stretch::of(packets, run, start, self.page_bytes);
        within_map(packets, run, stretch, payload)?;
        if stretch.packets == 0 {
            return self.copy(packets, (run, start), to, stats);
        }
        let run = SegmentRun { packets: stretch.packets, ..run };
        let segments = self.segments(packets, to);
        let order = EngineRequest {
            payload,
            offset: stretch.offset,
            bytes: stretch.bytes,
            // The value is within PAYLOAD_BYTES_MAX.
            payload_bytes: packets.payload_bytes(run.first) as u16,
            heads: heads_of(packets, run, self.way.made, &mut self.plan),
            segments,
        };
        let sent = match self.engine.send(to.as_fd(), &order, stats) {
            Ok(sent) => sent,
            Err(errno) if errno.code() == libc::EMSGSIZE && segments == 1 => {
                return self.copy(packets, (run, start), to, stats);
            }
            Err(errno) => return Err(packets.refused((ENGINE_CALL, errno), run, start, stats)),
        };
        let whole: u64 = (0..sent.packets).map(|n| packets.payload_bytes(run.first + n)).sum();
        if sent.packets == 0 || sent.bytes != whole {
            return Err(ended(packets, stretch, sent, stats));
        }
        let mut cursor = start;
        cursor.take(whole, |_| ());
        Ok((sent.packets, cursor))
    }

    /// Returns the number of packets that pass the network stack as one.
    fn segments(&self, packets: &GatheredPackets<'_>, to: &Destination) -> u32 {
        if self.way.per_call == PacketsPerCall::BatchInRuns {
            to.fit(packets.segment_bytes())
        } else {
            1
        }
    }

    /// Reads the payload of the first packet of `run` and sends the packet.
    fn copy<'a>(
        &mut self,
        packets: &GatheredPackets<'a>,
        (run, start): (SegmentRun, Cursor<'a>),
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<(u32, Cursor<'a>), SendFailure> {
        let payload_bytes = packets.payload_bytes(run.first);
        let after = self.reader.read(0, packets.source, start, payload_bytes, stats)?;
        self.reader.write(packets.head(run.first), to, stats)?;
        Ok((1, after))
    }
}

/// Checks that `stretch` lies within the map; a cut otherwise: the file was shorter when it was
/// opened.
fn within_map(
    packets: &GatheredPackets<'_>,
    run: SegmentRun,
    stretch: Stretch,
    payload: PayloadSource<'_>,
) -> Result<(), SendFailure> {
    let PayloadSource::Mapped(map) = payload else { return Ok(()) };
    if stretch.packets == 0 || map.address(stretch.offset, stretch.bytes).is_some() {
        return Ok(());
    }
    let mut bytes = 0;
    let reached = |packet: &u32| {
        bytes += packets.payload_bytes(run.first + packet);
        map.address(stretch.offset, bytes).is_some()
    };
    let whole = (0..stretch.packets).take_while(reached).count() as u32;
    Err(SendFailure::Cut { at: packets.source.bytes(), whole })
}

/// Returns the headers of `run` in the engine's form.
fn heads_of<'a>(
    packets: &GatheredPackets<'a>,
    run: SegmentRun,
    made: bool,
    plan: &'a mut Vec<PlanEntry>,
) -> EngineHeaders<'a> {
    let heads = packets.heads(run);
    if heads.is_empty() {
        return EngineHeaders::None;
    }
    let of_rtp = made && packets.head_bytes() == HEADER_BYTES;
    match of_rtp.then(|| header_series::recognise(heads)).flatten() {
        // Both values are within GIVEN_BYTES_MAX.
        None => EngineHeaders::Given { heads, each: packets.head_bytes() as u16 },
        Some(found) if !found.needs_plan => EngineHeaders::Made(found.series, None),
        Some(found) => {
            let bytes = |number| packets.payload_bytes(run.first + number) as u16;
            header_series::write_plan(plan, heads, bytes);
            EngineHeaders::Made(found.series, Some(plan))
        }
    }
}

/// Returns the failure of a call that sent fewer packets than requested: the file has no more whole
/// ones.
fn ended(
    packets: &GatheredPackets<'_>,
    stretch: Stretch,
    sent: Sent,
    stats: &mut SendStats,
) -> SendFailure {
    let at = match packets.source.size_now(stats) {
        Ok(at) => at,
        Err(errno) => return SendFailure::Refused { call: "statx", errno },
    };
    // The engine counts a packet in which the file ended.
    stats.packets += u64::from(sent.packets);
    stats.bytes += sent.bytes + u64::from(sent.packets) * packets.head_bytes() as u64;
    if at < stretch.offset.saturating_add(stretch.bytes) {
        return SendFailure::Cut { at, whole: 0 };
    }
    // The call returned neither bytes nor the end: the file cannot be read this way.
    SendFailure::Refused { call: ENGINE_CALL, errno: Errno::new(libc::EIO) }
}

impl StreamPath for EngineSender {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let packets = GatheredPackets::of(batch);
        if batch.packets == 0 {
            return Ok(0);
        }
        let payload = match self.way.mapped {
            true => PayloadSource::Mapped(packets.map()?),
            false => PayloadSource::File(packets.source.file()),
        };
        let mut cursor = packets.start();
        send_runs(batch, self.way.per_call, to, stats, |run, to, stats| {
            let (sent, after) = self.send_run(&packets, payload, (run, cursor), to, stats)?;
            cursor = after;
            Ok(sent)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Piece;
    use crate::mapped_file::MappedFile;

    const PAGE_BYTES: u64 = 4096;

    fn source(bytes: u64) -> MappedFile {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        MappedFile::open(file, "asset.ts").unwrap()
    }

    /// Returns the stretches of a batch of 1,000-byte packets, each as its packets, offset and
    /// bytes; a packet that is not given to the engine as none.
    fn stretches(packets: u32, head_bytes: usize, pieces: &[(u64, u64)]) -> Vec<(u32, u64, u64)> {
        let source = source(0);
        let pieces: Vec<Piece> =
            pieces.iter().map(|&(offset, bytes)| Piece { offset, bytes }).collect();
        let heads = vec![0; packets as usize * head_bytes];
        let batch = Batch::gathered(&source, packets, 1000, &heads, &pieces);
        let packets = GatheredPackets::of(&batch);
        let (mut cursor, mut first) = (packets.start(), 0);
        let mut found = Vec::new();
        while first < batch.packets {
            let run = SegmentRun { first, packets: batch.packets - first };
            let stretch = Stretch::of(&packets, run, cursor, PAGE_BYTES);
            let carried = stretch.packets.max(1);
            (first..first + carried)
                .for_each(|packet| cursor.take(packets.payload_bytes(packet), |_| ()));
            first += carried;
            found.push(match stretch {
                Stretch { packets: 0, .. } => (0, 0, 0),
                Stretch { packets, offset, bytes } => (packets, offset, bytes),
            });
        }
        found
    }

    #[test]
    fn payloads_behind_each_other_are_one_stretch() {
        assert_eq!(stretches(10, 12, &[(78, 9880)]), [(10, 78, 9880)]);
        assert_eq!(stretches(10, 12, &[(78, 9000)]), [(10, 78, 9000)]);
        // The same holds for payloads in pieces.
        assert_eq!(stretches(10, 12, &[(78, 500), (578, 0), (578, 9380)]), [(10, 78, 9880)]);
        assert_eq!(stretches(10, 0, &[(0, 9001)]), [(10, 0, 9001)]);
    }

    #[test]
    fn a_jump_between_packets_begins_a_stretch_and_one_within_a_packet_is_copied() {
        let jump = [(0, 2 * 988), (100_000, 3 * 988), (50, 988)];
        let each = [(2, 0, 2 * 988), (3, 100_000, 3 * 988), (1, 50, 988)];
        assert_eq!(stretches(6, 12, &jump), each);
        let within = [(0, 988 + 400), (5000, 588 + 988)];
        assert_eq!(stretches(3, 12, &within), [(1, 0, 988), (0, 0, 0), (1, 5588, 988)]);
    }

    #[test]
    fn odd_page_borders_odd_headers_and_no_payload_are_copied() {
        // Packet 4 of 988 bytes has 143 before the border.
        let odd = stretches(9, 12, &[(1, 9 * 988)]);
        assert_eq!(odd, [(4, 1, 4 * 988), (0, 0, 0), (3, 1 + 5 * 988, 3 * 988), (0, 0, 0)]);
        assert_eq!(stretches(2, 13, &[(0, 2 * 987)]), [(0, 0, 0); 2]);
        assert_eq!(stretches(2, 130, &[(0, 2 * 870)]), [(0, 0, 0); 2]);
        assert_eq!(stretches(2, 12, &[(0, 988)]), [(1, 0, 988), (0, 0, 0)]);
    }

    #[test]
    fn a_stretch_beyond_the_map_is_a_cut() {
        let source = source(5000);
        let pieces = [Piece { offset: 1000, bytes: 4940 }];
        let heads = [0; 5 * 12];
        let batch = Batch::gathered(&source, 5, 1000, &heads, &pieces);
        let packets = GatheredPackets::of(&batch);
        let mapped = PayloadSource::Mapped(packets.map().unwrap());
        let cut = |packets_of, bytes, payload| {
            let run = SegmentRun { first: 0, packets: packets_of };
            let stretch = Stretch { packets: packets_of, offset: 1000, bytes };
            match within_map(&packets, run, stretch, payload) {
                Ok(()) => None,
                Err(SendFailure::Cut { at, whole }) => Some((at, whole)),
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(cut(5, 4940, mapped), Some((5000, 4)));
        assert_eq!(cut(4, 4 * 988, mapped), None);
        assert_eq!(cut(5, 4940, PayloadSource::File(source.file())), None);
    }

    #[test]
    fn headers_are_made_where_they_can_be_and_given_otherwise() {
        let source = source(5000);
        let pieces = [Piece { offset: 0, bytes: 3 * 988 }];
        let mut heads: Vec<u8> = (0..3_u8)
            .flat_map(|n| [0x80, 33, 255, 254 + n.min(1), 0, 0, 0, n, 1, 2, 3, 4])
            .collect();
        let description = |heads: &[u8], made, run| {
            let batch = Batch::gathered(&source, 3, 1000, heads, &pieces);
            let mut plan = Vec::new();
            match heads_of(&GatheredPackets::of(&batch), run, made, &mut plan) {
                EngineHeaders::None => "none".to_owned(),
                EngineHeaders::Given { heads, each } => format!("{} given of {each}", heads.len()),
                EngineHeaders::Made(series, None) => format!("from {}", series.first.sequence),
                EngineHeaders::Made(_, Some(plan)) => format!("plan of {}", plan.len()),
            }
        };
        let all = SegmentRun { first: 0, packets: 3 };
        // The third header has the number of the second.
        assert_eq!(description(&heads, true, all), "36 given of 12");
        assert_eq!(description(&heads, true, SegmentRun { first: 0, packets: 2 }), "from 65534");
        (heads[2 * 12 + 2], heads[2 * 12 + 3]) = (0, 0);
        assert_eq!(description(&heads, true, all), "from 65534");
        assert_eq!(description(&heads, false, all), "36 given of 12");
        heads[2 * 12 + 1] |= 0x80;
        assert_eq!(description(&heads, true, all), "plan of 3");
        assert_eq!(description(&[], true, all), "none");
    }
}
