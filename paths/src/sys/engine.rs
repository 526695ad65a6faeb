// SPDX-License-Identifier: MIT OR Apache-2.0
//! The in-kernel RTP engine: the device of the module `pagewire_rtp`, and its call that sends.
//!
//! One call sends a range of a file, or of a map of it, as the payload of datagrams by reference to
//! its pages, with no header, the caller's, or RTP's made in the kernel. The structures are those
//! of `kernel/rtp/include/uapi/linux/pagewire_rtp.h`; a test compiles that header and compares.
//!
//! Sources: that header; `ioctl(2)`.
//!
//! Does not start sessions paced by the engine, interpret a refusal or repeat a call.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use wire::rtp::Header;

use crate::error::{Errno, Error};
use crate::send_stats::SendStats;
use crate::sys::{FileMap, last_errno};

/// The module's device.
pub(crate) const DEVICE: &str = "/dev/pagewire_rtp";

/// Name of its call in errors.
pub(crate) const ENGINE_CALL: &str = "ioctl PAGEWIRE_RTP_SEND";

/// Largest payload of a packet (`PAGEWIRE_RTP_PAYLOAD_BYTES_MAX`).
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 65_495;

/// The longest header of the caller's (`PAGEWIRE_RTP_HEADER_BYTES_MAX`).
pub(crate) const GIVEN_BYTES_MAX: usize = 128;

/// Largest number of packets of one call with a plan or headers (`PAGEWIRE_RTP_PACKETS_MAX`).
pub(crate) const PACKETS_MAX: u32 = 65_536;

/// Largest number of packets that pass the network stack as one and are segmented afterwards
/// (`PAGEWIRE_RTP_SEGMENTS_MAX`).
pub(crate) const SEGMENTS_MAX: u32 = 64;

const FROM_FILE: u8 = 0;
const FROM_MEMORY: u8 = 1;
const HEADER_NONE: u8 = 0;
const HEADER_CALLER: u8 = 1;
const HEADER_ENGINE: u8 = 2;
const MARKER: u16 = 1;

/// `struct pagewire_rtp_packet`: one packet of a plan.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanEntry {
    payload_bytes: u16,
    flags: u16,
    timestamp: u32,
}

impl PlanEntry {
    pub(crate) fn new(payload_bytes: u16, marker: bool, timestamp: u32) -> Self {
        Self { payload_bytes, flags: if marker { MARKER } else { 0 }, timestamp }
    }
}

/// `struct pagewire_rtp_send`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    file_fd: i32,
    socket_fd: i32,
    offset: u64,
    length: u64,
    plan: u64,
    headers: u64,
    packets: u32,
    payload_bytes: u16,
    header_bytes: u16,
    source: u8,
    header: u8,
    segments: u8,
    payload_type: u8,
    ssrc: u32,
    timestamp: u32,
    timestamp_step: u32,
    sequence: u16,
    reserved: [u16; 3],
    sent_packets: u64,
    sent_bytes: u64,
}

/// `PAGEWIRE_RTP_SEND`.
const SEND: libc::Ioctl = libc::_IOWR::<Request>(b'P' as u32, 0xe0);

impl Request {
    /// Returns a request without file and socket, for one packet of a byte.
    const fn nothing() -> Self {
        Self {
            file_fd: -1,
            socket_fd: -1,
            offset: 0,
            length: 1,
            plan: 0,
            headers: 0,
            packets: 0,
            payload_bytes: 1,
            header_bytes: 0,
            source: FROM_MEMORY,
            header: HEADER_NONE,
            segments: 0,
            payload_type: 0,
            ssrc: 0,
            timestamp: 0,
            timestamp_step: 0,
            sequence: 0,
            reserved: [0; 3],
            sent_packets: 0,
            sent_bytes: 0,
        }
    }

