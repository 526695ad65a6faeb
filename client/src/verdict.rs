// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of a play: figures for programs (serde), a report for people (`Display`).
//!
//! Three losses are distinguished, because their cures differ: packets that the network lost
//! (gaps), packets that this machine's kernel dropped because the program was too slow
//! (`kernel_drops`, which are among the gaps), and bytes that a slow disk kept out of the file.
//!
//! Sources: RFC 3550 §6.4.1 (loss, jitter).

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::transport::StreamTransport;

/// Result of a play.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// URL that was played.
    pub url: String,
    /// Transport of the packets.
    pub transport: StreamTransport,
    /// Reason for a transport other than the first one tried.
    pub transport_reason: Option<String>,
    /// Reason of the end.
    pub end: PlayEnd,
    /// Packets of the stream that arrived, duplicates and late ones included.
    pub packets: u64,
    /// Payload of these packets, each counted once, in bytes.
    pub payload_bytes: u64,
    /// Packets missing by their sequence numbers: from the one that RTP-Info named as the first to
    /// the highest that arrived.
    pub lost: u64,
    /// Further packets that the sender has counted (RTCP): they lie before the first or after the
    /// last that arrived.
    pub lost_at_ends: u64,
    /// Gaps, oldest first; at most [`wire::rtp::GAPS_MAX`].
    pub gaps: Vec<MissingPackets>,
    /// Gaps that do not fit the list.
    pub gaps_unlisted: u64,
    /// Packets that arrived again.
    pub duplicates: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Jumps of the sender to a distant sequence number.
    pub restarts: u64,
    /// Packets ignored because their number was far from all expected ones.
    pub strays: u64,
    /// Datagrams that are not of this stream: another host, SSRC or payload type.
    pub unexpected_source: u64,
    /// Datagrams on the RTP or the RTCP port that are neither RTP nor RTCP.
    pub malformed: u64,
    /// Frames of the RTSP connection on channels that SETUP has not named (RFC 2326 §10.12), and
    /// the channel of the last.
    pub unexpected_frames: u64,
    /// See `unexpected_frames`.
    pub unexpected_channel: Option<u8>,
    /// Bytes of the RTSP connection that belong to no frame and no message.
    pub stray_bytes: u64,
    /// Payloads that are not whole TS packets (RFC 2250 §2).
    pub bad_payload_size: u64,
    /// Packets that arrived more than 200 ms after PAUSE had been answered.
    pub while_paused: u64,
    /// Datagrams that the kernel of this machine dropped because the receive buffer was full; they
    /// are among the lost. None where the kernel does not count them.
    pub kernel_drops: Option<u64>,
    /// Receive buffer that the kernel granted, in bytes, its own overhead included.
    pub receive_buffer_bytes: usize,
    /// Interarrival jitter at the end (RFC 3550 A.8), in milliseconds.
    pub jitter_ms: f64,
    /// Lateness of the packets.
    pub lateness: LatenessMs,
    /// RTCP sender reports received.
    pub sender_reports: u64,
    /// RTCP datagrams sent: receiver reports, and BYE.
    pub reports_sent: u64,
    /// The sender has sent BYE.
    pub bye: bool,
    /// Pauses that the server granted.
    pub pauses: u32,
    /// Time from the answer to PLAY to the last packet, in seconds; pauses included.
    pub wall_s: f64,
    /// Time from the first timestamp to the last, in seconds; pauses not included.
    pub media_s: f64,
    /// Values announced by the server.
    pub announced: AnnouncedStream,
    /// Part of the announced range that had not arrived at BYE or at silence, in seconds; for a
    /// stream without an end, part of the requested length. It includes the last packet's own
    /// duration.
    pub short_s: Option<f64>,
    /// The sender ended a stream without an end, before the requested length if there was one: the
    /// length of the missing part is unknown.
    pub ended_early: bool,
    /// Tracks of a presentation; empty for a transport stream.
    pub tracks: Vec<TrackVerdict>,
    /// Streams of the description that were not played, each with its reason.
    pub left_out: Vec<String>,
    /// The output file, if one was requested.
    pub output: Option<RecordedFile>,
}

