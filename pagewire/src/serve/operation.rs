// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of a server as a service: sockets and user before it starts, signals and the service
//! manager while it runs, and its end.
//!
//! The order matters. Sockets come first, because root may have to open them. Then the user
//! changes; files are read, and paths measured, as that user. Then the sandbox is enforced. Only
//! then do threads start, so that all restrictions apply to every thread.
//!
//! Costs a few dozen system calls at the start and, where the service manager wants watchdog
//! messages, one per interval.
//!
//! Sources: daemon(7), "New-Style Daemons"; sd_notify(3).
//! Does not parse the configuration.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Signal as SignalNumber, kill_process};
use serve::{Config, Error, ListenerName, ListeningSockets, Predecessor, Server, ServerMetrics};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::confinement::{Confinement, NamedFiles, SandboxMode};
use super::notify::ServiceManager;
use super::privileges::{self, Account};
use super::reload::{ReloadRequest, Reloads};
use super::upgrade::{self, NewProcess, Program};
use super::{show_progress, watching};

#[derive(Args)]
pub(super) struct OperationOptions {
    /// User that the server becomes once its ports are open: a name of /etc/passwd, or UID:GID.
    /// Needs root, who reads the configuration and the secrets of the environment before; all
    /// other files are read, and the cache is written, as this user. At SIGHUP this user reads all.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Time that sessions and downloads have to end after a new process has taken over (SIGUSR2):
    /// such as 1h, 30m, 90s.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = span)]
    drain: Duration,
    /// Gives up, once started, files and system calls that serving does not need (Landlock,
    /// seccomp): auto as far as the kernel can, strict refuses to start where it cannot, off keeps
    /// them.
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        value_parser = ["auto", "off", "strict"]
    )]
    sandbox: String,
}

impl OperationOptions {
    /// Checks that this host has the user.
    pub(super) fn check_user(&self) -> Result<(), Error> {
        self.user.as_deref().map_or(Ok(()), privileges::check)
    }
}

/// Signals that do not end a server.
pub(super) struct ServiceSignals {
    /// SIGHUP: the configuration is read again.
    hangup: Signal,
    /// SIGUSR2: a new process replaces this one.
    upgrade: Signal,
    /// SIGUSR1: logs are opened again.
    reopen: Signal,
}

impl ServiceSignals {
    /// Installs the handlers.
    pub(super) fn install() -> std::io::Result<ServiceSignals> {
        Ok(ServiceSignals {
            hangup: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
            reopen: watching::reopen_signal()?,
        })
    }
}

/// Sockets, user and sandbox of a server before it starts.
pub(super) struct Operation {
    sockets: ListeningSockets,
    predecessor: Option<Predecessor>,
    account: Option<Account>,
    program: Option<Program>,
    manager: ServiceManager,
    drain: Duration,
    sandbox: SandboxMode,
    confined: Option<Confinement>,
}

impl Operation {
    /// Opens the sockets for `listen` and becomes the user. Must run before any thread starts.
    pub(super) fn begin(
        options: &OperationOptions,
        listen: &[(ListenerName, Option<SocketAddr>)],
    ) -> Result<Operation, Error> {
        let program = Program::of_this_process();
        let program = program.inspect_err(|error| {
            tracing::warn!("/proc/self/exe: {error}; SIGUSR2 cannot start the program anew");
        });
        let (predecessor, mut sockets) = match upgrade::predecessor()? {
            Some((predecessor, sockets)) => (Some(predecessor), sockets),
            None => (None, ListeningSockets::from_manager()?),
        };
        for &(name, address) in listen {
            let managed = sockets.managed_address(name);
            match (address, managed) {
                (_, Some(managed)) => {
                    tracing::info!("{}: {managed}, a socket of the service manager", name.as_str());
                }
                (Some(address), None) => {
                    let has = sockets.address(name);
                    sockets.open(name, address).map_err(|error| has_moved(error, has))?;
                }
                (None, None) => sockets.close(name),
            }
        }
        let manager = ServiceManager::from_environment();
        let account = options.user.as_deref().map(privileges::become_user).transpose()?;
        if let Some(name) = &options.user {
            tracing::info!("user {name}: all other rights are dropped");
        }
        let program = program.ok();
        let (drain, sandbox) = (options.drain, SandboxMode::of(&options.sandbox));
        let confined = None;
        Ok(Operation { sockets, predecessor, account, program, manager, drain, sandbox, confined })
    }

