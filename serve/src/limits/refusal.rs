// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kinds of refusal with their user-visible text, counted, logged at most once a minute.
//!
//! Sources: RFC 2326 §7.1.1, §12.31 (Retry-After), RFC 9110 §10.2.3.
//! Does not encode answers (`rtsp.rs` and `http.rs` do).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A limit that a client has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too many connections from the client's address.
    ConnectionsPerAddress,
    /// Too many connections in total, or no descriptor left for one.
    Connections,
    /// Too many sessions on the connection.
    SessionsPerConnection,
    /// Too many sessions from the client's address.
    SessionsPerAddress,
    /// Too many sessions in total, or no descriptor or port left for one.
    Sessions,
    /// Opening a file would use the reserved descriptors.
    Files,
    /// A client port that the server does not send to.
    ClientPort,
    /// A session was set up and not played in time.
    NotPlayed,
    /// Requests were faster than the limit for too long.
    Requests,
    /// Too many sessions of the client's user.
    SessionsPerUser,
    /// Too many sessions of the file or channel.
    SessionsPerAsset,
    /// The rates of all sessions together are too high.
    Rate,
    /// The rates of the user's sessions together are too high.
    RatePerUser,
    /// One client more would make others late.
    Load,
    /// Interleaved frames and other input beside requests came faster than the limit for too long.
    Input,
}

impl Refused {
    const ALL: [Refused; 15] = [
        Refused::ConnectionsPerAddress,
        Refused::Connections,
        Refused::SessionsPerConnection,
        Refused::SessionsPerAddress,
        Refused::Sessions,
        Refused::Files,
        Refused::ClientPort,
        Refused::NotPlayed,
        Refused::Requests,
        Refused::SessionsPerUser,
        Refused::SessionsPerAsset,
        Refused::Rate,
        Refused::RatePerUser,
        Refused::Load,
        Refused::Input,
    ];

    /// Returns the kind's name in the index.
    fn name(self) -> &'static str {
        match self {
            Refused::ConnectionsPerAddress => "connections_per_address",
            Refused::Connections => "connections",
            Refused::SessionsPerConnection => "sessions_per_connection",
            Refused::SessionsPerAddress => "sessions_per_address",
            Refused::Sessions => "sessions",
            Refused::Files => "files",
            Refused::ClientPort => "client_port",
            Refused::NotPlayed => "not_played",
            Refused::Requests => "requests",
            Refused::SessionsPerUser => "sessions_per_user",
            Refused::SessionsPerAsset => "sessions_per_asset",
            Refused::Rate => "rate",
            Refused::RatePerUser => "rate_per_user",
            Refused::Load => "load",
            Refused::Input => "input",
        }
    }

    /// Returns the text shown to the client's user.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Refused::ConnectionsPerAddress => {
                "too many connections from your address; close one, or try again later"
            }
            Refused::Connections => "the server has as many connections as it may; try again later",
            Refused::SessionsPerConnection => {
                "this connection has as many sessions as it may; end one first"
            }
            Refused::SessionsPerAddress => {
                "too many sessions from your address; end one, or try again later"
            }
            Refused::Sessions => "the server has as many sessions as it may; try again later",
            Refused::Files => "the server has as many files open as it may; try again later",
            Refused::ClientPort => {
                "client_port: nothing is sent to ports below 1024 nor to the server's own; \
                 offer others"
            }
            Refused::NotPlayed => "not played in time after SETUP",
            Refused::Requests => "too many requests a second, for too long",
            Refused::SessionsPerUser => "too many sessions of your user; end one first",
            Refused::SessionsPerAsset => "as many clients play this as may; try again later",
            Refused::Rate => "the server sends as much as it may; try again later",
            Refused::RatePerUser => "the sessions of your user have the rate that they may",
            Refused::Load => "one client more would make others late; try again later",
            Refused::Input => "too many frames or bytes beside requests a second, for too long",
        }
    }

    /// Names the settings that raise the limit: fields of [`crate::ClientLimits`], or the host's.
    fn settings(self) -> &'static str {
        match self {
            Refused::ConnectionsPerAddress => "connections_per_address, exempt",
            Refused::Connections => "connections, RLIMIT_NOFILE",
            Refused::SessionsPerConnection => "sessions_per_connection",
            Refused::SessionsPerAddress => "sessions_per_address, exempt",
            Refused::Sessions => "sessions, rtp_port, RLIMIT_NOFILE",
            Refused::Files => "RLIMIT_NOFILE",
            Refused::ClientPort => "low_ports",
            Refused::NotPlayed => "play_within",
            Refused::Requests => "requests_per_s, exempt",
            Refused::SessionsPerUser => "sessions_per_user",
            Refused::SessionsPerAsset => "sessions_per_asset",
            Refused::Rate => "rate",
            Refused::RatePerUser => "rate_per_user",
            Refused::Load => "admit_load, burst",
            Refused::Input => "requests_per_s",
        }
    }

    /// Returns seconds after which a retry may succeed; `None` when the client must change
    /// something.
    pub(crate) fn retry_after_s(self) -> Option<u32> {
        match self {
            Refused::SessionsPerConnection | Refused::ClientPort => None,
            // Sessions that are not played have ended by then.
            _ => Some(10),
        }
    }
}

/// Number of refusals by kind.
#[derive(Default)]
pub(crate) struct RefusalMeters([KindMeter; Refused::ALL.len()]);

#[derive(Default)]
struct KindMeter {
    count: AtomicU64,
    logged: Mutex<Option<Instant>>,
}

impl RefusalMeters {
    /// Counts a refusal; logs it unless one of its kind was logged in the last minute.
    pub(crate) fn note(&self, refused: Refused, peer: IpAddr) {
        let kind = &self.0[refused as usize];
        let count = kind.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged = kind.logged.lock();
        if logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
            *logged = Some(Instant::now());
            let (name, reason) = (refused.name(), refused.reason());
            let settings = refused.settings();
            tracing::warn!("limit {name}: {peer}: {reason} (settings: {settings}); {count} so far");
        }
    }

    /// Returns the counts by kind's name, for the index.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let count = |kind: Refused| self.0[kind as usize].count.load(Ordering::Relaxed);
        Refused::ALL.into_iter().map(|kind| (kind.name(), count(kind))).collect()
    }
}

const LOG_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_count() {
        let meters = RefusalMeters::default();
        let peer = IpAddr::from([192, 0, 2, 1]);
        for (index, kind) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index, "{kind:?} is in its place");
            (0..=index).for_each(|_| meters.note(kind, peer));
        }
        let counts = meters.counts();
        assert_eq!(counts.len(), Refused::ALL.len());
        for (index, kind) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(counts[kind.name()], index as u64 + 1);
        }
    }
}
