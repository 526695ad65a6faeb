// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multiplexes the units of a camera's tracks, and packetizes the file for the recorder.
//!
//! A transport stream is passed on in RTP packets of seven TS packets each, fragments of MP4 in
//! packets of [`FilePart`]s. Where the recorder is behind, the queue of units absorbs the input up
//! to its bound: only whole units are dropped. Costs two copies of each byte.
//!
//! Sources: RFC 2250 §2; those of `media::mux`.
//! Does not receive tracks, and does not wait ([`super::camera_thread`] does).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use clock::{Clock, Moment};
use media::mux::{Rotation, WriterKind};
use wire::mp2t::{CLOCK_RATE_HZ, PAYLOAD_BYTES};
use wire::rtp::{HEADER_BYTES, Header};

use super::file_part::{FilePart, PART_BYTES_MAX, PART_HEAD_BYTES};
use super::frame_reader::{PacketSink, QueueSink};
use super::plural::counted;
use super::track_muxer::{TrackMuxer, TrackOrigin};
use super::track_queue::{Ended, TrackEvent, TrackQueue};

/// Container into which a camera's tracks are put.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum TrackContainer {
    /// A transport stream.
    #[default]
    TransportStream,
    /// Files of fragmented MP4, with these limits.
    FragmentedMp4(Rotation),
}

impl TrackContainer {
    /// True for files of MP4.
    pub fn is_mp4(&self) -> bool {
        matches!(self, TrackContainer::FragmentedMp4(_))
    }

    /// The kind of its files.
    pub(crate) fn kind(&self) -> WriterKind {
        match self {
            TrackContainer::TransportStream => WriterKind::TransportStream,
            TrackContainer::FragmentedMp4(_) => WriterKind::FragmentedMp4,
        }
    }
}

/// Packetizes the units of all tracks.
pub(super) struct Packetizer {
    /// Name of the source.
    name: Arc<str>,
    muxer: TrackMuxer,
    sink: QueueSink,
    /// Header of the next packet.
    header: Header,
    /// Start of each track, and the time of the start in the file; closed at the end of the stream.
    origins: Receiver<TrackOrigins>,
    totals: Arc<MuxedTotals>,
    clock: Clock,
    progress: Progress,
}

/// Counts of the muxer, for other threads.
#[derive(Debug, Default)]
pub(super) struct MuxedTotals {
    /// Units left out that a decoder could have shown.
    pub(super) lost_units: AtomicU64,
    /// Jumps of a sender's clock.
    pub(super) clock_jumps: AtomicU64,
}

/// Start of each track as far as the server has announced it, and its time in the file.
pub(super) type TrackOrigins = (Vec<Option<TrackOrigin>>, Duration);

/// Progress of a packetizer.
#[derive(Default)]
struct Progress {
    /// PLAY was answered.
    has_begun: bool,
    /// Units whose bytes are in packets that are not passed on.
    ready_units: Option<u64>,
    /// Faults of the muxer that were logged.
    faults: usize,
    /// Units consumed whose packets were not passed on.
    unsent_units: u64,
    /// Time of the last packet; `None` before the first bytes of a file.
    sent_at: Option<Instant>,
    /// Time of the last bytes, or of the first unit.
    written_at: Option<Instant>,
    drops: DropLog,
}

/// Dropped units that were logged, and the time of that log line.
#[derive(Default)]
struct DropLog {
    units: u64,
    at: Option<Instant>,
}

impl Packetizer {
    pub(super) fn new(
        name: Arc<str>,
        muxer: TrackMuxer,
        sink: QueueSink,
        header: Header,
        origins: Receiver<TrackOrigins>,
        totals: Arc<MuxedTotals>,
        clock: Clock,
    ) -> Packetizer {
        let progress = Progress::default();
        Packetizer { name, muxer, sink, header, origins, totals, clock, progress }
    }

