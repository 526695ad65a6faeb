// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths for a file as datagrams with nothing added.
//!
//! Downloads over UDP of the data-paths paper. A batch is a range of the file (image form), so each
//! of these can send a wire image as well.
//!
//! Sources: table 1-A of the data-paths paper.
//!
//! Does not add a protocol: no acknowledgements, no repetitions.

pub(crate) mod engine;
pub(crate) mod mmap_send;
pub(crate) mod read_write;
pub(crate) mod sendfile;
pub(crate) mod sendmmsg;
pub(crate) mod splice;
pub(crate) mod uring_send;
pub(crate) mod uring_send_zc;
pub(crate) mod zerocopy;

use crate::spec::Spec;

/// The paths of this folder, the reference first.
pub(crate) const PATHS: &[&Spec] = &[
    &read_write::SPEC,
    &mmap_send::SPEC,
    &sendmmsg::SPEC,
    &sendfile::SPEC,
    &sendfile::SENDFILE_GSO,
    &splice::SPEC,
    &zerocopy::SPEC,
    &uring_send::SPEC,
    &uring_send_zc::SPEC,
    // By the in-kernel engine.
    &engine::MSEND,
    &engine::KMSEND,
    &engine::KSENDFILE,
];
