// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces the settings of the channels of a running server.
//!
//! A channel whose settings are the same plays on untouched. A changed one is stopped and begins
//! anew, as after a restart of the server: its viewers over RTSP end, and its time shift is lost.
//!
//! Everything that can be refused is done first: sockets are opened and threads are started, which
//! wait at a gate. So settings that a host refuses change nothing. The previous channels are
//! stopped after that, without the lock that requests use; two threads never send one channel.
//!
//! Costs the threads and sockets of the channels that begin; a channel stops within a burst.
//!
//! Does not check settings ([`check_channels`](crate::channel::check_channels) does).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::{ChannelHost, ChannelShared, Channels, LineupWatch, PlayoutThread, RunningChannel};
use crate::channel::settings::ChannelConfig;
use crate::error::Error;
use crate::library::Library;

/// Channels that are opened and have not begun.
pub(crate) struct OpenedChannels {
    opened: Vec<OpenedChannel>,
    /// Names of all channels, in the order of the settings.
    names: Vec<String>,
    changes: ChannelChanges,
}

/// A channel whose thread waits at its gate; it ends when the gate is dropped.
pub(super) struct OpenedChannel {
    shared: Arc<ChannelShared>,
    gate: Sender<()>,
    thread: JoinHandle<()>,
}

/// Names of the channels that other settings begin, end or begin anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChannelChanges {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
}

impl OpenedChannel {
    /// Opens the sockets of a channel and starts its thread, which waits.
    pub(super) fn open(
        config: &ChannelConfig,
        host: ChannelHost<'_>,
    ) -> Result<OpenedChannel, Error> {
        let shared = Arc::new(ChannelShared::new(config, host.clock));
        // Opens the sockets here: a fault is the caller's to report.
        let playout = PlayoutThread::open(shared.clone(), host)?;
        let (gate, opened) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("channel-{}", config.name))
            .spawn(move || {
                if opened.recv().is_ok() {
                    playout.run();
                }
            })
            .map_err(|source| Error::Host {
                call: "clone",
                object: format!("thread of channel.{}", config.name),
                source,
            })?;
        Ok(OpenedChannel { shared, gate, thread })
    }

    /// Leaves the targets to another process until they are taken over.
    pub(super) fn leave_targets(&self) {
        self.shared.has_no_targets.store(true, Ordering::Relaxed);
    }

    /// Lets it play, with a watch of the folder. Needs a tokio runtime.
    pub(super) fn begin(self, library: &Arc<Library>) -> RunningChannel {
        let watch = LineupWatch::new(self.shared.clone(), library.clone());
        // It waits at the gate, unless it panicked, which it has logged.
        let _ = self.gate.send(());
        let watch = tokio::spawn(watch.run());
        RunningChannel { shared: self.shared, thread: Some(self.thread), watch }
    }
}

impl OpenedChannels {
    /// Opens the channels of `configs` that do not run with the same settings.
    ///
    /// # Errors
    /// A setting that cannot be carried out on this host; nothing has changed.
    pub(crate) fn open(
        channels: &Mutex<Channels>,
        configs: &[ChannelConfig],
        host: ChannelHost<'_>,
    ) -> Result<OpenedChannels, Error> {
        let mut changes = ChannelChanges::default();
        let before: Vec<Arc<ChannelShared>> =
            channels.lock().running.iter().map(|channel| channel.shared.clone()).collect();
        let mut opened = Vec::new();
        for config in configs {
            match before.iter().find(|shared| shared.config.name == config.name) {
                Some(shared) if shared.config == *config => continue,
                Some(_) => changes.changed.push(config.name.clone()),
                None => changes.added.push(config.name.clone()),
            }
            opened.push(OpenedChannel::open(config, host)?);
        }
        let is_left = |name: &String| configs.iter().any(|config| config.name == *name);
        let names = before.iter().map(|shared| shared.config.name.clone());
        changes.removed = names.filter(|name| !is_left(name)).collect();
        let names = configs.iter().map(|config| config.name.clone()).collect();
        Ok(OpenedChannels { opened, names, changes })
    }

    /// Ends the channels that are no more or changed, and begins the opened ones. Needs a tokio
    /// runtime.
    pub(crate) async fn begin(
        self,
        channels: &Mutex<Channels>,
        library: &Arc<Library>,
    ) -> ChannelChanges {
        let ChannelChanges { removed, changed, .. } = &self.changes;
        let ends = |channel: &RunningChannel| {
            let name = &channel.shared.config.name;
            removed.contains(name) || changed.contains(name)
        };
        let threads: Vec<JoinHandle<()>> = {
            let mut channels = channels.lock();
            let ending = channels.running.iter_mut().filter(|channel| ends(channel));
            ending.filter_map(RunningChannel::end).collect()
        };
        if !threads.is_empty() {
            // A thread that panicked has logged it.
            let join = || threads.into_iter().for_each(|thread| drop(thread.join()));
            let _ = tokio::task::spawn_blocking(join).await;
        }
        let begun: Vec<_> = self.opened.into_iter().map(|opened| opened.begin(library)).collect();
        let ended: Vec<RunningChannel> = {
            let mut channels = channels.lock();
            let running = std::mem::take(&mut channels.running);
            let (ended, mut running): (Vec<_>, Vec<_>) = running.into_iter().partition(ends);
            running.extend(begun);
            let at = |channel: &RunningChannel| {
                self.names.iter().position(|name| *name == channel.shared.config.name)
            };
            running.sort_by_key(at);
            channels.running = running;
            channels.tell_planner();
            ended
        };
        // Their viewers end.
        ended.iter().filter_map(|channel| channel.shared.window.as_ref()).for_each(|w| w.clear());
        self.changes
    }
}
