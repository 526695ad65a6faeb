// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result of a load: figures for programs (serde), a short table for people (`Display`).
//!
//! Figures of all sessions and figures of the verified ones are separate: the kernel counts the
//! packets of every session, and the count is compared with the sender's; order, bytes and lateness
//! are known only for verified sessions.

use std::fmt;

use serde::Serialize;

use super::bottleneck::Bottleneck;
use super::group_outcome::GroupOutcome;
use crate::plural::counted;
use crate::transport::StreamTransport;
use crate::verdict::LatenessMs;

/// Result of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoadOutcome {
    /// URL that was played.
    pub url: String,
    /// Transport of the packets.
    pub transport: StreamTransport,
    /// Sessions requested.
    pub asked: u32,
    /// Sessions whose PLAY was granted.
    pub played: u32,
    /// Reasons of failed setups.
    pub failed: Vec<EndReason>,
    /// Reasons of premature ends.
    pub ended: Vec<EndReason>,
    /// The caller stopped the load before its time.
    pub interrupted: bool,
    /// Length of the measured time, in seconds.
    pub seconds: f64,
    /// Length of the ramp, in seconds.
    pub ramp_seconds: f64,
    /// Figures of the verified sessions.
    pub verified: VerifiedSessions,
    /// Figures of all others.
    pub counted: CountedSessions,
    /// Results of a scenario's groups, in its order; empty without a scenario. With one, the
    /// figures above exclude groups that read slowly or stall.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupOutcome>,
    /// Figures of this program.
    pub client: LoadClient,
    /// The earliest fault.
    pub bottleneck: Bottleneck,
    /// The same as a line of text.
    pub bottleneck_line: String,
}

/// A number of sessions with a common reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndReason {
    /// Number of sessions.
    pub sessions: u32,
    /// The reason.
    pub reason: String,
}

/// Sessions whose packets were read and checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct VerifiedSessions {
    /// Sessions that played.
    pub sessions: u32,
    /// Timely sessions: 99.9 % of the measured packets were no later than the bound, and none was
    /// lost from PLAY to the end.
    pub timely: u32,
    /// Packets in the measured time.
    pub packets: u64,
    /// Bytes of these, RTP headers included.
    pub bytes: u64,
    /// Packets from PLAY to the end, duplicates included.
    pub packets_in_all: u64,
    /// Packets missing, from PLAY to the end.
    pub lost: u64,
    /// Packets that arrived again.
    pub duplicates: u64,
    /// Packets that arrived after one with a higher number.
    pub reordered: u64,
    /// Datagrams that are not of the stream.
    pub unexpected_source: u64,
    /// Payloads that are not whole TS packets; for tracks, packets truncated to the read buffer.
    pub bad_payload_size: u64,
    /// Payloads that differ from the file; none without a file, or where the server did not name
    /// the first packet.
    pub different: Option<u64>,
    /// Packets the sockets dropped because their buffers were full.
    pub dropped: u64,
    /// Lateness of packets in the measured time, each against the earliest of its stream; for video
    /// tracks, against their decoding times.
    pub lateness_ms: LatenessMs,
    /// The tracks of a presentation, in the order of its description, each summed over all
    /// sessions; empty for a transport stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<VerifiedTrack>,
}

/// A track of verified sessions, from PLAY to the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifiedTrack {
    /// Format as the description names it, such as `video H264/90000`.
    pub format: String,
    /// Packets, duplicates included.
    pub packets: u64,
    /// Packets missing.
    pub lost: u64,
    /// Access units that arrived complete: pictures, or audio frames. No count includes the current
    /// unit when a session left or sought.
    pub units: u64,
    /// Incomplete access units.
    pub broken_units: u64,
    /// Packets that violate their payload format.
    pub malformed_packets: u64,
}

impl VerifiedTrack {
    /// Returns true where no access unit is broken, and no packet malformed.
    pub fn is_whole(&self) -> bool {
        self.broken_units == 0 && self.malformed_packets == 0
    }

    /// Adds the same track of other sessions.
    pub(super) fn add(&mut self, other: &VerifiedTrack) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.units += other.units;
        self.broken_units += other.broken_units;
        self.malformed_packets += other.malformed_packets;
    }
}

