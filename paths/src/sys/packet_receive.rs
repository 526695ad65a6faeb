// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet socket's ring of blocks of received frames (`PACKET_RX_RING`, `TPACKET_V3`).
//!
//! The ring is the kernel's memory, mapped. It is made of blocks that the kernel fills with frames
//! of any size, one behind the other, and hands over when a block is full or was begun a time-out
//! ago; a store into the block's status hands it back. So a frame costs no call, and no memory
//! beyond its own size.
//!
//! In front of each frame the kernel stores its metadata: the arrival time, the state of its
//! checksum (verified, or left to a network card by a sender on this host), its VLAN, and the
//! segment size of a super-packet that it has joined (`PACKET_VNET_HDR`).
//!
//! A filter selects frames before they are copied. A new filter replaces it between two frames.
//!
//! Sources: `packet(7)`; `Documentation/networking/packet_mmap.rst`; Linux 6.18
//! `net/packet/af_packet.c` (`tpacket_rcv`, `prb_retire_current_block`), commit 9840036786d9
//! (6.2: super-packets of UDP have a `virtio_net_hdr`).
//!
//! Does not transmit, and does not see packets that this host sends.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::area::{Area, Range};
use crate::sys::{last_errno, set_record};

/// Bytes of a block: room for four super-packets.
const BLOCK_BYTES: usize = 256 * 1024;
/// The kernel does not use this size with blocks, but checks it.
const SLOT_BYTES: usize = 2048;
/// A frame waits this long at most for its block to be full.
const RETIRE_MS: libc::c_uint = 4;

/// `virtio_net_hdr`, which lies right in front of a frame.
mod virtio {
    pub(super) const BYTES: usize = 10;
    pub(super) const KIND: usize = 1;
    pub(super) const SEGMENT_BYTES: usize = 4;
    pub(super) const NONE: u8 = 0;
    pub(super) const UDP: u8 = 5;
}

/// Offsets of fields in a frame's header; `sockaddr_ll` follows it.
mod header {
    use std::mem::offset_of;

    pub(super) const NEXT: usize = offset_of!(libc::tpacket3_hdr, tp_next_offset);
    pub(super) const SECONDS: usize = offset_of!(libc::tpacket3_hdr, tp_sec);
    pub(super) const NANOSECONDS: usize = offset_of!(libc::tpacket3_hdr, tp_nsec);
    pub(super) const TAKEN_BYTES: usize = offset_of!(libc::tpacket3_hdr, tp_snaplen);
    pub(super) const FRAME_BYTES: usize = offset_of!(libc::tpacket3_hdr, tp_len);
    pub(super) const STATUS: usize = offset_of!(libc::tpacket3_hdr, tp_status);
    pub(super) const FRAME_AT: usize = offset_of!(libc::tpacket3_hdr, tp_mac);
    pub(super) const NETWORK_AT: usize = offset_of!(libc::tpacket3_hdr, tp_net);
    pub(super) const BYTES: usize = size_of::<libc::tpacket3_hdr>();
    pub(super) const PROTOCOL: usize = BYTES + offset_of!(libc::sockaddr_ll, sll_protocol);
}

/// Offsets of fields in a block's header.
mod block {
    use std::mem::offset_of;

    pub(super) const STATUS: usize = offset_of!(libc::tpacket_block_desc, hdr);
    pub(super) const FRAMES: usize = STATUS + offset_of!(libc::tpacket_hdr_v1, num_pkts);
    pub(super) const FIRST: usize = STATUS + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);
}

/// A packet socket and its ring.
#[derive(Debug)]
pub(crate) struct BlockRing {
    area: Area,
    blocks: usize,
    /// The block that is handed over next.
    next: usize,
    socket: OwnedFd,
}

impl BlockRing {
    /// Opens a ring of about `bytes` bytes on a device, for the frames that `filter` passes.
    pub(crate) fn open(
        device: u32,
        bytes: usize,
        filter: &[libc::sock_filter],
    ) -> Result<Self, (&'static str, Errno)> {
        let refused = |call| move |errno| (call, errno);
        let stats = &mut SendStats::default();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes no pointer. Protocol 0 receives nothing, until it is bound.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if descriptor < 0 {
            return Err(("socket AF_PACKET", last_errno()));
        }
        // SAFETY: the descriptor is new and owned by no other code.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let fd = socket.as_fd();
        let set = |option, value: libc::c_int, stats: &mut SendStats| {
            set_record(fd, libc::SOL_PACKET, option, &value, stats)
        };
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(libc::PACKET_VERSION, version, stats).map_err(refused("setsockopt PACKET_VERSION"))?;
        set(libc::PACKET_VNET_HDR, 1, stats).map_err(refused("setsockopt PACKET_VNET_HDR"))?;
        set(libc::PACKET_IGNORE_OUTGOING, 1, stats)
            .map_err(refused("setsockopt PACKET_IGNORE_OUTGOING"))?;
        set_filter(fd, filter, stats).map_err(refused("setsockopt SO_ATTACH_FILTER"))?;
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as libc::c_uint,
            tp_block_nr: blocks as libc::c_uint,
            tp_frame_size: SLOT_BYTES as libc::c_uint,
            tp_frame_nr: (blocks * BLOCK_BYTES / SLOT_BYTES) as libc::c_uint,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_record(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request, stats)
            .map_err(refused("setsockopt PACKET_RX_RING"))?;
        let area = Area::of_socket(fd, 0, blocks * BLOCK_BYTES)
            .map_err(refused("mmap of PACKET_RX_RING"))?;
        bind(fd, device).map_err(refused("bind AF_PACKET"))?;
        Ok(Self { area, blocks, next: 0, socket })
    }

