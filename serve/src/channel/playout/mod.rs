// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays channels out: one thread a channel makes its stream and sends it.
//!
//! `lineup_watch` (a task a channel) keeps the timeline current with the folder; `channel_file`
//! opens and measures the files; `producer` joins their packets to one stream, some hundred
//! milliseconds ahead of time; `outlet` sends bursts to the targets; `peer_watch` receives the
//! other server of a standby pair; `announcer` sends SAP; `replacement` begins and ends channels of
//! a running server. Viewers over RTSP get the packets that a channel keeps in its window
//! ([`crate::channel::window`]).
//!
//! A channel costs one thread that wakes once a burst, one system call a burst and target, and one
//! copy of each byte into the socket, however many receivers a group has.
//!
//! Sources: RFC 2250, RFC 3550, RFC 2974; ARCHITECTURE.md, "Channels".
//! Does not serve viewers.

mod announcer;
mod channel_clock;
mod channel_file;
mod lineup_watch;
mod outlet;
mod overfull;
mod peer_watch;
mod playout_thread;
mod producer;
mod replacement;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::Clock;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinHandle as TaskHandle;

pub(crate) use self::lineup_watch::ChannelPlan;
use self::lineup_watch::LineupWatch;
use self::overfull::Overfull;
use self::playout_thread::PlayoutThread;
use self::replacement::OpenedChannel;
pub(crate) use self::replacement::OpenedChannels;
use super::exports::shown_title;
use super::name_at;
use super::settings::{ChannelConfig, ChannelRole};
use super::timeline::AirReason;
use super::window::{ChannelWindow, WindowPlanner};
use crate::error::Error;
use crate::library::Library;
use crate::web::address::WebItem;

/// The channels of a running server.
pub(crate) struct Channels {
    running: Vec<RunningChannel>,
    planner: WindowPlanner,
}

struct RunningChannel {
    shared: Arc<ChannelShared>,
    thread: Option<JoinHandle<()>>,
    watch: TaskHandle<()>,
}

/// Resources of the server that all its channels use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChannelHost<'a> {
    /// Time between two wakes of a channel's thread.
    pub(crate) burst: Duration,
    /// Folder of windows that do not fit in memory.
    pub(crate) cache: Option<&'a Path>,
    pub(crate) clock: &'a Clock,
}

/// State of a channel that its thread, its watch and the control side share.
pub(crate) struct ChannelShared {
    pub(crate) config: ChannelConfig,
    clock: Clock,
    /// The last minutes for viewers over RTSP; `None` for a channel without them.
    window: Option<Arc<ChannelWindow>>,
    plan: Mutex<Arc<ChannelPlan>>,
    on_air: Mutex<OnAirNow>,
    overfull: Mutex<Option<Overfull>>,
    counters: ChannelCounters,
    is_stopping: AtomicBool,
    /// True while the targets belong to the previous server process, or to a successor.
    has_no_targets: AtomicBool,
}

/// Counters of a channel's thread.
#[derive(Default)]
struct ChannelCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    dropped_packets: AtomicU64,
    overfull_units: AtomicU64,
    late_bursts: AtomicU64,
    programmes: AtomicU64,
    takeovers: AtomicU64,
}

/// Current programme.
#[derive(Debug, Clone, Default)]
struct OnAirNow {
    entry: Option<Arc<str>>,
    reason: Option<AirReason>,
    is_sending: bool,
}

/// A channel in the index.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ChannelRow {
    pub(crate) name: String,
    title: String,
    role: &'static str,
    /// False while a standby hears the primary.
    sending: bool,
    /// File on the air.
    on_air: Option<String>,
    /// `listed`, `scheduled`, `filler`, `standby` or `nothing`.
    reason: &'static str,
    targets: Vec<String>,
    /// Addresses of its HLS and its DASH; `None` where it has none.
    hls: Option<String>,
    dash: Option<String>,
    /// Entries that cannot be played, in words.
    faults: Vec<String>,
    packets: u64,
    bytes: u64,
    /// Packets that the network did not accept.
    dropped_packets: u64,
    /// PES packets that the constant rate had no room for.
    overfull_units: u64,
    /// Bursts that left more than a burst late.
    late_bursts: u64,
    programmes: u64,
    takeovers: u64,
}

impl Channels {
    /// Starts a thread and a watch for each channel. Needs a tokio runtime.
    pub(crate) fn start(
        configs: &[ChannelConfig],
        host: ChannelHost<'_>,
        library: &Arc<Library>,
        is_successor: bool,
    ) -> Result<Channels, Error> {
        let mut running = Vec::new();
        for config in configs {
            let opened = OpenedChannel::open(config, host)?;
            if is_successor {
                opened.leave_targets();
            }
            running.push(opened.begin(library));
        }
        let channels = Channels { running, planner: WindowPlanner::start(host.clock)? };
        channels.tell_planner();
        Ok(channels)
    }

    /// Passes the planner the list of windows.
    fn tell_planner(&self) {
        let windows = self.running.iter().filter_map(|channel| channel.shared.window.clone());
        self.planner.plan(windows.collect());
    }

    /// Adopts the targets of the previous server process.
    pub(crate) fn take_over(&self) {
        let channels = self.running.iter();
        channels.for_each(|c| c.shared.has_no_targets.store(false, Ordering::Relaxed));
    }

