// SPDX-License-Identifier: MIT OR Apache-2.0
//! The drain of a server that accepts no more, and serves to the end the clients that it has.
//!
//! A drain begins when a successor has taken over the listening sockets. Connections of HTTP are
//! closed after the next answer, HTTP/2 signals this to its clients (GOAWAY); sessions of RTSP
//! play on, and their connections are served as before. Costs a relaxed load of an atomic per
//! HTTP/1 request.
//!
//! Sources: RFC 9112 §9.6 (close), RFC 9113 §6.8 (GOAWAY).
//! Does not wait for clients ([`crate::retirement`] does).

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// State of a drain.
#[derive(Debug)]
pub(crate) struct Drain {
    is_begun: AtomicBool,
    begun_sender: watch::Sender<bool>,
}

impl Drain {
    pub(crate) fn new() -> Drain {
        Drain { is_begun: AtomicBool::new(false), begun_sender: watch::Sender::new(false) }
    }

    pub(crate) fn begin(&self) {
        self.is_begun.store(true, Ordering::Relaxed);
        self.begun_sender.send_replace(true);
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Relaxed)
    }

    /// Completes when the drain begins.
    pub(crate) async fn begun(&self) {
        // The sender lives as long as this.
        let _ = self.begun_sender.subscribe().wait_for(|begun| *begun).await;
    }
}