/// Result of one track of a presentation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TrackVerdict {
    /// Format as the description names it, such as `video H264/90000`.
    pub format: String,
    /// Name of the codec (RFC 6381), if its parameters were received.
    pub codec: Option<String>,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets missing by their sequence numbers.
    pub lost: u64,
    /// Access units that arrived complete: pictures, or audio frames.
    pub units: u64,
    /// Units at which decoding can begin.
    pub key_units: u64,
    /// Bytes of the complete units.
    pub unit_bytes: u64,
    /// Incomplete access units.
    pub broken_units: u64,
    /// Packets that violate their payload format.
    pub malformed_packets: u64,
    /// Time from the least timestamp to the greatest, in seconds.
    pub media_s: f64,
    /// Lateness of its packets; for video, against their decoding times.
    pub lateness: LatenessMs,
}

/// Reason why a play ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlayEnd {
    /// The sender sent BYE.
    Bye,
    /// The announced range had arrived, without BYE.
    Quiet,
    /// The requested length was reached, and the server continued.
    Length,
    /// The caller stopped the play.
    Stopped,
    /// No more packets arrived, and more were due.
    Silent {
        /// Length of the silence, in seconds.
        seconds: u64,
    },
    /// The RTSP connection or the session was lost.
    Closed {
        /// Reason of the loss.
        found: String,
    },
}

/// Values announced by the server in its answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AnnouncedStream {
    /// Range of the last answer to PLAY.
    pub range: Option<String>,
    /// First sequence number, from the first RTP-Info.
    pub sequence: Option<u16>,
    /// RTP timestamp of the start, from the first RTP-Info.
    pub timestamp: Option<u32>,
    /// First sequence number that arrived, where RTP-Info had named another and no loss explains
    /// the difference.
    pub first_received: Option<u16>,
    /// Time-out of an idle session, in seconds.
    pub session_timeout_s: u64,
}

/// Neighbouring packets that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MissingPackets {
    /// Sequence number of the first.
    pub sequence: u16,
    /// Number of packets.
    pub packets: u64,
}

/// Lateness of packets, in milliseconds: each against the earliest of its PLAY, which is the
/// strictest definition. It is the transit (arrival minus RTP timestamp) minus the least transit of
/// all packets since that PLAY; a jitter buffer must absorb it. One packet sent ahead of its time
/// makes all others late. Steps are 50 µs. Arrivals are the kernel's times: the scheduling delay of
/// the receiving thread is not included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LatenessMs {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
    /// Share of the packets that were later than `bound`, 0 to 1.
    pub late_share: f64,
    /// Bound beyond which a packet is late.
    pub bound: f64,
    /// Excess speed of this machine's clock over the sender's, in parts per million; it makes
    /// packets appear increasingly late. Known after a minute.
    pub drift_ppm: Option<f64>,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Bytes written.
    pub bytes: u64,
    /// Packets missing from it, by the gaps.
    pub missing: u64,
    /// Bytes that were left out because the disk was too slow.
    pub left_out_bytes: u64,
    /// Access units of tracks that were left out: the disk was too slow, or the file format cannot
    /// hold them.
    pub left_out_units: u64,
    /// Reasons for the first of them, and for tracks left out entirely.
    pub faults: Vec<String>,
}

impl Verdict {
    /// Returns true where every sent packet arrived and is in the file, and no part of the
    /// announced range or of the requested length is missing. Duplicates and reordering do no harm.
    pub fn is_whole(&self) -> bool {
        let is_complete = self.lost == 0
            && self.lost_at_ends == 0
            && self.restarts == 0
            && self.strays == 0
            && self.announced.first_received.is_none()
            && self.packets > 0;
        let ended = match self.end {
            PlayEnd::Bye | PlayEnd::Quiet => self.short_s.is_none_or(|short| short <= SHORT_S_MAX),
            PlayEnd::Length | PlayEnd::Stopped => true,
            PlayEnd::Silent { .. } | PlayEnd::Closed { .. } => false,
        };
        let written = |file: &RecordedFile| {
            file.missing == 0 && file.left_out_bytes == 0 && file.left_out_units == 0
        };
        let put_together = |track: &TrackVerdict| {
            track.units > 0 && track.broken_units == 0 && track.malformed_packets == 0
        };
        is_complete
            && ended
            && self.tracks.iter().all(put_together)
            && self.output.as_ref().is_none_or(written)
    }