    /// Changes the filter, from the next frame on.
    pub(crate) fn set_filter(&self, filter: &[libc::sock_filter]) -> Result<(), Errno> {
        set_filter(self.socket.as_fd(), filter, &mut SendStats::default())
    }

    /// Returns the number of blocks.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks
    }

    /// Returns the size of the ring.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks * BLOCK_BYTES
    }

    /// Returns the next block, when the kernel has handed it over.
    pub(crate) fn block(&self) -> Option<Block<'_>> {
        let start = self.next * BLOCK_BYTES;
        // Acquire: the kernel writes the block before the word that hands it over.
        let status = self.area.word(start + block::STATUS).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the block's status marks it as ours until `release`, which borrows `self` alone;
        // so the kernel writes none of it while these bytes are borrowed.
        let bytes = unsafe { self.area.range(Range { start, bytes: BLOCK_BYTES }) };
        let frames = word(bytes, block::FRAMES);
        Some(Block { bytes, next: word(bytes, block::FIRST) as usize, frames })
    }

    /// Hands the block from [`Self::block`] back to the kernel.
    pub(crate) fn release(&mut self) {
        let status = self.area.word(self.next * BLOCK_BYTES + block::STATUS);
        // Release: the block is read before the word that hands it back is written.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
    }

    /// Returns the number of frames dropped for lack of a free block since the last call.
    pub(crate) fn drops(&self) -> Result<u32, Errno> {
        let mut figures = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut bytes = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: `figures` and its length are alive.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut figures).cast(),
                &raw mut bytes,
            )
        };
        if done == 0 { Ok(figures.tp_drops) } else { Err(last_errno()) }
    }

    /// Reads the socket's pending error, if any: until then the socket is ready all the time.
    pub(crate) fn take_error(&self) -> Option<Errno> {
        let mut errno: libc::c_int = 0;
        let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `errno` and its length are alive.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut errno).cast(),
                &raw mut bytes,
            )
        };
        (done == 0 && errno != 0).then(|| Errno::new(errno))
    }
}

impl AsFd for BlockRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set_filter(
    socket: BorrowedFd<'_>,
    filter: &[libc::sock_filter],
    stats: &mut SendStats,
) -> Result<(), Errno> {
    let len = u16::try_from(filter.len()).map_err(|_| Errno::new(libc::E2BIG))?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // The kernel reads `len` instructions and keeps a copy.
    set_record(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program, stats)
}

fn bind(socket: BorrowedFd<'_>, device: u32) -> Result<(), Errno> {
    // SAFETY: sockaddr_ll is plain numbers, for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = device as libc::c_int;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is alive with the length given.
    let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Received frames, in their order.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    bytes: &'a [u8],
    /// Offset of the next frame's header.
    next: usize,
    /// Number of frames left.
    frames: u32,
}

/// A received frame, from the network header on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// The IP packet, possibly with the padding of a short frame.
    pub(crate) packet: &'a [u8],
    /// `ETH_P_IP` and so on.
    pub(crate) protocol: u16,
    /// True when the checksum is right, or not computed yet because the sender is on this host.
    pub(crate) has_good_checksum: bool,
    /// True when the frame was longer.
    pub(crate) is_cut: bool,
    /// Payload bytes of each datagram of a super-packet except the last; 0 for a single datagram.
    pub(crate) segment_bytes: u16,
    /// Time of arrival since the Unix epoch.
    pub(crate) stamp: Duration,
}

impl<'a> Iterator for Block<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        self.frames = self.frames.checked_sub(1)?;
        let bytes = self.bytes.get(self.next..)?;
        let head = bytes.get(..header::PROTOCOL + 2)?;
        self.next += word(head, header::NEXT) as usize;
        let frame_at = usize::from(half(head, header::FRAME_AT));
        let network_at = usize::from(half(head, header::NETWORK_AT));
        let taken_bytes = word(head, header::TAKEN_BYTES);
        let packet = bytes.get(network_at..frame_at + taken_bytes as usize).unwrap_or_default();
        let offload = frame_at.checked_sub(virtio::BYTES).and_then(|at| bytes.get(at..frame_at));
        let (kind, segment_bytes) = offload.map_or((virtio::NONE, 0), |offload| {
            (offload[virtio::KIND], half(offload, virtio::SEGMENT_BYTES))
        });
        let status = word(head, header::STATUS);
        let good = libc::TP_STATUS_CSUM_VALID | libc::TP_STATUS_CSUMNOTREADY;
        let seconds = u64::from(word(head, header::SECONDS));
        Some(Frame {
            packet,
            protocol: u16::from_be(half(head, header::PROTOCOL)),
            has_good_checksum: status & good != 0,
            is_cut: taken_bytes < word(head, header::FRAME_BYTES),
            segment_bytes: if kind == virtio::UDP { segment_bytes } else { 0 },
            stamp: Duration::from_secs(seconds)
                + Duration::from_nanos(word(head, header::NANOSECONDS).into()),
        })
    }
}

/// Returns the number at `at`; 0 where there is none.
fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    let half = bytes.get(at..).and_then(|rest| rest.first_chunk());
    half.map_or(0, |half| u16::from_ne_bytes(*half))
}

const _: () = {
    // TPACKET_ALIGN(48): sockaddr_ll lies right behind.
    assert!(header::BYTES == 48);
    assert!(offset_of!(libc::tpacket_block_desc, hdr) == 8);
    assert!(BLOCK_BYTES.is_multiple_of(SLOT_BYTES));
};
