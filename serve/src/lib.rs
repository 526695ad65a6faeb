// SPDX-License-Identifier: MIT OR Apache-2.0
//! serve: a folder as downloads over HTTP and as paced streams over RTSP/RTP.
//!
//! Control (RTSP, HTTP, RTCP, time-outs) runs on tokio; media leaves from pacer threads that wait
//! for nothing but the clock; disks are waited for by reader threads. The three meet in queues and
//! in the few atomics and short locks of [`session`].
//!
//! Sources: ARCHITECTURE.md, "A streamed byte's journey".

#![forbid(unsafe_code)]

mod access;
mod admission;
mod asset;
mod blocks;
mod choice;
mod config;
mod control;
mod downloads;
mod error;
mod faults;
mod formats;
mod growth;
mod http;
mod http_runtime;
mod image;
mod index;
mod keys;
mod library;
mod limits;
mod listen;
mod meter;
mod pacer;
#[cfg(test)]
mod player;
mod ports;
mod resident;
mod rtsp;
mod server;
mod session;
mod site;
mod writing;

pub use admission::Tokens;
pub use choice::Bill;
pub use config::{Config, Patience};
pub use error::Error;
pub use keys::{KEY_BYTES, KeyMaker, KeySource};
pub use library::Summary;
pub use limits::{ClientLimits, Network};
pub use meter::{Lateness, Report};
pub use ports::MediaPorts;
pub use server::Server;
