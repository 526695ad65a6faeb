// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simple parser of boxes in initialization sections and segments.
//!
//! Sources: ISO/IEC 14496-12 §4.2 (boxes), §8.8 (movie fragments). Does not read large sizes or
//! boxes of extended types: segments have none.

use std::collections::BTreeMap;

/// A box: its type and content.
pub(crate) type Found<'a> = (String, &'a [u8]);

/// Returns the boxes in a sequence.
///
/// # Panics
/// When the sequence does not end where its last box does.
#[track_caller]
pub(crate) fn boxes(mut bytes: &[u8]) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let size = u32_at(bytes, 0) as usize;
        assert!((8..=bytes.len()).contains(&size), "a box of {size} bytes in {}", bytes.len());
        let kind = String::from_utf8_lossy(&bytes[4..8]).into_owned();
        found.push((kind, &bytes[8..size]));
        bytes = &bytes[size..];
    }
    found
}

/// Returns the boxes at a path of types, such as `moov/trak/mdia`.
pub(crate) fn at_path<'a>(bytes: &'a [u8], path: &str) -> Vec<&'a [u8]> {
    let (first, rest) = match path.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let here = boxes(bytes).into_iter().filter(|(kind, _)| kind == first);
    here.flat_map(|(_, content)| match rest {
        Some(rest) => at_path(content, rest),
        None => vec![content],
    })
    .collect()
}

/// A track's part of a segment; times in units of the track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrackFragment {
    /// The flags of `tfhd`.
    pub(crate) flags: u32,
    pub(crate) decode: u64,
    /// The earliest presentation time, and the end of the latest.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Duration of all samples.
    pub(crate) duration: u64,
    pub(crate) samples: u32,
    /// True where the first sample depends on no other (its flags).
    pub(crate) begins_with_sync: bool,
}

/// Returns the track fragments of a segment by the number of the track.
#[track_caller]
pub(crate) fn track_fragments(segment: &[u8]) -> BTreeMap<u32, TrackFragment> {
    let fragments = at_path(segment, "moof/traf");
    let fragments = fragments.into_iter().map(|fragment| {
        let tfhd = at_path(fragment, "tfhd")[0];
        (u32_at(tfhd, 4), track_fragment(fragment, tfhd))
    });
    fragments.collect()
}

fn track_fragment(fragment: &[u8], tfhd: &[u8]) -> TrackFragment {
    let flags = u32_at(tfhd, 0) & 0xff_ffff;
    let mut at = 8;
    let mut optional = |flag: u32, bytes: usize| {
        (flags & flag != 0).then(|| {
            at += bytes;
            u32_at(tfhd, at - 4)
        })
    };
    optional(0x1, 8);
    optional(0x2, 4);
    let default_duration = optional(0x8, 4);
    optional(0x10, 4);
    let default_flags = optional(0x20, 4).unwrap_or(0);
    let tfdt = at_path(fragment, "tfdt");
    let tfdt = tfdt.first().expect("every track fragment has its decode time");
    let decode = match tfdt[0] {
        0 => u64::from(u32_at(tfdt, 4)),
        _ => u64::from(u32_at(tfdt, 4)) << 32 | u64::from(u32_at(tfdt, 8)),
    };
    let mut found = TrackFragment {
        flags,
        decode,
        start: u64::MAX,
        end: 0,
        duration: 0,
        samples: 0,
        begins_with_sync: false,
    };
    for run in at_path(fragment, "trun") {
        let flags = u32_at(run, 0) & 0xff_ffff;
        let mut at = 8;
        let mut next = |flag: u32| {
            (flags & flag != 0).then(|| {
                at += 4;
                u32_at(run, at - 4)
            })
        };
        next(0x1);
        let first_flags = next(0x4);
        for sample in 0..u32_at(run, 4) {
            let duration = next(0x100).or(default_duration).expect("a duration");
            next(0x200);
            let own_flags = next(0x400);
            let offset = i64::from(next(0x800).unwrap_or(0) as i32);
            if found.samples == 0 {
                let first = first_flags.filter(|_| sample == 0).or(own_flags);
                // sample_is_non_sync_sample
                found.begins_with_sync = first.unwrap_or(default_flags) & 0x1_0000 == 0;
            }
            let shown = (decode + found.duration).checked_add_signed(offset).expect("a time");
            found.start = found.start.min(shown);
            found.end = found.end.max(shown + u64::from(duration));
            found.duration += u64::from(duration);
            found.samples += 1;
        }
    }
    found
}

/// Returns the ticks per second of each track of an initialization section.
pub(crate) fn timescales(init: &[u8]) -> BTreeMap<u32, u32> {
    let tracks = at_path(init, "moov/trak");
    let tracks = tracks.into_iter().map(|track| {
        let (tkhd, mdhd) = (at_path(track, "tkhd")[0], at_path(track, "mdia/mdhd")[0]);
        let id = u32_at(tkhd, if tkhd[0] == 0 { 12 } else { 20 });
        (id, u32_at(mdhd, if mdhd[0] == 0 { 12 } else { 20 }))
    });
    tracks.collect()
}

#[track_caller]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
