// SPDX-License-Identifier: MIT OR Apache-2.0
//! receive: streams that come in are put in order, watched, and written to files that can be served
//! at once.
//!
//! A datagram's way: a path of `paths::RECEIVE_PATHS` (its thread wakes for bursts, not for
//! packets) → `stream` ([`Intake`] is it alone): RTP or bare, the source that is followed, the
//! reorder window, the monitor → a block of whole packets → the writing thread → the file and, from
//! the same bytes, its plan. That is two copies a byte beside the path's own: into the block and
//! into the page cache. Control (RTSP, RTCP) runs on a thread of its own, and shares a short lock a
//! stream with the receiving one. What is only sent on is spliced (`paths::Relay`).
//!
//! What is lost is counted where it is lost: by the network (sequence numbers), by the kernel (its
//! own counter), by a disk that is behind (whole packets).
//!
//! Sources: RFC 3550, RFC 2250, RFC 2326, ETSI TR 101 290.
//! Does not do: decode, repair (FEC, retransmission), decrypt.

#![forbid(unsafe_code)]

mod asking;
mod block;
mod choice;
mod closer;
mod control;
mod error;
mod figures;
mod gate;
mod intake;
mod names;
mod receiver;
mod recording;
mod refused;
mod relay;
mod reports;
mod session;
mod source;
mod stream;
mod taking;
mod title;
mod writer;

pub use block::Rotation;
pub use choice::Bill;
pub use error::Error;
pub use figures::{Figures, Summary};
pub use intake::{Intake, TakenIn};
pub use recording::{Options, Recording};
pub use refused::{RefusedCounts, RefusedSender};
pub use source::Source;
pub use writer::Sync;
