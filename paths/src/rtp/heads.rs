// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers that the in-kernel engine would make itself: recognised, and described to it.
//!
//! A batch brings its headers ready made. Where they are RTP's fixed header with nothing behind it,
//! of one source and one payload type, numbered without a gap, the engine can make the same bytes
//! from the first of them: none of them has to be copied. Timestamps that grow by the same step and
//! no marker are said in four fields; others in a plan of 8 bytes a packet, which is read like any
//! list of ranges and no part of what is sent. Costs a look at 12 bytes a packet.
//!
//! Sources: RFC 3550 §5.1.
//!
//! What it does not do: take in headers with contributors, extension or padding, or a gap in the
//! sequence. Those are copied from the caller as they are, so nothing depends on the recognition
//! but cost.

use crate::sys::{PlanEntry, Rtp};

/// Bytes of RTP's fixed header.
pub(super) const HEAD_BYTES: usize = 12;

/// Version 2, no padding, no extension, no contributors.
const PLAIN: u8 = 0x80;

const MARKER: u8 = 0x80;

/// A header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    marker: bool,
    payload_type: u8,
    sequence: u16,
    timestamp: u32,
    ssrc: u32,
}

impl Head {
    /// `None` when there is more to it than these fields.
    fn of(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let [first, second, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3] = *head;
        (first == PLAIN).then(|| Self {
            marker: second & MARKER != 0,
            payload_type: second & !MARKER,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([c0, c1, c2, c3]),
        })
    }

    /// Whether it can stand right behind `before`.
    fn follows(&self, before: &Self) -> bool {
        self.sequence == before.sequence.wrapping_add(1)
            && (self.ssrc, self.payload_type) == (before.ssrc, before.payload_type)
    }
}

/// The headers of consecutive packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    /// The first, and the step of timestamps.
    pub(super) rtp: Rtp,
    /// Whether markers or timestamps need a plan.
    pub(super) planned: bool,
}

/// What the engine has to be told to make exactly `heads`, one header of [`HEAD_BYTES`] after the
/// other; `None` when it would make others.
pub(super) fn recognise(heads: &[u8]) -> Option<Series> {
    let (heads, rest) = heads.as_chunks::<HEAD_BYTES>();
    let first = Head::of(heads.first()?).filter(|_| rest.is_empty())?;
    let (mut before, mut step, mut planned) = (first, None, first.marker);
    for head in &heads[1..] {
        let head = Head::of(head).filter(|head| head.follows(&before))?;
        let this_step = head.timestamp.wrapping_sub(before.timestamp);
        planned |= head.marker || *step.get_or_insert(this_step) != this_step;
        before = head;
    }
    let Head { payload_type, sequence, timestamp, ssrc, .. } = first;
    let timestamp_step = step.unwrap_or(0);
    Some(Series { rtp: Rtp { payload_type, sequence, timestamp, timestamp_step, ssrc }, planned })
}

/// Writes the plan of recognised `heads` to `plan`; `payload_bytes` says what follows each.
pub(super) fn write_plan(
    plan: &mut Vec<PlanEntry>,
    heads: &[u8],
    payload_bytes: impl Fn(u32) -> u16,
) {
    plan.clear();
    let heads = heads.as_chunks::<HEAD_BYTES>().0.iter().filter_map(Head::of);
    plan.extend(
        heads
            .zip(0..)
            .map(|(head, at)| PlanEntry::new(payload_bytes(at), head.marker, head.timestamp)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of the other way round, as RFC 3550 draws it.
    fn bytes(head: Head) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = 2 << 6;
        bytes[1] = u8::from(head.marker) << 7 | head.payload_type;
        bytes[2..4].copy_from_slice(&head.sequence.to_be_bytes());
        bytes[4..8].copy_from_slice(&head.timestamp.to_be_bytes());
        bytes[8..].copy_from_slice(&head.ssrc.to_be_bytes());
        bytes
    }

    const FIRST: Head = Head {
        marker: false,
        payload_type: 33,
        sequence: 65_534,
        timestamp: 0xffff_ff00,
        ssrc: 0x1234_5678,
    };

    /// Four headers, over the end of sequence and timestamp.
    fn four() -> [Head; 4] {
        let mut heads = [FIRST; 4];
        for (number, head) in (0_u16..).zip(&mut heads) {
            head.sequence = FIRST.sequence.wrapping_add(number);
            head.timestamp = FIRST.timestamp.wrapping_add(200 * u32::from(number));
        }
        heads
    }

    fn recognised(heads: &[Head]) -> Option<Series> {
        recognise(&heads.iter().flat_map(|head| bytes(*head)).collect::<Vec<_>>())
    }

    const RTP: Rtp = Rtp {
        payload_type: 33,
        sequence: 65_534,
        timestamp: 0xffff_ff00,
        timestamp_step: 200,
        ssrc: 0x1234_5678,
    };

    #[test]
    fn consecutive_headers_are_their_first_and_a_step_also_over_the_wrap() {
        assert_eq!(recognised(&four()), Some(Series { rtp: RTP, planned: false }));
        let alone = Rtp { timestamp_step: 0, ..RTP };
        assert_eq!(recognised(&four()[..1]), Some(Series { rtp: alone, planned: false }));
        let mut backwards = four();
        backwards.iter_mut().for_each(|head| head.timestamp = !head.timestamp);
        let rtp = Rtp { timestamp: 255, timestamp_step: 0_u32.wrapping_sub(200), ..RTP };
        assert_eq!(recognised(&backwards), Some(Series { rtp, planned: false }));
    }

    #[test]
    fn markers_and_uneven_steps_take_a_plan() {
        for at in 0..4 {
            let mut heads = four();
            heads[at].marker = true;
            assert_eq!(recognised(&heads), Some(Series { rtp: RTP, planned: true }), "{at}");
        }
        let mut heads = four();
        heads[3].timestamp += 1;
        assert_eq!(recognised(&heads), Some(Series { rtp: RTP, planned: true }));
        heads[3].marker = true;
        let heads: Vec<u8> = heads.iter().flat_map(|head| bytes(*head)).collect();
        let mut plan = vec![PlanEntry::new(1, true, 1)];
        write_plan(&mut plan, &heads, |at| if at == 3 { 5 } else { 1316 });
        let planned = |number: u32| {
            let timestamp = FIRST.timestamp.wrapping_add(200 * number + u32::from(number == 3));
            PlanEntry::new(if number == 3 { 5 } else { 1316 }, number == 3, timestamp)
        };
        assert_eq!(plan, (0..4).map(planned).collect::<Vec<_>>());
    }

    #[test]
    fn what_the_engine_would_not_make_is_not_recognised() {
        for at in 0..4 {
            for change in [
                |head: &mut Head| head.ssrc += 1,
                |head: &mut Head| head.payload_type = 96,
                |head: &mut Head| head.sequence = head.sequence.wrapping_add(1),
            ] {
                let mut heads = four();
                change(&mut heads[at]);
                assert_eq!(recognised(&heads), None, "{at}");
            }
            let mut heads = four().map(bytes);
            // Version 1, padding, an extension, a contributor.
            for first in [0x40, 0xa0, 0x90, 0x81] {
                heads[at][0] = first;
                assert_eq!(recognise(heads.as_flattened()), None, "{at}: {first}");
            }
        }
        let heads = four().map(bytes);
        assert_eq!(recognise(&heads.as_flattened()[..47]), None);
        assert_eq!(recognise(&[]), None);
    }
}