    /// Leaves the targets to a successor; viewers over RTSP and HLS are still served.
    pub(crate) fn retire(&self) {
        let channels = self.running.iter();
        channels.for_each(|c| c.shared.has_no_targets.store(true, Ordering::Relaxed));
    }

    /// Stops all channels; each withdraws its announcements.
    pub(crate) fn stop(&mut self) {
        let threads: Vec<_> = self.running.iter_mut().map(RunningChannel::end).collect();
        for thread in threads.into_iter().flatten() {
            // A thread that panicked has logged it; stopping continues.
            let _ = thread.join();
        }
        self.planner.stop();
        self.running
            .iter()
            .filter_map(|channel| channel.shared.window.as_ref())
            .for_each(|w| w.clear());
    }

    /// Returns the window of the channel that a path names.
    pub(crate) fn window(&self, path: &str) -> Option<Arc<ChannelWindow>> {
        let name = name_at(path)?;
        let channel = self.running.iter().find(|channel| channel.shared.config.name == name)?;
        channel.shared.window.clone()
    }

    /// True when the channel that a path names is left to the primary.
    pub(crate) fn stands_by(&self, path: &str) -> bool {
        let named =
            |channel: &&RunningChannel| Some(channel.shared.config.name.as_str()) == name_at(path);
        self.running.iter().find(named).is_some_and(|channel| channel.shared.stands_by())
    }

    /// Returns the channels with their plans of the moment, in the order of the settings.
    pub(crate) fn plans(&self) -> Vec<(Arc<ChannelShared>, Arc<ChannelPlan>)> {
        self.running.iter().map(|channel| (channel.shared.clone(), channel.shared.plan())).collect()
    }

    /// Returns a row of the index for each channel; HLS is at `server`, where segments are clear.
    pub(crate) fn rows(&self, server: Option<&str>) -> Vec<ChannelRow> {
        self.running.iter().map(|channel| channel.shared.row(server)).collect()
    }
}

/// Returns the empty window of a channel.
fn window_of(config: &ChannelConfig, clock: &Clock) -> ChannelWindow {
    ChannelWindow::new(&config.name, shown_title(config), config.time_shift, clock)
}

impl RunningChannel {
    /// Begins to end it; returns its thread, which ends within a burst.
    fn end(&mut self) -> Option<JoinHandle<()>> {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.watch.abort();
        self.thread.take()
    }
}

impl ChannelShared {
    fn new(config: &ChannelConfig, clock: &Clock) -> ChannelShared {
        ChannelShared {
            config: config.clone(),
            clock: clock.clone(),
            window: config.rtsp.then(|| Arc::new(window_of(config, clock))),
            plan: Mutex::new(Arc::new(ChannelPlan::empty(config))),
            on_air: Mutex::default(),
            overfull: Mutex::default(),
            counters: ChannelCounters::default(),
            is_stopping: AtomicBool::new(false),
            has_no_targets: AtomicBool::new(false),
        }
    }

    /// Returns the current faults: of the playlist, the rate and the window.
    fn faults(&self) -> Vec<String> {
        let mut faults = self.plan().faults.clone();
        faults.extend(self.overfull());
        faults.extend(self.window.as_ref().and_then(|window| window.fault()));
        faults
    }

    /// Returns the current files and timeline.
    fn plan(&self) -> Arc<ChannelPlan> {
        self.plan.lock().clone()
    }

    fn set_plan(&self, plan: ChannelPlan) {
        *self.plan.lock() = Arc::new(plan);
    }

    /// True for a standby that does not send.
    fn stands_by(&self) -> bool {
        let on_air = self.on_air.lock();
        self.config.role == ChannelRole::Standby && !on_air.is_sending
    }

    fn note_on_air(&self, now: OnAirNow) {
        *self.on_air.lock() = now;
    }

    fn row(&self, server: Option<&str>) -> ChannelRow {
        let on_air = self.on_air.lock().clone();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (config, counters) = (&self.config, &self.counters);
        let address = |item: &WebItem| {
            let (window, server) = self.window.as_ref().zip(server)?;
            Some(format!("{server}/{}/{item}", window.assets.name))
        };
        ChannelRow {
            name: config.name.clone(),
            title: config.title.clone(),
            role: match config.role {
                ChannelRole::Primary => "primary",
                ChannelRole::Standby => "standby",
            },
            sending: on_air.is_sending,
            on_air: on_air.entry.map(|entry| entry.to_string()),
            reason: match on_air.reason {
                Some(AirReason::Listed) => "listed",
                Some(AirReason::Scheduled) => "scheduled",
                Some(AirReason::Filler) => "filler",
                _ if self.stands_by() => "standby",
                _ => "nothing",
            },
            targets: config.targets.iter().map(ToString::to_string).collect(),
            hls: address(&WebItem::Master),
            dash: address(&WebItem::Manifest),
            faults: self.faults(),
            packets: count(&counters.packets),
            bytes: count(&counters.bytes),
            dropped_packets: count(&counters.dropped_packets),
            overfull_units: count(&counters.overfull_units),
            late_bursts: count(&counters.late_bursts),
            programmes: count(&counters.programmes),
            takeovers: count(&counters.takeovers),
        }
    }
}
