// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder reorders incoming streams, monitors them, and writes files that can be served
//! immediately.
//!
//! A datagram passes through a path of `paths::RECEIVE_PATHS` (its thread wakes for bursts, not for
//! single packets), the shared RTP receiver (`client::rtp_receiver`, which selects the source and
//! holds the reorder window) and the monitor into a block of whole packets. Another thread writes
//! the block to the file and builds the file's plan from the same bytes. These are two copies per
//! byte besides the path's own: into the block and into the page cache. [`StreamReplay`] does the
//! same without threads. Control (RTSP, RTCP) runs on its own thread, and shares one briefly held
//! lock per stream with the receiving thread. Streams that are only relayed are spliced
//! (`paths::Relay`). A camera's tracks are multiplexed by `client`, into a transport stream or into
//! fragmented MP4, and take the same way from the receiver on. The files of cameras that are
//! recorded for long are begun by the clock, deleted by rules, and handed to programs
//! ([`recordings::CameraFiles`]).
//!
//! Losses are counted where they occur: in the network (sequence numbers), in the kernel (its own
//! counter), at a slow disk (whole
//! packets, or access units of a camera).
//!
//! Sources: RFC 3550, RFC 2250, RFC 2326, ETSI TR 101 290.
//! Does not decode, repair (FEC, retransmission), or decrypt.

#![forbid(unsafe_code)]

#[cfg(test)]
mod camera_trials;
mod closer;
mod described_source;
mod error;
mod file_clock;
mod file_commands;
mod file_cutter;
mod file_names;
mod fragment_ends;
mod fragment_output;
mod frame_input;
mod index_queue;
#[cfg(test)]
mod interleaved_trials;
mod keeper;
mod kept_files;
mod path_choice;
mod play_gate;
mod receive_backend;
mod receiver_reports;
mod receiving_thread;
mod recorded_input;
mod recorded_stream;
mod recording;
mod recording_session;
mod relay;
mod retry;
mod session_history;
mod stream_control;
mod stream_figures;
mod stream_options;
mod stream_replay;
mod stream_source;
mod title;
mod write_queue;
mod writer;

pub use client::{RefusedCounts, RefusedSender};
pub use media::mux::Rotation;

pub use error::{Error, PathRefusal, RecordSetting, RefusedPath};
pub use path_choice::ReceiveCost;
pub use recording::{RecordOptions, Recording};
pub use stream_figures::{StreamFigures, Summary};
pub use stream_options::{StreamOptions, StreamOutputFiles};
pub use stream_replay::{ReplayResult, StreamReplay};
pub use stream_source::{SDP_SCHEME, StreamSource};
pub use writer::SyncPolicy;
