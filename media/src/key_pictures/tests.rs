// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unit tests of the framing; `media/tests/key_pictures.rs` decodes the output with ffmpeg.

use super::*;

#[test]
fn nal_units_are_found_behind_lengths() {
    let sized = [&[0, 2][..], &[0x67, 1], &[0, 3], &[0x65, 2, 3]].concat();
    assert_eq!(sized_nals(&sized, 2), Some(vec![&[0x67, 1][..], &[0x65, 2, 3]]));
    assert_eq!(sized_nals(&[0, 9, 1], 2), None, "longer than the sample");
    assert_eq!(sized_nals(&[0], 2), None, "a part of a length");
}

#[test]
fn only_sets_and_slices_of_the_first_layer_are_kept() {
    let sei = [0x06, 5, 4];
    let joined = byte_stream(PictureCoding::H264, [&sei[..], &[0x65, 2, 3]].into_iter());
    assert_eq!(joined, Some(vec![0, 0, 0, 1, 0x65, 2, 3]));
    assert_eq!(byte_stream(PictureCoding::H264, [&sei[..]].into_iter()), None, "no slice");
    // A clean random access picture, and one of the second layer.
    let clean = [0x2a, 1, 9];
    let second = [0x2a, 9, 9];
    let joined = byte_stream(PictureCoding::H265, [&clean[..], &second].into_iter());
    assert_eq!(joined, Some(vec![0, 0, 0, 1, 0x24, 1, 9]), "it is behind a broken link");
}
