// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes RTCP: for a server, writes sender reports and BYE and reads receiver reports;
//! for a client, the reverse.
//!
//! Every datagram is a compound packet with a report first and a CNAME after it (RFC 3550 §6.1).
//! Received datagrams are parsed packet by packet: the lengths must add up and the first must be a
//! report (A.2). A packet of an unknown type, or a malformed one of a known type, is skipped: the
//! reports beside it still count. Reading allocates nothing.
//!
//! Cost: about one packet of 60 bytes per session and five seconds, each way.
//!
//! Sources: RFC 3550 §4 (NTP time), §6.1, §6.2, §6.3.1, §6.4, §6.5.1, §6.6, A.2; RFC 7022 §4.2
//! (CNAME); RFC 4648 §4 (base64); written and read by `rtcp-types`.
//! Does not implement feedback (RFC 4585), extended reports (RFC 3611) or encryption.

use std::time::Duration;

use rtcp_types::{
    Bye, Compound, ReceiverReport, ReportBlock, RtcpPacket, RtcpPacketParser, RtcpPacketWriter,
    RtcpPacketWriterExt, Sdes, SdesChunk, SdesItem, SenderReport,
};

use crate::error::{Fault, Malformed};

/// Report block: a receiver's statistics of one source (§6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceptionReport {
    /// The reported source.
    pub ssrc: u32,
    /// Lost of those expected since the last report, in 1/256.
    pub fraction_lost: u8,
    /// Lost in all, 24 bits with sign: negative when there were duplicates.
    pub lost: i32,
    /// The highest sequence number with its cycles.
    pub highest_sequence: u32,
    /// Interarrival jitter, in units of the source's clock.
    pub jitter: u32,
    /// The middle of the NTP time of the last sender report received; 0 for none.
    pub last_sender_report: u32,
    /// Time since that sender report arrived, in 1/65536 s.
    pub delay_since_last_sender_report: u32,
}

/// Sender information of a sender report (§6.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SenderInfo {
    /// The sender.
    pub ssrc: u32,
    /// The time of the report: see [`ntp`].
    pub ntp: u64,
    /// The same instant on the clock of the stream.
    pub rtp_timestamp: u32,
    /// Packets sent so far.
    pub packets: u32,
    /// Payload bytes sent so far, without headers and padding.
    pub octets: u32,
}

/// One report, sender information or BYE of an RTCP datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RtcpItem {
    /// Report block about a source.
    Report {
        /// The reporting receiver.
        from: u32,
        /// Its report block.
        report: ReceptionReport,
    },
    /// Receiver report without report blocks.
    Receiver {
        /// The receiver.
        from: u32,
    },
    /// Sender information.
    Sender(SenderInfo),
    /// BYE of a source.
    Bye {
        /// The leaving source.
        ssrc: u32,
    },
}

/// NTP time (§4: seconds since 1900 in 32.32 bits, modulo 2^64) of a time since the Unix epoch.
pub fn ntp(since_unix_epoch: Duration) -> u64 {
    let seconds = since_unix_epoch.as_secs().wrapping_add(NTP_SECONDS_AT_UNIX_EPOCH);
    let fraction = (u64::from(since_unix_epoch.subsec_nanos()) << 32) / 1_000_000_000;
    (seconds << 32) | fraction
}

/// The middle 32 bits of an NTP time, as LSR carries it (§6.4.1).
pub fn ntp_middle(ntp: u64) -> u32 {
    (ntp >> 16) as u32
}

/// A time in the units of DLSR, 1/65536 s.
pub fn delay_units(delay: Duration) -> u32 {
    u32::try_from((delay.as_nanos() << 16) / 1_000_000_000).unwrap_or(u32::MAX)
}

/// Returns a canonical name that no other session has (RFC 7022 §4.2): 96 random bits from the
/// caller in base64. A session here is one stream to one peer, whose name relates it to no other
/// session, so each has a name of its own, unchanged for the lifetime of the session (RFC 3550
/// §6.5.1).
pub fn cname(random: [u8; 12]) -> String {
    let sextets = random.chunks_exact(3).flat_map(|three| {
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        [18, 12, 6, 0].map(|shift| BASE64[(bits >> shift & 63) as usize])
    });
    sextets.map(char::from).collect()
}

/// A sender report with the sender's name.
pub fn sender_report(sender: &SenderInfo, cname: &str) -> Vec<u8> {
    encode(Compound::builder().add_packet(sr(sender)).add_packet(sdes(sender.ssrc, cname)))
}

/// A sender's last packet: report, name and BYE (§6.6). The reason is cut at 255 bytes.
pub fn sender_bye(sender: &SenderInfo, cname: &str, reason: &str) -> Vec<u8> {
    let compound = Compound::builder()
        .add_packet(sr(sender))
        .add_packet(sdes(sender.ssrc, cname))
        .add_packet(Bye::builder().add_source(sender.ssrc).reason(cut(reason)));
    encode(compound)
}