    /// Returns the kernel's form of `order`, to be sent to `socket`.
    ///
    /// # Panics
    /// When the map does not reach so far, or the headers or the plan are not of these packets: the
    /// caller compares them first.
    fn of(order: &EngineRequest<'_>, socket: BorrowedFd<'_>) -> Self {
        let mut request = Self {
            socket_fd: socket.as_raw_fd(),
            length: order.bytes,
            payload_bytes: order.payload_bytes,
            segments: order.segments.min(SEGMENTS_MAX) as u8,
            ..Self::nothing()
        };
        match order.payload {
            PayloadSource::File(file) => {
                (request.file_fd, request.source) = (file.as_raw_fd(), FROM_FILE);
                request.offset = order.offset;
            }
            PayloadSource::Mapped(map) => {
                let start = map.address(order.offset, order.bytes);
                request.offset =
                    start.expect("the range lies in the map").expose_provenance() as u64;
            }
        }
        let packets = order.bytes.div_ceil(u64::from(order.payload_bytes));
        match order.heads {
            EngineHeaders::None => {}
            EngineHeaders::Given { heads, each } => {
                assert_eq!(heads.len() as u64, packets * u64::from(each), "a header a packet");
                request.header = HEADER_CALLER;
                request.headers = heads.as_ptr().expose_provenance() as u64;
                (request.packets, request.header_bytes) = (packets as u32, each);
            }
            EngineHeaders::Made(HeaderSeries { first, timestamp_step }, plan) => {
                request.header = HEADER_ENGINE;
                (request.ssrc, request.payload_type) = (first.ssrc, first.payload_type);
                (request.sequence, request.timestamp) = (first.sequence, first.timestamp);
                request.timestamp_step = timestamp_step;
                if let Some(plan) = plan {
                    assert_eq!(plan.len() as u64, packets, "an entry a packet");
                    request.plan = plan.as_ptr().expose_provenance() as u64;
                    request.packets = packets as u32;
                    (request.payload_bytes, request.timestamp, request.timestamp_step) = (0, 0, 0);
                }
            }
        }
        request
    }
}

/// Source of the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PayloadSource<'data> {
    File(&'data File),
    Mapped(&'data FileMap),
}

/// Headers of the packets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EngineHeaders<'data> {
    None,
    /// Headers of `each` bytes, one after the other.
    Given {
        heads: &'data [u8],
        each: u16,
    },
    /// RTP headers made by the engine, with markers and timestamps of the plan where there is one.
    Made(HeaderSeries, Option<&'data [PlanEntry]>),
}

/// Consecutive RTP headers: the first, and the difference of timestamps from each to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderSeries {
    pub(crate) first: Header,
    pub(crate) timestamp_step: u32,
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineRequest<'data> {
    pub(crate) payload: PayloadSource<'data>,
    /// Offset of the payload in the file.
    pub(crate) offset: u64,
    /// Bytes of payload in all.
    pub(crate) bytes: u64,
    /// Payload bytes of each packet; the last has the rest.
    pub(crate) payload_bytes: u16,
    pub(crate) heads: EngineHeaders<'data>,
    /// Packets that pass the network stack as one.
    pub(crate) segments: u32,
}

/// The sent part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) packets: u32,
    /// Payload bytes sent.
    pub(crate) bytes: u64,
}

/// The device, open.
#[derive(Debug)]
pub(crate) struct Engine(File);

impl Engine {
    pub(crate) fn new() -> Result<Self, Error> {
        let host = |errno| Error::Host { call: "open", object: DEVICE.into(), errno };
        File::options().read(true).write(true).open(DEVICE).map(Self).map_err(|e| host(e.into()))
    }

