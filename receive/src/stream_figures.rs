// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a recording: a row for each stream, and the cost of the path.
//!
//! Does not compute rates: a caller derives them from two samples.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client::{RefusedCounts, RefusedSender};
use serde::Serialize;
use wire::rtp::Reception;

use crate::receiving_thread::lock;
use crate::recorded_input::RecordedInput;
use crate::recorded_stream::RecordedStream;
use crate::recording::StreamState;

/// Figures of one stream so far.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct StreamFigures {
    /// URL of the source, as it was given.
    pub url: String,
    /// Name of a camera that is recorded for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub camera: Option<String>,
    /// Names of a camera's tracks that are recorded; none for a transport stream.
    pub tracks: Vec<String>,
    /// `rtp`, `ts` (bare), or empty before the form is known.
    pub form: &'static str,
    /// Address of the sender.
    pub sender: Option<String>,
    /// SSRC in eight hexadecimal digits.
    pub ssrc: Option<String>,
    /// Datagrams of the stream.
    pub packets: u64,
    /// Delivered payload, in bytes.
    pub payload_bytes: u64,
    /// RTP packets missing by their numbers (RFC 3550 A.3, duplicates left out).
    pub lost: u64,
    /// RTP packets that are not in the file: lost, or too late.
    pub missing: u64,
    /// RTP packets that arrived after one with a higher number.
    pub reordered: u64,
    /// RTP packets that arrived again.
    pub duplicates: u64,
    /// RTP packets that arrived after the window had given them up.
    pub late: u64,
    /// Restarts of the sequence numbers.
    pub restarts: u64,
    /// Interarrival jitter (RFC 3550 A.8), in milliseconds: of a camera that of the track where it
    /// is largest.
    pub jitter_ms: f64,
    /// Jumps of the clock of a camera's track: its timeline continued.
    pub clock_jumps: u64,
    /// RTP sources received.
    pub sources: u64,
    /// Number of times that a source was chosen: 1 for a stream with one sender.
    pub sources_followed: u64,
    /// Sources that did not fit the table.
    pub sources_forgotten: u64,
    /// Datagrams of other senders, sources or payload types.
    pub unexpected_source: u64,
    /// Refused datagrams by reason: those of unexpected sources, malformed, or of bad size.
    pub refused: RefusedCounts,
    /// Refused senders, 16 at most, with reasons.
    pub refused_senders: Vec<RefusedSender>,
    /// Datagrams of refused senders beyond those.
    pub refused_of_others: u64,
    /// BYE packets for the stream from another address, or followed by more packets of the stream.
    pub byes_refused: u64,
    /// Datagrams that are neither RTP nor a transport stream.
    pub malformed: u64,
    /// RTP packets whose payload is not a whole number of transport stream packets.
    pub bad_payload_size: u64,
    /// Transport stream packets.
    pub ts_packets: u64,
    /// TR 101 290, 1.4.
    pub continuity_errors: u64,
    /// TR 101 290, 1.2.
    pub sync_byte_errors: u64,
    /// TR 101 290, 1.1.
    pub sync_losses: u64,
    /// TR 101 290, 2.1.
    pub transport_errors: u64,
    /// TR 101 290, 2.3.
    pub clock_discontinuities: u64,
    /// Peak to peak since the last sample (PCR_OJ, TR 101 290 §5.3.2), in milliseconds.
    pub clock_jitter_ms: f64,
    /// The largest distance from the mean.
    pub clock_jitter_ms_max: f64,
    /// Resumptions of the stream after a silence of at least a second.
    pub outages: u64,
    /// Length of these outages in all, in seconds.
    pub outage_s: f64,
    /// Length of the present silence, in seconds; none while the stream is received.
    pub silent_s: Option<f64>,
    /// Datagrams that the kernel dropped because a buffer was full.
    pub dropped_by_kernel: u64,
    /// Transport stream packets dropped because the disk was too slow, or refused them.
    pub dropped_by_disk: u64,
    /// Bytes of MP4 dropped because the disk was too slow, or refused them.
    pub bytes_dropped_by_disk: u64,
    /// Access units of tracks that this host was too slow to multiplex.
    pub dropped_units: u64,
    /// Datagrams to be relayed that a socket refused.
    pub dropped_by_relay: u64,
    /// Datagrams that could not be held before the answer to PLAY arrived.
    pub dropped_too_early: u64,
    /// Bytes in the files.
    pub written_bytes: u64,
    /// Number of files begun.
    pub files: u64,
    /// The current file, or the last.
    #[serde(serialize_with = "shown_path")]
    pub file: Option<PathBuf>,
    /// Files of a camera that its rules have deleted.
    pub files_deleted: u64,
    /// Bytes of these files.
    pub bytes_deleted: u64,
    /// Files of a camera whose program (`on_file`) failed or was not run.
    pub on_file_failed: u64,
    /// RTCP sender reports received.
    pub sender_reports: u64,
    /// Receiver reports sent.
    pub reports_sent: u64,
    /// True if the sender has sent BYE.
    pub has_sent_bye: bool,
    /// RTSP sessions begun with a server.
    pub sessions: u64,
    /// Media of a title that is in the file twice, in seconds: its server resumed at the random
    /// access point before the position reached.
    pub repeated_s: f64,
    /// Announced end of a title, in seconds of normal play time.
    pub title_s: Option<f64>,
    /// Position in the title that its ended sessions have reached, in seconds of normal play time.
    pub reached_s: Option<f64>,
    /// Reason of the last session's end; the server was asked again.
    pub trouble: Option<String>,
    /// Reason why the stream has ended.
    pub ended: Option<String>,
    /// True if that reason is a fault.
    pub has_failed: bool,
}

