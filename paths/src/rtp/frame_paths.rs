// SPDX-License-Identifier: MIT OR Apache-2.0
//! `packet_ring` and `xdp`: payloads read into a ring of frames, headers stamped in front.
//!
//! A batch needs as many free slots as it has packets, one `preadv` of the payloads to their places
//! in the frames, checksums and headers by the kernels of `simd` while the bytes lie in the cache,
//! and one call to send. The file is read, not mapped, so a file that is cut is a short read and no
//! zeroes are sent for the missing bytes.
//!
//! A ring with too few free slots accepts the packets that fit, and the caller sends the rest
//! again, without a wait. A removed device is looked up again, once a batch.
//!
//! Sources: `preadv(2)`; RFC 768, RFC 791; `packet(7)`, Linux `Documentation/networking/`
//! `packet_mmap.rst` and `af_xdp.rst`; [`crate::sys`]'s `packet` and `xdp` (which has the reason
//! why zero-copy is not used).
//!
//! Does not segment or fragment, and is not informed of a closed port: ICMP goes to the socket. See
//! [`crate::Via::Device`].

use std::sync::LazyLock;

use crate::batch::{Batch, BatchForm, Cursor};
use crate::destination::{Destination, RefusalAction};
use crate::error::{Errno, SendError, Unavailable};
use crate::frame::Framing;
use crate::frame::ring::{Ring, RingError};
use crate::host::Host;
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::spec::{Feed, Open, Spec, SystemCalls, Transport, Via};
use crate::stream_path::{SendFailure, StreamPath, fill};
use crate::sys::{PacketRing, Scatter, ScatterScratch, XdpRing};
use simd::checksum::Ranges;
use simd::stamp::{FRONT_BYTES, Frames, HEAD_BYTES};
use simd::{Dropped, Kernels};
use wire::rtp::HEADER_BYTES;

/// Whole frames in a packet socket's transmit ring, one call a batch. The kernel's remaining work,
/// without UDP, IP and firewall, is a buffer's header per frame, and the driver. The payload is
/// read straight into the ring, and the device reads from the ring's pages: one copy, by the read.
/// Costs two calls a batch of up to 512 packets; 0.51 s/GB in batches of 44 (0.66 in batches of 10)
/// where `read_writev` cost 2.19 and `mmap_gso` 0.18, into an ifb that accepts super-packets whole:
/// where the kernel has to segment, `mmap_gso` costs as much as this.
///
/// On a device that delivers on this host (veth), the kernel copies each frame once more, because
/// the slot would be written again while a receiver still has it; no counter shows that copy. Each
/// frame is sent by itself, without UDP segmentation.
pub(crate) static PACKET_RING: Spec = Spec {
    name: "packet_ring",
    transport: Transport::Rtp,
    summary: "payloads read into a packet socket's ring, frames stamped there, one call a batch",
    copies_per_byte: 1,
    header_copies: 1,
    system_calls: SystemCalls::PerBatch(2),
    sources: &["packet(7) PACKET_TX_RING", "preadv(2)", "linux packet_mmap.rst"],
    // Linux 5.0 answers rtnetlink queries about one neighbour.
    probe: |host| host.needs_kernel(5, 0).and_then(|()| host.needs_raw_frames()),
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Device,
        open: || Ok(Box::new(FrameSender::<PacketRing>::new("sendto PACKET_TX_RING"))),
    },
};

/// Whole frames through an XDP socket, in copy mode, one call a batch. Works like `packet_ring`,
/// but from memory of this process and without the queue discipline. The payload is read into it
/// (one copy) and the kernel copies each frame into a buffer of its own (the second). Costs two
/// calls a batch of up to 512 packets from Linux 6.17 on, before that one more for each 32 packets;
/// 0.41 s/GB in batches of 44 (0.55 in batches of 10) where `packet_ring` cost 0.51 and
/// `read_writev` 2.19: the copy by the kernel costs less than attaching pages does.
///
/// A driver that accepts pages instead (virtio_net) saves the second copy without reporting it: the
/// copy is counted nevertheless. An XDP socket has a queue of the device to itself, so a device
/// serves as many sending threads as it has queues. Frames have at most a page: no jumbo datagrams.
pub(crate) static XDP: Spec = Spec {
    name: "xdp",
    transport: Transport::Rtp,
    summary: "payloads read into an XDP socket's memory, frames stamped there, one call a batch",
    copies_per_byte: 2,
    header_copies: 1,
    system_calls: SystemCalls::PerBatch(2),
    sources: &["linux af_xdp.rst", "preadv(2)"],
    probe: probe_xdp,
    open: Open::Stream {
        feed: Feed::Gathered,
        via: Via::Device,
        open: || Ok(Box::new(FrameSender::<XdpRing>::new("sendto AF_XDP"))),
    },
};

