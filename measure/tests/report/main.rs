// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurement files, what is made of them, and how two are compared: claims about the public
//! interface, on made-up figures.
#![forbid(unsafe_code)]

mod compared;
mod files;
mod formats;
mod sample;
