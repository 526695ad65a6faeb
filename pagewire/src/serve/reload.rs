// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reload of a running server: the file, the environment and the command line are read again at
//! SIGHUP and at an administrator's request, and the settings that a running server can change are
//! changed.
//!
//! A faulty file changes nothing; the log has its lines. Settings that need a restart are named in
//! the log, again at each reload until they have their old values or the server is restarted. Files
//! that settings name (tokens, secrets) are read again also where their names are unchanged.
//!
//! Costs one read of the file on the main thread, which serves no clients.
//!
//! Sources: systemd.service(5) (`notify-reload`). Does not move listeners or the served folder:
//! [`serve::Server::reload`] lists the settings that it replaces.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serve::{ReloadOutcome, Reloaded, Server};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot};

use super::notify::ServiceManager;
use super::with_flag;
use crate::config::{Loaded, Sources, keys};

/// Reloads of one server.
pub(super) struct Reloads {
    sources: Sources,
    /// Values that are in force, by key; keys with their default are absent.
    in_force: BTreeMap<&'static str, Vec<OsString>>,
    /// Number of reloads begun.
    begun: Arc<AtomicU64>,
}

/// Result of a reload.
#[derive(Debug)]
pub(super) struct ReloadReport {
    /// Keys whose new values are in force.
    pub(super) applied: Vec<&'static str>,
    /// Keys whose new values need a restart.
    pub(super) needs_restart: Vec<&'static str>,
    pub(super) server: Reloaded,
}

impl Reloads {
    pub(super) fn new(sources: Sources, loaded: &Loaded) -> Reloads {
        Reloads { sources, in_force: values(loaded), begun: Arc::default() }
    }

    /// Returns a shared counter of the reloads begun.
    pub(super) fn begun(&self) -> Arc<AtomicU64> {
        self.begun.clone()
    }

    /// Reloads at each signal and each request; never returns.
    pub(super) async fn run(
        &mut self,
        server: &Server,
        (hangup, asked): (&mut Signal, &mut mpsc::Receiver<ReloadRequest>),
        (manager, status): (&ServiceManager, &str),
    ) {
        loop {
            let request = tokio::select! {
                signal = hangup.recv() => match signal {
                    Some(()) => None,
                    // No further signal can arrive.
                    None => return std::future::pending().await,
                },
                Some(request) = asked.recv() => Some(request),
            };
            self.begun.fetch_add(1, Ordering::Relaxed);
            manager.reloading();
            let reloaded = self.reload(server).await;
            match &reloaded {
                Ok(report) => {
                    report.log();
                    manager.ready(status);
                }
                Err(faults) => {
                    faults.iter().for_each(|fault| tracing::error!("reload: {fault}"));
                    if faults.iter().any(|fault| fault.contains("ermission denied")) {
                        tracing::error!("reload: {DENIED}");
                    }
                    tracing::error!("reload: nothing has changed; correct this and reload again");
                    let first = faults.first().map_or("", String::as_str);
                    manager.ready(&format!("reload refused: {first}"));
                }
            }
            if let Some(ReloadRequest(reply)) = request {
                let outcome = reloaded.map(|report| report.outcome());
                // A client that has disconnected reads no answer.
                let _ = reply.send(outcome.map_err(|faults| faults.join("\n")));
            }
        }
    }

