// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves files, the index and keys over HTTP.
//!
//! Each connection is a task on one of the event loops ([`event_loops`]): [`connection`] reads its
//! requests, [`resource`] finds the answer to one, [`transmit`] sends it. Files come from the
//! loop's [`open_files`]. Nothing is handed to another thread unless it would wait for a disk.
//!
//! Costs, for a small file that is kept: `recvfrom`, `sendmsg` of head and body, and a share of
//! `epoll_wait`. For a mebibyte of a large one: a `sendfile`, and two calls that check that it is
//! in memory; two a large answer, that its segments are full ([`cork`]). An idle connection takes 6
//! KiB of memory, 14 over TLS, none of it a read buffer.
//!
//! Over TLS ([`crate::tls`]) a connection speaks HTTP/1 ([`transmit_encrypted`]) or HTTP/2
//! ([`http2`]); bodies are read and encrypted piece by piece ([`body_reader`]).
//!
//! Work of a request beyond its own bytes and those of its answer is bounded: 100 ranges of a field
//! ([`wire`]), as many entity tags as a head of 16 KiB has, rows of the index for 5 % of a core, on
//! another thread ([`index`]), lists of channels once a change ([`channel_lists`]), 4096 names for
//! a folder of renditions or the subtitles beside a film, 16 pipelined requests a turn
//! ([`connection`]), and frames of HTTP/2 ([`frame_budget`]).
//!
//! epoll, not io_uring: see [`event_loops`].
//!
//! Sources: RFC 9110, RFC 9112; the protocol itself is in [`wire::http`]; RFC 8216 (HLS); the Fetch
//! standard §3.2 (CORS), for players in pages of other servers.
//! Does not compress files, or accept uploads.

pub(crate) mod administered;
mod body_reader;
mod channel_documents;
mod channel_exports;
pub(crate) mod channel_lists;
mod client;
mod client_stream;
mod connection;
mod content;
mod cork;
pub(crate) mod cors;
pub(crate) mod download_pace;
pub(crate) mod download_paths;
pub(crate) mod event_loops;
pub(crate) mod film_keys;
mod frame_budget;
mod http2;
pub(crate) mod index;
pub(crate) mod joined_files;
pub(crate) mod long_turns;
pub(crate) mod open_files;
mod pace_buckets;
pub(crate) mod page;
mod pictures;
mod range_sending;
mod refusals;
mod resource;
mod transmit;
mod transmit_encrypted;
mod watched;

pub(crate) use connection::{connection, connection_refusal, tls_connection};
