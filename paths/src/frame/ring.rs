// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of frames, as the paths by frames fill it.
//!
//! Slots of equal size go round. Those that are free belong to this program and are next in turn;
//! from [`Ring::send`] on they belong to the kernel until it has done with them.
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

    /// Opens one for a device.
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

    /// Returns the memory of the next `count` slots, which `free` said are: in two parts, for the
    /// ring may end between them.
    fn slots(&mut self, count: u32) -> [&mut [u8]; 2];

    /// `head_bytes` of headers were written into slots: counts them, if that was to the kernel.
    fn filled(head_bytes: u64, stats: &mut SendStats);

    /// Sends the frames in the next `count` slots: all of `frame_bytes` but the last.
    fn send(
        &mut self,
        count: u32,
        frame_bytes: u32,
        last_bytes: u32,
        stats: &mut SendStats,
    ) -> Sent;
}

/// The frames that the kernel took, always the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) taken: u32,
    /// The reason why not all. `EAGAIN` and `ENOBUFS`: later more; the others' slots are free
    /// again. Anything else: the ring is to be closed.
    pub(crate) errno: Option<Errno>,
}

/// The reason why a ring could not be opened.
#[derive(Debug)]
pub(crate) enum RingError {
    /// A call failed.
    Refused(&'static str, Errno),
    /// The device does not do it.
    Unframed(Unframed),
}
