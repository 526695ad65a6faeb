// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of measurement files, reports and comparisons through the public interface, with made-up
//! figures.
#![forbid(unsafe_code)]

mod compared;
mod files;
mod formats;
mod sample;
