// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films in browsers, and compared with the output of other packagers.

pub(crate) mod browsers;
mod key_frames;
mod packagers;
