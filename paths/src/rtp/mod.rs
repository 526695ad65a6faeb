// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths for RTP: header and payload of each packet of a batch.
//!
//! Headers come from memory, made for the session, or lie in the file (wire image). Each file has a
//! path, or a family of paths with one body, and its cost; [`crate::stream_path`] has the shared
//! loop.
//!
//! Sources: tables 1-B and 1-C of the data-paths paper; RFC 3550 §5.1 (headers, which only
//! `header_series` interprets, for those that the kernel makes).
//!
//! Does not make headers or choose a path.

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
pub(crate) mod gathered;
mod header_series;
mod payload_buffer;

pub use frame_paths::dropped_kernels;

use crate::spec::Spec;

/// The paths of this folder, the reference first.
pub(crate) const PATHS: &[&Spec] = &[
    &read_writev::SPEC,
    &read_send_rtp::SPEC,
    &mmap_send_rtp::SPEC,
    &mmap_gso::MMAP_WRITEV,
    &mmap_sendmmsg::SPEC,
    &mmap_gso::SPEC,
    &rtp_sendfile::SPEC,
    &rtp_sendfile::MORE_SENDFILE,
    &wire_sendfile::SPEC,
    &uring::SPEC,
    &uring_zc::SPEC,
    // By the in-kernel engine.
    &engine::MMAP_RTPMSEND,
    &mmap_send_msend::SPEC,
    &engine::RTPSENDFILE,
    &engine::KRTPSENDFILE,
    &engine::KRTPSENDFILE_GSO,
    &engine::KRTPMSEND,
    // By device.
    &frame_paths::PACKET_RING,
    &frame_paths::XDP,
];
