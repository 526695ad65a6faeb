// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films as they are played by browsers, and beside what other packagers make of them.

pub(crate) mod browsers;
mod key_frames;
mod packagers;
