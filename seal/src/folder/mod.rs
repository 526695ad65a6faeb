// SPDX-License-Identifier: MIT OR Apache-2.0
//! A folder.
pub mod gcm;
pub mod open;
pub mod second;
