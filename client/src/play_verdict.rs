// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes the verdict of a play from the final statistics of its streams.
//!
//! Counts at the top level are sums over all streams; the tracks of a presentation are also listed
//! separately.
//!
//! Sources: RFC 3550 §6.4.1 (loss), A.1.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::lateness::{LATE, Lateness};
use super::packet_intake::ReceiveResult;
use super::play_session::{PlaySession, lost, media_of};
use super::stream_stats::{StreamStats, lock};
use super::track_file::WrittenTracks;
use super::transport::StreamTransport;
use super::verdict::{MissingPackets, PlayEnd, RecordedFile, SHORT_S_MAX, TrackVerdict, Verdict};

/// A stream whose thread has ended.
pub(super) struct EndedStream {
    pub(super) stats: Arc<Mutex<StreamStats>>,
    pub(super) result: ReceiveResult,
    /// Its format as the description names it; none for a transport stream.
    pub(super) track: Option<String>,
    pub(super) clock_rate_hz: u32,
    pub(super) buffer_bytes: usize,
    pub(super) reports_sent: u64,
}

impl PlaySession {
    /// Computes the verdict.
    pub(super) fn verdict(
        mut self,
        end: PlayEnd,
        streams: &[EndedStream],
        file: Option<WrittenTracks>,
    ) -> Verdict {
        let mut verdict = Verdict::of_nothing(self.options.url.clone(), end);
        verdict.lateness = Lateness::default().milliseconds(LATE);
        let ended_by_itself =
            matches!(verdict.end, PlayEnd::Bye | PlayEnd::Quiet | PlayEnd::Silent { .. });
        let mut all = Lateness::default();
        for (index, stream) in streams.iter().enumerate() {
            let mut stats = lock(&stream.stats);
            let wall = stats.packets.last.map(|last| last.saturating_duration_since(self.began));
            verdict.wall_s = verdict.wall_s.max(wall.unwrap_or_default().as_secs_f64());
            let first = stats.receiver.sources.first_received;
            self.announced.first_received = self.announced.first_received.or(first);
            let short_s = self.short_of(&stats, index, stream.clock_rate_hz);
            if let Some(short_s) = short_s.filter(|_| ended_by_itself) {
                verdict.short_s = Some(match (verdict.end == PlayEnd::Bye, verdict.short_s) {
                    // Each track ends with its last frame, and the longest one ends with the title.
                    (true, least) => {
                        let step = stats.packets.longest_step;
                        let short_s = short_s - f64::from(step) / f64::from(stream.clock_rate_hz);
                        least.map_or(short_s, |least| least.min(short_s)).max(0.0)
                    }
                    (false, most) => most.map_or(short_s, |most| most.max(short_s)),
                });
            }
            let media_s = media_of(&stats, stream.clock_rate_hz).as_secs_f64();
            verdict.media_s = verdict.media_s.max(media_s);
            verdict.add(&stats, stream);
            if let Some(format) = &stream.track {
                verdict.tracks.push(track_verdict(&stats, stream, format, media_s));
            }
            let clock_rate_hz = stream.clock_rate_hz;
            let own = Lateness::new(clock_rate_hz);
            all.merge(std::mem::replace(&mut stats.packets.lateness, own));
        }
        verdict.lateness = all.milliseconds(LATE);
        // A sparse track may end long before the others.
        let early_s = self.early_s(&verdict.end, verdict.media_s);
        if verdict.short_s.is_none() {
            verdict.short_s = early_s.filter(|_| self.options.length.is_some());
        }
        verdict.ended_early = early_s.is_some();
        verdict.pauses = self.pauses;
        verdict.announced = self.announced;
        verdict.left_out = self.left_out;
        verdict.output = self.options.output.and_then(|path| match (file, streams) {
            (Some(written), _) => Some(RecordedFile {
                path,
                bytes: written.bytes,
                missing: 0,
                left_out_bytes: 0,
                left_out_units: written.left_out_units,
                faults: written.faults,
            }),
            (None, [stream]) => stream.result.written.map(|written| RecordedFile {
                path,
                bytes: written.bytes,
                missing: stream.result.file_missing,
                left_out_bytes: written.left_out_bytes,
                left_out_units: 0,
                faults: Vec::new(),
            }),
            _ => None,
        });
        verdict
    }