/// Figures of a whole recording.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Name of the receive path.
    pub path: String,
    /// Preferred paths that were refused, with reasons.
    pub refused: Vec<String>,
    /// Length of the recording so far.
    pub seconds: f64,
    /// Datagrams from the path.
    pub packets: u64,
    /// Payload of UDP, in bytes.
    pub bytes: u64,
    /// System calls that moved datagrams.
    pub calls: u64,
    /// System calls that waited.
    pub waits: u64,
    /// Bytes copied between kernel and user memory.
    pub copied_bytes: u64,
    /// Datagrams longer than their receive buffer.
    pub truncated: u64,
    /// Malformed frames, on a path that reads frames.
    pub malformed_frames: u64,
    /// Errors of the path.
    pub path_errors: u64,
    /// The last error of the path.
    pub last_path_error: Option<String>,
    /// Successful calls of fdatasync(2).
    pub syncs: u64,
    /// Refused calls of fdatasync(2).
    pub syncs_failed: u64,
    /// One row for each stream.
    pub streams: Vec<StreamFigures>,
    /// True if files are written.
    #[serde(skip)]
    pub writes_files: bool,
}

impl StreamFigures {
    /// Figures of one stream at `now` on the recording's clock, without those of the receiving
    /// thread.
    pub(crate) fn of(
        row: &RecordedInput,
        shared: &StreamState,
        stream: &Mutex<RecordedStream>,
        now: Duration,
    ) -> StreamFigures {
        let mut stream = lock(stream);
        let clock_jitter = stream.monitor().take_jitter_ticks();
        let (counts, seen) = (stream.counts(), *stream.monitor().counts());
        let tracks = stream.track_counts();
        let refused = stream.refused();
        let (mut refused_counts, refused_senders, refused_of_others) =
            (refused.counts(), refused.senders().to_vec(), refused.others());
        let malformed = refused_counts.malformed + refused_counts.size;
        refused_counts.size += counts.bad_payload_size;
        let sources = stream.sources();
        let source = sources.followed().or(sources.valid().last());
        let source = source.filter(|source| source.ssrc.is_some());
        let reception = source.map(|source| &source.reception);
        let count = |of: fn(&Reception) -> u64| reception.map_or(0, of);
        let track_names = lock(&shared.tracks).clone();
        let jitter = match track_names.is_empty() {
            true => reception.map_or(Duration::ZERO, Reception::jitter_time),
            // The packets of the stream were made on this host.
            false => tracks.jitter,
        };
        let (written, rtcp) = (&shared.written, *lock(&shared.rtcp));
        let refusal = lock(&shared.refusal).clone();
        let progress = *lock(&shared.progress);
        // A camera's files may be written again after a failure.
        let has_failed = written.has_failed.load(Ordering::Relaxed);
        let of_files = lock(&written.failure).clone();
        let (failure, mended) = if has_failed { (of_files, None) } else { (None, of_files) };
        let failure = failure.or(refusal);
        let is_over = shared.is_over.load(Ordering::Relaxed);
        StreamFigures {
            url: row.options.url.clone(),
            camera: row.camera().map(|files| files.camera.clone()),
            tracks: track_names,
            form: match (stream.is_bare(), source) {
                (true, _) => "ts",
                (false, Some(_)) => "rtp",
                (false, None) => "",
            },
            sender: stream.last_packet().map(|(_, sender)| sender.to_string()),
            ssrc: source.and_then(|source| source.ssrc).map(|ssrc| format!("{ssrc:08x}")),
            packets: counts.packets,
            payload_bytes: counts.payload_bytes,
            lost: count(Reception::lost) + tracks.lost_packets,
            missing: stream.missing() + tracks.lost_packets,
            reordered: count(Reception::reordered) + tracks.reordered,
            duplicates: count(Reception::duplicates) + tracks.duplicates,
            late: stream.late() + tracks.late,
            restarts: count(Reception::restarts) + tracks.restarts,
            jitter_ms: jitter.as_secs_f64() * 1e3,
            clock_jumps: tracks.clock_jumps,
            sources: sources.valid().filter(|s| s.ssrc.is_some()).count() as u64,
            sources_followed: sources.chosen(),
            sources_forgotten: sources.forgotten(),
            unexpected_source: refused_counts.unexpected_source(),
            refused: refused_counts,
            refused_senders,
            refused_of_others,
            byes_refused: rtcp.byes_refused + sources.refuted_byes() + tracks.byes_refused,
            malformed,
            bad_payload_size: counts.bad_payload_size,
            ts_packets: seen.packets,
            continuity_errors: seen.continuity_errors,
            sync_byte_errors: seen.sync_byte_errors,
            sync_losses: seen.sync_losses,
            transport_errors: seen.transport_errors,
            clock_discontinuities: seen.clock_discontinuities,
            clock_jitter_ms: ticks_ms(clock_jitter),
            clock_jitter_ms_max: ticks_ms(seen.jitter_ticks_max),
            outages: counts.outages,
            outage_s: counts.outage.as_secs_f64(),
            silent_s: stream.silence(now).map(|silence| silence.as_secs_f64()),
            dropped_by_disk: stream.dropped_packets()
                + written.dropped_packets.load(Ordering::Relaxed),
            bytes_dropped_by_disk: stream.dropped_bytes()
                + written.dropped_bytes.load(Ordering::Relaxed),
            dropped_units: tracks.dropped_units,
            // The recording adds the drops at its own ports.
            dropped_by_kernel: tracks.dropped_by_kernel,
            dropped_too_early: counts.too_early,
            written_bytes: written.bytes.load(Ordering::Relaxed),
            files: written.files.load(Ordering::Relaxed),
            file: lock(&written.path).clone(),
            files_deleted: shared.kept.deleted.load(Ordering::Relaxed),
            bytes_deleted: shared.kept.deleted_bytes.load(Ordering::Relaxed),
            on_file_failed: shared.kept.commands_failed.load(Ordering::Relaxed),
            sender_reports: rtcp.sender_reports + tracks.sender_reports,
            reports_sent: rtcp.sent + tracks.reports_sent,
            has_sent_bye: rtcp.byes > 0,
            sessions: shared.sessions.load(Ordering::Relaxed),
            title_s: progress.end.map(|end| end.as_secs_f64()),
            reached_s: progress.reached.map(|reached| reached.as_secs_f64()),
            repeated_s: progress.repeated.as_secs_f64(),
            has_failed: failure.is_some(),
            ended: failure.or_else(|| is_over.then(|| "complete".to_owned())),
            trouble: lock(&shared.trouble).clone().or(mended),
            ..StreamFigures::default()
        }
    }
}