    /// Processes the units that are due.
    ///
    /// # Errors
    /// All tracks have ended, or their queue is closed.
    pub(super) fn step(&mut self, queue: &mut TrackQueue) -> Result<(), Ended> {
        if !self.progress.has_begun {
            match self.origins.try_recv() {
                Ok((origins, at)) => self.muxer.begin_at(&origins, at),
                // PLAY is not answered yet.
                Err(TryRecvError::Empty) if !queue.control.is_closed() => return Ok(()),
                Err(_) => {}
            }
            self.progress.has_begun = true;
        }
        let mut out = Vec::new();
        // Where the recorder is behind, the queue of units absorbs the input, up to its bound.
        while self.has_room() || queue.control.is_closed() {
            let next = queue.next(Duration::ZERO)?;
            let is_due = next.is_some();
            let is_heard = matches!(next, Some((_, TrackEvent::Unit(..))));
            match next {
                Some((track, event)) => {
                    self.progress.unsent_units += u64::from(is_heard);
                    self.muxer.take(track, event, &mut out);
                }
                None => self.muxer.check_time(&mut out),
            }
            self.flush_if_slow(is_heard, &mut out);
            self.put(&mut out, is_heard);
            self.report();
            if !is_due {
                break;
            }
        }
        self.flush();
        self.note_drops(queue, LOG_EVERY);
        Ok(())
    }

    /// Ends the file: its last packets are to be [flushed](Self::flush).
    pub(super) fn end(&mut self) {
        let mut out = Vec::new();
        self.muxer.end(&mut out);
        self.put(&mut out, false);
        self.report();
    }

    /// True if the next batch has room for more packets.
    fn has_room(&mut self) -> bool {
        self.sink.bytes() < BATCH_BYTES || self.flush()
    }

    /// Passes the finished packets on; false if the recorder has no room for them.
    pub(super) fn flush(&mut self) -> bool {
        if !self.sink.flush() {
            return false;
        }
        if let Some(units) = self.progress.ready_units.take() {
            self.progress.unsent_units -= units;
            self.progress.written_at = self.progress.sent_at;
        }
        true
    }

    /// Counts the units that could not be passed on.
    pub(super) fn finish(&mut self, queue: &TrackQueue) {
        if !self.flush() {
            // The last fragment has units that were consumed with those before it.
            queue.control.add_dropped(self.progress.unsent_units.max(1));
        }
        self.note_drops(queue, Duration::ZERO);
    }

    fn note_drops(&mut self, queue: &TrackQueue, at_most_every: Duration) {
        let units = queue.control.dropped_units();
        if units > self.progress.drops.units {
            self.progress.drops.note(&self.name, units, self.clock.now(), at_most_every);
        }
    }

    /// Ends the fragment of a camera whose times hardly advance, so that its units reach the disk.
    fn flush_if_slow(&mut self, is_heard: bool, out: &mut Vec<u8>) {
        if self.muxer.kind() != WriterKind::FragmentedMp4 || !out.is_empty() || !is_heard {
            return;
        }
        let now = self.clock.now();
        let since = *self.progress.written_at.get_or_insert(now);
        if now.saturating_duration_since(since) >= FLUSH_AFTER {
            self.muxer.flush(out);
            self.progress.written_at = Some(now);
        }
    }

    /// Makes packets of finished bytes.
    fn put(&mut self, out: &mut Vec<u8>, is_heard: bool) {
        let now = self.clock.now();
        let is_quiet = |sent: Instant| now.saturating_duration_since(sent) >= HEARD_EVERY;
        let shows_life = is_heard && self.progress.sent_at.is_some_and(is_quiet);
        if out.is_empty() && !(shows_life && self.muxer.kind() == WriterKind::FragmentedMp4) {
            return;
        }
        let ticks = self.muxer.reached().as_nanos() * u128::from(CLOCK_RATE_HZ) / 1_000_000_000;
        self.header.timestamp = ticks as u32;
        match self.muxer.kind() {
            WriterKind::FragmentedMp4 => self.put_parts(out),
            _ => self.put_stream(out, now),
        }
        if !out.is_empty() {
            self.progress.ready_units = Some(self.progress.unsent_units);
        }
        self.progress.sent_at = Some(now);
        out.clear();
    }