/// Sessions whose packets were counted and dropped; over UDP the kernel does both. With a scenario
/// each visit counts as a session, and all packets are those from PLAY to its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CountedSessions {
    /// Sessions that played.
    pub sessions: u32,
    /// Packets in the measured time.
    pub packets: u64,
    /// Fewest packets of a session in the measured time.
    pub packets_least: u64,
    /// Most packets of a session.
    pub packets_most: u64,
    /// Packets from PLAY to the end.
    pub packets_in_all: u64,
    /// Sessions whose sender reported its total packet count at the end.
    pub accounted: u32,
    /// Packets missing from these sessions, from PLAY to the end. A lower bound, where a sender's
    /// count includes earlier packets to other receivers.
    pub lost: u64,
}

/// This program, in the measured time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LoadClient {
    /// CPU seconds, user and system.
    pub processor_seconds: f64,
    /// Processors used: seconds per second.
    pub cores: f64,
    /// Median lateness of its own timers, in milliseconds.
    pub timers_late_ms_p50: f64,
    /// 99th percentile of the timers' lateness, in milliseconds.
    pub timers_late_ms_p99: f64,
    /// Maximum lateness of a timer, in milliseconds.
    pub timers_late_ms_max: f64,
    /// Busy processors of the whole machine; none where the kernel does not report them.
    pub machine_cores: Option<f64>,
    /// Processors of the machine.
    pub machine_cores_all: u32,
    /// The server's address is this machine's.
    pub server_is_local: bool,
    /// Processors used by the server; none where it is on another machine or belongs to another
    /// user.
    pub server_cores: Option<f64>,
}

impl LoadOutcome {
    /// Returns true where all requested sessions were played to the end, all verified ones were
    /// timely, and all packets of the others arrived. Also true where no session was verified and
    /// none received a packet: the packets are then discarded elsewhere on purpose.
    pub fn is_timely(&self) -> bool {
        self.is_timely_so_far() && !self.interrupted
    }

    /// Does the same, but ignores an early stop of the load. With a scenario: true where no group
    /// was harmed.
    pub fn is_timely_so_far(&self) -> bool {
        if !self.groups.is_empty() {
            return self.played == self.asked && !self.groups.iter().any(|group| group.is_harmed);
        }
        let (verified, counted) = (&self.verified, &self.counted);
        let is_discarded = verified.sessions == 0 && counted.packets_in_all == 0;
        self.played == self.asked
            && self.ended.is_empty()
            && verified.timely == verified.sessions
            && verified.bad_payload_size == 0
            && verified.different.is_none_or(|different| different == 0)
            && verified.tracks.iter().all(VerifiedTrack::is_whole)
            && counted.lost == 0
            && (is_discarded || counted.accounted == counted.sessions)
    }
}

/// A short table, each line with its line end.
impl fmt::Display for LoadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadOutcome { url, asked, played, seconds, verified, counted, client, .. } = self;
        let stopped = if self.interrupted { ", stopped" } else { "" };
        let over = match self.transport {
            StreamTransport::Udp => String::new(),
            // Each group lists its own.
            _ if !self.groups.is_empty() => String::new(),
            other => format!(" over {other}"),
        };
        writeln!(f, "{url}: {}{over} for {seconds:.1} s{stopped}", sessions(*asked))?;
        for group in &self.groups {
            write!(f, "{group}")?;
        }
        if !self.groups.is_empty() {
            writeln!(f, "all groups but those not judged")?;
        }
        writeln!(
            f,
            "  timely      {} of the {} verified; {played} played",
            verified.timely, verified.sessions
        )?;
        for EndReason { sessions, reason } in &self.failed {
            writeln!(f, "  not played  {sessions}: {reason}")?;
        }
        for EndReason { sessions, reason } in &self.ended {
            writeln!(f, "  ended       {sessions}: {reason}")?;
        }
        if verified.sessions > 0 {
            writeln!(f, "  lateness    {}", verified.lateness_ms)?;
            writeln!(f, "  verified    {verified}")?;
        }
        for track in &verified.tracks {
            writeln!(f, "  track       {track}")?;
        }
        if counted.sessions > 0 {
            writeln!(f, "  counted     {counted}")?;
        }
        writeln!(f, "  client      {client}")?;
        writeln!(f, "  bottleneck  {}", self.bottleneck)
    }
}