/// Writes a path as text; one that is not UTF-8 with replacement characters.
fn shown_path<S: serde::Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

fn ticks_ms(ticks: u64) -> f64 {
    ticks as f64 * 1e3 / media::TICKS_PER_SECOND as f64
}

impl Summary {
    /// True if every stream was received and is in a file, none was ended by a fault, and none lost
    /// anything between the kernel and the disk. Losses in the network are in the figures and do
    /// not count here.
    pub fn is_whole(&self) -> bool {
        self.syncs_failed == 0
            && self.streams.iter().all(|stream| {
                stream.packets > 0
                    && !stream.has_failed
                    && stream.dropped_by_kernel + stream.dropped_by_disk + stream.dropped_by_relay
                        == 0
                    && stream.dropped_units + stream.dropped_too_early == 0
                    && stream.bytes_dropped_by_disk == 0
                    && stream.on_file_failed == 0
                    && (stream.files > 0 || !self.writes_files)
            })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use client::TrackCounts;

    use super::*;
    use crate::recorded_stream::AnnouncedSession;
    use crate::stream_options::StreamOptions;

    fn row() -> RecordedInput {
        RecordedInput::new(&StreamOptions::new("rtsp://h/t".to_owned())).unwrap()
    }

    fn figures(stream: RecordedStream, now: Duration) -> StreamFigures {
        StreamFigures::of(&row(), &StreamState::default(), &Mutex::new(stream), now)
    }

    #[test]
    fn a_stream_that_is_interrupted_has_its_silence_until_it_is_back() {
        let from = SocketAddr::from(([127, 0, 0, 1], 5004));
        let second = Duration::from_secs(1);
        let stream = || {
            let mut stream = RecordedStream::new(Vec::new(), Duration::ZERO, None);
            for number in 0..20 {
                let header = [0x80, 33, 0, number, 0, 0, 0, 0, 0, 0, 0, 7];
                stream.take(&[&header[..], &[0x47; 188]].concat(), from, second);
            }
            stream.tick(second * 2 - second / 2);
            stream
        };
        assert_eq!(figures(stream(), second * 2).silent_s, None);
        let mut silent = stream();
        silent.tick(second * 2);
        assert_eq!(figures(silent, second * 5).silent_s, Some(4.0));
        let mut back = stream();
        back.tick(second * 2);
        let header = [0x80, 33, 0, 20, 0, 0, 0, 0, 0, 0, 0, 7];
        back.take(&[&header[..], &[0x47; 188]].concat(), from, second * 3);
        let found = figures(back, second * 5);
        assert_eq!((found.silent_s, found.outages, found.outage_s), (None, 1, 2.0));
    }

    #[test]
    fn a_flood_before_the_answer_to_play_is_a_loss_on_this_host() {
        let from = SocketAddr::from(([127, 0, 0, 1], 5004));
        let mut stream = RecordedStream::new(Vec::new(), Duration::ZERO, None);
        let (host, is_resumed) = (from.ip(), true);
        stream.announce(AnnouncedSession {
            host,
            port: None,
            payload_type: 33,
            ssrc: None,
            is_resumed,
        });
        let summary = |stream: RecordedStream| {
            let figures = figures(stream, Duration::ZERO);
            let streams = vec![StreamFigures { packets: 1, ..figures }];
            Summary { streams, ..Summary::default() }
        };
        for _ in 0..7000 {
            stream.take(&[0x80; 1328], from, Duration::ZERO);
        }
        let flooded = summary(stream);
        let dropped = flooded.streams[0].dropped_too_early;
        assert!((500..2000).contains(&dropped), "{dropped}");
        assert!(!flooded.is_whole());
        assert_eq!(flooded.streams[0].refused.sender, 0);
        assert!(summary(RecordedStream::new(Vec::new(), Duration::ZERO, None)).is_whole());
    }

    #[test]
    fn units_of_tracks_that_this_host_was_too_slow_for_are_a_loss_on_it() {
        let mut stream = RecordedStream::new(Vec::new(), Duration::ZERO, None);
        let mut counts = TrackCounts::default();
        (counts.sender_reports, counts.dropped_units) = (1, 2);
        stream.set_track_counts(counts);
        stream.end_tracks();
        stream.set_track_counts(counts);
        let figures = figures(stream, Duration::ZERO);
        assert_eq!((figures.sender_reports, figures.dropped_units), (2, 4));
        let streams = vec![StreamFigures { packets: 1, ..figures }];
        assert!(!Summary { streams, ..Summary::default() }.is_whole());
    }
}
