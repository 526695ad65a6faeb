// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the plays of sessions, shared by the control side ([`crate::rtsp`]) and the pacer
//! threads.
//!
//! The modules: `clock` maps time to media, `shift` maps a session's sequence numbers and
//! timestamps to the asset's own, `progress` counts packets, `late_buckets` counts their lateness,
//! `packet_trace` records them for an administrator, `icmp_faults` verifies ICMP reports about
//! them, `rtsp_output` sends replies and media on an RTSP connection.
//!
//! Imports the library and prefetch, but neither the pacer nor a protocol.

mod clock;
pub(crate) mod icmp_faults;
mod late_buckets;
mod packet_trace;
mod progress;
mod rtsp_output;
mod shift;

pub(crate) use clock::{MediaClock, Speed};
pub(crate) use late_buckets::LateBuckets;
pub(crate) use packet_trace::{PacketRecord, PacketTrace, TracedCall, TracedPackets};
pub(crate) use progress::{Link, Progress, Sent};
pub(crate) use rtsp_output::RtspOutput;
pub(crate) use shift::Shift;
