// SPDX-License-Identifier: MIT OR Apache-2.0
//! serve: a folder as downloads over HTTP and as paced streams over RTSP/RTP.
//!
//! Control (RTSP, HTTP, RTCP, time-outs) runs on tokio; media is sent by pacer threads that wait
//! only for the clock; reader threads wait for disks. The three communicate by queues and by the
//! few atomics and short locks of [`stream_session`].
//!
//! Sources: ARCHITECTURE.md, "A streamed byte's journey".

#![forbid(unsafe_code)]

mod asset;
mod config;
mod control;
mod download_paths;
mod error;
mod film_keys;
mod formats;
mod growing_file;
mod http;
mod http_runtime;
mod icmp_faults;
mod image_checksums;
mod index;
mod key_tokens;
mod library;
mod limits;
mod listener;
mod media_ports;
mod meter;
mod pacer;
mod path_choice;
#[cfg(test)]
mod player;
mod prefetch;
mod rtsp;
mod served_folder;
mod server;
mod server_state;
mod stream_session;
mod wire_image;
mod write_deadline;

pub use config::{Config, Timeouts};
pub use error::{Error, Setting};
pub use film_keys::{KEY_BYTES, KeyMaker, KeySource};
pub use key_tokens::KeyTokens;
pub use library::StreamSummary;
pub use limits::{ClientLimits, ClientPrefix, InvalidPrefix};
pub use media_ports::MediaPorts;
pub use meter::{SendLateness, ServerMetrics};
pub use path_choice::PathCost;
pub use server::Server;
