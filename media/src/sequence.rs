// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequence headers: the fields of H.264's and H.265's sequence parameter sets and of AV1's
//! sequence header that playlists and configuration records repeat.
//!
//! Parsing stops after the last field needed. A header that is truncated before the size of the
//! picture has no fields at all; one that is truncated later lacks the fields after that.
//!
//! Sources: ISO/IEC 14496-10 §7.3.2.1.1, annex E (H.264); ISO/IEC 23008-2 §7.3.2.2, §7.3.3
//! (H.265); AV1 Bitstream §5.5 (sequence header), §5.9.2 (uvlc: §4.10.3).
//! Does not read scaling lists' values, reference picture sets or H.265's usability information.

use crate::bits::{Bits, without_emulation};
use crate::tracks::PixelAspect;

/// Fields of a sequence parameter set of H.264 or H.265.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SequenceSet {
    /// Width and height of the picture, after cropping.
    pub(crate) size: (u32, u32),
    /// chroma_format_idc.
    pub(crate) chroma: u8,
    /// Bits of a luma and of a chroma sample.
    pub(crate) depths: (u8, u8),
    /// Pictures in 1,000 seconds, of H.264 only.
    pub(crate) rate_millihertz: Option<u32>,
    /// Pixel aspect ratio, of H.264 only; `None` if the set gives none.
    pub(crate) pixel_aspect: Option<PixelAspect>,
    /// Access units that may be decoded before a unit and presented after it; `None` if the set
    /// gives no number.
    pub(crate) reordered: Option<u8>,
    /// Temporal layers, and sps_temporal_id_nesting_flag, of H.265 only.
    pub(crate) layers: (u8, bool),
}

impl SequenceSet {
    /// Reads a NAL unit of type 7 of H.264.
    pub(crate) fn h264(nal: &[u8]) -> Option<SequenceSet> {
        let &[_, profile, constraints, _, ..] = nal else { return None };
        h264(&without_emulation(&nal[4..]), profile, constraints)
    }

    /// Reads a NAL unit of type 33 of H.265.
    pub(crate) fn h265(nal: &[u8]) -> Option<SequenceSet> {
        h265(&without_emulation(nal.get(2..)?))
    }

    /// Reads the identifier of a NAL unit of type 33 of H.265.
    pub(crate) fn h265_id(nal: &[u8]) -> Option<u32> {
        let (_, _, id) = h265_head(&mut Bits::new(&without_emulation(nal.get(2..)?)))?;
        Some(id)
    }
}

/// Profiles of H.264 whose sets contain the chroma format and bit depths.
const HIGH_PROFILES: [u8; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

/// True for profiles of H.264 whose sets contain the chroma format and bit depths; their
/// configuration records repeat these (ISO/IEC 14496-15 §5.3.3.1.2).
pub(crate) fn is_high_profile(profile: u8) -> bool {
    HIGH_PROFILES.contains(&profile)
}

/// From `seq_parameter_set_id` on.
fn h264(set: &[u8], profile: u8, constraints: u8) -> Option<SequenceSet> {
    let bits = &mut Bits::new(set);
    bits.golomb()?;
    let (chroma, depths, is_planar) = h264_samples(bits, profile)?;
    bits.golomb()?;
    let order = h264_order(bits)?;
    bits.golomb()?;
    bits.flag()?;
    let (columns, rows) = (bits.golomb()?.checked_add(1)?, bits.golomb()?.checked_add(1)?);
    let is_frames = bits.flag()?;
    if !is_frames {
        bits.flag()?;
    }
    bits.flag()?;
    let fields = if is_frames { 1 } else { 2 };
    let mut size = (columns.checked_mul(16)?, rows.checked_mul(16 * fields)?);
    if bits.flag()? {
        let (unit_x, unit_y) = match chroma {
            _ if is_planar => (1, 1),
            1 => (2, 2),
            2 => (2, 1),
            _ => (1, 1),
        };
        size = cropped(bits, size, (unit_x, unit_y * fields))?;
    }
    let mut usability = Usability::default();
    // A set truncated after the size keeps the fields read so far.
    let _ = h264_usability(bits, &mut usability);
    // Baseline has no B slices; order type 2 is the order of decoding (§7.4.2.1.1); intra profiles
    // reorder nothing (annex E.2.1, max_num_reorder_frames).
    let is_intra = constraints & 0x10 != 0 && matches!(profile, 44 | 86 | 100 | 110 | 122 | 244);
    let is_in_order = profile == 66 || order == PictureOrder::Decoding || is_intra;
    let frames = usability.reordered.or(is_in_order.then_some(0));
    let reordered = frames.and_then(|frames| u8::try_from(frames.checked_mul(fields)?).ok());
    let Usability { rate_millihertz, pixel_aspect, .. } = usability;
    let chroma = u8::try_from(chroma).ok().filter(|&chroma| chroma < 4)?;
    let found = SequenceSet { size, chroma, depths, reordered, ..Default::default() };
    Some(SequenceSet { rate_millihertz, pixel_aspect, ..found })
}

/// Fields of a sequence parameter set of H.264 that headers of slices depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct H264Frames {
    /// separate_colour_plane_flag.
    pub(crate) is_planar: bool,
    /// Bits of frame_num.
    pub(crate) frame_number_bits: u32,
    /// Bits of pic_order_cnt_lsb; 0 where orders are not sent so.
    pub(crate) order_bits: u32,
    /// True if slices send differences of orders (pic_order_cnt_type 1).
    pub(crate) has_order_deltas: bool,
    /// frame_mbs_only_flag.
    pub(crate) is_frames: bool,
}

