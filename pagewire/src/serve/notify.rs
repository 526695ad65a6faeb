// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notifies the service manager of the state of this server.
//!
//! A service of `Type=notify` counts as started when it reports readiness, not when its process
//! exists. It also reports reloads and the stop, shows a line of status, and is restarted where it
//! fails to send watchdog messages (`WatchdogSec=`). Without a service manager nothing is sent.
//!
//! The socket is connected once, before the sandbox closes its path. A datagram costs a system
//! call, and none is sent per request or session.
//!
//! Sources: sd_notify(3), sd_watchdog_enabled(3), systemd.service(5) (`Type=notify-reload`). Does
//! not wait for an answer: there is none.

use std::fmt::Write;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

/// The service manager of this process, if it has one.
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Connects to the service manager that the environment names.
    pub(crate) fn from_environment() -> ServiceManager {
        let text = |name| std::env::var(name).ok();
        let address = text("NOTIFY_SOCKET").filter(|address| !address.is_empty());
        let socket = address.and_then(|address| match connect(&address) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(
                    "NOTIFY_SOCKET={address}: {error}; the service manager hears nothing"
                );
                None
            }
        });
        // The variable may have been inherited from another process.
        let is_own = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = text("WATCHDOG_USEC").filter(|_| is_own).and_then(|us| us.parse().ok());
        ServiceManager { socket, watchdog: watchdog.and_then(interval) }
    }

    /// Returns the time between two watchdog messages, if they are requested.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that the server is ready; `status` describes it in one line.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}\n", in_a_line(status)));
    }

    /// Reports that the configuration is being read again; [`ServiceManager::ready`] follows.
    pub(crate) fn reloading(&self) {
        let time = clock_gettime(ClockId::Monotonic);
        let us = time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}\nSTATUS=reloading\n"));
    }

    /// Reports that the server stops.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping\n");
    }

    /// Sends a line of status.
    pub(crate) fn status(&self, status: &str) {
        self.tell(&format!("STATUS={}\n", in_a_line(status)));
    }

    /// Reports that the process with this number is the service from now on. Without this message
    /// the manager treats the end of this process as the end of the service, so it is retried until
    /// it is sent.
    pub(crate) fn hand_on(&self, pid: Pid) {
        for _ in 0..HAND_ON_TRIES {
            if self.tell(&format!("MAINPID={pid}\n")) {
                return;
            }
            // Blocks the main thread, which serves no clients.
            std::thread::sleep(HAND_ON_RETRY);
        }
        tracing::warn!("upgrade: the service manager was not told that process {pid} serves");
    }

    /// Sends a watchdog message.
    pub(crate) fn alive(&self) {
        self.tell("WATCHDOG=1\n");
    }

    /// Sends a message; true where it was sent, or there is no manager.
    fn tell(&self, message: &str) -> bool {
        let Some(socket) = &self.socket else { return true };
        let sent = socket.send(message.as_bytes());
        sent.inspect_err(|error| tracing::debug!("telling the service manager: {error}")).is_ok()
    }
}

/// The manager's queue is full only while it is busy with other work.
const HAND_ON_TRIES: u32 = 20;
const HAND_ON_RETRY: Duration = Duration::from_millis(10);

/// Connects to a path, or to an abstract name behind `@`.
fn connect(address: &str) -> io::Result<UnixDatagram> {
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not read must not block the server.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Half of the time after which the manager restarts the service (sd_watchdog_enabled(3)).
fn interval(us: u64) -> Option<Duration> {
    (us > 0).then(|| Duration::from_micros(us / 2).max(Duration::from_millis(10)))
}

/// Returns a status without line ends, which would begin another assignment.
fn in_a_line(text: &str) -> String {
    text.chars().fold(String::new(), |mut line, c| {
        let _ = line.write_char(if c.is_control() { ' ' } else { c });
        line
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_the_managers_socket_and_hold_one_status() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = connect(path.to_str().unwrap()).unwrap();
        let service = ServiceManager { socket: Some(socket), watchdog: None };
        let mut buffer = [0; 256];
        let mut heard = || {
            let bytes = manager.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..bytes].to_vec()).unwrap()
        };
        service.ready("serving\nMAINPID=1");
        assert_eq!(heard(), "READY=1\nSTATUS=serving MAINPID=1\n");
        service.hand_on(Pid::from_raw(7).unwrap());
        assert_eq!(heard(), "MAINPID=7\n");
        service.reloading();
        assert!(heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        service.stopping();
        assert!(heard().starts_with("STOPPING=1\n"));
    }

    #[test]
    fn an_abstract_name_is_connected_to() {
        let name = format!("pagewire-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        connect(&format!("@{name}")).unwrap().send(b"READY=1").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(manager.recv(&mut buffer).unwrap(), 7);
        assert!(connect("@pagewire-test-nobody").is_err());
    }

    #[test]
    fn signs_of_life_come_twice_in_the_time_allowed() {
        assert_eq!(interval(30_000_000), Some(Duration::from_secs(15)));
        assert_eq!(interval(1), Some(Duration::from_millis(10)));
        assert_eq!(interval(0), None);
    }
}