    /// Reads all sources and applies the changes.
    ///
    /// # Errors
    /// The faults of the configuration, one text each; nothing has changed.
    pub(super) async fn reload(&mut self, server: &Server) -> Result<ReloadReport, Vec<String>> {
        let loaded = self.sources.load().map_err(|unusable| unusable.texts())?;
        let wanted = values(&loaded);
        let Loaded { log, options, file, notes, .. } = loaded;
        let one = |error: &serve::Error| vec![with_flag(error)];
        let config = options.config(file, false).map_err(|error| one(&error))?;
        let reloaded = server.reload(config).await.map_err(|error| one(&error))?;
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        if let Err(fault) = crate::log::set(&log) {
            tracing::warn!("reload: log: {fault}");
        }
        // Without a certificate in the file, the one in use remains.
        let certificates = ["tls_cert", "tls_self_signed"];
        let has_tls = (server.https().is_some() || server.rtsps().is_some())
            && certificates.iter().any(|name| wanted.contains_key(name));
        let is_applied = |key: &keys::Key| match key.name.as_str() {
            "tls_cert" | "tls_key" | "tls_self_signed" => has_tls,
            "hls_key_file" | "keys" => !reloaded.keys_kept,
            _ => key.is_reloaded(),
        };
        let (mut applied, mut needs_restart) = (Vec::new(), Vec::new());
        for key in keys::all() {
            let name = key.name.as_str();
            if self.in_force.get(name) == wanted.get(name) {
                continue;
            }
            if !is_applied(key) {
                needs_restart.push(name);
                continue;
            }
            applied.push(name);
            match wanted.get(name) {
                Some(values) => self.in_force.insert(name, values.clone()),
                None => self.in_force.remove(name),
            };
        }
        // The secret in the file has changed.
        if reloaded.keys_kept && !needs_restart.contains(&"hls_key_file") {
            needs_restart.push("hls_key_file");
        }
        Ok(ReloadReport { applied, needs_restart, server: reloaded })
    }
}

/// A reload that an administrator requests.
pub(super) struct ReloadRequest(oneshot::Sender<Result<ReloadOutcome, String>>);

/// Lets the administrator's listener, if there is one, request reloads; returns the requests.
pub(super) fn requests(server: &Server) -> mpsc::Receiver<ReloadRequest> {
    let (ask, asked) = mpsc::channel(1);
    server.on_reload(move || {
        let (reply, answer) = oneshot::channel();
        let is_asked = ask.blocking_send(ReloadRequest(reply)).is_ok();
        let outcome = is_asked.then(|| answer.blocking_recv().ok()).flatten();
        outcome.unwrap_or_else(|| Err("the server stops".to_owned()))
    });
    asked
}

impl ReloadReport {
    fn outcome(self) -> ReloadOutcome {
        let Reloaded { channels_added, channels_removed, channels_changed, .. } = self.server;
        let channels = channels_added.into_iter().chain(channels_removed).chain(channels_changed);
        let mut outcome = ReloadOutcome::default();
        outcome.changed = self.applied.iter().map(ToString::to_string).collect();
        outcome.changed.extend(channels.map(|name| format!("channel.{name}")));
        outcome.needs_restart = self.needs_restart.iter().map(ToString::to_string).collect();
        outcome
    }

    fn log(&self) {
        let listed = |what: &str, names: Vec<String>| match names.is_empty() {
            true => String::new(),
            false => format!("; {what} {}", names.join(", ")),
        };
        let channels = |names: &[String]| -> Vec<String> {
            names.iter().map(|name| format!("channel.{name}")).collect()
        };
        let Reloaded { channels_added, channels_removed, channels_changed, .. } = &self.server;
        let mut changed: Vec<String> = self.applied.iter().map(ToString::to_string).collect();
        changed.extend(channels(channels_changed));
        tracing::info!(
            "reload: done{}{}{}",
            listed("changed", changed),
            listed("began", channels(channels_added)),
            listed("ended", channels(channels_removed)),
        );
        if !self.needs_restart.is_empty() {
            tracing::warn!(
                "reload: {} changed and need a restart; the old values stay in force until then",
                self.needs_restart.join(", ")
            );
        }
    }
}

/// Remark about a file whose reading is denied.
const DENIED: &str = "permission is denied to the server's user or by its sandbox, in which a new \
    file may be read where the folder of the old one is its own: not directly in /etc or a home; \
    write such a file in place, or restart the server";

/// Returns values by key. A key with its default counts as absent.
fn values(loaded: &Loaded) -> BTreeMap<&'static str, Vec<OsString>> {
    let is_default = |key: &keys::Key, values: &[OsString]| {
        let default = key.default().map(OsString::from);
        values == default.as_slice()
    };
    let given = loaded.given.iter().filter(|given| !is_default(given.key, &given.values));
    given.map(|given| (given.key.name.as_str(), given.values.clone())).collect()
}
