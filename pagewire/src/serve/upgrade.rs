// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGUSR2 starts the program anew, from its current file on disk, as the successor of this
//! process.
//!
//! The new process has the arguments of this one, reads the configuration itself, and receives the
//! listening sockets over a link that is its standard input. Once it serves, this process accepts
//! no more connections and finishes its running sessions. A new process that fails, or is too slow,
//! is stopped, and this process continues unchanged.
//!
//! Costs the memory of both processes while both run; nothing per packet.
//!
//! Sources: [`serve::Successor`]; nginx "Upgrading Executable on the Fly"; sd_notify(3). Does not
//! leave the sandbox: the new process has the restrictions of this one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serve::{Error, ListeningSockets, Predecessor, Server, Successor};
use tokio::sync::oneshot;

/// The program and its arguments, as this process was started with them.
pub(super) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// A process that serves and succeeds this one.
pub(super) struct NewProcess {
    pub(super) successor: Successor,
    pub(super) started: Started,
}

/// A child process, killed on drop unless it was released.
pub(super) struct Started {
    pub(super) pid: Pid,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
    /// True once it serves, or its end was reported: its number may then be that of another
    /// process.
    is_let_go: bool,
}

/// Returns the server that started this process as its successor, with its sockets; `None` where
/// this process has no predecessor.
pub(super) fn predecessor() -> Result<Option<(Predecessor, ListeningSockets)>, Error> {
    if std::env::var_os(LINK).is_none_or(|value| value != LINK_IS_STDIN) {
        return Ok(None);
    }
    let link = io::stdin().as_fd().try_clone_to_owned();
    let link = link.map_err(|source| Error::Host {
        call: "dup",
        object: "the link to the running server".to_owned(),
        source,
    })?;
    Predecessor::meet(link).map(Some)
}

impl Program {
    /// Must be called before the program's file may be replaced.
    pub(super) fn of_this_process() -> io::Result<Program> {
        let path = std::env::current_exe()?;
        Ok(Program { path, arguments: std::env::args_os().skip(1).collect() })
    }

    /// Starts the program as the successor of `server`, and waits until it serves.
    ///
    /// # Errors
    /// The reason why it does not serve, in words. It has been stopped.
    pub(super) async fn follow(
        &self,
        server: &Server,
        notes: BTreeMap<String, String>,
    ) -> Result<NewProcess, String> {
        let path = self.path.display();
        let (successor, end) = server.offer(notes).map_err(|error| error.to_string())?;
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .stdin(Stdio::from(end))
            .env(LINK, LINK_IS_STDIN)
            // These variables are for this process alone.
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .env_remove("WATCHDOG_PID")
            .spawn()
            .map_err(|error| format!("{path}: {error}"))?;
        let mut started = Started::watch(child).map_err(|error| format!("{path}: {error}"))?;
        let ready = tokio::time::timeout(READY_WAIT, successor.is_ready());
        tokio::select! {
            ready = ready => match ready {
                Ok(true) => {
                    started.is_let_go = true;
                    Ok(NewProcess { successor, started })
                }
                // Its end of the link is closed, so its exit status follows.
                Ok(false) => Err(format!("{path}: {}", started.end().await)),
                Err(_) => Err(format!("{path}: not ready within {READY_WAIT:?}; stopped it")),
            },
            words = started.early_end() => Err(format!("{path}: {words}")),
        }
    }
}

impl Started {
    /// Waits for a child in a thread of its own, so that no zombie remains.
    fn watch(mut child: Child) -> io::Result<Started> {
        let (sender, ended) = oneshot::channel();
        let pid = Pid::from_child(&child);
        let wait = move || {
            let _ = sender.send(child.wait());
        };
        let started = Started { pid, ended, is_let_go: false };
        std::thread::Builder::new().name("upgrade".to_owned()).spawn(wait)?;
        Ok(started)
    }

    /// Returns how the process ended, in words, where that is reported soon.
    async fn end(&mut self) -> String {
        let ended = tokio::time::timeout(END_WAIT, self.early_end()).await;
        ended.unwrap_or_else(|_| "closed its link; stopped it".to_owned())
    }

    /// Waits for the end of the process; returns how it ended, in words.
    async fn early_end(&mut self) -> String {
        match self.status().await {
            Some(Ok(status)) => format!("ended before it was ready: {status}"),
            Some(Err(error)) => format!("waiting for it: {error}"),
            None => "ended before it was ready".to_owned(),
        }
    }

    async fn status(&mut self) -> Option<io::Result<ExitStatus>> {
        let status = (&mut self.ended).await.ok();
        self.is_let_go |= matches!(status, Some(Ok(_)));
        status
    }

    /// Logs the end of a process that has taken over; never returns.
    pub(super) async fn log_end(mut self) {
        let pid = self.pid.as_raw_nonzero();
        match self.status().await {
            // It may have been succeeded by another process.
            Some(Ok(status)) if status.success() => {
                tracing::info!("upgrade: process {pid}, which took over, has ended: {status}");
            }
            Some(Ok(status)) => tracing::error!(
                "upgrade: process {pid}, which took over, has ended: {status}; this one accepts \
                 nobody any more: start the server again"
            ),
            Some(Err(_)) | None => {}
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The number of a process whose end has been reported may belong to another process. Where
        // no thread waits for it, its end is not reported, and it still has its number.
        if !self.is_let_go && !matches!(self.ended.try_recv(), Ok(Ok(_))) {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }
}

/// Environment variable that marks a process as a successor.
pub(crate) const LINK: &str = "PAGEWIRE_HANDOVER";
const LINK_IS_STDIN: &str = "stdin";
/// Longer than measuring paths and checking a thousand keys take on a slow disk.
const READY_WAIT: Duration = Duration::from_secs(60);
const END_WAIT: Duration = Duration::from_secs(1);