fn sessions(count: u32) -> String {
    counted(count.into(), "session", "sessions")
}

impl fmt::Display for VerifiedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifiedSessions { packets, lost, duplicates, reordered, .. } = self;
        write!(
            f,
            "{packets} packets, {lost} lost, {duplicates} duplicates, {reordered} reordered"
        )?;
        match self.different {
            // This includes packets before the measured time.
            Some(different) => write!(f, ", {different} unlike the file since the start")?,
            None if !self.tracks.is_empty() => {}
            None => f.write_str(", bytes not compared")?,
        }
        let others = [
            (self.dropped, "dropped here"),
            (self.bad_payload_size, "of bad payload size"),
            (self.unexpected_source, "of unexpected sources"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} {what}")?;
        }
        Ok(())
    }
}

impl fmt::Display for VerifiedTrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifiedTrack { format, packets, lost, units, broken_units, malformed_packets } = self;
        write!(f, "{format}: {packets} packets, {lost} lost, {units} whole units")?;
        match self.is_whole() {
            true => Ok(()),
            false => {
                write!(f, ", {broken_units} broken, {malformed_packets} packets malformed")
            }
        }
    }
}

impl fmt::Display for CountedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CountedSessions { packets, packets_least, packets_most, accounted, lost, .. } = self;
        let count = self.sessions;
        write!(
            f,
            "{packets} packets of {}, {packets_least} to {packets_most} each",
            sessions(count)
        )?;
        match accounted {
            0 if self.packets_in_all == 0 => {
                f.write_str("; nothing reached this machine's sockets")
            }
            0 => f.write_str("; what was sent is not known"),
            _ => write!(f, "; {lost} lost of what the senders of {accounted} say they sent"),
        }?;
        match count - accounted {
            0 => Ok(()),
            _ if *accounted == 0 => Ok(()),
            unknown => write!(f, "; what was sent to {unknown} is not known"),
        }
    }
}