    /// Warns of files that root has read and that the server's user cannot read again.
    pub(super) fn warn_of_unreadable(&self, files: &[PathBuf]) {
        // Checks access without opening: one of the files may be a pipe.
        let is_denied = |file: &&PathBuf| {
            access(file.as_path(), Access::READ_OK).is_err_and(|error| error == Errno::ACCESS)
        };
        let files = files.iter().filter(|_| self.account.is_some());
        for file in files.filter(is_denied) {
            tracing::warn!(
                "{}: not readable for the server's user; SIGHUP and SIGUSR2 will be refused; let \
                 the user's group read it (chgrp, chmod 640)",
                file.display()
            );
        }
    }

    /// Enters the opened sockets into the configuration, and gives up the rights that serving it
    /// does not need; `files` are those that the options name. Must run before any thread starts.
    ///
    /// # Errors
    /// The sandbox has to be strict, or is that of another configuration, and cannot be enforced.
    pub(super) fn equip(&mut self, config: &mut Config, files: &NamedFiles) -> Result<(), Error> {
        let held = self.predecessor.as_ref().and_then(|old| old.note(SANDBOX)).map(str::to_owned);
        let sockets = std::mem::take(&mut self.sockets);
        config.enter_managed(&sockets);
        config.sockets = sockets;
        config.predecessor = self.predecessor.take().map(Arc::new);
        let home = self.account.as_ref().and_then(|account| account.home.as_ref());
        if let (None, Some(home)) = (&config.cache, home) {
            // The environment is still that of root.
            config.cache = Some(cache_of(home));
        }
        self.confined = self.sandbox.confine(config, files, held.as_deref())?;
        Ok(())
    }

    /// Returns the facts that a successor needs.
    fn notes(&self) -> BTreeMap<String, String> {
        let confined = self.confined.iter();
        confined.map(|confined| (SANDBOX.to_owned(), confined.to_string())).collect()
    }

    /// Runs a server until `stop` completes, or a new process has replaced it.
    pub(super) async fn run(
        self,
        mut server: Server,
        mut reloads: Reloads,
        (signals, mut asked): (ServiceSignals, mpsc::Receiver<ReloadRequest>),
        stop: impl Future<Output = ()>,
    ) -> ServerMetrics {
        let ServiceSignals { mut hangup, mut upgrade, mut reopen } = signals;
        let status = status(&server);
        self.manager.ready(&status);
        let mut stop = pin!(stop);
        let mut alive = self.manager.watchdog().map(tokio::time::interval);
        let (reloads_begun, mut reloads_before) = (reloads.begun(), 0);
        let new = {
            // One future for the whole run: a watchdog message must not cancel a reload.
            let asked = (&mut hangup, &mut asked);
            let reloading = reloads.run(&server, asked, (&self.manager, &status));
            let mut reloading = pin!(reloading);
            let mut progress = pin!(show_progress(&server));
            let mut reopening = pin!(watching::reopen_logs(&server, &mut reopen));
            let mut following = pin!(None);
            loop {
                tokio::select! {
                    () = &mut stop => break None,
                    () = tick(&mut alive) => self.manager.alive(),
                    () = &mut reloading => unreachable!("signals have no end"),
                    () = &mut progress => unreachable!("progress has no end"),
                    () = &mut reopening => unreachable!("signals have no end"),
                    Some(()) = upgrade.recv(), if following.is_none() => {
                        let Some(program) = &self.program else { continue };
                        if std::process::id() == 1 {
                            tracing::error!("upgrade: {FIRST_PROCESS}");
                            continue;
                        }
                        reloads_before = reloads_begun.load(Ordering::Relaxed);
                        self.manager.status("upgrading");
                        following.set(Some(program.follow(&server, self.notes())));
                    }
                    followed = followed(following.as_mut()), if following.is_some() => {
                        following.set(None);
                        match followed {
                            Ok(new) => break Some(new),
                            Err(reason) => {
                                tracing::error!("upgrade: {reason}; this process goes on serving");
                                self.manager.status(&status);
                            }
                        }
                    }
                }
            }
        };
        let Some(NewProcess { successor, started }) = new else {
            self.manager.stopping();
            return server.stop().await;
        };
        tracing::info!("upgrade: process {} serves; draining", started.pid);
        self.manager.hand_on(started.pid);
        server.retire(successor);
        // The new process may have read the configuration before it was changed.
        let has_reloaded = reloads_begun.load(Ordering::Relaxed) != reloads_before;
        if (has_reloaded || is_pending(&mut hangup).await)
            && let Err(error) = kill_process(started.pid, SignalNumber::HUP)
        {
            tracing::warn!("upgrade: SIGHUP for process {}: {error}", started.pid);
        }
        tokio::select! {
            () = server.drain(self.drain, stop) => {}
            () = watching::reopen_logs(&server, &mut reopen) => {
                unreachable!("signals have no end")
            }
            () = started.log_end() => unreachable!("it has no end"),
        }
        server.stop().await
    }
}

