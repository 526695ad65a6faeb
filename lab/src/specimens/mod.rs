// SPDX-License-Identifier: MIT OR Apache-2.0
//! Specimens: routines that are measured, and that no program of ours uses.
//!
//! Sources: the headers of the files.
//! The product's own kernels are in the crate `simd`.

pub mod exercise;
