// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates the sample description of a track (its `stsd` entry) from its codec and its parameters.
//!
//! H.264 and H.265 entries are named `avc1` and `hvc1`, with the parameter sets of the first key
//! frame in their records, though samples may hold sets as well: a camera that changes its picture
//! sends new sets there, and they are kept. The names `avc3` and `hev1`, which announce sets in
//! samples, are refused by more players than such samples under the other names are; the decoders
//! read sets in samples under all four names.
//!
//! Sources: ISO/IEC 14496-12 §12.1.3, §12.2.3; ISO/IEC 14496-15 §5.3.3, §8.3.3; AV1-ISOBMFF §2.3;
//! ISO/IEC 14496-1 §7.2.6 (esds) and the object types of mp4ra.org; "Encapsulation of Opus in ISO
//! Base Media File Format" §4.3; ISO/IEC 23003-5 (ipcm, pcmC); ETSI TS 102 366 §4.3, annex E.1.2,
//! annex F.
//! Does not write pixel aspect ratios ([`super::movie_header`] writes those of containers) or
//! colours, which decoders read from the parameter sets.

use mp4_atom::{
    Ac3, Ac3SpecificBox, Audio, Av01, Av1c, Avc1, Avcc, AvccExt, Codec as Entry, Dops, Eac3,
    Ec3IndependentSubstream, Ec3SpecificBox, Esds, FixedPoint, Hvc1, HvcCArray, Hvcc, Ipcm, Mp4a,
    Opus, PcmC, Visual, esds,
};

use super::parameters::{ParameterSets, Parameters};
use super::pcm_blocks;
use crate::bits::{Bits, without_emulation};
use crate::frames::mpeg_audio_rate_hz;
use crate::sequence::{Av1Sequence, SequenceSet, is_high_profile};
use crate::tracks::{Av1Config, Codec, Display, H265Config, PcmConfig, ShownPictures};

/// Returns the entry of a track; `None` if its parameters are unknown, or if the first frame is not
/// one of its codec.
pub(super) fn entry(codec: &Codec, parameters: &Parameters) -> Option<Entry> {
    Some(match (codec, parameters) {
        (Codec::H264(_), Parameters::Sets { sets, sequence: Some(sequence), .. }) => {
            avc1(sets, sequence)?.into()
        }
        (Codec::H265(config), Parameters::Sets { sets, sequence: Some(sequence), .. }) => {
            hvc1(config, sets, sequence)?.into()
        }
        (Codec::Av1(config), Parameters::Av1 { unit, sequence: Some(sequence) }) => {
            av01(config, unit, sequence).into()
        }
        (Codec::Aac(config), _) => {
            let specific = Some(config.specific.clone());
            mp4a(0x40, config.channels, config.rate_hz, specific).into()
        }
        (Codec::MpegAudio, Parameters::Frame(Some(frame))) => mpeg_audio(frame)?.into(),
        (&Codec::Pcm(config), _) => ipcm(pcm_blocks::stored(config)).into(),
        (&Codec::Opus { channels }, _) => opus(channels).into(),
        (&Codec::Ac3 { rate_hz, channels }, Parameters::Frame(Some(frame))) => {
            Ac3 { audio: audio(channels, rate_hz), dac3: dac3(frame)? }.into()
        }
        (&Codec::Eac3 { rate_hz, channels }, Parameters::Frame(Some(frame))) => {
            Eac3 { audio: audio(channels, rate_hz), dec3: dec3(frame)? }.into()
        }
        _ => return None,
    })
}

/// Returns the entry of a track, with the width and height of its pictures; `None` if neither the
/// codec nor the first unit (NAL units with lengths of four bytes) has the parameters.
pub(crate) fn describe(codec: &Codec, first_unit: Option<&[u8]>) -> Option<(Entry, (u32, u32))> {
    let mut parameters = Parameters::of(codec);
    if let Some(unit) = first_unit {
        parameters.observe(unit).ok()?;
    }
    Some((entry(codec, &parameters)?, parameters.size().unwrap_or((0, 0))))
}

impl ShownPictures {
    /// Returns the displayed pictures of a track; `None` if the codec lacks their parameters.
    pub fn of(codec: &Codec, display: Display) -> Option<ShownPictures> {
        let parameters = Parameters::of(codec);
        entry(codec, &parameters)?;
        let size = parameters.size().filter(|&size| size != (0, 0))?;
        Some(ShownPictures::new(size, parameters.pixel_aspect(), display))
    }
}

