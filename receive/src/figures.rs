// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a recording: a row a stream, and the path's bill.
//!
//! Does not do: rates; whoever shows them looks twice.

use std::path::PathBuf;

use serde::Serialize;

/// One stream so far.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// The source as it was written.
    pub url: String,
    /// `rtp`, `ts` (bare), or nothing so far.
    pub form: &'static str,
    /// Who sends, and by RTP the source's identifier.
    pub sender: Option<String>,
    /// Eight hexadecimal digits.
    pub ssrc: Option<String>,
    /// Datagrams of the stream.
    pub packets: u64,
    /// Payload that was delivered, in bytes.
    pub payload_bytes: u64,
    /// RTP packets that should have come and did not (RFC 3550 A.3, duplicates left out).
    pub lost: u64,
    /// RTP packets that are not in the file: lost, or too late.
    pub missing: u64,
    /// RTP packets that came after one with a higher number.
    pub reordered: u64,
    /// RTP packets that came once more.
    pub duplicates: u64,
    /// RTP packets that came after the window had given them up.
    pub late: u64,
    /// How often the sequence numbers began anew.
    pub restarts: u64,
    /// Interarrival jitter (RFC 3550 A.8), in milliseconds.
    pub jitter_ms: f64,
    /// RTP sources heard, how often another was followed, and those dropped from the table.
    pub sources: u64,
    /// How often a source was chosen: 1 in a quiet life.
    pub sources_followed: u64,
    /// Sources that found no room in the table.
    pub sources_forgotten: u64,
    /// Datagrams of other senders, sources or payload types.
    pub foreign: u64,
    /// Datagrams that were neither RTP nor a transport stream.
    pub malformed: u64,
    /// RTP packets without whole transport stream packets in them.
    pub misshapen: u64,
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
    /// Peak to peak since the last look (PCR_OJ, TR 101 290 §5.3.2), in milliseconds.
    pub clock_jitter_ms: f64,
    /// The largest distance from the mean.
    pub clock_jitter_ms_max: f64,
    /// How often the stream came back after a second and more.
    pub outages: u64,
    /// For how long it was away in all, in seconds.
    pub outage_s: f64,
    /// Datagrams that the kernel dropped for want of room.
    pub dropped_by_kernel: u64,
    /// Transport stream packets that the disk was too slow for, or could not take.
    pub dropped_by_disk: u64,
    /// Bytes in the files, and how many there are.
    pub written_bytes: u64,
    /// Files begun.
    pub files: u64,
    /// The one being written, or the last.
    pub file: Option<PathBuf>,
    /// RTCP: sender reports that came, receiver reports that went.
    pub sender_reports: u64,
    /// Receiver reports sent.
    pub reports_sent: u64,
    /// Whether the sender has said BYE.
    pub said_bye: bool,
    /// Sessions begun with a server, by RTSP.
    pub sessions: u64,
    /// What went wrong last with the server; it is asked again.
    pub trouble: Option<String>,
    /// Why nothing more comes or is written.
    pub ended: Option<String>,
    /// Whether that is a fault.
    pub has_failed: bool,
}

/// A whole recording.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The way of receiving.
    pub path: &'static str,
    /// Those that were wanted before it, and why they were refused.
    pub refused: Vec<String>,
    /// How long it has been going on.
    pub seconds: f64,
    /// Datagrams that the path handed over, and their bytes.
    pub packets: u64,
    /// Payload of UDP.
    pub bytes: u64,
    /// System calls that moved datagrams, and those that waited.
    pub calls: u64,
    /// System calls that waited.
    pub waits: u64,
    /// Bytes copied between kernel and user memory.
    pub copied_bytes: u64,
    /// Datagrams longer than there was room for.
    pub truncated: u64,
    /// Frames that were no sound datagram, where the path sees frames.
    pub malformed_frames: u64,
    /// Refusals of the path, and the last of them.
    pub path_errors: u64,
    /// The last of them.
    pub last_path_error: Option<String>,
    /// fdatasync(2) done, and refused.
    pub syncs: u64,
    /// fdatasync(2) refused.
    pub syncs_failed: u64,
    /// One row a stream.
    pub streams: Vec<Figures>,
}

impl Summary {
    /// Whether this program did its part: every stream was heard, and none was ended by a fault or
    /// lost anything between the kernel and the disk. What the network lost is in the figures and
    /// is not this program's.
    pub fn is_whole(&self) -> bool {
        self.syncs_failed == 0
            && self.streams.iter().all(|stream| {
                stream.packets > 0
                    && !stream.has_failed
                    && stream.dropped_by_kernel + stream.dropped_by_disk == 0
            })
    }
}
