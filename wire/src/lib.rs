// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network protocols as pure state machines: RTSP, SDP, SAP, RTP, RTCP and HTTP.
//!
//! The input is bytes, the output requests and answers. Nothing here opens a socket, reads a clock
//! or draws a random number: the time is an argument (a [`std::time::Duration`] since an epoch of
//! the caller's choice: monotonic for liveness, the Unix epoch for NTP), and the caller chooses
//! identifiers. So every behaviour can be tested without a network and without waiting, and a
//! fuzzer reaches every state. All of it is on the control path: a few hundred bytes a request,
//! never per media packet (the headers of media packets are stamped in bulk from the packet plan).
//!
//! The readers' limits bound memory for any input; work is linear in the bytes received; no input
//! causes a panic.
//!
//! Sources: RFC 2326 (RTSP 1.0), RFC 4566 and 8866 (SDP), RFC 2974 (SAP), RFC 3550 and 3551 (RTP,
//! RTCP), RFC 2250 (MPEG over RTP), RFC 9110 and 9112 (HTTP).
//!
//! Does not implement RTSP 2.0 (RFC 7826), authentication or TLS.

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
pub mod sap;
pub mod sdp;
pub mod sources;