/// A receiver report with the receiver's name; it may have no report blocks (§6.4.2).
pub fn receiver_report(ssrc: u32, reports: &[ReceptionReport], cname: &str) -> Vec<u8> {
    encode(Compound::builder().add_packet(rr(ssrc, reports)).add_packet(sdes(ssrc, cname)))
}

/// The last packet of a receiver: an empty report, name and BYE (§6.6).
pub fn receiver_bye(ssrc: u32, cname: &str, reason: &str) -> Vec<u8> {
    let compound = Compound::builder()
        .add_packet(rr(ssrc, &[]))
        .add_packet(sdes(ssrc, cname))
        .add_packet(Bye::builder().add_source(ssrc).reason(cut(reason)));
    encode(compound)
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn sr(sender: &SenderInfo) -> rtcp_types::SenderReportBuilder {
    SenderReport::builder(sender.ssrc)
        .ntp_timestamp(sender.ntp)
        .rtp_timestamp(sender.rtp_timestamp)
        .packet_count(sender.packets)
        .octet_count(sender.octets)
}

fn rr(ssrc: u32, reports: &[ReceptionReport]) -> rtcp_types::ReceiverReportBuilder {
    let blocks = reports.iter().take(REPORTS_MAX).map(|report| {
        ReportBlock::builder(report.ssrc)
            .fraction_lost(report.fraction_lost)
            .cumulative_lost(report.lost.clamp(-0x80_0000, 0x7F_FFFF).cast_unsigned() & 0xFF_FFFF)
            .extended_sequence_number(report.highest_sequence)
            .interarrival_jitter(report.jitter)
            .last_sender_report_timestamp(report.last_sender_report)
            .delay_since_last_sender_report_timestamp(report.delay_since_last_sender_report)
    });
    blocks.fold(ReceiverReport::builder(ssrc), |rr, block| rr.add_report_block(block))
}

fn sdes(ssrc: u32, cname: &str) -> rtcp_types::SdesBuilder<'_> {
    let item = SdesItem::builder(SdesItem::CNAME, cut(cname));
    Sdes::builder().add_chunk(SdesChunk::builder(ssrc).add_item(item))
}

/// SDES items and reasons have a length of one byte.
fn cut(text: &str) -> &str {
    let ends = (0..=text.len().min(TEXT_BYTES_MAX)).rev();
    let end = ends.into_iter().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

fn encode(compound: rtcp_types::CompoundBuilder<'_>) -> Vec<u8> {
    let bytes = compound.calculate_size().unwrap_or(0);
    let mut packet = vec![0; bytes];
    let written = compound.write_into(&mut packet);
    // Every count and length was limited above.
    assert!(
        written == Ok(bytes) && bytes > 0,
        "compound RTCP packet of {bytes} bytes: {written:?}"
    );
    packet
}

/// Reads a datagram from the RTCP port.
///
/// # Errors
/// A datagram that is not a compound RTCP packet (A.2): another version, lengths that do not add
/// up, no report at the front. The offset is that in the datagram. Count these; do not log each.
pub fn parse(datagram: &[u8]) -> Result<impl Iterator<Item = RtcpItem> + '_, Malformed> {
    let first = packets(datagram).next().transpose()?;
    let packet_type = first.map_or(0, |packet| packet[1]);
    if packet_type != SenderReport::PACKET_TYPE && packet_type != ReceiverReport::PACKET_TYPE {
        return Err(match first {
            None => Malformed::new(0, Fault::RtcpLength),
            Some(_) => Malformed::new(0, Fault::RtcpFirst { packet_type }),
        });
    }
    for packet in packets(datagram) {
        packet?;
    }
    Ok(packets(datagram).filter_map(Result::ok).flat_map(seen))
}

/// The packets of a compound one; ends after the first fault.
fn packets(datagram: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = &datagram[offset..];
        if rest.is_empty() {
            return None;
        }
        let at = offset as u64;
        offset = datagram.len();
        let Some((&[first, _, high, low], _)) = rest.split_first_chunk::<4>() else {
            return Some(Err(Malformed::new(at, Fault::RtcpLength)));
        };
        if first >> 6 != 2 {
            return Some(Err(Malformed::new(at, Fault::RtpVersion { version: first >> 6 })));
        }
        let bytes = 4 * (1 + usize::from(u16::from_be_bytes([high, low])));
        let Some(packet) = rest.get(..bytes) else {
            return Some(Err(Malformed::new(at, Fault::RtcpLength)));
        };
        offset = at as usize + bytes;
        Some(Ok(packet))
    })
}

