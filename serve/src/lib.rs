// SPDX-License-Identifier: MIT OR Apache-2.0
//! serve: a folder as downloads over HTTP and as paced streams over RTSP/RTP.
//!
//! Control (RTSP, HTTP, RTCP, time-outs) runs on tokio; media is sent by pacer threads that wait
//! only for the clock; reader threads wait for disks. The three communicate by queues and by the
//! few atomics and short locks of [`rtsp::stream_session`].
//!
//! Folders: `rtsp` (connections, sessions, RTCP), `http` (downloads, the index, keys of films),
//! `channel` (playlists by the clock), `library` (files and their plans), `wire_image`, `pacer`
//! (sending), `limits` (on clients), `tls` (certificates, handshakes).
//!
//! Sources: ARCHITECTURE.md, "A streamed byte's journey".

#![forbid(unsafe_code)]

pub mod channel;
mod config;
mod error;
mod http;
mod key_tokens;
mod library;
mod limits;
mod listener;
mod listeners;
mod meter;
mod pacer;
mod path_choice;
mod prefetch;
mod rtsp;
mod server;
mod server_state;
mod tls;
mod wire_image;

pub use config::{Config, PacketPacing, Timeouts};
pub use error::{Error, Setting};
pub use http::film_keys::{KEY_BYTES, KeyMaker, KeySource};
pub use key_tokens::KeyTokens;
pub use library::{
    DOWNLOAD_ONLY, FilePlan, NoFilePlan, StreamSummary, TrackSummary, download_only, extensions,
    plan_file,
};
pub use limits::{ClientLimits, ClientPrefix, InvalidPrefix};
pub use meter::{SendLateness, ServerMetrics};
pub use path_choice::PathCost;
pub use rtsp::media_ports::MediaPorts;
pub use server::{Server, ServerAddresses};
pub use tls::TlsSource;
