// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a play came to: figures for programs (serde), a report for people (`Display`).
//!
//! Three losses are told apart, because their cures differ: packets the network lost (gaps),
//! packets the kernel dropped here since this machine was too slow (`kernel_drops`, which are among
//! the gaps), and bytes a slow disk kept out of the file.
//!
//! Sources: RFC 3550 §6.4.1 (loss, jitter).

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// What a play came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// What was played.
    pub url: String,
    /// Why it ended.
    pub end: PlayEnd,
    /// Packets of the stream that came, duplicates and late ones included.
    pub packets: u64,
    /// Payload of the packets that came, each counted once, in bytes.
    pub payload_bytes: u64,
    /// Packets that should have come and did not, by their sequence numbers: from the one that
    /// RTP-Info named as the first up to the highest that came.
    pub lost: u64,
    /// Packets beyond those: the sender counts them as sent (RTCP), and they lie before the first
    /// or after the last that came.
    pub lost_at_ends: u64,
    /// Where packets are missing, oldest first; at most [`wire::rtp::GAPS_MAX`].
    pub gaps: Vec<MissingPackets>,
    /// Gaps that found no room in the list.
    pub gaps_unlisted: u64,
    /// Packets that came once more.
    pub duplicates: u64,
    /// Packets that came after one with a higher number.
    pub reordered: u64,
    /// How often the sender went on from quite another sequence number.
    pub restarts: u64,
    /// Packets ignored because their number was far from all that were expected.
    pub strays: u64,
    /// Datagrams that were not of this stream: another host, SSRC or payload type.
    pub unexpected_source: u64,
    /// Datagrams on the RTP or the RTCP port that were neither.
    pub malformed: u64,
    /// Payloads that were not whole TS packets (RFC 2250 §2).
    pub bad_payload_size: u64,
    /// Packets that came more than 200 ms after PAUSE had been answered.
    pub while_paused: u64,
    /// Datagrams that the kernel of this machine dropped because the receive buffer was full; they
    /// are among the lost. None where it does not say.
    pub kernel_drops: Option<u64>,
    /// The receive buffer that the kernel granted, in bytes, its own overhead included.
    pub receive_buffer_bytes: usize,
    /// Interarrival jitter at the end (RFC 3550 A.8), in milliseconds.
    pub jitter_ms: f64,
    /// How late packets came.
    pub lateness: LatenessMs,
    /// RTCP sender reports that came.
    pub sender_reports: u64,
    /// RTCP datagrams sent: receiver reports, and BYE.
    pub reports_sent: u64,
    /// Whether the sender said BYE.
    pub bye: bool,
    /// Times that PAUSE was asked for and granted.
    pub pauses: u32,
    /// From the answer to PLAY to the last packet, in seconds; pauses included.
    pub wall_s: f64,
    /// From the first timestamp to the last, in seconds; pauses not included.
    pub media_s: f64,
    /// What the server announced.
    pub announced: AnnouncedStream,
    /// How much of what was announced had not come at a BYE or at silence, in seconds. The last
    /// packet's own duration is in it.
    pub short_s: Option<f64>,
    /// The file, where one was asked for.
    pub output: Option<RecordedFile>,
}

/// Why a play ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlayEnd {
    /// The sender said BYE.
    Bye,
    /// What was announced had come; BYE had not.
    Quiet,
    /// The length that was asked for was reached, and the server went on.
    Length,
    /// Stopped from here.
    Stopped,
    /// Nothing came any more, and more was due.
    Silent {
        /// For how long, in seconds.
        seconds: u64,
    },
    /// The RTSP connection or the session was lost.
    Closed {
        /// How.
        found: String,
    },
}

/// What the answers of the server said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AnnouncedStream {
    /// The Range of the (last) answer to PLAY.
    pub range: Option<String>,
    /// The first sequence number, from the first RTP-Info.
    pub sequence: Option<u16>,
    /// The RTP timestamp of the start, from the first RTP-Info.
    pub timestamp: Option<u32>,
    /// What came first, where it was not what RTP-Info had named and no loss explains it.
    pub first_received: Option<u16>,
    /// The life of a session nobody is heard from, in seconds.
    pub session_timeout_s: u64,
}

/// Neighbouring packets that did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MissingPackets {
    /// The sequence number of the first.
    pub sequence: u16,
    /// How many.
    pub packets: u64,
}

/// How late packets were, in milliseconds: each against the earliest of its PLAY, which is the
/// strictest reading. Its transit (arrival minus RTP timestamp) less the least transit of all
/// packets since that PLAY; what a jitter buffer must hold. A packet sent ahead of its time so
/// makes all others late. Told apart in steps of 50 µs. Arrivals are the kernel's times: the
/// scheduling delay of the receiving thread is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LatenessMs {
    /// Half of the packets were not later than this.
    pub p50: f64,
    /// Nine in ten.
    pub p90: f64,
    /// 99 in a hundred.
    pub p99: f64,
    /// 999 in a thousand.
    pub p999: f64,
    /// The latest.
    pub max: f64,
    /// Share of the packets that were later than `bound`, 0 to 1.
    pub late_share: f64,
    /// Later than this is late.
    pub bound: f64,
    /// How much faster this machine's clock ran than the sender's, in parts per million; it lets
    /// packets seem ever later. Known after a minute.
    pub drift_ppm: Option<f64>,
}

/// The file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RecordedFile {
    /// Where.
    pub path: PathBuf,
    /// Bytes written.
    pub bytes: u64,
    /// Packets that it lacks, by the gaps.
    pub missing: u64,
    /// Bytes that came and were left out because the disk was too slow.
    pub left_out_bytes: u64,
}

impl Verdict {
    /// Whether all that was to come came, and is in the file. Duplicates and reordering do no harm.
    pub fn is_whole(&self) -> bool {
        let came = self.lost == 0
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
        let written = |file: &RecordedFile| file.missing == 0 && file.left_out_bytes == 0;
        came && ended && self.output.as_ref().is_none_or(written)
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

/// A report of some lines, the last with its line end.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.is_whole() { "whole" } else { "NOT whole" };
        writeln!(f, "{}: {}; {whole}", self.url, self.end)?;
        let megabytes = self.payload_bytes as f64 / 1e6;
        write!(f, "  packets     {} ({megabytes:.1} MB)", self.packets)?;
        let lost = self.lost_in_all();
        let rate = 1e-3 * self.payload_bytes as f64 * 8.0 / self.media_s.max(1e-3);
        writeln!(
            f,
            ", {lost} lost, {} duplicates, {} reordered; {rate:.0} kb/s",
            self.duplicates, self.reordered
        )?;
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
            PlayEnd::Silent { seconds } => write!(f, "no packet came for {seconds} s"),
            PlayEnd::Closed { found } => write!(f, "{found}"),
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
            Some(ppm) if ppm.abs() >= DRIFT_PPM_TOLD => write!(f, "; clocks drift {ppm:+.0} ppm"),
            _ => Ok(()),
        }
    }
}

/// So much may be missing of what was announced: the last packet's duration, and rounding.
pub(super) const SHORT_S_MAX: f64 = 0.5;
const GAPS_SHOWN: usize = 8;
const DRIFT_PPM_TOLD: f64 = 1.0;