/// True if the entry of a track can be created from this first frame.
pub(super) fn is_frame(codec: &Codec, frame: &[u8]) -> bool {
    match codec {
        Codec::MpegAudio => mpeg_audio_rate_hz(frame).is_some(),
        Codec::Ac3 { .. } => dac3(frame).is_some(),
        Codec::Eac3 { .. } => dec3(frame).is_some(),
        _ => true,
    }
}

fn visual((width, height): (u32, u32)) -> Visual {
    let short = |length: u32| u16::try_from(length).unwrap_or(u16::MAX);
    let (width, height) = (short(width), short(height));
    Visual { data_reference_index: 1, width, height, ..Visual::default() }
}

fn audio(channels: u8, rate_hz: u32) -> Audio {
    // A rate of more than 16 bits is given in the codec's record only (§12.2.3).
    let rate = u16::try_from(rate_hz).unwrap_or(0);
    Audio {
        data_reference_index: 1,
        channel_count: channels.into(),
        sample_size: 16,
        sample_rate: FixedPoint::new(rate, 0),
    }
}

fn avc1(sets: &ParameterSets, sequence: &SequenceSet) -> Option<Avc1> {
    let &[_, profile, constraints, level, ..] = sets.sequence.first()?.as_slice() else {
        return None;
    };
    let ext = is_high_profile(profile).then(|| AvccExt {
        chroma_format: sequence.chroma,
        bit_depth_luma: sequence.depths.0,
        bit_depth_chroma: sequence.depths.1,
        sequence_parameter_sets_ext: Vec::new(),
    });
    let avcc = Avcc {
        configuration_version: 1,
        avc_profile_indication: profile,
        profile_compatibility: constraints,
        avc_level_indication: level,
        length_size: 4,
        sequence_parameter_sets: sets.sequence.clone(),
        picture_parameter_sets: sets.picture.clone(),
        ext,
    };
    Some(Avc1 { visual: visual(sequence.size), avcc, ..Avc1::default() })
}

fn hvc1(config: &H265Config, sets: &ParameterSets, sequence: &SequenceSet) -> Option<Hvc1> {
    let mut profile = config.profile;
    if profile == [0; 12] {
        // The profile follows the NAL unit header and one byte with the identifier and the number
        // of layers.
        let clean = without_emulation(sets.sequence.first()?);
        profile = *clean.get(3..)?.first_chunk()?;
    }
    let [general, a, b, c, d, constraints @ .., level] = profile;
    // The name hvc1 requires that all sets are here (§8.3.3.1.3); the module header gives the
    // reason for the name.
    let array = |nal_unit_type: u8, nalus: &Vec<Vec<u8>>| HvcCArray {
        completeness: true,
        nal_unit_type,
        nalus: nalus.clone(),
    };
    let hvcc = Hvcc {
        general_profile_space: general >> 6,
        general_tier_flag: general & 0x20 != 0,
        general_profile_idc: general & 0x1f,
        general_profile_compatibility_flags: [a, b, c, d],
        general_constraint_indicator_flags: constraints,
        general_level_idc: level,
        chroma_format_idc: sequence.chroma,
        bit_depth_luma_minus8: sequence.depths.0 - 8,
        bit_depth_chroma_minus8: sequence.depths.1 - 8,
        num_temporal_layers: sequence.layers.0,
        temporal_id_nested: sequence.layers.1,
        length_size_minus_one: 3,
        arrays: vec![array(32, &sets.video), array(33, &sets.sequence), array(34, &sets.picture)],
        ..Hvcc::new()
    };
    Some(Hvc1 { visual: visual(sequence.size), hvcc, ..Hvc1::default() })
}

fn av01(config: &Av1Config, unit: &[u8], sequence: &Av1Sequence) -> Av01 {
    let config_obus = if config.units.is_empty() { unit.to_vec() } else { config.units.clone() };
    let av1c = Av1c {
        seq_profile: sequence.profile,
        seq_level_idx_0: sequence.level,
        seq_tier_0: sequence.is_high_tier,
        high_bitdepth: sequence.bit_depth > 8,
        twelve_bit: sequence.bit_depth == 12,
        monochrome: sequence.is_monochrome,
        chroma_subsampling_x: sequence.subsampling.0,
        chroma_subsampling_y: sequence.subsampling.1,
        chroma_sample_position: sequence.position,
        initial_presentation_delay: None,
        config_obus,
    };
    Av01 { visual: visual(sequence.size), av1c, ..Av01::default() }
}