    /// Adds the packets of a transport stream to the next batch.
    fn put_stream(&mut self, out: &[u8], at: Instant) {
        for payload in out.chunks(PAYLOAD_BYTES) {
            self.add_packet(at, |packet| packet.extend_from_slice(payload));
        }
    }

    /// Adds the packets of whole fragments to the next batch, or one that shows that the camera
    /// sends.
    fn put_parts(&mut self, out: &[u8]) {
        let starts = self.muxer.take_file_starts();
        let Moment { at: now, wall } = self.clock.moment();
        let age = |arrived: Instant| now.saturating_duration_since(arrived);
        let began = |arrived| wall.checked_sub(age(arrived)).unwrap_or(wall);
        let starts = starts.iter().map(|start| (start.offset, Some(began(start.arrived))));
        let (mut at, mut file_began) = (0, None);
        for (end, next_began) in starts.chain([(out.len(), None)]) {
            if end > at || out.is_empty() {
                self.put_file(&out[at..end], file_began, now);
            }
            (at, file_began) = (end, next_began);
        }
    }

    /// Adds the packets of whole fragments of one file.
    fn put_file(&mut self, bytes: &[u8], mut file_began: Option<SystemTime>, now: Instant) {
        let mut rest = bytes;
        let parts = bytes.len().div_ceil(PART_BYTES_MAX).max(1);
        self.sink.reserve(now, bytes.len() + parts * (HEADER_BYTES + PART_HEAD_BYTES));
        loop {
            let (part, behind) = rest.split_at(rest.len().min(PART_BYTES_MAX));
            let ends_fragment = behind.is_empty() && !bytes.is_empty();
            let part = FilePart { file_began, ends_fragment, bytes: part };
            self.add_packet(now, |packet| part.append_to(packet));
            (rest, file_began) = (behind, None);
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Adds a packet with the next header, and the payload that `append` appends.
    fn add_packet(&mut self, at: Instant, append: impl FnOnce(&mut Vec<u8>)) {
        let header = self.header.write();
        self.sink.add(at, |packet| {
            packet.extend_from_slice(&header);
            append(packet);
        });
        self.header.sequence = self.header.sequence.wrapping_add(1);
    }

    /// Logs units that could not be written, and counts those with wrong times.
    fn report(&mut self) {
        let counts = self.muxer.counts();
        for fault in &counts.faults[self.progress.faults..] {
            tracing::warn!("{}: {fault}", self.name);
        }
        self.progress.faults = counts.faults.len();
        self.totals.lost_units.store(counts.lost_units, Ordering::Relaxed);
        self.totals.clock_jumps.store(counts.clock_jumps, Ordering::Relaxed);
    }
}

impl DropLog {
    /// Logs the units dropped so far, if there are more than before.
    fn note(&mut self, name: &str, units: u64, now: Instant, at_most_every: Duration) {
        let is_recent = |at| now.saturating_duration_since(at) < at_most_every;
        if units == self.units || self.at.is_some_and(is_recent) {
            return;
        }
        tracing::warn!(
            "{name}: {} of tracks dropped: this host was too slow to record them; record fewer \
             cameras on it, or lower their bit rates",
            counted(units, "access unit", "access units")
        );
        (self.units, self.at) = (units, Some(now));
    }
}

/// Longest time for which units of a camera that sends wait for the end of their fragment: less
/// than the silence that ends a session.
const FLUSH_AFTER: Duration = Duration::from_secs(5);
/// Bytes at which a batch is passed on before all units are processed.
const BATCH_BYTES: usize = 256 << 10;
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Interval of packets that show that the camera sends while a fragment grows: well below the
/// silence that the recorder counts as an outage.
const HEARD_EVERY: Duration = Duration::from_millis(200);
