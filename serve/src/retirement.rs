// SPDX-License-Identifier: MIT OR Apache-2.0
//! Retires a server in favour of its successor: it hands over its sockets, accepts no more, and
//! serves to the end the clients that it has.
//!
//! Does not start the successor ([`crate::handover`]).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::handover::Successor;
use crate::rtsp::control;
use crate::server::Server;

impl Server {
    /// Offers this server's sockets to a process that is still to be started, which receives the
    /// end of the link as its standard input. `notes` are facts that the new process may request.
    ///
    /// # Errors
    /// No socket pair could be made.
    pub fn offer(&self, notes: BTreeMap<String, String>) -> Result<(Successor, OwnedFd), Error> {
        Successor::offer(&self.sockets, self.state.ports.pair(), notes)
    }

    /// Stops accepting in favour of a successor that serves. Sessions, downloads and connections
    /// continue; channels leave their targets to the successor.
    pub fn retire(&mut self, successor: Successor) {
        self.sockets = Default::default();
        self.state.drain.begin();
        self.state.channels.lock().retire();
        successor.go();
        // The successor reads the shared port, and sends back what is for sessions of this server.
        if let Some(task) = self.rtcp.take() {
            task.abort();
        }
        let state = Arc::downgrade(&self.state);
        self.rtcp = Some(tokio::spawn(async move {
            let pass = |from, report: &[u8]| {
                if let Some(state) = state.upgrade() {
                    control::on_rtcp(&state, from, report);
                }
            };
            successor.reports(pass).await;
        }));
    }

    /// Waits until all sessions and connections of a retired server have ended, but for `limit` at
    /// most, or until `stop` completes. The caller then stops the server.
    pub async fn drain(&self, limit: Duration, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let until = Instant::now() + limit;
        loop {
            let (sessions, connections) =
                (self.state.sessions.len(), self.state.limits.connections());
            if (sessions, connections) == (0, 0) {
                break;
            }
            if Instant::now() >= until {
                tracing::warn!(
                    "drained for {limit:?}: ending {sessions} sessions and {connections} \
                     connections that are left"
                );
                break;
            }
            tokio::select! {
                () = &mut stop => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(100);
