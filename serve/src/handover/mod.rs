// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes the sockets of a running server to the process that follows it.
//!
//! Both ends hold one socket pair ([`link`]). The old process sends its listening sockets and its
//! shared media ports (`SCM_RIGHTS`), so that both accept from one queue of connections: none is
//! refused and none is lost, whichever process accepts it. The new one sends `ready` once it
//! serves; the old one then stops accepting and answers `go`. A new process that ends before that
//! has changed nothing.
//!
//! Reports of receivers (RTCP) arrive at one socket that both processes hold. The new process reads
//! it, and forwards the reports that belong to none of its own sessions: so the old sessions
//! receive reports to their end, and firewalls see no new port. Alternatives: `SO_REUSEPORT` with a
//! program that steers by address needs CAP_BPF; a separate port for the new process breaks
//! `--rtp-port`.
//!
//! Costs, while an old process plays on, a system call per report of its receivers.
//!
//! Sources: unix(7) (`SOCK_SEQPACKET`, `SCM_RIGHTS`), nginx "Upgrading Executable on the Fly".
//! Does not start programs; a server's caller does, with one end of the pair.

mod link;
mod offer;
mod predecessor;
mod successor;

pub(crate) use predecessor::OldSessions;
pub use predecessor::Predecessor;
pub use successor::Successor;

/// Text of a fault of the link, for logs.
fn link_fault(what: &str, error: &std::io::Error) -> crate::Error {
    crate::Error::Host {
        call: "handover",
        object: what.to_owned(),
        source: std::io::Error::new(error.kind(), error.to_string()),
    }
}