    fn lost_in_all(&self) -> u64 {
        self.lost + self.lost_at_ends
    }

    fn warnings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut warn = |is: bool, text: fmt::Arguments<'_>| match is {
            true => writeln!(f, "  warning     {text}"),
            false => Ok(()),
        };
        let drops = self.kernel_drops.unwrap_or(0);
        warn(
            drops > 0,
            format_args!(
                "{drops} packets dropped here, not lost on the way: the receive buffer of {} \
                 bytes was full; raise net.core.rmem_max",
                self.receive_buffer_bytes
            ),
        )?;
        warn(
            self.restarts > 0,
            format_args!(
                "{} jumps of the sequence number; losses there are not known",
                self.restarts
            ),
        )?;
        warn(self.strays > 0, format_args!("{} packets with stray numbers", self.strays))?;
        if let (Some(named), Some(found)) = (self.announced.sequence, self.announced.first_received)
        {
            let rule = "(RFC 2326 §12.33)";
            warn(true, format_args!("RTP-Info named sequence {named}, and {found} came {rule}"))?;
        }
        warn(
            self.unexpected_source > 0,
            format_args!(
                "{} datagrams of another host, SSRC or payload type",
                self.unexpected_source
            ),
        )?;
        if let Some(channel) = self.unexpected_channel {
            let frames = self.unexpected_frames;
            let rule = "that SETUP has not named (RFC 2326 §10.12)";
            warn(true, format_args!("{frames} frames on channels {rule}, {channel} the last"))?;
        }
        warn(
            self.stray_bytes > 0,
            format_args!("{} bytes between frames (RFC 2326 §10.12)", self.stray_bytes),
        )?;
        warn(
            self.malformed > 0,
            format_args!("{} datagrams neither RTP nor RTCP", self.malformed),
        )?;
        warn(
            self.bad_payload_size > 0,
            format_args!(
                "{} payloads not of whole TS packets (RFC 2250 §2)",
                self.bad_payload_size
            ),
        )?;
        warn(
            self.while_paused > 0,
            format_args!("{} packets came while paused (RFC 2326 §10.6)", self.while_paused),
        )
    }
}

