// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of frames, filled by the paths by frames.
//!
//! Slots of equal size are used in turn. Free slots belong to this program; from [`Ring::send`] on
//! they belong to the kernel until it has finished with them.
//!
//! Sources: `packet(7)`, the kernel's `Documentation/networking/{packet_mmap,af_xdp}.rst`.
//!
//! Does not interpret frames.

use crate::error::{Errno, Unframed};
use crate::frame::Device;
use crate::send_stats::SendStats;

/// A ring of frames that leave by one device.
pub(crate) trait Ring: Send + Sized {
    /// The largest frame that any ring of this kind has slots for.
    const FRAME_BYTES_MAX: u32;

    /// Opens a ring for a device.
    fn open(device: &Device, stats: &mut SendStats) -> Result<Self, RingError>;

    /// Returns the device's index.
    fn device(&self) -> u32;

    /// Returns the number of slots.
    fn slot_count(&self) -> u32;

    /// Returns the largest frame a slot holds.
    fn frame_bytes_max(&self) -> u32;

    /// Returns the number of bytes from one slot to the next.
    fn stride(&self) -> usize;

    /// Returns the offset of the frame in its slot.
    fn frame_at(&self) -> usize;

    /// Returns the number of free slots, `wanted` at most.
    fn free(&mut self, wanted: u32, stats: &mut SendStats) -> u32;

    /// Returns the memory of the next `count` slots, which `free` has counted: in two parts,
    /// because the ring may end between them.
    fn slots(&mut self, count: u32) -> [&mut [u8]; 2];

    /// Counts `head_bytes` of headers written into slots, if the slots are the kernel's memory.
    fn filled(head_bytes: u64, stats: &mut SendStats);

    /// Sends the frames in the next `count` slots: all of `frame_bytes` except the last.
    fn send(
        &mut self,
        count: u32,
        frame_bytes: u32,
        last_bytes: u32,
        stats: &mut SendStats,
    ) -> Sent;
}

/// Number of frames that the kernel accepted, always the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) accepted: u32,
    /// The reason why not all were sent. After `EAGAIN` and `ENOBUFS` the caller sends the
    /// remaining frames later; their slots are free again. After any other error it closes the
    /// ring.
    pub(crate) errno: Option<Errno>,
}

/// The reason why a ring could not be opened.
#[derive(Debug)]
pub(crate) enum RingError {
    /// A call failed.
    Refused(&'static str, Errno),
    /// The device does not support it.
    Unframed(Unframed),
}