fn mp4a(object_type: u8, channels: u8, rate_hz: u32, specific: Option<Vec<u8>>) -> Mp4a {
    /// streamType of an AudioStream.
    const AUDIO_STREAM: u8 = 5;
    let specific =
        specific.map(|raw| esds::DecoderSpecific { raw, profile: 0, freq_index: 0, chan_conf: 0 });
    let dec_config = esds::DecoderConfig {
        object_type_indication: object_type,
        stream_type: AUDIO_STREAM,
        dec_specific: specific,
        ..esds::DecoderConfig::default()
    };
    let es_desc = esds::EsDescriptor { dec_config, ..esds::EsDescriptor::default() };
    Mp4a { audio: audio(channels, rate_hz), esds: Esds { es_desc }, btrt: None, taic: None }
}

/// Returns the entry of MPEG audio: the object type is that of MPEG-2 below 32 kHz, else that of
/// MPEG-1.
fn mpeg_audio(frame: &[u8]) -> Option<Mp4a> {
    let rate_hz = mpeg_audio_rate_hz(frame)?;
    let channels = if frame[3] >> 6 == 3 { 1 } else { 2 };
    Some(mp4a(if rate_hz < 32_000 { 0x69 } else { 0x6b }, channels, rate_hz, None))
}

fn opus(channels: u8) -> Opus {
    const RATE_HZ: u32 = 48_000;
    // A stream joined in the middle has no encoder delay to skip.
    let dops = Dops {
        output_channel_count: channels,
        pre_skip: 0,
        input_sample_rate: RATE_HZ,
        output_gain: 0,
        channel_mapping: None,
    };
    Opus { audio: audio(channels, RATE_HZ), dops, btrt: None }
}

/// Returns the entry of PCM in the form that files store. The width is in the fields of all sound
/// as well, for libavformat 59 (ffmpeg 5.1): it does not read `pcmC`, and treats the samples as
/// little-endian. A rate of more than 16 bits is given by the timescale only.
fn ipcm(config: PcmConfig) -> Ipcm {
    let sample_size = 8 * config.form.bytes() as u8;
    let audio = audio(config.channels, config.rate_hz);
    Ipcm {
        audio: Audio { sample_size: sample_size.into(), ..audio },
        pcmc: Some(PcmC { big_endian: false, sample_size }),
        // One channel is mono and two are stereo without a layout.
        chnl: None,
        btrt: None,
    }
}

/// Fields of a syncframe of AC-3 (§4.3.1, §4.3.2).
fn dac3(frame: &[u8]) -> Option<Ac3SpecificBox> {
    let [0x0b, 0x77, _, _, rest @ ..] = frame else { return None };
    let bits = &mut Bits::new(rest);
    let (fscod, size, bsid) = (bits.take(2)? as u8, bits.take(6)? as u8, bits.take(5)? as u8);
    let (bsmod, acmod) = (bits.take(3)? as u8, bits.take(3)? as u8);
    // Mix levels of the centre and of the surround channels, and the Dolby Surround mode.
    let levels = [acmod & 1 != 0 && acmod != 1, acmod & 4 != 0, acmod == 2];
    bits.skip(2 * levels.into_iter().filter(|&there| there).count());
    let lfeon = bits.flag()?;
    // Other values of bsid are those of Enhanced AC-3; each bit rate has two values of frmsizecod.
    let is_known = bsid <= 10 && fscod < 3 && size < 38;
    is_known.then_some(Ac3SpecificBox { fscod, bsid, bsmod, acmod, lfeon, bit_rate_code: size / 2 })
}