/// Rings with flags need Linux 5.4.
fn probe_xdp(host: &Host) -> Result<(), Unavailable> {
    host.needs_kernel(5, 4)?;
    host.needs_xdp_sockets()?;
    host.needs_raw_frames()
}

// Headers that the kernel `stamp` copies are plain RTP headers.
const _: () = assert!(HEAD_BYTES == HEADER_BYTES);

/// Devices that a thread keeps a ring for; with more, the oldest ring is closed.
const RINGS_MAX: usize = 8;

/// The kernels of `simd`, tested and chosen once for all threads.
static KERNELS: LazyLock<Kernels> = LazyLock::new(Kernels::here);

/// Returns the variants of kernels that computed a wrong answer on this processor and are not used;
/// paths by device are slower without them. The caller logs them as errors: the kernel of `simd` or
/// the processor is faulty.
pub fn dropped_kernels() -> Vec<Dropped> {
    KERNELS.dropped().collect()
}

/// Fills rings of one kind; belongs to a sending thread.
pub(super) struct FrameSender<R> {
    rings: Vec<R>,
    kernels: Kernels,
    scratch: ScatterScratch,
    /// The sum of each frame's payload.
    sums: Vec<u16>,
    /// Byte count of a read at which each of its packets is complete.
    ends: Vec<u64>,
    /// The call that sends, for errors.
    call: &'static str,
}

/// Content and progress of a batch.
struct BatchProgress<'a> {
    batch: &'a Batch<'a>,
    source: &'a MappedFile,
    heads: &'a [u8],
    head_bytes: usize,
    accepted: u32,
    /// Position of the payload of packet `accepted`.
    cursor: Cursor<'a>,
}

impl BatchProgress<'_> {
    fn payload_bytes(&self, packet: u32) -> usize {
        self.batch.run_bytes(packet, 1) as usize - self.head_bytes
    }

    /// Returns the bytes of the first and of the last of the next `count` datagrams.
    fn datagram_bytes(&self, count: u32) -> [u32; 2] {
        let last = self.accepted + count - 1;
        [self.accepted, last].map(|packet| self.batch.run_bytes(packet, 1) as u32)
    }

    /// Records that the next `count` packets have been sent.
    fn advance(&mut self, count: u32, stats: &mut SendStats) {
        let bytes = self.batch.run_bytes(self.accepted, count);
        let head_bytes = self.head_bytes as u64 * u64::from(count);
        self.cursor.take(bytes - head_bytes, |_| ());
        self.accepted += count;
        stats.packets += u64::from(count);
        stats.bytes += bytes;
    }
}

impl<R: Ring> FrameSender<R> {
    pub(super) fn new(call: &'static str) -> Self {
        Self {
            rings: Vec::with_capacity(RINGS_MAX),
            kernels: *KERNELS,
            scratch: ScatterScratch::new(),
            sums: Vec::new(),
            ends: Vec::new(),
            call,
        }
    }

    /// Closes the ring of the framing's device.
    fn close(&mut self, framing: &Framing) {
        self.rings.retain(|ring| ring.device() != framing.device.index);
    }

