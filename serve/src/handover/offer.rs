// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first message of a handover, in JSON: names of the sockets sent with it, and facts from the
//! old process for the new one.
//!
//! Unknown fields are ignored, and a missing field has its default, so either of two versions may
//! be the newer. A change that breaks this uses another number ([`VERSION`]), and the new process
//! refuses such an upgrade.
//!
//! Does not open or check the sockets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The message.
#[derive(Debug, Default, Serialize, Deserialize, PartialEq)]
pub(super) struct Offer {
    pub(super) version: u32,
    /// Names of the descriptors, in their order.
    pub(super) sockets: Vec<OfferedSocket>,
    /// Facts about the old process for its caller's own use, such as its sandbox.
    #[serde(default)]
    pub(super) notes: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct OfferedSocket {
    /// Name of a listener, or [`RTP`] or [`RTCP`].
    pub(super) name: String,
    /// True for a socket that a service manager keeps.
    #[serde(default)]
    pub(super) is_managed: bool,
}

pub(super) const VERSION: u32 = 1;
/// Names of the shared media ports.
pub(super) const RTP: &str = "rtp";
pub(super) const RTCP: &str = "rtcp";
/// Message of a new process that serves.
pub(super) const READY: &[u8] = b"ready";
/// Answer of the old process, which has stopped accepting.
pub(super) const GO: &[u8] = b"go";
/// First byte of a forwarded report: the length of the sender's address in text; that address and
/// the report follow.
pub(super) const REPORT: u8 = 0;
/// Longest message.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 << 10;