    /// Seconds missing from the requested length, for a stream without an end of its own that the
    /// sender has ended; 0 where no length was requested. None for any other end.
    fn early_s(&self, end: &PlayEnd, media_s: f64) -> Option<f64> {
        let has_end = self.described.is_some() || !self.is_open;
        if has_end || *end != PlayEnd::Bye {
            return None;
        }
        let Some(length) = self.options.length else { return Some(0.0) };
        let short = length.as_secs_f64() - media_s;
        (short > SHORT_S_MAX).then_some(short)
    }
}

impl Verdict {
    /// A verdict without any stream.
    fn of_nothing(url: String, end: PlayEnd) -> Verdict {
        Verdict {
            url,
            end,
            transport: StreamTransport::Udp,
            transport_reason: None,
            packets: 0,
            payload_bytes: 0,
            lost: 0,
            lost_at_ends: 0,
            gaps: Vec::new(),
            gaps_unlisted: 0,
            duplicates: 0,
            reordered: 0,
            restarts: 0,
            strays: 0,
            unexpected_source: 0,
            malformed: 0,
            unexpected_frames: 0,
            unexpected_channel: None,
            stray_bytes: 0,
            bad_payload_size: 0,
            while_paused: 0,
            kernel_drops: None,
            receive_buffer_bytes: 0,
            jitter_ms: 0.0,
            lateness: super::verdict::LatenessMs::default(),
            sender_reports: 0,
            reports_sent: 0,
            bye: true,
            pauses: 0,
            wall_s: 0.0,
            media_s: 0.0,
            announced: super::verdict::AnnouncedStream::default(),
            short_s: None,
            ended_early: false,
            tracks: Vec::new(),
            left_out: Vec::new(),
            output: None,
        }
    }

    /// Adds the counts of a stream.
    fn add(&mut self, stats: &StreamStats, stream: &EndedStream) {
        let reception = stats.reception();
        self.packets += reception.received();
        self.payload_bytes += stats.packets.payload_bytes;
        self.lost += lost(reception);
        self.lost_at_ends += lost_at_ends(stats);
        let gap = |gap: &wire::rtp::Gap| MissingPackets {
            sequence: gap.first as u16,
            packets: gap.packets,
        };
        self.gaps.extend(reception.gaps().iter().map(gap));
        self.gaps_unlisted += reception.gaps_unlisted();
        self.duplicates += reception.duplicates();
        self.reordered += reception.reordered();
        self.restarts += reception.restarts();
        self.strays += reception.strays();
        self.unexpected_source += stats.packets.unexpected_source;
        self.malformed += stats.packets.malformed + stats.rtcp.malformed;
        self.bad_payload_size += stats.packets.bad_payload_size;
        self.while_paused += stats.packets.while_paused;
        if let Some(drops) = stats.kernel_drops {
            self.kernel_drops = Some(self.kernel_drops.unwrap_or(0) + drops);
        }
        self.receive_buffer_bytes = self.receive_buffer_bytes.max(stream.buffer_bytes);
        self.jitter_ms = self.jitter_ms.max(ms(reception.jitter_time()));
        self.sender_reports += stats.rtcp.sender_reports;
        self.reports_sent += stream.reports_sent;
        self.bye &= stats.has_sent_bye();
    }
}

fn track_verdict(
    stats: &StreamStats,
    stream: &EndedStream,
    format: &str,
    media_s: f64,
) -> TrackVerdict {
    TrackVerdict {
        format: format.to_owned(),
        codec: stream.result.codec.as_ref().map(|codec| codec.name()),
        packets: stats.reception().received(),
        lost: lost(stats.reception()),
        units: stats.units.units,
        key_units: stats.units.starts,
        unit_bytes: stats.units.bytes,
        broken_units: stats.units.broken_units,
        malformed_packets: stats.units.malformed_packets,
        media_s,
        lateness: stats.packets.lateness.milliseconds(LATE),
    }
}

/// Packets counted by the sender that no gap shows.
fn lost_at_ends(stats: &StreamStats) -> u64 {
    let Some((sender, _)) = stats.rtcp.last_sender else { return 0 };
    // Both counts are modulo 2^32. The count of a sender that started before this session (a relay)
    // differs by more than any stream loses at its ends.
    let beyond = sender.packets.wrapping_sub(stats.reception().expected() as u32);
    if stats.reception().restarts() == 0 && beyond <= LOST_AT_ENDS_MAX {
        u64::from(beyond)
    } else {
        0
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(super) const LOST_AT_ENDS_MAX: u32 = 1 << 16;