impl H264Frames {
    /// Reads a NAL unit of type 7, with the identifier of the set.
    pub(crate) fn read(nal: &[u8]) -> Option<(u32, H264Frames)> {
        let &[_, profile, _, _, ..] = nal else { return None };
        let set = without_emulation(&nal[4..]);
        let bits = &mut Bits::new(&set);
        let id = bits.golomb()?;
        let (_, _, is_planar) = h264_samples(bits, profile)?;
        let frame_number_bits = bits.golomb()?.checked_add(4).filter(|&bits| bits <= 16)?;
        let order = h264_order(bits)?;
        bits.golomb()?;
        bits.flag()?;
        bits.golomb()?;
        bits.golomb()?;
        let is_frames = bits.flag()?;
        let (order_bits, has_order_deltas) = match order {
            PictureOrder::Sent { bits } if bits > 16 => return None,
            PictureOrder::Sent { bits } => (bits, false),
            PictureOrder::Deltas { are_zero } => (0, !are_zero),
            PictureOrder::Decoding => (0, false),
        };
        let frames =
            H264Frames { is_planar, frame_number_bits, order_bits, has_order_deltas, is_frames };
        Some((id, frames))
    }
}

/// Order of presentation, by pic_order_cnt_type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PictureOrder {
    /// Sent in this number of bits.
    Sent { bits: u32 },
    /// Sent as differences, unless all of them are zero.
    Deltas { are_zero: bool },
    /// That of decoding.
    Decoding,
}

fn h264_order(bits: &mut Bits<'_>) -> Option<PictureOrder> {
    match bits.golomb()? {
        0 => Some(PictureOrder::Sent { bits: bits.golomb()?.saturating_add(4) }),
        1 => {
            let are_zero = bits.flag()?;
            bits.signed_golomb()?;
            bits.signed_golomb()?;
            for _ in 0..bits.golomb()?.min(255) {
                bits.signed_golomb()?;
            }
            Some(PictureOrder::Deltas { are_zero })
        }
        _ => Some(PictureOrder::Decoding),
    }
}

/// Chroma format, bit depths of samples, separate_colour_plane_flag.
fn h264_samples(bits: &mut Bits<'_>, profile: u8) -> Option<(u32, (u8, u8), bool)> {
    if !is_high_profile(profile) {
        return Some((1, (8, 8), false));
    }
    let chroma = bits.golomb()?;
    let is_planar = chroma == 3 && bits.flag()?;
    let depths = (depth(bits.golomb()?)?, depth(bits.golomb()?)?);
    bits.flag()?;
    if bits.flag()? {
        for list in 0..if chroma == 3 { 12 } else { 8 } {
            scaling_list(bits, if list < 6 { 16 } else { 64 })?;
        }
    }
    Some((chroma, depths, is_planar))
}

fn depth(minus_eight: u32) -> Option<u8> {
    u8::try_from(minus_eight).ok().filter(|&more| more < 8).map(|more| more + 8)
}

/// Width and height less a cropping or conformance window of four offsets.
fn cropped(bits: &mut Bits<'_>, size: (u32, u32), unit: (u32, u32)) -> Option<(u32, u32)> {
    let [left, right, top, bottom] =
        [bits.golomb()?, bits.golomb()?, bits.golomb()?, bits.golomb()?];
    let less = |length: u32, a: u32, b: u32, unit: u32| {
        length.checked_sub(a.checked_add(b)?.checked_mul(unit)?)
    };
    Some((less(size.0, left, right, unit.0)?, less(size.1, top, bottom, unit.1)?))
}