    /// Sends the rest of the batch.
    fn push(
        &mut self,
        progress: &mut BatchProgress<'_>,
        framing: &mut Framing,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<(), Stop> {
        // A ring has slots for the device's largest frame, or the largest there are.
        let fits = framing.fits(progress.batch.segment_bytes, R::FRAME_BYTES_MAX);
        fits.map_err(|reason| Stop::Error(to.unframed(reason)))?;
        let at = self.ring_for(framing, to, stats)?;
        while progress.accepted < progress.batch.packets {
            let left = progress.batch.packets - progress.accepted;
            let free = self.rings[at].free(left, stats);
            if free == 0 {
                stats.refused += 1;
                return Err(Stop::Error(SendError::Blocked));
            }
            let filled = self.fill(at, progress, free, stats);
            let filled = filled.map_err(|failure| stop(failure, progress.source))?;
            self.stamp(at, progress, filled, framing, stats);
            let front = FRONT_BYTES as u32;
            let [first, last] = progress.datagram_bytes(filled).map(|bytes| bytes + front);
            let sent = self.rings[at].send(filled, first, last, stats);
            framing.sent(sent.accepted);
            progress.advance(sent.accepted, stats);
            let Some(errno) = sent.errno else {
                to.accepted();
                continue;
            };
            return Err(match errno.code() {
                // The device is removed, down, or has another MTU than before.
                libc::ENXIO | libc::ENETDOWN | libc::ENODEV | libc::EMSGSIZE => Stop::Device(errno),
                _ => match to.judge(self.call, errno, 1, stats) {
                    RefusalAction::Retry => continue,
                    RefusalAction::Stop(SendError::Blocked) => Stop::Error(SendError::Blocked),
                    RefusalAction::Stop(error) => {
                        self.close(framing);
                        Stop::Error(error)
                    }
                },
            });
        }
        Ok(())
    }

    /// Returns the ring for a device, opened if there is none, or none with slots large enough.
    fn ring_for(
        &mut self,
        framing: &Framing,
        to: &Destination,
        stats: &mut SendStats,
    ) -> Result<usize, Stop> {
        let device = &framing.device;
        let wanted = device.frame_bytes.min(R::FRAME_BYTES_MAX);
        if let Some(at) = self.rings.iter().position(|ring| ring.device() == device.index) {
            if self.rings[at].frame_bytes_max() >= wanted {
                return Ok(at);
            }
            self.rings.remove(at);
        }
        if self.rings.len() == RINGS_MAX {
            self.rings.remove(0);
        }
        let ring = R::open(device, stats).map_err(|closed| match closed {
            RingError::Unframed(reason) => Stop::Error(to.unframed(reason)),
            RingError::Refused(_, errno) if errno.code() == libc::ENODEV => Stop::Device(errno),
            RingError::Refused(call, errno) => {
                Stop::Error(SendError::Host { call, object: device.name.clone(), errno })
            }
        })?;
        let slots = ring.slot_count() as usize;
        self.sums.resize(self.sums.len().max(slots), 0);
        self.rings.push(ring);
        Ok(self.rings.len() - 1)
    }

    /// Reads the payloads of the next `count` packets into the ring; returns the number of complete
    /// ones, at least one.
    fn fill(
        &mut self,
        at: usize,
        progress: &BatchProgress<'_>,
        count: u32,
        stats: &mut SendStats,
    ) -> Result<u32, SendFailure> {
        match self.fill_together(at, progress, count, stats)? {
            0 => fill_first(&mut self.rings[at], progress, stats).map(|()| 1),
            whole => Ok(whole),
        }
    }

    /// Reads by as few calls as the places allow; returns the number of complete packets, fewer
    /// than `count` after a short read.
    fn fill_together(
        &mut self,
        at: usize,
        progress: &BatchProgress<'_>,
        count: u32,
        stats: &mut SendStats,
    ) -> Result<u32, SendFailure> {
        let ring = &mut self.rings[at];
        let (stride, payload_at) = (ring.stride(), payload_at(ring, progress));
        let mut list = self.scratch.scatter();
        let mut cursor = progress.cursor;
        let mut whole = 0;
        self.ends.clear();
        let slots = ring.slots(count);
        for (slot, packet) in slots.into_iter().flat_map(|part| part.chunks_mut(stride)).zip(0..) {
            let mut rest =
                &mut slot[payload_at..][..progress.payload_bytes(progress.accepted + packet)];
            while !rest.is_empty() {
                let piece = cursor.next(rest.len() as u64);
                let (place, after) = rest.split_at_mut(piece.bytes as usize);
                rest = after;
                if let Err(place) = list.add(piece.offset, place) {
                    if !flush(&mut list, progress.source, &mut self.ends, &mut whole, stats)? {
                        return Ok(whole);
                    }
                    let added = list.add(piece.offset, place);
                    assert!(added.is_ok(), "an empty list takes anything");
                }
            }
            self.ends.push(list.bytes());
        }
        flush(&mut list, progress.source, &mut self.ends, &mut whole, stats)?;
        Ok(whole)
    }

    /// Sums the payloads of the next `count` packets and writes their headers.
    fn stamp(
        &mut self,
        at: usize,
        progress: &BatchProgress<'_>,
        count: u32,
        framing: &Framing,
        stats: &mut SendStats,
    ) {
        let ring = &mut self.rings[at];
        let (stride, frame_at) = (ring.stride(), ring.frame_at());
        // Headers of another size than a plain RTP header's are summed with the payload.
        let stamped_bytes = if progress.head_bytes == HEAD_BYTES { HEAD_BYTES } else { 0 };
        let [first_bytes, last_bytes] = progress.datagram_bytes(count);
        let mut identification = framing.identification();
        let mut done = 0_usize;
        for slots in ring.slots(count) {
            let part = slots.len() / stride;
            if part == 0 {
                continue;
            }
            let start = progress.accepted as usize + done;
            let heads =
                &progress.heads[start * progress.head_bytes..][..part * progress.head_bytes];
            if stamped_bytes == 0 && progress.head_bytes > 0 {
                let places = slots.chunks_mut(stride).zip(heads.chunks(progress.head_bytes));
                places.for_each(|(slot, head)| {
                    slot[frame_at + FRONT_BYTES..][..head.len()].copy_from_slice(head);
                });
            }
            done += part;
            let last_bytes = if done == count as usize { last_bytes } else { first_bytes };
            let sums = &mut self.sums[..part];
            let ranges = Ranges {
                slots,
                stride,
                at: frame_at + FRONT_BYTES + stamped_bytes,
                bytes: first_bytes as usize - stamped_bytes,
                last_bytes: last_bytes as usize - stamped_bytes,
            };
            self.kernels.checksum.sums(ranges, sums);
            let frames = Frames {
                slots,
                stride,
                at: frame_at,
                heads: if stamped_bytes > 0 { heads } else { &[] },
                // `Framing::fits` has limited datagrams to an IPv4 packet's payload.
                datagram_bytes: first_bytes as u16,
                last_bytes: last_bytes as u16,
                identification,
            };
            self.kernels.stamp.frames(&framing.template, frames, sums);
            identification = identification.wrapping_add(part as u16);
        }
        R::filled(progress.head_bytes as u64 * u64::from(count), stats);
    }
}

impl<R: Ring + Send> StreamPath for FrameSender<R> {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        let BatchForm::Gathered { source, heads, pieces } = batch.form else {
            panic!("a framing path is fed gathered batches");
        };
        batch.assert_sound();
        if batch.packets == 0 {
            return Ok(0);
        }
        let head_bytes = heads.len() / batch.packets as usize;
        let cursor = Cursor::new(pieces);
        let mut progress = BatchProgress { batch, source, heads, head_bytes, accepted: 0, cursor };
        let mut framing = Framing::of(to, stats)?;
        let mut stop = self.push(&mut progress, &mut framing, to, stats);
        if let Err(Stop::Device(_)) = stop {
            self.close(&framing);
            *framing = Framing::ask(to, stats)?;
            stop = self.push(&mut progress, &mut framing, to, stats);
        }
        match stop {
            Err(Stop::Device(errno)) => {
                self.close(&framing);
                return Err(SendError::Gone { errno });
            }
            // The next batch queries the kernel again: the MTU may have changed by then.
            Err(Stop::Error(error @ SendError::Unframed { .. })) => return Err(error),
            Ok(()) | Err(Stop::Error(_)) => to.keep_framing(framing),
        }
        match stop {
            Err(Stop::Error(SendError::Blocked)) if progress.accepted > 0 => Ok(progress.accepted),
            Err(Stop::Error(error)) => Err(error),
            _ => Ok(progress.accepted),
        }
    }
}

