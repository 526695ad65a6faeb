// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel that plays for `CHANNEL_MINUTES` (10 by default), with three changes of file a minute.
//! Prints its figures; run it with `--ignored --nocapture`.

use std::env;

use crate::continuity::{Files, play};

#[test]
#[ignore = "takes CHANNEL_MINUTES minutes of real time"]
fn a_channel_of_minutes_has_no_seam() {
    let minutes = env::var("CHANNEL_MINUTES").unwrap_or_else(|_| "10".to_owned());
    let minutes: usize = minutes.parse().expect("CHANNEL_MINUTES is a number of minutes");
    let files = Files { frames: FRAMES, played: minutes * CHANGES_A_MINUTE + 1 };
    let Some(played) = play("a_channel_of_minutes_has_no_seam", files) else { return };
    played.assert_seamless();
    played.assert_arrived_in_time();
    played.assert_frames();
}

const CHANGES_A_MINUTE: usize = 3;
/// Files of 18 to 24 s.
const FRAMES: [u32; 4] = [455, 539, 490, 595];
