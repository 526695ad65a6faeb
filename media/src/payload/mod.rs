// SPDX-License-Identifier: MIT OR Apache-2.0
//! Payload formats: the RTP packets of a track, one file per codec.
//!
//! A payloader turns the samples of a chapter into records of header bytes and file ranges
//! ([`Layout`]). It reads the few bytes that tell where units of a sample begin (length prefixes of
//! NAL units, headers of open bitstream units), and no others; sound is laid out from the sample
//! table alone.
//!
//! Sources: RFC 6184, 7798, 3640, 2250, 7587, 4184, 4598; RTP Payload Format For AV1 (AOM).
//! Does not read or send media bytes.

pub mod layout;

pub use layout::{
    FilePiece, Fragments, Layout, LayoutWriter, PACKET_BYTES_MAX, PAYLOAD_BYTES_MAX, PacketRow,
    RtpValues, UnitTimes,
};