/// The reason why a batch is not sent to its end.
enum Stop {
    Error(SendError),
    /// The device has changed.
    Device(Errno),
}

fn stop(failure: SendFailure, source: &MappedFile) -> Stop {
    Stop::Error(match failure {
        SendFailure::Cut { at, .. } => SendError::Shrunk { at },
        SendFailure::Refused { call, errno } => source.host(call, errno),
        SendFailure::InPieces => unreachable!("frames are not cut"),
    })
}

/// Reads the next packet by itself, to find the reason why the joint read failed.
fn fill_first(
    ring: &mut impl Ring,
    progress: &BatchProgress<'_>,
    stats: &mut SendStats,
) -> Result<(), SendFailure> {
    let payload_at = payload_at(ring, progress);
    let [slot, _] = ring.slots(1);
    let mut rest = &mut slot[payload_at..][..progress.payload_bytes(progress.accepted)];
    let mut cursor = progress.cursor;
    while !rest.is_empty() {
        let piece = cursor.next(rest.len() as u64);
        let (place, after) = rest.split_at_mut(piece.bytes as usize);
        fill(progress.source, place, piece.offset, stats)?;
        rest = after;
    }
    Ok(())
}

/// Returns the offset of the file's bytes in a slot.
fn payload_at(ring: &impl Ring, progress: &BatchProgress<'_>) -> usize {
    ring.frame_at() + FRONT_BYTES + progress.head_bytes
}

/// Reads the listed ranges. Raises `whole` by the packets that are complete then; false when the
/// read was short.
fn flush(
    list: &mut Scatter<'_, '_>,
    source: &MappedFile,
    ends: &mut Vec<u64>,
    whole: &mut u32,
    stats: &mut SendStats,
) -> Result<bool, SendFailure> {
    let wanted = list.bytes();
    let read = loop {
        match list.read(source.file(), stats) {
            Ok(read) => break read,
            Err(errno) if errno.code() == libc::EINTR => {}
            Err(errno) => return Err(SendFailure::Refused { call: "preadv", errno }),
        }
    };
    *whole += ends.iter().take_while(|end| **end <= read).count() as u32;
    ends.clear();
    Ok(read == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kernel_is_wrong_here() {
        assert_eq!(dropped_kernels(), []);
    }
}
