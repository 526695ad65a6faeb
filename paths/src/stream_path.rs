// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of datagrams: the trait, and the loop over the runs of a batch.
//!
//! The loop splits a batch into runs, has a path make one call for each and interprets refusals. A
//! path (`rtp/`, `udp/`) then consists of its call only.
//!
//! All paths keep the same contract: packets leave in order and whole, none is sent twice, and the
//! returned number counts the packets that the kernel accepted. When the file has shrunk, the
//! packets before the cut are sent first.
//!
//! Sources: `udp(7)`; ARCHITECTURE.md, "a streamed byte's journey".
//!
//! Does not wait, or decide how many packets are due.

use crate::batch::Batch;
use crate::destination::{Destination, RefusalAction};
use crate::error::{Errno, SendError};
use crate::mapped_file::MappedFile;
use crate::send_stats::SendStats;
use crate::sys;

/// One way to send a batch; belongs to one sending thread and serves all its sessions.
pub trait StreamPath: Send {
    /// Sends the batch, or as much of it as the socket accepts now; returns the number of packets
    /// sent.
    ///
    /// Fewer than all are sent when the socket becomes full on the way; the rest is sent later, as
    /// a batch of its own. [`SendError::Blocked`] means that none was sent. Other errors end the
    /// stream; packets that left before are counted in `stats`. An empty batch is 0 packets and no
    /// call.
    ///
    /// # Panics
    /// When the path does not accept the batch's form ([`crate::Open::Stream`]), or the batch is
    /// unsound.
    fn send(
        &mut self,
        batch: &Batch<'_>,
        to: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError>;

    /// True when each call of the path passes its batch's departure time to the kernel. `sendfile`
    /// has no control messages, so paths that use it do not.
    fn carries_departures(&self) -> bool {
        false
    }

    /// Sends the batches of many destinations; the result of each is left in its [`Due::outcome`],
    /// as [`StreamPath::send`] would have returned it. A path that can pass several to the kernel
    /// at once does so; this implementation sends them one after the other.
    fn send_all(&mut self, dues: &mut [Due<'_>], stats: &mut SendStats) {
        for due in dues {
            due.outcome = self.send(&due.batch, due.to, stats);
        }
    }
}

/// A batch that is due to a destination, and the result of its send.
#[derive(Debug)]
pub struct Due<'a> {
    /// The batch.
    pub batch: Batch<'a>,
    /// The destination; no two of one call may be the same.
    pub to: &'a mut Destination,
    /// Number of packets accepted, or the reason why none was; `Ok(0)` before the send.
    pub outcome: Result<u32, SendError>,
}

impl<'a> Due<'a> {
    /// Returns a batch not sent yet.
    pub fn new(batch: Batch<'a>, to: &'a mut Destination) -> Self {
        Self { batch, to, outcome: Ok(0) }
    }
}

/// Packets of a batch that one call carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentRun {
    pub(crate) first: u32,
    pub(crate) packets: u32,
}

/// The reason why a call did not send its run.
#[derive(Debug)]
pub(crate) enum SendFailure {
    /// The kernel refused it.
    Refused { call: &'static str, errno: Errno },
    /// The kernel accepted it in pieces, which were discarded.
    InPieces,
    /// The file ends at byte `at`; the first `whole` packets of the run lie before that and have
    /// not been sent.
    Cut { at: u64, whole: u32 },
}

/// The end of a batch in a file that was cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    at: u64,
    /// The first packet not to be sent any more.
    packet: u32,
}

/// The number of packets that a call carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketsPerCall {
    /// One packet.
    One,
    /// The number that the destination's segments and 64 KiB allow; the kernel segments the run.
    Run,
    /// All of the batch, each packet a message of its own.
    Batch,
    /// All of the batch, in runs.
    BatchInRuns,
}

/// Sends `batch` run by run, where `per_call` sets the length of a run; `attempt` makes the call
/// for a run and returns the number of packets it carried, at least one.
pub(crate) fn send_runs(
    batch: &Batch<'_>,
    per_call: PacketsPerCall,
    to: &mut Destination,
    stats: &mut SendStats,
    mut attempt: impl FnMut(SegmentRun, &Destination, &mut SendStats) -> Result<u32, SendFailure>,
) -> Result<u32, SendError> {
    batch.assert_sound();
    if batch.packets == 0 {
        return Ok(0);
    }
    let mut accepted = 0;
    let mut cut: Option<Cut> = None;
    while accepted < batch.packets {
        let end = match cut {
            Some(cut) if cut.packet <= accepted => return Err(SendError::Shrunk { at: cut.at }),
            Some(cut) => cut.packet,
            None => batch.packets,
        };
        let together = matches!(per_call, PacketsPerCall::Run | PacketsPerCall::BatchInRuns);
        let fit = match batch.packets {
            // A single packet between two runs of a track: the socket keeps the size of the runs.
            1 if together => to.ready_one(batch.segment_bytes, stats).map(|()| 1)?,
            _ => to.ready(batch.segment_bytes, together, stats)?,
        };
        let whole = matches!(per_call, PacketsPerCall::Batch | PacketsPerCall::BatchInRuns);
        let packets = if whole { end - accepted } else { fit.min(end - accepted) };
        let run = SegmentRun { first: accepted, packets };
        let action = match attempt(run, to, stats) {
            Ok(packets) => {
                debug_assert!((1..=run.packets).contains(&packets), "{packets} of {run:?}");
                to.accepted();
                stats.packets += u64::from(packets);
                stats.bytes += batch.run_bytes(accepted, packets);
                accepted += packets;
                continue;
            }
            Err(SendFailure::Cut { at, whole }) => {
                cut = Some(Cut { at, packet: accepted + whole });
                continue;
            }
            Err(SendFailure::InPieces) => to.judge_in_pieces(packets, stats),
            Err(SendFailure::Refused { call, errno }) => {
                to.judge(call, errno, packets.min(fit), stats)
            }
        };
        match action {
            RefusalAction::Retry => {}
            RefusalAction::Stop(SendError::Blocked) if accepted > 0 => return Ok(accepted),
            RefusalAction::Stop(error) => return Err(error),
        }
    }
    Ok(accepted)
}