/// Returns the items of one packet; none if its type is unknown or its content malformed.
fn seen(packet: &[u8]) -> impl Iterator<Item = RtcpItem> + '_ {
    let (mut sender, mut receiver, mut bye) = (None, None, None);
    match packet[1] {
        SenderReport::PACKET_TYPE => sender = SenderReport::parse(packet).ok(),
        ReceiverReport::PACKET_TYPE => receiver = ReceiverReport::parse(packet).ok(),
        Bye::PACKET_TYPE => bye = Bye::parse(packet).ok(),
        _ => {}
    }
    let itself = sender.as_ref().map(|sr| {
        RtcpItem::Sender(SenderInfo {
            ssrc: sr.ssrc(),
            ntp: sr.ntp_timestamp(),
            rtp_timestamp: sr.rtp_timestamp(),
            packets: sr.packet_count(),
            octets: sr.octet_count(),
        })
    });
    let empty = receiver.as_ref().filter(|rr| rr.n_reports() == 0);
    let present = empty.map(|rr| RtcpItem::Receiver { from: rr.ssrc() });
    let (from, blocks) = match packet[1] {
        SenderReport::PACKET_TYPE if sender.is_some() => blocks(packet, 28),
        ReceiverReport::PACKET_TYPE if receiver.is_some() => blocks(packet, 8),
        _ => (0, [].chunks_exact(BLOCK_BYTES).take(0)),
    };
    let reports = blocks.filter_map(|block| ReportBlock::parse(block).ok());
    let reports = reports.map(move |block| RtcpItem::Report { from, report: report(&block) });
    let count = bye.map_or(0, |_| usize::from(packet[0] & 0x1F));
    let sources = packet.get(4..).unwrap_or_default().chunks_exact(4).take(count);
    let byes = sources.map(|ssrc| RtcpItem::Bye { ssrc: be_32(ssrc) });
    itself.into_iter().chain(present).chain(reports).chain(byes)
}

/// The reporter and the report blocks of a packet that was checked.
fn blocks(packet: &[u8], start: usize) -> (u32, std::iter::Take<std::slice::ChunksExact<'_, u8>>) {
    let blocks = packet.get(start..).unwrap_or_default().chunks_exact(BLOCK_BYTES);
    (be_32(&packet[4..]), blocks.take(usize::from(packet[0] & 0x1F)))
}

fn report(block: &ReportBlock<'_>) -> ReceptionReport {
    // 24 bits with sign, in two's complement.
    let lost = (block.cumulative_lost() << 8).cast_signed() >> 8;
    ReceptionReport {
        ssrc: block.ssrc(),
        fraction_lost: block.fraction_lost(),
        lost,
        highest_sequence: block.extended_sequence_number(),
        jitter: block.interarrival_jitter(),
        last_sender_report: block.last_sender_report_timestamp(),
        delay_since_last_sender_report: block.delay_since_last_sender_report_timestamp(),
    }
}

fn be_32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Statistics of a receiver, collected by the sender from its reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiverView {
    /// Reports received.
    pub reports: u64,
    /// The last report.
    pub last: ReceptionReport,
    /// The highest fraction lost of all reports, in 1/256.
    pub fraction_lost_max: u8,
    /// The highest jitter of all reports, in units of the clock.
    pub jitter_max: u32,
    /// Round-trip time, once the receiver has seen a sender report (§6.4.1).
    pub round_trip: Option<Duration>,
}

impl ReceiverView {
    /// Adds a report that arrived at an NTP time.
    pub fn take(&mut self, report: &ReceptionReport, arrival_ntp: u64) {
        self.reports += 1;
        self.last = *report;
        self.fraction_lost_max = self.fraction_lost_max.max(report.fraction_lost);
        self.jitter_max = self.jitter_max.max(report.jitter);
        if let Some(round_trip) = round_trip(report, arrival_ntp) {
            self.round_trip = Some(round_trip);
        }
    }
}

/// §6.4.1: arrival - LSR - DLSR. `None` if there was no sender report, or if the receiver's figures
/// are in the future: clock skew can cause that on a very short path.
fn round_trip(report: &ReceptionReport, arrival_ntp: u64) -> Option<Duration> {
    if report.last_sender_report == 0 {
        return None;
    }
    let units = ntp_middle(arrival_ntp)
        .wrapping_sub(report.last_sender_report)
        .wrapping_sub(report.delay_since_last_sender_report);
    let positive = units.cast_signed() >= 0;
    positive.then(|| Duration::from_nanos((u64::from(units) * 1_000_000_000) >> 16))
}

/// Returns the time until the next report, randomized (§6.3.1, A.7).
///
/// With two parties at media rates the share of the bandwidth never matters, only the minimum of 5
/// s (half of it before the first), multiplied by a random factor between half and one and a half,
/// divided by e - 3/2.
pub fn report_interval(first: bool, random: u32) -> Duration {
    let minimum = if first { INTERVAL_MIN / 2 } else { INTERVAL_MIN };
    let factor = 0.5 + f64::from(random) / (f64::from(u32::MAX) + 1.0);
    minimum.mul_f64(factor / COMPENSATION)
}

/// Seconds from 1900 to 1970 (RFC 868 §"The Time").
const NTP_SECONDS_AT_UNIX_EPOCH: u64 = 2_208_988_800;

/// §6.4.1: the count of report blocks has five bits.
const REPORTS_MAX: usize = 31;

/// §6.4.1.
const BLOCK_BYTES: usize = 24;

/// §6.5, §6.6: lengths of one byte.
const TEXT_BYTES_MAX: usize = 255;

/// §6.2.
const INTERVAL_MIN: Duration = Duration::from_secs(5);

/// §6.3.1: e - 3/2.
const COMPENSATION: f64 = std::f64::consts::E - 1.5;
