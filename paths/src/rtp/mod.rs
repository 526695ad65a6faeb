// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths for RTP: header and payload of each packet of a batch, one file per path.
//!
//! Headers come from memory, made for the session, or lie in the file (wire image). What a path
//! costs is in its own file; what they share is in [`crate::stream_path`].
//!
//! Sources: the study's tables 1-B and 1-C; RFC 3550 §5.1 for what a header is, of which nothing
//! is known here except in `header_series`, for headers that the kernel makes.
//!
//! Does not make headers, or choose.

pub(crate) mod engine;
pub(crate) mod frame_paths;
pub(crate) mod mmap_gso;
pub(crate) mod mmap_send_msend;
pub(crate) mod mmap_send_rtp;
pub(crate) mod mmap_sendmmsg;
pub(crate) mod read_send_rtp;
pub(crate) mod read_writev;
pub(crate) mod rtp_sendfile;
pub(crate) mod uring;
pub(crate) mod uring_zc;
pub(crate) mod wire_sendfile;

mod corked;
mod gathered;
mod header_series;
mod payload_buffer;

pub use frame_paths::dropped_kernels;