/// Fills `buffer` with the file's bytes from `offset` on.
pub(crate) fn fill(
    source: &MappedFile,
    buffer: &mut [u8],
    offset: u64,
    stats: &mut SendStats,
) -> Result<(), SendFailure> {
    let mut filled = 0;
    while filled < buffer.len() {
        let at = offset.saturating_add(filled as u64);
        match sys::read_at(source.file(), &mut buffer[filled..], at, stats) {
            Ok(0) => return Err(cut(source, at, stats)),
            Ok(bytes) => filled += bytes,
            Err(errno) if errno.code() == libc::EINTR => {}
            Err(errno) => return Err(SendFailure::Refused { call: "pread", errno }),
        }
    }
    Ok(())
}

/// Returns the failure of a read at `at`: the file ends there or before.
pub(crate) fn cut(source: &MappedFile, at: u64, stats: &mut SendStats) -> SendFailure {
    let size = source.size_now(stats).unwrap_or(at);
    SendFailure::Cut { at: size.min(at), whole: 0 }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    use super::*;
    use crate::{
        Feed, Host, Open, PATHS, Piece, SEGMENTS_MAX, SegmentLimitLowered, SystemCalls, Via,
    };

    const SEGMENT_BYTES: usize = 1328;
    const PACKETS: usize = 20;

    /// The kernel refuses segmentation for a socket without checksums, so every path must fall back
    /// to one packet a call by itself, and lose none.
    #[test]
    fn a_socket_that_refuses_segmentation_gets_every_packet_and_one_fall() {
        let bytes: Vec<u8> = (0..PACKETS * SEGMENT_BYTES).map(|n| (n * 7 / 5) as u8).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let source = MappedFile::open(file, "test.wire").unwrap();
        let whole = [Piece { offset: 0, bytes: bytes.len() as u64 }];
        for spec in PATHS {
            let Open::Stream { feed, open, via: Via::Socket } = spec.open else { continue };
            if let Err(reason) = (spec.probe)(&Host::here()) {
                eprintln!("skip: {}: {reason}", spec.name);
                continue;
            }
            let (packets, segment_bytes) = (PACKETS as u32, SEGMENT_BYTES as u32);
            let batch = match feed {
                Feed::Gathered => Batch::gathered(&source, packets, segment_bytes, &[], &whole),
                Feed::Image => Batch::image(&source, packets, segment_bytes, 0, whole[0].bytes),
            };
            let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
            receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            sender.connect(receiver.local_addr().unwrap()).unwrap();
            let mut to = Destination::new(sender, spec.name).unwrap();
            sys::set_no_checksums(to.as_fd()).unwrap();
            let mut stats = SendStats::default();
            assert_eq!(open().unwrap().send(&batch, &mut to, &mut stats), Ok(packets));
            assert_eq!((stats.packets, stats.bytes), (u64::from(packets), batch.bytes));
            let mut buffer = [0; 65_536];
            for expected in bytes.chunks(SEGMENT_BYTES) {
                let bytes = receiver.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..bytes], expected, "{}", spec.name);
            }
            let refusal = Some(Errno::new(libc::EINVAL));
            let lowered = SegmentLimitLowered { from: SEGMENTS_MAX, to: 1, errno: refusal };
            let found = to.take_segment_limit_lowered();
            assert!(found.is_none() || found == Some(lowered), "{spec}: {found:?}");
            match spec.system_calls {
                SystemCalls::PerPacket(_) => assert_eq!(found, None, "{spec}"),
                SystemCalls::PerRun(_) => assert_eq!(found, Some(lowered), "{spec}"),
                // A batch has messages that the kernel cuts or packets that it does not.
                SystemCalls::PerBatch(_) | SystemCalls::PerStep(_) => {}
            }
            assert_eq!(to.take_segment_limit_lowered(), None);
        }
    }
}
