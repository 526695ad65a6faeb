// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths by which a pacer sends streams: from the file or the wire image, in short bursts and
//! in long ones.
//!
//! Does not choose them ([`crate::path_choice`]).

use paths::Spec;

/// The paths of streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamPaths {
    /// Sends from the file, with RTP headers gathered.
    pub(crate) gathered: ByBurst,
    /// Sends from the wire image, if images are used.
    pub(crate) image: Option<ByBurst>,
    /// Sends frames from the file, on RTSP connections.
    pub(crate) framed: &'static Spec,
    /// Sends frames from the wire image, if images are used.
    pub(crate) framed_image: Option<&'static Spec>,
}

/// A path for short bursts and one for long ones, often the same path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByBurst {
    pub(crate) short: &'static Spec,
    pub(crate) long: &'static Spec,
}

impl ByBurst {
    pub(crate) fn always(spec: &'static Spec) -> ByBurst {
        ByBurst { short: spec, long: spec }
    }
}

/// Least packets of a long burst: the geometric mean of the bursts for which the CPU cost is
/// measured (`crate::path_choice`).
pub(super) const LONG_FROM_PACKETS: u64 = 21;
