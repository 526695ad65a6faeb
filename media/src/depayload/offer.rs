// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates the depayloader of a stream that a description offers, or gives the reason for refusing
//! it.
//!
//! The description may lack the parameter sets of pictures: the stream must then carry them.
//!
//! Sources: RFC 6184 §8.1, RFC 7798 §7.1, RFC 3640 §4.1, RTP Payload Format For AV1 §7.1 (media
//! type parameters); RFC 3551 §4.5 and RFC 3190 §4 (channels of PCM).

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use wire::sdp::TrackOffer;

use super::aac::HeaderBits;
use super::nal::{NalKind, NalUnits, profile_of, unknown};
use super::{AacUnits, Av1Units, Depayloader, Format, FrameKind, Frames, Output, PcmUnits};
use crate::tracks::{Av1Config, Codec, PcmConfig, PcmForm, records};

/// Reason for refusing a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DepayloadRefusal {
    /// The format has no depayloader.
    #[error(
        "{offered}: not a format that is put together here (H264, H265, AV1, mpeg4-generic of \
         AAC, MPA, opus, ac3, eac3, L8, L16, L24, PCMA, PCMU); have the sender use one of them"
    )]
    Format {
        /// Name of the format in the description.
        offered: String,
    },
    /// The sender may send units out of order.
    #[error("{offered}: interleaved ({parameter}); have the sender use {cure}")]
    Interleaved {
        /// The format.
        offered: String,
        /// The parameter that announces it.
        parameter: String,
        /// The setting that is supported.
        cure: &'static str,
    },
    /// A required parameter is missing or broken.
    #[error("{offered}: {fault} in its fmtp; without it nothing can be decoded")]
    Parameter {
        /// The format.
        offered: String,
        /// Name of the parameter and its fault.
        fault: String,
    },
}

impl Depayloader {
    /// Creates the depayloader of a stream.
    ///
    /// # Errors
    /// An unsupported format, or parameters that do not fit it.
    pub fn new(offer: &TrackOffer) -> Result<Depayloader, DepayloadRefusal> {
        let format = match offer.encoding.to_ascii_uppercase().as_str() {
            "H264" => {
                refuse_value(offer, "packetization-mode", "2", "packetization-mode=1")?;
                Format::Nal(NalUnits::new(h264(offer)))
            }
            "H265" => {
                let depth = offer.parameter("sprop-max-don-diff").unwrap_or("0");
                refuse_value(offer, "sprop-max-don-diff", nonzero(depth), "sprop-max-don-diff=0")?;
                Format::Nal(NalUnits::new(h265(offer)))
            }
            "AV1" => Format::Av1(Av1Units::new(av1(offer))),
            "MPEG4-GENERIC" => aac(offer)?,
            "MPA" => frames(FrameKind::MpegAudio, offer),
            "AC3" => frames(FrameKind::Ac3, offer),
            "EAC3" => frames(FrameKind::Eac3, offer),
            "OPUS" => frames(FrameKind::Opus, offer),
            "L8" => pcm(PcmForm::L8, offer),
            "L16" => pcm(PcmForm::L16, offer),
            "L24" => pcm(PcmForm::L24, offer),
            "PCMA" => pcm(PcmForm::ALaw, offer),
            "PCMU" => pcm(PcmForm::MuLaw, offer),
            _ => return Err(DepayloadRefusal::Format { offered: offer.format_name() }),
        };
        Ok(Depayloader {
            format,
            clock_rate_hz: offer.clock_rate_hz,
            sequence: None,
            time: None,
            is_after_gap: true,
            output: Output::default(),
        })
    }
}

fn frames(kind: FrameKind, offer: &TrackOffer) -> Format {
    // An Opus decoder outputs as many channels as it is asked for; the other formats name the
    // number in each frame.
    let is_mono = offer.parameter("sprop-stereo").is_some_and(|stereo| stereo == "0");
    let codec = match kind {
        FrameKind::MpegAudio => Some(Codec::MpegAudio),
        FrameKind::Opus if is_mono => Some(Codec::Opus { channels: 1 }),
        FrameKind::Opus if offer.parameter("sprop-stereo").is_some() => {
            Some(Codec::Opus { channels: 2 })
        }
        _ => None,
    };
    Format::Frames(Frames::new(kind, codec, offer.clock_rate_hz))
}

fn pcm(form: PcmForm, offer: &TrackOffer) -> Format {
    // One channel is the default (RFC 8866 §6.6).
    let channels = offer.channels.unwrap_or(1).max(1);
    Format::Pcm(PcmUnits::new(PcmConfig { form, rate_hz: offer.clock_rate_hz, channels }))
}

/// Returns the value unless it is zero, else one that no parameter has.
fn nonzero(value: &str) -> &str {
    if value == "0" { "\0" } else { value }
}

