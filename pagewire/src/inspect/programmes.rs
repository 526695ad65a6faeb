// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programmes of a transport stream and their elementary streams, from its first packets.
//!
//! Reads until the format of each stream has been found, at most [`HEAD_BYTES_MAX`]; the scan of
//! the plan has left these bytes in the page cache.
//!
//! Sources: ISO/IEC 13818-1 §2.4.4 (tables). Does not see streams that begin later: for the
//! followed programme, the plan has them (`findings`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use media::{PacketPlan, Programme, Survey, TS_PACKET_BYTES, Track};
use serde::Serialize;

/// A programme.
#[derive(Debug, Serialize)]
pub(super) struct InspectedProgramme {
    pub(super) number: u16,
    pub(super) pcr_pid: u16,
    pub(super) streams: Vec<InspectedStream>,
}

/// An elementary stream.
#[derive(Debug, Serialize)]
pub(super) struct InspectedStream {
    pub(super) pid: u16,
    pub(super) stream_type: u8,
    /// `video`, `audio` or `data`.
    pub(super) media: &'static str,
    /// Codec by its RFC 6381 name, where a header contained it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) codec: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) language: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) height: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pictures_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) channels: Option<u32>,
}

/// # Errors
/// The file cannot be read.
pub(super) fn of(plan: &PacketPlan, file: &File) -> io::Result<Vec<InspectedProgramme>> {
    let stride = plan.stride() as usize;
    let mut piece = vec![0; PIECE_PACKETS * stride];
    let mut survey = Survey::default();
    let first = plan.extents().first().map_or(0, |extent| extent.file_offset);
    let (mut offset, mut held) = (first, 0);
    while offset - first < HEAD_BYTES_MAX && !survey.is_complete() {
        let read = file.read_at(&mut piece[held..], offset)?;
        offset += read as u64;
        held += read;
        // The arrival times of packets of 192 bytes are left out.
        let packets = piece[..held].chunks_exact(stride);
        packets.for_each(|packet| survey.feed(&packet[..TS_PACKET_BYTES]));
        let used = held / stride * stride;
        piece.copy_within(used..held, 0);
        held -= used;
        if read == 0 {
            break;
        }
    }
    Ok(survey.finish().iter().map(InspectedProgramme::of).collect())
}

impl InspectedProgramme {
    fn of(programme: &Programme) -> InspectedProgramme {
        let streams = programme.tracks.iter().map(InspectedStream::of).collect();
        InspectedProgramme { number: programme.number, pcr_pid: programme.pcr_pid, streams }
    }
}

impl InspectedStream {
    fn of(track: &Track) -> InspectedStream {
        let media = match track.coding {
            coding if coding.is_video() => "video",
            coding if coding.is_audio() => "audio",
            _ => "data",
        };
        let format = track.format.as_ref();
        let size = format.and_then(|format| format.size);
        let rate = format.and_then(|format| format.rate_millihertz);
        InspectedStream {
            pid: track.pid,
            stream_type: track.stream_type,
            media,
            codec: format.map(|format| format.codec.clone()),
            language: track.language(),
            width: size.map(|(width, _)| width),
            height: size.map(|(_, height)| height),
            pictures_per_second: rate.map(|rate| f64::from(rate) / 1000.0),
            channels: format.and_then(|format| format.channels),
        }
    }
}

const PIECE_PACKETS: usize = 1024;
/// Several seconds of the fastest broadcast, in which every stream has begun.
const HEAD_BYTES_MAX: u64 = 16 << 20;
