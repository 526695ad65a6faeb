// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTP headers that the in-kernel engine can make itself: recognised, and described to it.
//!
//! A batch includes its headers. The engine can make the same bytes from the first header where all
//! are fixed headers of one source and one payload type, numbered without a gap; then no header has
//! to be copied. Timestamps with a constant step and no marker need four fields. Others need a plan
//! of 8 bytes a packet, which the engine reads like any list of ranges and does not send. Costs a
//! comparison of 12 bytes a packet.
//!
//! Sources: RFC 3550 §5.1; [`wire::rtp`] parses the headers.
//!
//! Does not recognise headers with contributing sources, extension or padding, nor a gap in the
//! sequence. Those are copied from the caller, so only the cost depends on the recognition.

use wire::rtp::{HEADER_BYTES, Header};

use crate::sys::{HeaderSeries, PlanEntry};

/// A recognised series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recognised {
    pub(super) series: HeaderSeries,
    /// True when markers or timestamps need a plan.
    pub(super) needs_plan: bool,
}

/// True when `header` can directly follow `before`.
fn follows(header: &Header, before: &Header) -> bool {
    header.sequence == before.sequence.wrapping_add(1)
        && (header.ssrc, header.payload_type) == (before.ssrc, before.payload_type)
}

/// Returns the series from which the engine makes exactly `headers`, one of [`HEADER_BYTES`] after
/// the other; `None` when it would make others.
pub(super) fn recognise(headers: &[u8]) -> Option<Recognised> {
    let (headers, rest) = headers.as_chunks::<HEADER_BYTES>();
    let first = Header::parse_plain(headers.first()?).filter(|_| rest.is_empty())?;
    let (mut before, mut step, mut needs_plan) = (first, None, first.marker);
    for header in &headers[1..] {
        let header = Header::parse_plain(header).filter(|header| follows(header, &before))?;
        let this_step = header.timestamp.wrapping_sub(before.timestamp);
        needs_plan |= header.marker || *step.get_or_insert(this_step) != this_step;
        before = header;
    }
    // The plan holds the markers.
    let first = Header { marker: false, ..first };
    let series = HeaderSeries { first, timestamp_step: step.unwrap_or(0) };
    Some(Recognised { series, needs_plan })
}

/// Writes the plan of recognised `headers` to `plan`; `payload_bytes` returns the size of each
/// packet's payload.
pub(super) fn write_plan(
    plan: &mut Vec<PlanEntry>,
    headers: &[u8],
    payload_bytes: impl Fn(u32) -> u16,
) {
    plan.clear();
    let headers = headers.as_chunks::<HEADER_BYTES>().0.iter().filter_map(Header::parse_plain);
    let entry = |(header, at): (Header, u32)| {
        PlanEntry::new(payload_bytes(at), header.marker, header.timestamp)
    };
    plan.extend(headers.zip(0..).map(entry));
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Header = Header {
        marker: false,
        payload_type: 33,
        sequence: 65_534,
        timestamp: 0xffff_ff00,
        ssrc: 0x1234_5678,
    };

    /// Returns four headers across the wrap of sequence and timestamp.
    fn four() -> [Header; 4] {
        let mut heads = [FIRST; 4];
        for (number, head) in (0_u16..).zip(&mut heads) {
            head.sequence = FIRST.sequence.wrapping_add(number);
            head.timestamp = FIRST.timestamp.wrapping_add(200 * u32::from(number));
        }
        heads
    }

    fn recognised(heads: &[Header]) -> Option<Recognised> {
        recognise(&heads.iter().flat_map(|head| head.write()).collect::<Vec<_>>())
    }

    const SERIES: HeaderSeries = HeaderSeries { first: FIRST, timestamp_step: 200 };

    #[test]
    fn consecutive_headers_are_their_first_and_a_step_also_over_the_wrap() {
        assert_eq!(recognised(&four()), Some(Recognised { series: SERIES, needs_plan: false }));
        let alone = HeaderSeries { timestamp_step: 0, ..SERIES };
        assert_eq!(recognised(&four()[..1]), Some(Recognised { series: alone, needs_plan: false }));
        let mut backwards = four();
        backwards.iter_mut().for_each(|head| head.timestamp = !head.timestamp);
        let first = Header { timestamp: 255, ..FIRST };
        let series = HeaderSeries { first, timestamp_step: 0_u32.wrapping_sub(200) };
        assert_eq!(recognised(&backwards), Some(Recognised { series, needs_plan: false }));
    }

    #[test]
    fn markers_and_uneven_steps_take_a_plan() {
        for at in 0..4 {
            let mut heads = four();
            heads[at].marker = true;
            assert_eq!(
                recognised(&heads),
                Some(Recognised { series: SERIES, needs_plan: true }),
                "{at}"
            );
        }
        let mut heads = four();
        heads[3].timestamp += 1;
        assert_eq!(recognised(&heads), Some(Recognised { series: SERIES, needs_plan: true }));
        heads[3].marker = true;
        let heads: Vec<u8> = heads.iter().flat_map(|head| head.write()).collect();
        let mut plan = vec![PlanEntry::new(1, true, 1)];
        write_plan(&mut plan, &heads, |at| if at == 3 { 5 } else { 1316 });
        let planned = |number: u32| {
            let timestamp = FIRST.timestamp.wrapping_add(200 * number + u32::from(number == 3));
            PlanEntry::new(if number == 3 { 5 } else { 1316 }, number == 3, timestamp)
        };
        assert_eq!(plan, (0..4).map(planned).collect::<Vec<_>>());
    }

    #[test]
    fn headers_the_engine_would_not_make_are_not_recognised() {
        for at in 0..4 {
            for change in [
                |head: &mut Header| head.ssrc += 1,
                |head: &mut Header| head.payload_type = 96,
                |head: &mut Header| head.sequence = head.sequence.wrapping_add(1),
            ] {
                let mut heads = four();
                change(&mut heads[at]);
                assert_eq!(recognised(&heads), None, "{at}");
            }
            let mut heads = four().map(|head| head.write());
            // The bits set version 1, padding, an extension, a contributor.
            for first in [0x40, 0xa0, 0x90, 0x81] {
                heads[at][0] = first;
                assert_eq!(recognise(heads.as_flattened()), None, "{at}: {first}");
            }
        }
        let heads = four().map(|head| head.write());
        assert_eq!(recognise(&heads.as_flattened()[..47]), None);
        assert_eq!(recognise(&[]), None);
    }
}
