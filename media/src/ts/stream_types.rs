// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classifies stream types of programme maps: video, audio, others.
//!
//! Sources: ISO/IEC 13818-1 table 2-34; ATSC A/53 part 3 and Blu-ray (Dolby, DTS).
//! Does not read descriptors, which identify the coding of private data; [`super::Coding`] does.

/// True for the stream types of video. The common ones are MPEG-1, MPEG-2, MPEG-4 part 2, H.264 and
/// H.265.
pub(crate) fn is_video(stream_type: u8) -> bool {
    let is_common = matches!(stream_type, 0x01 | 0x02 | 0x10 | 0x1b | 0x24);
    // Also H.264 and H.265 extensions, JPEG 2000, H.266, EVC, AVS and VC-1.
    is_common
        || matches!(
            stream_type,
            0x1e..=0x21 | 0x28..=0x2b | 0x32..=0x35 | 0x42 | 0xd2..=0xd4 | 0xea
        )
}

/// True for the stream types of audio. Private data, which descriptors may identify as audio, is
/// excluded.
pub(super) fn is_audio(stream_type: u8) -> bool {
    // MPEG audio; Dolby and DTS as assigned by ATSC A/53 part 3 and Blu-ray.
    matches!(stream_type, 0x03 | 0x04 | 0x0f | 0x11 | 0x1c | 0x80..=0x87 | 0xa1 | 0xa2)
}

/// True for the stream types of video and audio.
pub(super) fn is_played(stream_type: u8) -> bool {
    is_video(stream_type) || is_audio(stream_type)
}