fn refuse_value(
    offer: &TrackOffer,
    name: &str,
    refused: &str,
    cure: &'static str,
) -> Result<(), DepayloadRefusal> {
    match offer.parameter(name) {
        Some(value) if value == refused => Err(DepayloadRefusal::Interleaved {
            offered: offer.format_name(),
            parameter: format!("{name}={value}"),
            cure,
        }),
        _ => Ok(()),
    }
}

fn h264(offer: &TrackOffer) -> Codec {
    let mut codec = unknown(NalKind::H264);
    let Codec::H264(config) = &mut codec else { unreachable!("it is what was asked for") };
    for set in sets(offer, "sprop-parameter-sets") {
        match set[0] & 0x1f {
            7 if set.len() >= 4 => {
                config.profile.copy_from_slice(&set[1..4]);
                config.sequence_sets.push(set);
            }
            8 => config.picture_sets.push(set),
            _ => {}
        }
    }
    codec
}

fn h265(offer: &TrackOffer) -> Codec {
    let mut codec = unknown(NalKind::H265);
    let Codec::H265(config) = &mut codec else { unreachable!("it is what was asked for") };
    config.video_sets = sets(offer, "sprop-vps");
    config.sequence_sets = sets(offer, "sprop-sps");
    config.picture_sets = sets(offer, "sprop-pps");
    if let Some(profile) = config.sequence_sets.first().and_then(|set| profile_of(set)) {
        config.profile = profile;
    }
    codec
}

/// Decodes parameter sets in base64. Sets that are not valid base64 are skipped: the stream usually
/// carries them as well.
fn sets(offer: &TrackOffer, name: &str) -> Vec<Vec<u8>> {
    let value = offer.parameter(name).unwrap_or_default();
    let decode = |text: &str| {
        // Some cameras omit the padding.
        let text = text.trim();
        STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()
    };
    let sets = value.split(',').filter_map(decode).filter(|set| set.len() > 2);
    sets.take(SETS_MAX).collect()
}

fn av1(offer: &TrackOffer) -> Av1Config {
    let number = |name| offer.parameter(name).and_then(|value| value.parse().ok());
    Av1Config {
        profile: number("profile").unwrap_or(0),
        level: number("level-idx").unwrap_or(5),
        is_high_tier: number("tier").is_some_and(|tier| tier == 1),
        bit_depth: 8,
        units: Vec::new(),
    }
}

fn aac(offer: &TrackOffer) -> Result<Format, DepayloadRefusal> {
    let fault = |fault: String| DepayloadRefusal::Parameter { offered: offer.format_name(), fault };
    let mode = offer.parameter("mode").unwrap_or_default();
    let is_aac = ["AAC-hbr", "AAC-lbr"].iter().any(|known| known.eq_ignore_ascii_case(mode));
    if !is_aac {
        let offered = format!("{} mode={mode}", offer.format_name());
        return Err(DepayloadRefusal::Format { offered });
    }
    let number = |name: &str| match offer.parameter(name) {
        None => Ok(0),
        Some(value) => value.parse().map_err(|_| fault(format!("{name}={value}"))),
    };
    let others = [
        "ctsdeltalength",
        "dtsdeltalength",
        "streamstateindication",
        "randomaccessindication",
        "auxiliarydatasizelength",
    ];
    for name in others {
        if number(name)? != 0 {
            return Err(fault(format!("{name}, which AAC does not use,")));
        }
    }
    refuse_value(
        offer,
        "maxdisplacement",
        nonzero(offer.parameter("maxdisplacement").unwrap_or("0")),
        "no maxDisplacement",
    )?;
    let bits = HeaderBits {
        size: number("sizelength")?,
        index: number("indexlength")?,
        index_delta: number("indexdeltalength")?,
    };
    if !(1..=32).contains(&bits.size) || bits.index > 32 || bits.index_delta > 32 {
        return Err(fault(format!("sizelength={}", bits.size)));
    }
    let config = offer.parameter("config").unwrap_or_default();
    let specific = hex(config).ok_or_else(|| fault(format!("config={config:.40}")))?;
    let channels = offer.channels.unwrap_or(1);
    let codec = records::aac(&specific, channels).map_err(|what| fault(what.to_owned()))?;
    // The default is 1024 samples of the core codec.
    let samples = u64::from(offer.clock_rate_hz) * 1024 / u64::from(codec.clock_rate_hz());
    let duration = match number("constantduration")? {
        0 => samples as i64,
        given => i64::from(given),
    };
    Ok(Format::Aac(AacUnits::new(codec, bits, duration)))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let is_hex =
        !text.is_empty() && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_hex || text.len() % 2 == 1 {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// Most parameter sets of a kind in a description.
const SETS_MAX: usize = 32;
