// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals: each kind with the words a user reads, counted, and logged at most once a minute.
//!
//! Sources: RFC 2326 §7.1.1, §12.31 (Retry-After), RFC 9110 §10.2.3.
//! Does not do: encode answers (`rtsp.rs` and `http.rs` do).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A limit that a client has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Connections of its address.
    ConnectionsPerAddress,
    /// Connections of all, or the descriptors that are for them.
    Connections,
    /// Sessions set up on its connection.
    SessionsPerConnection,
    /// Sessions of its address.
    SessionsPerAddress,
    /// Sessions of all, or the descriptors or ports that are for them.
    Sessions,
    /// A file to read, at the reserve of descriptors.
    Files,
    /// Ports that nothing is sent to.
    ClientPort,
    /// A session that was set up and not played in time.
    NotPlayed,
    /// Requests faster than they are served, for long.
    Requests,
}

impl Refused {
    const ALL: [Refused; 9] = [
        Refused::ConnectionsPerAddress,
        Refused::Connections,
        Refused::SessionsPerConnection,
        Refused::SessionsPerAddress,
        Refused::Sessions,
        Refused::Files,
        Refused::ClientPort,
        Refused::NotPlayed,
        Refused::Requests,
    ];

    /// What the index calls it.
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
        }
    }

    /// What the client's user reads.
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
        }
    }

    /// The settings an operator can change, by their names in [`crate::ClientLimits`] and the host.
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
        }
    }

    /// Seconds after which it may be otherwise without the client's doing.
    pub(crate) fn retry_after_s(self) -> Option<u32> {
        match self {
            Refused::SessionsPerConnection | Refused::ClientPort => None,
            // Of sessions those that are not played are over by then.
            _ => Some(10),
        }
    }
}

/// How many were refused, by kind.
#[derive(Default)]
pub(crate) struct RefusalMeters([KindMeter; Refused::ALL.len()]);

#[derive(Default)]
struct KindMeter {
    count: AtomicU64,
    logged: Mutex<Option<Instant>>,
}

impl RefusalMeters {
    /// Counts one, and logs it unless one of its kind was logged in the last minute.
    pub(crate) fn note(&self, refused: Refused, peer: IpAddr) {
        let kind = &self.0[refused as usize];
        let count = kind.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged = kind.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
            *logged = Some(Instant::now());
            let (name, reason) = (refused.name(), refused.reason());
            let settings = refused.settings();
            tracing::warn!("limit {name}: {peer}: {reason} (settings: {settings}); {count} so far");
        }
    }

    /// For the index.
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