impl fmt::Display for LoadClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} cores used, its timers {:.1} ms late (99 %)",
            self.cores, self.timers_late_ms_p99
        )?;
        if let Some(busy) = self.machine_cores {
            write!(f, "; machine {busy:.2} of {} cores busy", self.machine_cores_all)?;
        }
        match self.server_cores {
            Some(cores) => write!(f, ", the server {cores:.2}"),
            None if self.server_is_local => f.write_str(", the server on it"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> LoadOutcome {
        let lateness_ms = LatenessMs {
            p50: 10.1,
            p90: 18.0,
            p99: 20.0,
            p999: 21.25,
            max: 24.0,
            late_share: 0.0,
            bound: 25.0,
            drift_ppm: None,
        };
        LoadOutcome {
            url: "rtsp://h/a.ts".to_owned(),
            transport: StreamTransport::Udp,
            asked: 2500,
            played: 2500,
            failed: Vec::new(),
            ended: Vec::new(),
            interrupted: false,
            seconds: 10.0,
            ramp_seconds: 5.0,
            verified: VerifiedSessions {
                sessions: 41,
                timely: 41,
                packets: 194_668,
                bytes: 258_519_104,
                packets_in_all: 300_000,
                lost: 0,
                duplicates: 0,
                reordered: 0,
                unexpected_source: 0,
                bad_payload_size: 0,
                different: None,
                dropped: 0,
                lateness_ms,
                tracks: Vec::new(),
            },
            counted: CountedSessions {
                sessions: 2459,
                packets: 11_675_332,
                packets_least: 4748,
                packets_most: 4752,
                packets_in_all: 19_000_000,
                accounted: 2459,
                lost: 0,
            },
            groups: Vec::new(),
            client: LoadClient {
                processor_seconds: 0.5,
                cores: 0.05,
                timers_late_ms_p50: 0.08,
                timers_late_ms_p99: 0.31,
                timers_late_ms_max: 4.0,
                machine_cores: Some(1.25),
                machine_cores_all: 2,
                server_is_local: true,
                server_cores: Some(1.0),
            },
            bottleneck: Bottleneck::Nothing,
            bottleneck_line: "nothing".to_owned(),
        }
    }

    #[test]
    fn the_table_is_short_and_keeps_apart_what_is_known_of_whom() {
        let expected = "\
rtsp://h/a.ts: 2500 sessions for 10.0 s
  timely      41 of the 41 verified; 2500 played
  lateness    p50 10.10, p90 18.00, p99 20.00, p99.9 21.25, max 24.00 ms; 0.000 % later than 25 ms
  verified    194668 packets, 0 lost, 0 duplicates, 0 reordered, bytes not compared
  counted     11675332 packets of 2459 sessions, 4748 to 4752 each; 0 lost of what the senders of \
                        2459 say they sent
  client      0.05 cores used, its timers 0.3 ms late (99 %); machine 1.25 of 2 cores busy, the \
                        server 1.00
  bottleneck  nothing
";
        assert_eq!(outcome().to_string(), expected);
        assert!(outcome().is_timely());
    }

    #[test]
    fn tracks_have_their_lines_and_a_broken_unit_is_a_fault() {
        let mut of_tracks = outcome();
        let track = |format: &str, units| VerifiedTrack {
            format: format.to_owned(),
            packets: 2 * units,
            units,
            ..VerifiedTrack::default()
        };
        of_tracks.verified.tracks =
            vec![track("video H264/90000", 500), track("audio MPEG4-GENERIC/48000", 940)];
        assert!(of_tracks.is_timely());
        let text = of_tracks.to_string();
        let lines = "0 reordered\n  track       video H264/90000: 1000 packets, 0 lost, 500 whole \
                     units\n  track       audio MPEG4-GENERIC/48000: 1880 packets, 0 lost, 940 \
                     whole units\n";
        assert!(text.contains(lines), "{text}");
        let faults: [fn(&mut VerifiedTrack); 2] =
            [|track| track.broken_units = 3, |track| track.malformed_packets = 1];
        for fault in faults {
            let mut bad = of_tracks.clone();
            fault(&mut bad.verified.tracks[1]);
            assert!(!bad.is_timely() && !bad.is_timely_so_far());
        }
        of_tracks.verified.tracks[1].broken_units = 3;
        let text = of_tracks.to_string();
        assert!(text.contains("940 whole units, 3 broken, 0 packets malformed\n"), "{text}");
    }

    #[test]
    fn whatever_is_not_as_it_should_be_shows() {
        let mut bad = outcome();
        bad.played = 2490;
        bad.failed.push(EndReason { sessions: 10, reason: "SETUP: 453".to_owned() });
        bad.interrupted = true;
        bad.counted.accounted = 0;
        bad.verified.different = Some(2);
        bad.verified.dropped = 3;
        bad.client.server_cores = None;
        let text = bad.to_string();
        for words in [
            "for 10.0 s, stopped\n",
            "  not played  10: SETUP: 453\n",
            "2 unlike the file since the start, 3 dropped here\n",
            "; what was sent is not known\n",
            "cores busy, the server on it\n",
        ] {
            assert!(text.contains(words), "{words:?} in {text}");
        }
        assert!(!bad.is_timely());
        let mut some = outcome();
        some.counted.accounted = 2457;
        let words = "; 0 lost of what the senders of 2457 say they sent; what was sent to 2 is not \
                     known\n";
        assert!(some.to_string().contains(words), "{some}");
        let changes: [fn(&mut LoadOutcome); 6] = [
            |o| o.played = 2499,
            |o| o.ended.push(EndReason { sessions: 1, reason: String::new() }),
            |o| o.verified.timely = 40,
            |o| o.verified.different = Some(1),
            |o| o.counted.lost = 1,
            |o| o.counted.accounted = 2458,
        ];
        for change in changes {
            let mut one = outcome();
            change(&mut one);
            assert!(!one.is_timely() && !one.is_timely_so_far());
        }
        let stopped = LoadOutcome { interrupted: true, ..outcome() };
        assert!(!stopped.is_timely() && stopped.is_timely_so_far());
    }
}
