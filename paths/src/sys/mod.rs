// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls behind safe functions: the only place of this crate with `unsafe`.
//!
//! Each function makes one call and adds it to the [`SendStats`] it is given, so a path cannot make
//! an uncounted call. Refusals are returned as [`Errno`]; the caller interprets them with regard to
//! the destination.
//!
//! Sources: section 2 of the manual, one page a function.
//!
//! Does not retry, allocate or interpret.

mod address;
mod addresses;
mod area;
mod bound;
mod bpf;
mod cork;
mod engine;
mod errors;
mod ethtool;
mod file;
mod file_map;
mod flights;
mod inherited;
mod kernel_tls;
mod lock;
mod locked_memory;
mod messages;
mod multishot;
mod netlink;
mod option;
mod packet;
mod packet_receive;
mod poll;
mod pool;
mod receive;
mod scatter;
mod scheduling;
mod send;
mod splice;
mod tcp_info;
mod txtime;
mod umem;
mod uring;
mod usage;
mod wait;
mod xdp;
mod xdp_receive;
mod zerocopy;

use std::ffi::CStr;
use std::time::Duration;

use crate::error::Errno;

pub(crate) use addresses::addresses;
pub use addresses::host_addresses;
pub(crate) use bound::{
    bind, device_index, has_device, join_group, own_groups_only, receive_buffer, report_time,
    send_groups_by, set_hops, set_receive_buffer, share_address, take_joined, take_nothing,
    udp_socket,
};
pub(crate) use bpf::{Instruction, KernelMap, MapKind, XdpMode, XdpProgram, may_load_xdp};
pub(crate) use cork::{discard_corked, set_cork};
pub(crate) use engine::{
    DEVICE as ENGINE_DEVICE, ENGINE_CALL, Engine, EngineHeaders, EngineRequest, GIVEN_BYTES_MAX,
    HeaderSeries, PACKETS_MAX, PAYLOAD_BYTES_MAX, PayloadSource, PlanEntry, Sent, may_use_engine,
};
pub(crate) use errors::{
    ErrorQueueEntry, ZerocopyReport, cut_at_device, drop_datagrams, ignore_path_mtu, is_ipv4,
    next_error, queue_reports,
};
pub(crate) use ethtool::has_feature;
pub(crate) use file::{cached_pages, is_cached, read_at, size_now, will_need};
pub(crate) use file_map::FileMap;
pub use inherited::take_inherited;
pub use kernel_tls::{
    RecordCipher, TlsVersion, TrafficKeys, ready_kernel_tls, receive_record, send_record,
    start_kernel_tls, try_kernel_tls,
};
pub use lock::{is_locked_to_write, lock_to_write};
pub(crate) use messages::Outbox;
pub(crate) use multishot::{Completion, Multishot};
pub(crate) use netlink::Netlink;
#[cfg(test)]
pub(crate) use option::set_no_checksums;
pub use option::{
    UNPACED, limit_unsent_bytes, set_max_pacing_rate, set_wake_bytes, unacknowledged,
};
pub(crate) use option::{ip_option, set_udp_segment, set_unsent_bytes_max};
use option::{option, set_option, set_record, set_send_buffer};
pub(crate) use packet::PacketRing;
pub(crate) use packet_receive::{BlockRing, Frame};
pub(crate) use poll::{Poll, READY_MAX};
pub(crate) use receive::{
    RecvMeta, Slots, drops, peek, receive_many, receive_one, report_time_and_drops,
};
pub(crate) use scatter::{Scatter, ScatterScratch};
pub use scheduling::set_scheduler_slice;
pub(crate) use send::{
    Gather, RANGES_MAX, Scratch, send, send_mapped, send_mapped_zerocopy, send_more, sendfile,
};
pub(crate) use splice::Pipe;
pub use tcp_info::{TcpFigures, WatchedSocket, tcp_figures};
pub(crate) use txtime::{clock_reading, set_departure_clock};
pub(crate) use umem::has_xdp_sockets;
pub(crate) use uring::{Queue, Ring, offer};
pub use usage::Usage;
pub(crate) use wait::Waiting;
pub(crate) use xdp::XdpRing;
pub(crate) use xdp_receive::XdpQueue;
pub(crate) use zerocopy::{cookie, is_zerocopy, set_zerocopy};

#[cfg(doc)]
use crate::send_stats::SendStats;

/// Returns the error of the call just made.
fn last_errno() -> Errno {
    std::io::Error::last_os_error().into()
}

/// Returns the count a call returned, or its error.
fn counted(returned: libc::ssize_t) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| last_errno())
}

/// Returns the kernel's release; empty when it is unknown.
pub(crate) fn kernel_release() -> String {
    // SAFETY: utsname is plain arrays of characters, for which all zeroes is a value.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `names` is a live utsname to be written to.
    if unsafe { libc::uname(&raw mut names) } != 0 {
        return String::new();
    }
    // SAFETY: uname succeeded, so `release` is terminated by a zero within its array; it lives on
    // to the end of this function.
    let release = unsafe { CStr::from_ptr(names.release.as_ptr()) };
    release.to_string_lossy().into_owned()
}

/// Returns the number of bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf takes no pointer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

/// Reading of `CLOCK_REALTIME` at the zero of `CLOCK_MONOTONIC`, since the Unix epoch: the number
/// to add to a time of the latter. `None` where it was before the epoch.
pub(crate) fn since_epoch_at_zero() -> Option<Duration> {
    time_of(libc::CLOCK_REALTIME)?.checked_sub(time_of(libc::CLOCK_MONOTONIC)?)
}

fn time_of(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is alive and written to. In most kernels this is a vDSO function and no call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}