fn scaling_list(bits: &mut Bits<'_>, entries: u32) -> Option<()> {
    if !bits.flag()? {
        return Some(());
    }
    let (mut last, mut next) = (8_i32, 8_i32);
    for _ in 0..entries {
        if next != 0 {
            next = last.wrapping_add(bits.signed_golomb()?) & 0xff;
        }
        last = if next == 0 { last } else { next };
    }
    Some(())
}

/// Forms of pixels by aspect_ratio_idc (table E-1), the first of them unspecified.
const PIXEL_ASPECTS: [(u32, u32); 17] = [
    (0, 0),
    (1, 1),
    (12, 11),
    (10, 11),
    (16, 11),
    (40, 33),
    (24, 11),
    (20, 11),
    (32, 11),
    (80, 33),
    (18, 11),
    (15, 11),
    (64, 33),
    (160, 99),
    (4, 3),
    (3, 2),
    (2, 1),
];

/// Fields of H.264's usability information.
#[derive(Default)]
struct Usability {
    rate_millihertz: Option<u32>,
    pixel_aspect: Option<PixelAspect>,
    /// max_num_reorder_frames.
    reordered: Option<u32>,
}

/// Reads usability information (annex E.1.1), as far as it goes.
fn h264_usability(bits: &mut Bits<'_>, found: &mut Usability) -> Option<()> {
    const EXTENDED: u32 = 255;
    if !bits.flag()? {
        return None;
    }
    if bits.flag()? {
        let (width, height) = match bits.take(8)? {
            EXTENDED => (bits.take(16)?, bits.take(16)?),
            form => PIXEL_ASPECTS.get(form as usize).copied().unwrap_or((0, 0)),
        };
        found.pixel_aspect = PixelAspect::new(width.into(), height.into());
    }
    if bits.flag()? {
        bits.flag()?;
    }
    if bits.flag()? {
        bits.skip(4);
        if bits.flag()? {
            bits.skip(24);
        }
    }
    if bits.flag()? {
        bits.golomb()?;
        bits.golomb()?;
    }
    if bits.flag()? {
        let (tick, scale) = (u64::from(bits.take(32)?), u64::from(bits.take(32)?));
        // Two ticks a frame: one for each field.
        found.rate_millihertz = (scale * 500).checked_div(tick).and_then(believable);
        bits.flag()?;
    }
    let has_model = [hypothetical_decoder(bits)?, hypothetical_decoder(bits)?];
    if has_model.contains(&true) {
        bits.flag()?;
    }
    bits.flag()?;
    if bits.flag()? {
        bits.flag()?;
        for _ in 0..4 {
            bits.golomb()?;
        }
        found.reordered = Some(bits.golomb()?);
    }
    Some(())
}

/// Skips parameters of the hypothetical reference decoder (annex E.1.2); true if they are present.
fn hypothetical_decoder(bits: &mut Bits<'_>) -> Option<bool> {
    if !bits.flag()? {
        return Some(false);
    }
    let count = bits.golomb()?.min(31) + 1;
    bits.skip(8);
    for _ in 0..count {
        bits.golomb()?;
        bits.golomb()?;
        bits.flag()?;
    }
    bits.skip(20);
    Some(true)
}

/// A plausible rate.
pub(crate) fn believable(millihertz: u64) -> Option<u32> {
    u32::try_from(millihertz).ok().filter(|rate| (1_000..=1_000_000).contains(rate))
}

/// From `sps_video_parameter_set_id` on.
fn h265(set: &[u8]) -> Option<SequenceSet> {
    let bits = &mut Bits::new(set);
    let (lower_layers, is_nested, _) = h265_head(bits)?;
    let chroma = bits.golomb()?;
    if chroma == 3 {
        bits.flag()?;
    }
    let mut size = (bits.golomb()?, bits.golomb()?);
    let unit = match chroma {
        1 => (2, 2),
        2 => (2, 1),
        _ => (1, 1),
    };
    if bits.flag()? {
        size = cropped(bits, size, unit)?;
    }
    let chroma = u8::try_from(chroma).ok().filter(|&chroma| chroma < 4)?;
    let layers = (lower_layers as u8 + 1, is_nested);
    let mut found = SequenceSet { size, chroma, depths: (8, 8), layers, ..Default::default() };
    let _ = h265_order(bits, lower_layers, &mut found);
    Some(found)
}

