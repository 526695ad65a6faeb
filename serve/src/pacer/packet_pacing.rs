// SPDX-License-Identifier: MIT OR Apache-2.0
//! Setting: spacing of the packets of a burst.

/// Way in which a burst's packets are spread over its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PacketPacing {
    /// They leave at once: the shorter the burst, the smoother the stream, and the more wakes.
    #[default]
    User,
    /// The device's queue holds them until they are due, where it heeds departure times (`fq` or
    /// `etf`); elsewhere as [`PacketPacing::User`].
    Txtime {
        /// Such sessions are sent by the path `mmap_gso`, whatever `Config::paths` says: a wire
        /// image's `sendfile` carries no times. Packets that share a departure time and leave back
        /// to back, 1 to
        /// [`PacketPacing::PACKETS_MAX`].
        packets: u32,
    },
}

impl PacketPacing {
    /// Most packets that can share a departure time: those of one send.
    pub const PACKETS_MAX: u32 = 48;
    /// Packets that share a departure time by default: one, the smoothest. In a guest with `fq`
    /// (`kernel/qemu/pacing.sh`), at a burst of 20 ms, 1, 2 and 4 cost 1.9, 1.7 and 0.9 times the
    /// CPU time of [`PacketPacing::User`], in bursts of 1, 2 and 4 packets instead of 10.
    pub const PACKETS: u32 = 1;
}