    /// Sends the packets of `order`, or as many as the socket accepts and the file has; sends
    /// nothing when the file ends within the first packet.
    ///
    /// # Panics
    /// When the map does not reach so far, or the headers or the plan are not of these packets: the
    /// caller compares first.
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        order: &EngineRequest<'_>,
        stats: &mut SendStats,
    ) -> Result<Sent, Errno> {
        let mut request = Request::of(order, socket);
        stats.calls += 1;
        self.call(&mut request)?;
        let packets = u32::try_from(request.sent_packets).unwrap_or(u32::MAX);
        if let EngineHeaders::Given { each, .. } = order.heads {
            stats.copied_bytes += u64::from(packets) * u64::from(each);
        }
        Ok(Sent { packets, bytes: request.sent_bytes })
    }

    fn call(&self, request: &mut Request) -> Result<(), Errno> {
        // SAFETY: `request` is live and of the size that the call's number encodes, so the kernel
        // reads and writes no more. It points to slices or a range of a map whose sizes `of` has
        // compared; they are borrowed for the call, and the kernel only reads them; it holds pages,
        // not addresses, for as long as it sends.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, ptr::from_mut(request)) };
        if done < 0 { Err(last_errno()) } else { Ok(()) }
    }
}

/// Checks that this process may use the engine: `ENOENT` where the module is not loaded, `EACCES`
/// outside of the device's group, `ENOTTY` when the module has another layout. Costs opening the
/// device and a call on it that can send nothing.
pub(crate) fn may_use_engine() -> Result<(), Errno> {
    let engine = Engine(File::options().read(true).write(true).open(DEVICE)?);
    match engine.call(&mut Request::nothing()) {
        Err(errno) if errno.code() == libc::ENOTTY => Err(errno),
        // The error concerns the missing socket: the module implements the call.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::mem::offset_of;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    /// A C compiler lays out the module's header as the structures above.
    #[test]
    fn the_structures_are_those_of_the_header() {
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/rtp/include/uapi");
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
        let (mut printed, mut expected) = (String::new(), String::new());
        let mut compare = |expression: &str, value: u64| {
            printed += &format!(
                "\tprintf(\"%s = %llu\\n\", \"{expression}\", \
                                 (unsigned long long)({expression}));\n"
            );
            expected += &format!("{expression} = {value}\n");
        };
        macro_rules! fields {
            ($ours:ty, $theirs:literal: $($field:ident),*) => {
                compare(concat!("sizeof(struct ", $theirs, ")"), size_of::<$ours>() as u64);
                $(compare(
                    concat!("offsetof(struct ", $theirs, ", ", stringify!($field), ")"),
                    offset_of!($ours, $field) as u64,
                );)*
            };
        }
        fields!(PlanEntry, "pagewire_rtp_packet": payload_bytes, flags, timestamp);
        fields!(Request, "pagewire_rtp_send": file_fd, socket_fd, offset, length, plan, headers,
            packets, payload_bytes, header_bytes, source, header, segments, payload_type, ssrc,
            timestamp, timestamp_step, sequence, reserved, sent_packets, sent_bytes);
        // An ioctl's number is an int to some C libraries and a long to others.
        compare("PAGEWIRE_RTP_SEND & 0xffffffffu", (SEND as u32).into());
        compare("PAGEWIRE_RTP_FROM_FILE", FROM_FILE.into());
        compare("PAGEWIRE_RTP_FROM_MEMORY", FROM_MEMORY.into());
        compare("PAGEWIRE_RTP_HEADER_NONE", HEADER_NONE.into());
        compare("PAGEWIRE_RTP_HEADER_CALLER", HEADER_CALLER.into());
        compare("PAGEWIRE_RTP_HEADER_ENGINE", HEADER_ENGINE.into());
        compare("PAGEWIRE_RTP_MARKER", MARKER.into());
        compare("PAGEWIRE_RTP_HEADER_BYTES_MAX", GIVEN_BYTES_MAX as u64);
        compare("PAGEWIRE_RTP_PAYLOAD_BYTES_MAX", PAYLOAD_BYTES_MAX.into());
        compare("PAGEWIRE_RTP_PACKETS_MAX", PACKETS_MAX.into());
        compare("PAGEWIRE_RTP_SEGMENTS_MAX", SEGMENTS_MAX.into());
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <linux/pagewire_rtp.h>\n\
             int main(void)\n{{\n{printed}\treturn 0;\n}}\n"
        );
        File::create(&source).unwrap().write_all(text.as_bytes()).unwrap();
        let mut compiler = Command::new("cc");
        compiler.arg("-Wall").arg("-Werror").arg("-I").arg(include);
        match compiler.arg("-o").arg(&program).arg(&source).stdin(Stdio::null()).status() {
            Ok(status) => assert!(status.success(), "{text}"),
            Err(error) => return eprintln!("skip: cc: not installed: {error}"),
        }
        let output = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    }

    const SERIES: HeaderSeries = HeaderSeries {
        first: Header {
            marker: false,
            payload_type: 33,
            sequence: 65_535,
            timestamp: 7,
            ssrc: 0xfeed,
        },
        timestamp_step: 90,
    };

    #[test]
    fn a_request_says_what_was_ordered() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10_000).unwrap();
        let map = FileMap::new(&file, 10_000).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (file_fd, socket_fd) = (file.as_raw_fd(), socket.as_raw_fd());
        let payload = PayloadSource::File(&file);
        let order = EngineRequest {
            payload,
            offset: 5,
            bytes: 2001,
            payload_bytes: 1000,
            heads: EngineHeaders::None,
            segments: 1,
        };
        let plain = Request {
            file_fd,
            socket_fd,
            offset: 5,
            length: 2001,
            payload_bytes: 1000,
            source: FROM_FILE,
            segments: 1,
            ..Request::nothing()
        };
        let of = |order| Request::of(&order, socket.as_fd());
        assert_eq!(of(order), plain);

        let start = map.address(5, 1).unwrap().expose_provenance() as u64;
        let mapped = Request { file_fd: -1, offset: start, source: FROM_MEMORY, ..plain };
        assert_eq!(of(EngineRequest { payload: PayloadSource::Mapped(&map), ..order }), mapped);

        let heads = [9; 3 * 20];
        let headers = heads.as_ptr().expose_provenance() as u64;
        let given =
            Request { header: HEADER_CALLER, headers, packets: 3, header_bytes: 20, ..plain };
        assert_eq!(
            of(EngineRequest { heads: EngineHeaders::Given { heads: &heads, each: 20 }, ..order }),
            given
        );

        let made = Request {
            header: HEADER_ENGINE,
            payload_type: 33,
            sequence: 65_535,
            timestamp: 7,
            timestamp_step: 90,
            ssrc: 0xfeed,
            segments: 7,
            ..plain
        };
        assert_eq!(
            of(EngineRequest { heads: EngineHeaders::Made(SERIES, None), segments: 7, ..order }),
            made
        );

        let plan = [1000, 1000, 1].map(|bytes| PlanEntry::new(bytes, bytes == 1, 70));
        let address = plan.as_ptr().expose_provenance() as u64;
        let (payload_bytes, timestamp, timestamp_step) = (0, 0, 0);
        let made = Request { payload_bytes, timestamp, timestamp_step, ..made };
        let planned = Request { plan: address, packets: 3, ..made };
        let heads = EngineHeaders::Made(SERIES, Some(&plan));
        assert_eq!(of(EngineRequest { heads, segments: 7, ..order }), planned);
    }

    #[test]
    #[should_panic(expected = "a header a packet")]
    fn a_header_too_few_is_our_own_mistake() {
        let file = tempfile::tempfile().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let heads = EngineHeaders::Given { heads: &[0; 24], each: 12 };
        let (payload, payload_bytes) = (PayloadSource::File(&file), 1000);
        let order =
            EngineRequest { payload, offset: 0, bytes: 2001, payload_bytes, heads, segments: 1 };
        Request::of(&order, socket.as_fd());
    }

    #[test]
    fn a_device_that_cannot_be_used_says_why() {
        match may_use_engine() {
            Ok(()) => assert!(Engine::new().is_ok()),
            Err(errno) => {
                assert!(errno.code() == libc::ENOTTY || Engine::new().is_err(), "{errno}");
            }
        }
    }
}