/// A report of some lines, each with its line end.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, self.end)?;
        if self.ended_early {
            write!(f, " after {:.1} s", self.media_s)?;
        }
        match self.is_whole() {
            // The length of the whole stream is unknown.
            true if self.ended_early => writeln!(f)?,
            true => writeln!(f, "; whole")?,
            false => writeln!(f, "; NOT whole")?,
        }
        match &self.transport_reason {
            Some(reason) => writeln!(f, "  transport   {}, since {reason}", self.transport)?,
            None => writeln!(f, "  transport   {}", self.transport)?,
        }
        let megabytes = self.payload_bytes as f64 / 1e6;
        write!(f, "  packets     {} ({megabytes:.1} MB)", self.packets)?;
        let lost = self.lost_in_all();
        let rate = 1e-3 * self.payload_bytes as f64 * 8.0 / self.media_s.max(1e-3);
        writeln!(
            f,
            ", {lost} lost, {} duplicates, {} reordered; {rate:.0} kb/s",
            self.duplicates, self.reordered
        )?;
        for track in &self.tracks {
            writeln!(f, "  track       {track}")?;
        }
        for left_out in &self.left_out {
            writeln!(f, "  not played  {left_out}")?;
        }
        if !self.gaps.is_empty() {
            let shown: Vec<_> =
                self.gaps.iter().take(GAPS_SHOWN).map(MissingPackets::to_string).collect();
            let more = self.gaps.len() as u64 - shown.len() as u64 + self.gaps_unlisted;
            let more = if more > 0 { format!(" and {more} more gaps") } else { String::new() };
            writeln!(f, "  lost        {}{more}", shown.join(", "))?;
        }
        if self.lost_at_ends > 0 {
            writeln!(f, "  lost        {} at the start or the end", self.lost_at_ends)?;
        }
        writeln!(f, "  lateness    {}", self.lateness)?;
        writeln!(f, "  jitter      {:.3} ms", self.jitter_ms)?;
        write!(f, "  time        {:.3} s of media in {:.3} s", self.media_s, self.wall_s)?;
        if self.pauses > 0 {
            write!(f, ", {} pause{}", self.pauses, if self.pauses == 1 { "" } else { "s" })?;
        }
        if let Some(range) = &self.announced.range {
            write!(f, "; announced {range}")?;
        }
        if let Some(short) = self.short_s.filter(|short| *short > SHORT_S_MAX) {
            write!(f, "; {short:.1} s of it did not come")?;
        }
        let bye = if self.bye { "BYE" } else { "no BYE" };
        writeln!(
            f,
            "\n  rtcp        {} sender reports and {bye} in, {} datagrams out",
            self.sender_reports, self.reports_sent
        )?;
        if let Some(file) = &self.output {
            write!(f, "  file        {}, {} bytes", file.path.display(), file.bytes)?;
            if file.left_out_units > 0 {
                write!(f, ", {} units left out", file.left_out_units)?;
            }
            for fault in &file.faults {
                write!(f, "; {fault}")?;
            }
            match (file.missing, file.left_out_bytes) {
                (0, 0) => writeln!(f)?,
                (missing, 0) => writeln!(f, ", {missing} packets missing")?,
                (missing, bytes) => writeln!(
                    f,
                    ", {missing} packets missing and {bytes} bytes left out: the disk was too slow"
                )?,
            }
        }
        self.warnings(f)
    }
}

impl fmt::Display for PlayEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlayEnd::Bye => f.write_str("ended by the server"),
            PlayEnd::Quiet => f.write_str("ended, and no BYE came"),
            PlayEnd::Length => f.write_str("played for the length asked for"),
            PlayEnd::Stopped => f.write_str("stopped"),
            PlayEnd::Silent { seconds } => {
                write!(f, "no packet of the stream came for {seconds} s")
            }
            PlayEnd::Closed { found } => write!(f, "{found}"),
        }
    }
}

impl fmt::Display for TrackVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrackVerdict { format, units, key_units, broken_units, malformed_packets, .. } = self;
        let codec = self.codec.as_deref().unwrap_or("parameters never came");
        write!(f, "{format} ({codec}): {units} whole units")?;
        if key_units != units {
            write!(f, ", {key_units} of them key frames")?;
        }
        match (broken_units, malformed_packets) {
            (0, 0) => Ok(()),
            _ => write!(f, ", {broken_units} broken, {malformed_packets} packets malformed"),
        }
    }
}

impl fmt::Display for MissingPackets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.packets {
            1 => write!(f, "{}", self.sequence),
            packets => write!(f, "{} (+{})", self.sequence, packets - 1),
        }
    }
}

impl fmt::Display for LatenessMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LatenessMs { p50, p90, p99, p999, max, .. } = self;
        write!(f, "p50 {p50:.2}, p90 {p90:.2}, p99 {p99:.2}, p99.9 {p999:.2}, max {max:.2} ms; ")?;
        write!(f, "{:.3} % later than {} ms", self.late_share * 100.0, self.bound)?;
        match self.drift_ppm {
            Some(ppm) if ppm.abs() >= DRIFT_PPM_REPORTED => {
                write!(f, "; clocks drift {ppm:+.0} ppm")
            }
            _ => Ok(()),
        }
    }
}

/// Allowance at the end of the announced range: the last packet's duration, and rounding.
pub(super) const SHORT_S_MAX: f64 = 0.5;
const GAPS_SHOWN: usize = 8;
const DRIFT_PPM_REPORTED: f64 = 1.0;
