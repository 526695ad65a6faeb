// SPDX-License-Identifier: MIT OR Apache-2.0
//! Media files (MPEG transport streams, MP4, Matroska, MP3, AAC, WAV), and the packet plans and
//! segment plans created from them.
//!
//! A [`Scanner`] reads the bytes of a transport stream once and creates its [`PacketPlan`]: the
//! file offset and due time of each RTP payload, and the places where play can start. A [`Demuxer`]
//! reads the tables of other files and creates a [`Presentation`]: the places of each track's
//! samples; [`payload`] lays their packets out, a second of a track at a time. After that nothing
//! is parsed: serving and seeking are arithmetic on the plan, O(log n) a lookup, without I/O,
//! without allocation and with integers only. [`cmaf`] and [`segments`] cut the same files for HLS
//! and DASH; [`mux`] writes files from access units.
//!
//! The unit of time is the tick of the 27 MHz system clock (ISO/IEC 13818-1 §2.4.2.1); an RTP
//! timestamp (90 kHz, RFC 2250 §2) is ticks divided by 300.
//!
//! Only [`store`] reads files and draws random numbers; elsewhere bytes and numbers are arguments.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access_unit;
mod asset_plan;
mod bits;
mod byte_stream;
pub mod cmaf;
mod demuxer;
pub mod depayload;
mod error;
pub mod frames;
mod growing_fragments;
mod growing_segments;
mod growing_times;
pub mod key_pictures;
mod languages;
pub mod mkv;
pub mod mp4;
pub mod mux;
pub mod payload;
pub mod plan;
mod random_access;
mod read_at;
mod reorder;
pub mod segments;
mod sequence;
pub mod store;
mod stored;
mod stream_key_frames;
pub mod text;
mod ticks;
pub mod tracks;
pub mod trick;
pub mod ts;
pub mod wav;

pub use access_unit::AccessUnit;
pub use asset_plan::AssetPlan;
pub use demuxer::Demuxer;
pub use error::{
    Aspect, CodecsFault, Damage, DemuxError, MuxRefusal, PlanFault, Refusal, SpliceRefusal,
    SpliceSettingsFault, TextFault,
};
pub use growing_fragments::{
    FragmentPeriod, FragmentSource, GrowingFragment, GrowingFragments, PeriodTrack,
};
pub use growing_segments::{GrowingPart, GrowingSegment, GrowingSegments};
pub use languages::language_of;
pub use plan::{
    ClockPoint, ElementaryStream, EntryPoint, Extent, PacketPlaces, PacketPlan, PayloadRange,
    PlanKey, RtpIdentity, SyncLoss, Timestamps,
};
pub use read_at::ReadAt;
pub use segments::{Segment, SegmentPlan};
pub use store::{PlanStore, StoreUnavailable};
pub use stream_key_frames::{StreamKeyFrame, StreamKeyFrames};
pub use ticks::{duration_of, ticks_of};
pub use tracks::{
    Codec, Container, MediaSample, Presentation, SampleTable, Track as MediaTrack, TrackMedia,
};
pub use trick::{PlayScale, TrickPlan, TrickTimeline};
pub use ts::{
    Coding, ContinuityCounters, ElementaryDemuxer, EntryLead, EntryPoints, Extract, OpenUnits,
    PartLimit, Programme, RecordedPart, RecordedStarts, RecordedStreams, SPLICE_RATES, Scanner,
    Splice, SpliceCounts, SpliceItem, SpliceSettings, Splicer, StreamEntry, StreamUnits, Survey,
    Track, TrackFormat, clock_span, codecs, copy_elementary, entry_lead, entry_points,
    lay_out_elementary,
};
pub use wire::mp2t::TS_PACKET_BYTES;

use wire::mp2t;

/// The system clock of an MPEG transport stream, and the unit of media time everywhere here.
pub const TICKS_PER_SECOND: u64 = 27_000_000;

/// Ticks per unit of an RTP timestamp of MP2T.
pub const TICKS_PER_TIMESTAMP: u64 = TICKS_PER_SECOND / mp2t::CLOCK_RATE_HZ as u64;

/// Transport stream packets in a full RTP payload.
pub const TS_PACKETS_PER_PAYLOAD: u64 = mp2t::TS_PACKETS_PER_PAYLOAD as u64;