/// Reads the number of lower temporal layers, sps_temporal_id_nesting_flag and
/// sps_seq_parameter_set_id.
fn h265_head(bits: &mut Bits<'_>) -> Option<(u32, bool, u32)> {
    bits.skip(4);
    let lower_layers = bits.take(3)?;
    let is_nested = bits.flag()?;
    // General profile, tier and level.
    bits.skip(96);
    let present = (0..lower_layers).map(|_| bits.take(2)).collect::<Option<Vec<_>>>()?;
    if lower_layers > 0 {
        bits.skip(2 * (8 - lower_layers as usize));
    }
    for flags in present {
        bits.skip(if flags & 2 != 0 { 88 } else { 0 } + if flags & 1 != 0 { 8 } else { 0 });
    }
    Some((lower_layers, is_nested, bits.golomb()?))
}

/// Reads bit depths and the order of pictures.
fn h265_order(bits: &mut Bits<'_>, lower_layers: u32, found: &mut SequenceSet) -> Option<()> {
    found.depths = (depth(bits.golomb()?)?, depth(bits.golomb()?)?);
    bits.golomb()?;
    let count = if bits.flag()? { lower_layers + 1 } else { 1 };
    let mut reordered = 0;
    for _ in 0..count {
        bits.golomb()?;
        // The last is that of the highest layer, so of all pictures.
        reordered = bits.golomb()?;
        bits.golomb()?;
    }
    found.reordered = u8::try_from(reordered).ok();
    Some(())
}

/// Fields of a sequence header of AV1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Av1Sequence {
    pub(crate) profile: u8,
    /// seq_level_idx and seq_tier of the first operating point.
    pub(crate) level: u8,
    pub(crate) is_high_tier: bool,
    /// Largest width and height of a frame.
    pub(crate) size: (u32, u32),
    pub(crate) bit_depth: u8,
    pub(crate) is_monochrome: bool,
    /// Chroma is halved horizontally, vertically.
    pub(crate) subsampling: (bool, bool),
    /// chroma_sample_position.
    pub(crate) position: u8,
}

impl Av1Sequence {
    /// Parses the payload of a sequence header, after the header and the size of its unit.
    pub(crate) fn read(payload: &[u8]) -> Option<Av1Sequence> {
        let bits = &mut Bits::new(payload);
        let mut found = Av1Sequence { profile: bits.take(3)? as u8, ..Default::default() };
        bits.flag()?;
        let is_reduced = bits.flag()?;
        match is_reduced {
            true => found.level = bits.take(5)? as u8,
            false => operating_points(bits, &mut found)?,
        }
        let (width_bits, height_bits) = (bits.take(4)? + 1, bits.take(4)? + 1);
        found.size = (bits.take(width_bits)? + 1, bits.take(height_bits)? + 1);
        coding_tools(bits, is_reduced)?;
        color_config(bits, &mut found)?;
        Some(found)
    }
}

/// Timing, decoder model and operating points; level and tier of the first.
fn operating_points(bits: &mut Bits<'_>, found: &mut Av1Sequence) -> Option<()> {
    let mut delay_bits = None;
    if bits.flag()? {
        bits.skip(64);
        if bits.flag()? {
            bits.golomb()?;
        }
        if bits.flag()? {
            delay_bits = Some(bits.take(5)? as usize + 1);
            bits.skip(32 + 5 + 5);
        }
    }
    let has_display_delay = bits.flag()?;
    for point in 0..=bits.take(5)? {
        bits.skip(12);
        let level = bits.take(5)? as u8;
        let is_high_tier = level > 7 && bits.flag()?;
        if point == 0 {
            (found.level, found.is_high_tier) = (level, is_high_tier);
        }
        if let Some(delay_bits) = delay_bits
            && bits.flag()?
        {
            bits.skip(2 * delay_bits + 1);
        }
        if has_display_delay && bits.flag()? {
            bits.skip(4);
        }
    }
    Some(())
}

/// Steps over the tools, from frame_id_numbers_present_flag to enable_restoration.
fn coding_tools(bits: &mut Bits<'_>, is_reduced: bool) -> Option<()> {
    if !is_reduced && bits.flag()? {
        bits.skip(7);
    }
    bits.skip(3);
    if !is_reduced {
        bits.skip(4);
        let has_order = bits.flag()?;
        if has_order {
            bits.skip(2);
        }
        // seq_choose_screen_content_tools: chosen a frame, which counts as on.
        let has_screen_tools = bits.flag()? || bits.flag()?;
        if has_screen_tools && !bits.flag()? {
            bits.skip(1);
        }
        if has_order {
            bits.skip(3);
        }
    }
    bits.skip(3);
    Some(())
}

