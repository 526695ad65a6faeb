// SPDX-License-Identifier: MIT OR Apache-2.0
//! receive: streams that come in are put in order, watched, and written to files that can be served
//! at once.
//!
//! A datagram's way: a path of `paths::RECEIVE_PATHS` (its thread wakes for bursts, not for
//! packets) → `stream` ([`StreamReplay`] is it alone): RTP or bare, the source that is followed, the
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

mod closer;
mod error;
mod file_names;
mod path_choice;
mod play_gate;
mod receive_backend;
mod receiver_reports;
mod receiving_thread;
mod recorded_stream;
mod recording;
mod recording_session;
mod refused_senders;
mod relay;
mod retry;
mod stream_control;
mod stream_figures;
mod stream_replay;
mod stream_source;
mod title;
mod write_queue;
mod writer;

pub use error::{Error, PathRefusal, RecordSetting, RefusedPath};
pub use path_choice::ReceiveCost;
pub use recording::{RecordOptions, Recording};
pub use refused_senders::{RefusedCounts, RefusedSender};
pub use stream_figures::{StreamFigures, Summary};
pub use stream_replay::{ReplayResult, StreamReplay};
pub use stream_source::StreamSource;
pub use write_queue::Rotation;
pub use writer::SyncPolicy;
