// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP 1.0 (RFC 2326): the server's side, and a client that verifies a server.
//!
//! The way of a request: bytes → `frame` (messages, limits) → `request` (a command or a refusal) →
//! the server, which asks `session` whether the state allows it → `response` (bytes). No module
//! uses sockets, files or the time of day.
//!
//! Supports OPTIONS, DESCRIBE, SETUP of RTP/AVP over UDP, unicast and multicast, and interleaved on
//! the connection (§10.12), PLAY with Range in any of its units, Scale and Speed, PAUSE, TEARDOWN,
//! GET_PARAMETER. Departures from the RFC, all because its own clients expect them: PLAY with a
//! Range while playing is queued (§10.5) only after a play to whose Range the client gave an end,
//! and takes effect at once after any other, which is how players without PAUSE seek (RFC 7826
//! §13.4 removed the queue); and PAUSE after the end of a stream succeeds.
//!
//! Does not implement RTSP over UDP (§9) or authentication.

pub mod client;
mod frame;
mod range;
mod reader;
mod reply;
mod request;
mod response;
mod session;
mod smpte;
mod status;
mod transport;
pub mod tunnel;
mod utc;

pub use crate::error::{Fault, Malformed};
pub use frame::{INTERLEAVED_HEADER_BYTES, InterleavedFrame, Limits, Received, interleaved_header};
pub(crate) use range::end as range_end;
pub use range::{Npt, NptRange, NptStart, RangeUnit};
pub use reader::{REQUEST_TIME_MAX, RequestReader};
pub use request::{
    Command, ELEMENTARY_QUERY, PlayRequest, Request, asset_path, asset_track, content_base,
};
pub use response::{Echo, METHODS, Response, RtpInfo};
pub use session::{CONTROL_GRACE, ControlChannel, MethodNotValid, RtspSession, SessionState};
pub use smpte::SmpteRate;
pub use status::Status;
pub use transport::{ChannelPair, GrantedTransport, PortPair, TransportOffer};
