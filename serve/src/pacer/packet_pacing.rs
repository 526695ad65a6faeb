// SPDX-License-Identifier: MIT OR Apache-2.0
//! Setting for the spacing of the packets of a burst.

/// Method of spreading a burst's packets over its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacketPacing {
    /// Packets leave at once: a shorter burst is smoother and costs more wakes.
    #[default]
    User,
    /// The device's queue holds packets until they are due, if it supports departure times (`fq` or
    /// `etf`); on other devices this equals [`PacketPacing::User`].
    Txtime {
        /// Packets that share a departure time and leave back to back, 1 to
        /// [`PacketPacing::PACKETS_MAX`]. Such sessions use the path `mmap_gso`, regardless of
        /// `Config::paths`: a wire image's `sendfile` carries no departure times.
        packets: u32,
    },
}

impl PacketPacing {
    /// Most packets that can share a departure time: those of one send call.
    pub const PACKETS_MAX: u32 = 48;
    /// Packets that share a departure time by default: one, the smoothest. In a guest with `fq`
    /// (`kernel/qemu/pacing.sh`), at a burst of 20 ms, 1, 2 and 4 cost 1.9, 1.7 and 0.9 times the
    /// CPU time of [`PacketPacing::User`], in bursts of 1, 2 and 4 packets instead of 10.
    pub const PACKETS: u32 = 1;
}
