// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is on the network: RTSP, SDP, RTP, RTCP and HTTP, as pure state machines.
//!
//! Bytes go in, requests and answers come out. Nothing here opens a socket, reads a clock or draws
//! a random number: the time is an argument (a [`std::time::Duration`] since an epoch of the
//! caller's choice, monotonic where liveness is meant and the Unix epoch where NTP is), and
//! identifiers are chosen by the caller. So every behaviour can be tested without a network and
//! without waiting, and a fuzzer reaches every state. All of it lies on the control path: a few
//! hundred bytes a request, never per media packet (the headers of media packets are stamped in
//! bulk from the packet plan).
//!
//! Whatever the peer sends, memory is bounded by the limits of the reader in question, work is
//! linear in the bytes received, and nothing panics.
//!
//! Sources: RFC 2326 (RTSP 1.0), RFC 4566 and 8866 (SDP), RFC 3550 and 3551 (RTP, RTCP), RFC 2250
//! (MPEG over RTP), RFC 9110 and 9112 (HTTP).
//!
//! Not here: RTSP 2.0 (RFC 7826), authentication, TLS.

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod error;
pub mod http;
pub mod mp2t;
pub mod reorder;
pub mod rtcp;
pub mod rtp;
pub mod rtsp;
pub mod sdp;
pub mod sources;
