// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raises the limit of file descriptors for the sockets of many sessions: one for each session, and
//! over UDP two more for each stream.
//!
//! The soft limit is raised as needed, and the hard limit where the process is allowed to; a limit
//! that is still too low is an error before the first session, with the number of sessions that
//! fit.
//!
//! Sources: getrlimit(2) RLIMIT_NOFILE.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::{ClientSetting, Error};
use crate::transport::StreamTransport;

/// Raises the limit for these numbers of sessions by transport, with this number of streams each.
pub(crate) fn raise_limit(loads: &[(u32, StreamTransport)], streams: usize) -> Result<(), Error> {
    let limit = getrlimit(Resource::Nofile);
    let open = open_now();
    let sessions: u32 = loads.iter().map(|(sessions, _)| sessions).sum();
    let of = |(sessions, by): &(u32, _)| u64::from(*sessions) * each(*by, streams as u64);
    let all: u64 = loads.iter().map(of).sum();
    let needed = open + all;
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.maximum.is_none_or(|maximum| maximum >= needed) {
        return setrlimit(Resource::Nofile, raised).map_err(|errno| Error::Host {
            call: "setrlimit",
            object: "RLIMIT_NOFILE".to_owned(),
            source: errno.into(),
        });
    }
    let beyond = Rlimit { current: Some(needed), maximum: Some(needed) };
    if setrlimit(Resource::Nofile, beyond).is_ok() {
        return Ok(());
    }
    let each = all.div_ceil(u64::from(sessions).max(1));
    Err(too_few(sessions, each, open, limit.maximum.unwrap_or(u64::MAX)))
}

/// Descriptors of a session with this number of streams.
fn each(transport: StreamTransport, streams: u64) -> u64 {
    match transport {
        // One for RTSP; two a stream for RTP and RTCP.
        StreamTransport::Udp | StreamTransport::Multicast => 1 + 2 * streams,
        StreamTransport::Tcp => 1,
        // GET, POST.
        StreamTransport::Http => 2,
    }
}

fn too_few(sessions: u32, each: u64, open: u64, allowed: u64) -> Error {
    let needed = open + u64::from(sessions) * each;
    let fit = allowed.saturating_sub(open) / each;
    let less = match fit {
        0 => String::new(),
        fit => format!("write {fit} or less, or "),
    };
    Error::Setting {
        setting: ClientSetting::Sessions,
        found: format!(
            "{sessions} sessions take {needed} file descriptors, and this process may open \
             {allowed}"
        ),
        cure: format!("{less}raise the limit before (as root: ulimit -n {needed})"),
    }
}

/// Open descriptors, and a reserve.
fn open_now() -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    open as u64 + SPARE
}

/// The runtime's own, name resolution, other files.
const SPARE: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_fit_is_said() {
        assert_eq!(
            too_few(2500, 3, 30, 4096).to_string(),
            "sessions: 2500 sessions take 7530 file descriptors, and this process may open \
             4096; write 1355 or less, or raise the limit before (as root: ulimit -n \
             7530)"
        );
        assert_eq!(
            too_few(1, 3, 30, 32).to_string(),
            "sessions: 1 sessions take 33 file descriptors, and this process may open 32; raise \
             the limit before (as root: ulimit -n 33)"
        );
    }

    #[test]
    fn each_track_over_udp_has_a_pair_of_sockets() {
        assert_eq!((each(StreamTransport::Udp, 1), each(StreamTransport::Udp, 3)), (3, 7));
        assert_eq!((each(StreamTransport::Tcp, 3), each(StreamTransport::Http, 3)), (1, 2));
    }

    #[test]
    fn what_is_allowed_already_is_left_alone() {
        let before = getrlimit(Resource::Nofile);
        raise_limit(&[(0, StreamTransport::Udp)], 2).unwrap();
        assert_eq!(getrlimit(Resource::Nofile), before);
    }
}
