// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party clients and scanners that only the suite `make test-clients` installs: Chromium,
//! GStreamer, wget, h2spec and sslyze. One file per program.
//!
//! A test that needs a program that is missing prints `skip: TEST: REASON` and passes. curl, ffmpeg
//! and openssl, which the gate has, are used outside of this folder.

mod chromium;
mod gstreamer;
mod h2spec;
mod scan;
mod wget;