/// Reads color_config (§5.5.2).
fn color_config(bits: &mut Bits<'_>, found: &mut Av1Sequence) -> Option<()> {
    /// color_primaries, transfer_characteristics and matrix_coefficients of sRGB.
    const SRGB: (u32, u32, u32) = (1, 13, 0);
    const UNSPECIFIED: (u32, u32, u32) = (2, 2, 2);
    let is_high = bits.flag()?;
    found.bit_depth = match is_high {
        true if found.profile == 2 && bits.flag()? => 12,
        true => 10,
        false => 8,
    };
    found.is_monochrome = found.profile != 1 && bits.flag()?;
    let color = match bits.flag()? {
        true => (bits.take(8)?, bits.take(8)?, bits.take(8)?),
        false => UNSPECIFIED,
    };
    if found.is_monochrome {
        bits.flag()?;
        found.subsampling = (true, true);
        return Some(());
    }
    if color == SRGB {
        return Some(());
    }
    bits.flag()?;
    found.subsampling = match found.profile {
        0 => (true, true),
        1 => (false, false),
        _ if found.bit_depth < 12 => (true, false),
        _ => {
            let is_narrow = bits.flag()?;
            (is_narrow, is_narrow && bits.flag()?)
        }
    };
    if found.subsampling == (true, true) {
        found.position = bits.take(2)? as u8;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    /// Sets as ffmpeg 5.1 with x264 and x265 wrote them for pictures of 322 × 178, and the fields
    /// that its `trace_headers` filter prints of them.
    #[test]
    fn parameter_sets_of_encoders_are_read() {
        for (hex, chroma, depths, reordered) in [
            ("6764000dacd941519e2223011000003e90000ea600f1429960", 1, (8, 8), 2),
            ("677a000db6cb202a33c447e022000007d20001d4c01e285490", 2, (10, 10), 0),
            ("6742c00dd901519e2223011000003e90000ea600f142a480", 1, (8, 8), 0),
            // With parameters of a hypothetical decoder.
            (
                "6764000dacd941519e2223011000003e90000ea60602001e840007a13930c01e28532c",
                1,
                (8, 8),
                2,
            ),
        ] {
            let set = bytes(hex);
            let found = SequenceSet::h264(&set).expect(hex);
            assert_eq!((found.size, found.chroma, found.depths), ((322, 178), chroma, depths));
            assert_eq!((found.rate_millihertz, found.reordered), (Some(29_970), Some(reordered)));
            for end in 0..set.len() {
                let cut = SequenceSet::h264(&set[..end]);
                assert!(cut.is_none_or(|cut| cut.size == found.size), "{hex} {end}");
            }
        }
        for (hex, chroma, depths, reordered) in [
            (
                "42010101600000030090000003000003003ca00a480b9c9265959a4932bc05a0200000030020000003\
                 0321",
                1,
                (8, 8),
                2,
            ),
            (
                "42010101600000030090000003000003003ca00a480b9c926592a4932bc05a020000030002000003\
                 003210",
                1,
                (8, 8),
                0,
            ),
            (
                "4201010408000003009d0800000300003cb00a480b9c93b65959a4932bc05a020000030002000003\
                 003210",
                2,
                (10, 10),
                2,
            ),
        ] {
            let set = bytes(&hex.replace(' ', ""));
            let found = SequenceSet::h265(&set).expect(hex);
            assert_eq!((found.size, found.chroma, found.depths), ((322, 178), chroma, depths));
            assert_eq!((found.reordered, found.layers), (Some(reordered), (1, true)));
            for end in 0..set.len() {
                let cut = SequenceSet::h265(&set[..end]);
                assert!(cut.is_none_or(|cut| cut.size == found.size), "{hex} {end}");
            }
        }
    }

    /// Configuration records written by ffmpeg 5.1 with SVT-AV1 and libaom: four bytes of fields,
    /// and the sequence header from which they were derived.
    #[test]
    fn sequence_headers_of_av1_agree_with_their_configuration_records() {
        for (hex, is_monochrome, subsampling) in [
            ("81000c000a0b000000043d06c402f80040", false, (true, true)),
            ("812040000a0a200000043d06c4daf942", false, (false, false)),
            ("81001c000a0a000000043d06c4daf92a", true, (true, true)),
        ] {
            let record = bytes(hex);
            let found = Av1Sequence::read(&record[6..]).expect(hex);
            assert_eq!((found.size, found.is_high_tier), ((322, 178), record[2] & 0x80 != 0));
            assert_eq!((found.profile, found.level), (record[1] >> 5, record[1] & 0x1f));
            assert_eq!(found.bit_depth == 10, record[2] & 0x40 != 0);
            assert_eq!((found.is_monochrome, found.subsampling), (is_monochrome, subsampling));
            for end in 6..record.len() {
                let cut = Av1Sequence::read(&record[6..end]);
                assert!(cut.is_none_or(|cut| cut == found), "{hex} {end}");
            }
        }
    }
}
