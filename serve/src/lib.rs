// SPDX-License-Identifier: MIT OR Apache-2.0
//! A folder as downloads over HTTP and as paced streams over RTSP/RTP.
//!
//! Control (RTSP, HTTP, RTCP, time-outs) runs on tokio; media is sent by pacer threads that wait
//! only for the clock; reader threads wait for disks. The three communicate by queues and by the
//! few atomics and short locks of [`rtsp::stream_session`].
//!
//! Folders: `admission` (who may do what), `rtsp` (connections, sessions, RTCP), `http` (downloads,
//! the index, keys of films), `channel` (playlists by the clock), `library` (files and their
//! plans), `wire_image`, `pacer` (sending), `limits` (on clients), `tls` (certificates,
//! handshakes).
//!
//! Sources: ARCHITECTURE.md, "A streamed byte's journey".

#![forbid(unsafe_code)]

mod access_log;
mod admin;
mod admission;
pub mod channel;
mod config;
mod drain;
mod error;
mod handover;
mod http;
mod library;
mod limits;
mod listener;
mod listeners;
mod live_settings;
mod meter;
mod nameless_file;
mod pacer;
mod path_choice;
mod play;
mod posters;
mod prefetch;
mod random;
mod reload;
mod retirement;
mod rtsp;
mod segment_key;
mod server;
mod server_state;
mod sockets;
mod swapped;
mod tls;
mod turn;
mod watch;
mod web;
mod wire_image;
mod write_deadline;

pub use access;
pub use access::{AccessConfig, ClientPrefix, InvalidPrefix};
pub use access_log::AccessLogTarget;
pub use admin::ReloadOutcome;
pub use admission::KeyTokens;
pub use config::{Config, Timeouts};
pub use error::{Error, Setting};
pub use handover::{Predecessor, Successor};
pub use http::film_keys::KeySource;
pub use library::{
    DOWNLOAD_ONLY, FilePlan, NoFilePlan, StreamSummary, TrackSummary, download_only, extensions,
    plan_file,
};
pub use limits::ClientLimits;
pub use meter::{SendLateness, ServerMetrics};
pub use pacer::PacketPacing;
pub use path_choice::PathCost;
pub use posters::{DecoderCommand, ThumbnailSource};
pub use reload::Reloaded;
pub use rtsp::media_ports::MediaPorts;
pub use segment_key::{KEY_BYTES, KeyMaker};
pub use server::{Server, ServerAddresses};
pub use sockets::{ListenerName, ListeningSockets};
pub use tls::TlsSource;
pub use web::SegmentCipher;
