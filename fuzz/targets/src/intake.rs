// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recorder's intake of datagrams, `receive::StreamReplay`: RTP, the table of sources, the
//! reorder window and the monitor of transport streams.
//!
//! Half of the inputs are datagrams, each after its length. The others are scripts with a few bytes
//! a step, which build packets of a few sources: mutation of raw bytes hardly ever creates two
//! packets with consistent sequence numbers.
//!
//! Checked: the output is whole packets of the input; no datagram is counted twice; the tables stay
//! within their bounds.
//!
//! Sources: RFC 3550 §5.1, RFC 2250 §2.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use receive::StreamReplay;
use wire::mp2t::{PAYLOAD_TYPE, TS_PACKET_BYTES};
use wire::rtp::Header;
use wire::sources::SOURCES_MAX;

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "intake", run };

const STEP_BYTES: usize = 6;
/// Most datagrams of an input: longer inputs find nothing new.
const DATAGRAMS_MAX: usize = 300;

fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let datagrams = if choice & 1 == 0 { cut(rest) } else { build(rest) };
    let mut intake = StreamReplay::new(Duration::from_millis(u64::from(choice >> 1)));
    let mut now = Duration::ZERO;
    for (index, (step, datagram)) in datagrams.iter().enumerate() {
        now += Duration::from_millis(u64::from(step >> 2));
        let host = Ipv4Addr::new(10, 0, 0, step & 3);
        intake.take(datagram, SocketAddr::from((host, 5004)), now);
        if index % 5 == 0 {
            intake.tick(now);
        }
    }
    let received = intake.finish();
    let written = &received.written;
    assert!(written.len().is_multiple_of(TS_PACKET_BYTES));
    assert_eq!(received.ts_packets, (written.len() / TS_PACKET_BYTES) as u64);
    // Packets still on probation at the end are in no count.
    assert!(
        received.packets + received.unexpected_source + received.malformed
            <= datagrams.len() as u64
    );
    assert!(received.late + received.bad_payload_size <= received.packets);
    assert!(received.sources <= SOURCES_MAX);
    let sent: usize = datagrams.iter().map(|(_, datagram)| datagram.len()).sum();
    assert!(written.len() <= sent, "{} bytes of {sent}", written.len());
    if choice & 1 == 1 {
        // Each packet of a script has its own number: no number may be written twice.
        let mut numbers: Vec<_> = written.chunks(TS_PACKET_BYTES).map(number).collect();
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "a packet was written twice");
        assert!(numbers.last().is_none_or(|last| *last < datagrams.len() as u32 * 8));
    }
}

fn number(packet: &[u8]) -> u32 {
    let bytes = packet.last_chunk().expect("a whole packet");
    u32::from_be_bytes(*bytes)
}

/// Cuts the input into datagrams: a byte of time and sender, a length, the bytes.
fn cut(mut rest: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut datagrams = Vec::new();
    while let [step, high, low, bytes @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high & 7, *low])).min(bytes.len());
        let (datagram, after) = bytes.split_at(length);
        datagrams.push((*step, datagram.to_vec()));
        rest = after;
    }
    datagrams
}

/// Builds datagrams of up to four sources, roughly in the order of their numbers.
fn build(script: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut sequences = [0xfff0_u16; 4];
    let mut count = 0_u32;
    let steps = script.chunks_exact(STEP_BYTES).take(DATAGRAMS_MAX);
    let mut datagrams = Vec::new();
    for step in steps {
        let [time, kind, ahead, pid, counter, flags] = *step else { continue };
        let packets = usize::from(kind >> 5);
        let payload: Vec<u8> = (0..packets)
            .flat_map(|_| {
                count += 1;
                ts_packet(pid & 1, counter, flags, count - 1)
            })
            .collect();
        let source = usize::from(kind & 3);
        if kind & 0x1c == 0 && packets > 0 {
            datagrams.push((time, payload));
            continue;
        }
        // Most steps use the next number; some step back, ahead, or far away.
        let jump = match ahead {
            0..=199 => 1,
            200..=239 => i16::from(ahead) - 220,
            _ => (i16::from(ahead) - 239) * 1999,
        };
        sequences[source] = sequences[source].wrapping_add_signed(jump);
        let header = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE,
            sequence: sequences[source],
            timestamp: u32::from(time) << 8,
            ssrc: source as u32,
        };
        datagrams.push((time & !3, [&header.write()[..], &payload].concat()));
    }
    datagrams
}

fn ts_packet(pid: u8, counter: u8, flags: u8, number: u32) -> [u8; TS_PACKET_BYTES] {
    let mut packet = [0xff; TS_PACKET_BYTES];
    let control = if flags & 1 == 0 { 0x10 } else { 0x30 };
    packet[..4].copy_from_slice(&[0x47, pid, counter & 3, control | counter & 15]);
    if flags & 1 == 1 {
        packet[4..12].copy_from_slice(&[7, flags & 0x90, 0, 0, counter, flags, 0, 0]);
    }
    packet[TS_PACKET_BYTES - 4..].copy_from_slice(&number.to_be_bytes());
    packet
}