/// Explains why a new process cannot open an address when its predecessor has the same port open at
/// another address.
fn has_moved(error: Error, has: Option<SocketAddr>) -> Error {
    match (error, has) {
        (Error::Listen { setting, address, source }, Some(has))
            if source.kind() == std::io::ErrorKind::AddrInUse && has.port() == address.port() =>
        {
            Error::Setting {
                setting,
                found: format!("{address}: the running server has this port at {has}"),
                cure: "restart the server instead of upgrading it".to_owned(),
            }
        }
        (error, _) => error,
    }
}

/// Result of an upgrade that is in progress; never completes where there is none.
async fn followed<F: Future>(following: Pin<&mut Option<F>>) -> F::Output {
    match following.as_pin_mut() {
        Some(following) => following.await,
        None => std::future::pending().await,
    }
}

/// True where a signal is pending that has not been handled yet.
async fn is_pending(signal: &mut Signal) -> bool {
    tokio::select! {
        biased;
        signal = signal.recv() => signal.is_some(),
        () = std::future::ready(()) => false,
    }
}

/// Completes at the next watchdog message; never where none is requested.
async fn tick(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => std::future::pending().await,
    }
}

fn status(server: &Server) -> String {
    format!("serving rtsp://{} and http://{}", server.rtsp(), server.http())
}

fn cache_of(home: &std::path::Path) -> PathBuf {
    home.join(".cache/pagewire")
}

/// Parses `1h`, `30m`, `90s` or seconds, a week at most.
fn span(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let seconds = number.parse::<u32>().ok().map(|count| u64::from(count) * factor);
    let seconds = seconds.filter(|seconds| *seconds <= SPAN_S_MAX);
    seconds.map(Duration::from_secs).ok_or_else(|| "write a time such as 1h, 30m or 90s".into())
}

/// Reason why the first process of a container has no successor.
const FIRST_PROCESS: &str = "this is process 1, with whose end the kernel ends all others of the \
    container; start another container beside this one, or run this one with an init \
    (podman run --init)";
/// Name of the note that describes the sandbox to a successor.
const SANDBOX: &str = "sandbox";
const SPAN_S_MAX: u64 = 7 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, seconds) in
            [("0", 0), ("90", 90), ("90s", 90), ("5m", 300), ("1h", 3600), ("2d", 172_800)]
        {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "h", "-1s", "1.5h", "1w", "8d", "4294967296"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
