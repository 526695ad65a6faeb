// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the batch of a path from a segment run of an asset: from the file, from its wire image,
//! or in frames for a connection.
//!
//! Costs as much as [`Gather`](super::gather::Gather); a batch of an image costs no gathering.
//!
//! Sources: RFC 2326 §10.12 (frames).
//! Does not send.

use std::ops::Range;

use paths::{Batch, Departure, InterleavedPath, StreamPath};
use wire::rtsp::INTERLEAVED_HEADER_BYTES;

use super::Tools;
use super::gather::TrackRow;
use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::play::Shift;
use crate::wire_image::ImageLayout;

impl Tools {
    /// True if there is a path for images of that layout.
    pub(super) fn sends_images(&self, layout: ImageLayout) -> bool {
        match layout {
            ImageLayout::Packets => self.image.is_some(),
            ImageLayout::Frames => self.framed_image.is_some(),
        }
    }

    /// Returns a segment run of the wire image and its path; `None` if the image was dropped.
    pub(super) fn image_batch<'a>(
        &'a mut self,
        source: &'a Source,
        packets: Range<u64>,
    ) -> Option<(&'a mut dyn StreamPath, Batch<'a>)> {
        let batch = image_run(source, ImageLayout::Packets, packets)?;
        let path = self.image.as_mut().expect("the form is chosen by the path being there");
        Some((path.of(batch.packets.into()), batch))
    }

    /// Returns a segment run of the wire image in frames and its path; `None` if the image was
    /// dropped.
    pub(super) fn framed_image_batch<'a>(
        &'a mut self,
        source: &'a Source,
        packets: Range<u64>,
    ) -> Option<(&'a mut dyn InterleavedPath, Batch<'a>)> {
        let batch = image_run(source, ImageLayout::Frames, packets)?;
        let path = self.framed_image.as_mut().expect("the form is chosen by the path being there");
        Some((&mut **path, batch))
    }

    /// Returns a segment run of the file with RTP headers, and its path.
    pub(super) fn gathered_batch<'a>(
        &'a mut self,
        source: &'a Source,
        packets: Range<u64>,
        shift: Shift,
        departure: Option<Departure>,
    ) -> (&'a mut dyn StreamPath, Batch<'a>) {
        let plan = &source.asset.plan;
        let count = (packets.end - packets.start) as u32;
        let segment_bytes = plan.wire_offset(packets.start + 1) - plan.wire_offset(packets.start);
        self.gather.fill(plan, packets, shift);
        let (heads, pieces) = (self.gather.heads(), self.gather.pieces());
        let batch = Batch::gathered(&source.media, count, segment_bytes as u32, heads, pieces);
        match (departure, &mut self.departing) {
            (Some(at), Some(path)) => (&mut **path, batch.departing(at)),
            _ => (self.gathered.of(count.into()), batch),
        }
    }

    /// Returns packets of a row of a track's chapter with RTP headers, and their path.
    pub(super) fn track_batch<'a>(
        &'a mut self,
        source: &'a TrackSource,
        row: TrackRow<'_>,
        departure: Option<Departure>,
    ) -> (&'a mut dyn StreamPath, Batch<'a>) {
        let batch = self.gather.fill_track(&source.media, row, None);
        let count = u64::from(batch.packets);
        match (departure, &mut self.departing) {
            (Some(at), Some(path)) => (&mut **path, batch.departing(at)),
            _ => (self.gathered.of(count), batch),
        }
    }

    /// Returns packets of a row of a track's chapter in frames of `channel`, and their path.
    pub(super) fn framed_track_batch<'a>(
        &'a mut self,
        source: &'a TrackSource,
        row: TrackRow<'_>,
        channel: u8,
    ) -> (&'a mut dyn InterleavedPath, Batch<'a>) {
        let batch = self.gather.fill_track(&source.media, row, Some(channel));
        (&mut *self.framed, batch)
    }

    /// Returns a segment run of the file in frames of `channel`, and its path.
    pub(super) fn framed_batch<'a>(
        &'a mut self,
        source: &'a Source,
        packets: Range<u64>,
        shift: Shift,
        channel: u8,
    ) -> (&'a mut dyn InterleavedPath, Batch<'a>) {
        let plan = &source.asset.plan;
        let count = (packets.end - packets.start) as u32;
        let packet_bytes = plan.wire_offset(packets.start + 1) - plan.wire_offset(packets.start);
        let segment_bytes = packet_bytes as u32 + INTERLEAVED_HEADER_BYTES as u32;
        self.gather.fill_framed(plan, packets, shift, channel);
        let (heads, pieces) = (self.gather.heads(), self.gather.pieces());
        let batch = Batch::gathered(&source.media, count, segment_bytes, heads, pieces);
        (&mut *self.framed, batch)
    }
}

/// Returns packets of an image, all of one segment run, as a batch.
fn image_run(source: &Source, layout: ImageLayout, packets: Range<u64>) -> Option<Batch<'_>> {
    let plan = &source.asset.plan;
    let image = source.image(layout)?;
    let offset = layout.offset(plan, packets.start);
    let segment_bytes = layout.offset(plan, packets.start + 1) - offset;
    let bytes = layout.offset(plan, packets.end) - offset;
    let count = (packets.end - packets.start) as u32;
    Some(Batch::image(&image.media, count, segment_bytes as u32, offset, bytes))
}