/// Fields of the syncframes of an access unit of Enhanced AC-3 (annex E.1.2).
fn dec3(mut unit: &[u8]) -> Option<Ec3SpecificBox> {
    const DEPENDENT: u32 = 1;
    /// Substreams of each kind (annex F.6).
    const SUBSTREAMS_MAX: usize = 8;
    let mut substreams: Vec<Ec3IndependentSubstream> = Vec::new();
    let (mut bytes, mut blocks, mut rate_hz) = (0, 0, 0);
    while let [0x0b, 0x77, rest @ ..] = unit {
        let bits = &mut Bits::new(rest);
        let (kind, _, frame_bytes) = (bits.take(2)?, bits.take(3)?, 2 * (bits.take(11)? + 1));
        let fscod = bits.take(2)?;
        let more = bits.take(2)?;
        let (acmod, lfeon, bsid) = (bits.take(3)? as u8, bits.flag()?, bits.take(5)? as u8);
        if !(11..=16).contains(&bsid) {
            return None;
        }
        if kind == DEPENDENT {
            let last = substreams.last_mut()?;
            last.num_dep_sub = (last.num_dep_sub + 1).min(15);
            let places = last.chan_loc.unwrap_or(0) | places(bits, acmod).unwrap_or(0);
            last.chan_loc = Some(places);
        } else if substreams.len() < SUBSTREAMS_MAX {
            if substreams.is_empty() {
                const RATES_HZ: [u32; 3] = [48_000, 44_100, 32_000];
                let halved = RATES_HZ.get(more as usize).map(|rate| rate / 2);
                rate_hz = RATES_HZ.get(fscod as usize).copied().or(halved)?;
                blocks = if fscod == 3 { 6 } else { [1, 2, 3, 6][more as usize] };
            }
            let fscod = fscod as u8;
            let (asvc, bsmod, num_dep_sub, chan_loc) = (false, 0, 0, None);
            substreams.push(Ec3IndependentSubstream {
                fscod,
                bsid,
                asvc,
                bsmod,
                acmod,
                lfeon,
                num_dep_sub,
                chan_loc,
            });
        }
        bytes += u64::from(frame_bytes);
        unit = unit.get(frame_bytes as usize..).unwrap_or_default();
    }
    // data_rate is in kbit/s and has 13 bits; a block has 256 samples.
    let data_rate = (bytes * 8 * u64::from(rate_hz)).checked_div(256 * 1000 * blocks)?;
    let data_rate = data_rate.min(0x1fff) as u16;
    (!substreams.is_empty()).then_some(Ec3SpecificBox { data_rate, substreams })
}

/// Returns the chan_loc bits of a dependent substream; `bits` is positioned after bsid.
fn places(bits: &mut Bits<'_>, acmod: u8) -> Option<u16> {
    // dialnorm and compr: twice in dual mono (acmod 0).
    for _ in 0..if acmod == 0 { 2 } else { 1 } {
        bits.skip(5);
        if bits.flag()? {
            bits.skip(8);
        }
    }
    if !bits.flag()? {
        return Some(0);
    }
    let map = bits.take(16)?;
    // chanmap counts from the highest bit, chan_loc from the lowest: pairs Lc/Rc to Cvh are bits 5
    // to 12 of the one and 0 to 7 of the other, LFE2 is 14 and 8 (tables E.1.7 and F.6.1).
    let bit = |from: u32, to: u32| (map >> (15 - from) & 1) << to;
    let all = (0..8).map(|to| bit(to + 5, to)).sum::<u32>() | bit(14, 8);
    Some(all as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_dolby_digital_tell_their_records() {
        // Written by ffmpeg's encoders: 5.1 channels at 48 kHz, 448 kbit/s.
        let frame = [0x0b, 0x77, 0x80, 0x78, 0x1e, 0x40, 0xeb, 0xf8];
        let found = dac3(&frame).unwrap();
        assert_eq!((found.fscod, found.bsid, found.acmod, found.lfeon), (0, 8, 7, true));
        assert_eq!(found.bit_rate_code, 15);
        (0..7).for_each(|end| assert!(dac3(&frame[..end]).is_none(), "{end}"));
        assert!(dac3(&[0x0b, 0x77, 0, 0, 0xc0, 0x40, 0xeb]).is_none(), "reserved rate");

        // 1,536 samples in 1,792 bytes.
        let mut frame = vec![0x0b, 0x77, 0x03, 0x7f, 0x3f, 0x87, 0xc0, 0, 0x20, 0xf8];
        frame.resize(1792, 0);
        let found = dec3(&frame).unwrap();
        let [only] = &found.substreams[..] else { panic!("one substream") };
        assert_eq!((found.data_rate, only.bsid, only.acmod, only.lfeon), (448, 16, 7, true));
        // Followed by a dependent substream of two channels, Lrs and Rrs.
        let dependent = [0x0b, 0x77, 0x40, 6, 0x34, 0x80, 0x10, 0x20, 0, 0, 0, 0, 0, 0];
        let both = [&frame[..], &dependent].concat();
        let found = dec3(&both).unwrap();
        let [only] = &found.substreams[..] else { panic!("one independent substream") };
        assert_eq!((only.num_dep_sub, only.chan_loc), (1, Some(2)));
        assert!(dec3(&dependent).is_none(), "a dependent substream alone");
        (0..6).for_each(|end| assert!(dec3(&both[..end]).is_none(), "{end}"));
    }
}
