// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags of `pagewire serve` for monitoring: the administrator's listener and the access log; and
//! the signal that reopens the log's file.
//!
//! Sources: logrotate(8) (`postrotate`), signal(7).

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use serve::{AccessLogTarget, Config, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Args)]
#[command(next_help_heading = "Administration")]
pub(super) struct WatchOptions {
    /// Address of metrics (/metrics), health (/healthz, /readyz) and the administrator's API; port
    /// 0 picks one. Without users it has to be a loopback address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin: Option<SocketAddr>,
    /// Host name by which browsers may open the administrator's address, beside IP addresses and
    /// localhost; may be given several times.
    #[arg(long, value_name = "HOST")]
    admin_host: Vec<String>,
    /// File to which a line is appended for each answer over HTTP and each session of RTSP, in the
    /// combined log format; - for standard output. SIGUSR1 opens it again.
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
}

impl WatchOptions {
    /// Returns the address of the administrator's listener.
    pub(super) fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Returns the files that the server writes.
    pub(super) fn written(&self) -> Vec<PathBuf> {
        self.access_log.iter().filter(|path| path.as_os_str() != "-").cloned().collect()
    }

    /// Puts the options into a configuration.
    pub(super) fn apply(self, config: &mut Config) {
        config.admin = self.admin;
        config.admin_hosts = self.admin_host;
        config.access_log = self.access_log.map(|path| match path.as_os_str() == "-" {
            true => AccessLogTarget::StandardOutput,
            false => AccessLogTarget::File(path),
        });
    }
}

/// Returns the signal on which logs are opened again.
pub(super) fn reopen_signal() -> std::io::Result<Signal> {
    signal(SignalKind::user_defined1())
}

/// Opens logs again at each signal; never returns.
pub(super) async fn reopen_logs(server: &Server, signals: &mut Signal) {
    while signals.recv().await.is_some() {
        tracing::info!("SIGUSR1: opening logs again");
        server.reopen_logs();
    }
    std::future::pending::<()>().await;
}
