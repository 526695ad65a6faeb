// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel for as long as `CHANNEL_MINUTES` says (10 by default), with three changes of file a
//! minute. Prints its figures; run it with `--ignored --nocapture`.

use std::env;

use crate::continuity;

#[test]
#[ignore = "takes CHANNEL_MINUTES minutes of real time"]
fn a_channel_of_minutes_has_no_seam() {
    let minutes = env::var("CHANNEL_MINUTES").unwrap_or_else(|_| "10".to_owned());
    let minutes: usize = minutes.parse().expect("CHANNEL_MINUTES is a number of minutes");
    let files = minutes * CHANGES_A_MINUTE + 1;
    let played = continuity::play("a_channel_of_minutes_has_no_seam", files, LONGER);
    let Some(played) = played else { return };
    played.assert_seamless();
    played.assert_frames();
}

const CHANGES_A_MINUTE: usize = 3;
/// Makes files of 21 s of files of 3 s.
const LONGER: u32 = 7;
