// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of an asset in the index.

use media::cmaf::{is_carried, unheard};
use media::tracks::{LeftOut, TrackMedia};
use media::{AssetPlan, Coding, PacketPlan, Presentation, TICKS_PER_SECOND};
use serde::Serialize;

use crate::library::asset::LibraryAsset;

/// Description of an asset in the index.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StreamSummary {
    /// Seconds of media.
    pub duration_s: f64,
    /// Mean bit rate of the sent media, without RTP headers.
    pub bits_per_second: u64,
    /// RTP packets of a transport stream; those of tracks are laid out when they are played.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Number of positions where play can start.
    pub entries: usize,
    /// Codecs by their RFC 6381 names; absent when a stream's codec has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codecs: Option<String>,
    /// Elementary streams of a transport stream: PID and stream type (ISO/IEC 13818-1 table 2-34).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<(u16, u8)>,
    /// Tracks that are RTP streams of their own, in the order of the session description.
    #[serde(skip)]
    pub tracks: Vec<TrackSummary>,
    /// Tracks that are not sent, each with the reason; the last element counts those beyond eight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Pictures and sounds of a transport stream that are not sent as tracks, judged by its
    /// beginning, each with the reason; the last element counts those beyond eight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elementary_left_out: Vec<String>,
    /// Faults of the file as a whole that viewers would notice, each with its cure: it is cut off,
    /// its pictures are turned, its sound is PCM.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Number of positions where packet synchronisation was lost.
    pub sync_losses: u64,
    /// True for media that HLS and DASH carry, as far as its codecs show.
    #[serde(skip)]
    pub has_segments: bool,
}

/// A track in the index.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TrackSummary {
    /// Its number in the file.
    pub id: u32,
    /// `video` or `audio`.
    pub media: &'static str,
    /// Codec by its RFC 6381 name.
    pub codec: String,
    /// Language (ISO 639-2); absent where the file names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Mean bit rate, without any headers.
    pub bits_per_second: u64,
    /// Number of its samples: pictures, or frames of sound.
    pub samples: usize,
}

impl StreamSummary {
    pub(super) fn of(asset: &LibraryAsset) -> StreamSummary {
        match asset {
            LibraryAsset::Stream(asset) => StreamSummary::of_transport_stream(&asset.plan),
            LibraryAsset::Tracks(asset) => StreamSummary::of_tracks(&asset.presentation),
        }
    }

    /// Returns the description of a file with this plan.
    pub fn of_plan(plan: &AssetPlan) -> StreamSummary {
        match plan {
            AssetPlan::TransportStream(plan) => StreamSummary::of_transport_stream(plan),
            AssetPlan::Tracks(presentation) => StreamSummary::of_tracks(presentation),
        }
    }

    /// True for a transport stream with elementary streams that may be sent as tracks; the first
    /// request for them shows if they can be.
    pub(crate) fn may_have_elementary(&self) -> bool {
        use Coding::{Aac, Ac3, Eac3, H264, H265, MpegAudio};
        let is_sent = |stream_type| {
            let coding = Coding::of(stream_type, &[]);
            // Private data may be sound, by a descriptor that a plan does not have.
            stream_type == PRIVATE || matches!(coding, H264 | H265 | Aac | MpegAudio | Ac3 | Eac3)
        };
        self.streams.iter().any(|&(_, stream_type)| is_sent(stream_type))
    }

    /// True where pictures are sent.
    pub(crate) fn has_pictures(&self) -> bool {
        let mut codings = self.streams.iter().map(|&(_, kind)| Coding::of(kind, &[]));
        codings.any(Coding::is_video) || self.tracks.iter().any(|track| track.media == "video")
    }

    fn of_transport_stream(plan: &PacketPlan) -> StreamSummary {
        let summary = StreamSummary {
            duration_s: seconds(plan.duration_ticks()),
            bits_per_second: plan.bits_per_second(),
            packets: Some(plan.packets()),
            entries: plan.entries().len(),
            codecs: plan.codecs().map(str::to_owned),
            streams: plan.streams().iter().map(|s| (s.pid, s.stream_type)).collect(),
            tracks: Vec::new(),
            left_out: Vec::new(),
            elementary_left_out: Vec::new(),
            warnings: plan.warnings(),
            sync_losses: plan.losses_seen(),
            has_segments: !plan.entries().is_empty(),
        };
        match summary.may_have_elementary() {
            true => StreamSummary { elementary_left_out: plan.unsent().to_vec(), ..summary },
            false => summary,
        }
    }

    fn of_tracks(presentation: &Presentation) -> StreamSummary {
        StreamSummary {
            duration_s: seconds(presentation.presented_end_ticks()),
            bits_per_second: presentation.bits_per_second(),
            packets: None,
            entries: presentation.entries(),
            codecs: Some(presentation.codecs()),
            streams: Vec::new(),
            tracks: (0..presentation.tracks().len())
                .map(|index| TrackSummary::of(presentation, index))
                .collect(),
            left_out: LeftOut::summary(presentation.left_out()),
            elementary_left_out: Vec::new(),
            warnings: presentation
                .warnings()
                .iter()
                .cloned()
                .chain(unheard(presentation))
                .collect(),
            sync_losses: 0,
            has_segments: presentation.tracks().iter().any(|track| is_carried(&track.codec)),
        }
    }
}

impl TrackSummary {
    fn of(presentation: &Presentation, index: usize) -> TrackSummary {
        let track = &presentation.tracks()[index];
        TrackSummary {
            id: track.id,
            media: match track.codec.media() {
                TrackMedia::Video => "video",
                TrackMedia::Audio => "audio",
            },
            codec: track.codec.name(),
            language: track.language_name(),
            bits_per_second: presentation.track_bits_per_second(index),
            samples: track.samples.len(),
        }
    }
}

/// Stream type of private data (ISO/IEC 13818-1 table 2-34).
const PRIVATE: u8 = 0x06;

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND as f64
}
