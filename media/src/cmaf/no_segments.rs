// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why a file has no segments of HLS and DASH.

use super::movie_fragment::{SEGMENT_BYTES_MAX, SEGMENT_SAMPLES_MAX};

/// Reason why a file has no segments; it can still be downloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSegments {
    /// No codec of the file is carried.
    #[error("HLS and DASH carry no track of its kinds")]
    NoTrack,
    /// The file lasts too long.
    #[error("HLS and DASH of it would have more than {limit} segments; divide the film")]
    TooManySegments {
        /// Most segments of a file.
        limit: usize,
    },
    /// Key frames are too far apart: a segment has more bytes than players hold.
    #[error(
        "the segment of HLS and DASH of track {track} from {from_s} s to {to_s} s would have \
         {} MB, more than {} MiB; encode it with key frames closer together",
        .bytes / 1_000_000, SEGMENT_BYTES_MAX >> 20
    )]
    TooManyBytes {
        /// Number in the file of the track, or of the first of the tracks sent together.
        track: u32,
        /// Begin and end of the segment.
        from_s: i64,
        /// See `from_s`.
        to_s: i64,
        /// Its size.
        bytes: u64,
    },
    /// Key frames are too far apart: a segment has too many samples.
    #[error(
        "segment {number} of HLS and DASH of track {track} would have {samples} samples, more \
         than {SEGMENT_SAMPLES_MAX}; encode it with key frames closer together"
    )]
    TooManySamples {
        /// Number in the file of the track, or of the first of the tracks sent together.
        track: u32,
        /// Number of the segment, from 0 on.
        number: usize,
        /// Its samples.
        samples: usize,
    },
}
