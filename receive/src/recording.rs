// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and stops the threads of a recording in order.
//!
//! There are receiving threads (one path each, any number of streams), one writer, one closer that
//! waits for disks, and one thread for control (RTSP and RTCP, on its own small executor). They
//! share queues and one briefly held lock per stream.
//!
//! Does not display anything: the owner of a [`Recording`] requests its [`Summary`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use client::rtp_receiver::ArrivalClock;
use client::{ClientLogin, StreamTransport, TrackContainer, TransportChoice};
use media::PlanStore;
use media::mux::{Rotation, WriterKind};
use paths::{Relay, RelayTarget};
use tokio::sync::watch;

use crate::closer::SyncCounts;
use crate::error::{Error, RecordSetting};
use crate::file_names::{self, FileNames};
use crate::fragment_output::FragmentOutput;
use crate::frame_input::FrameInput;
use crate::path_choice::{ReceiveCost, wanted};
use crate::receive_backend::ReceiveBackend;
use crate::receiver_reports::RtcpStats;
use crate::receiving_thread::{
    BoundPort, PortCommand, ReceiverStats, ReceivingThread, Streams, lock,
};
use crate::recorded_stream::{RecordOutput, RecordedStream};
use crate::recording_session::TitleProgress;
use crate::relay::{self, RelaySocket, RelayThread};
use crate::stream_control::StreamControl;
use crate::stream_figures::{StreamFigures, Summary};
use crate::stream_source::StreamSource;
use crate::write_queue::{BlockPool, StreamOutput, WriteCommand};
use crate::writer::{StreamFiles, SyncPolicy, WriteStats, Writer};

/// Streams to record, and settings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordOptions {
    /// URLs: see [`StreamSource::parse`].
    pub urls: Vec<String>,
    /// Logins at the servers of these URLs, in the same order and as many; empty for none.
    pub logins: Vec<ClientLogin>,
    /// Pattern of the files' names, with the placeholders `{stream}`, `{index}`, `{number}` and
    /// `{time}`. If `None`, no file is written.
    pub output: Option<String>,
    /// Limits at which a file is ended and another begun.
    pub rotation: Rotation,
    /// Times at which files are synced.
    pub sync: SyncPolicy,
    /// Folder of the plans for the server; the server's default if `None`.
    pub cache: Option<PathBuf>,
    /// Memory in bytes for data that is not yet written to the disk.
    pub queue_bytes: usize,
    /// Time to wait for a missing packet.
    pub reorder_wait: Duration,
    /// Receive paths in order of preference, or `auto`.
    pub path: String,
    /// Costs of receive paths on this machine; if empty, `auto` uses its default order.
    pub costs: Vec<ReceiveCost>,
    /// Target of each stream, `ADDRESS:PORT[?interface=NAME&hops=N]`; none when empty.
    pub relay: Vec<String>,
    /// Number of receiving threads.
    pub threads: usize,
    /// True if receiver reports are sent.
    pub reports: bool,
    /// Transport requested from RTSP servers.
    pub transport: TransportChoice,
    /// True if servers are asked again after an announced end, and when a source is absent.
    pub live: bool,
}

impl RecordOptions {
    /// A recording of these streams with default settings.
    pub fn new(urls: Vec<String>) -> RecordOptions {
        RecordOptions {
            urls,
            logins: Vec::new(),
            output: None,
            rotation: Rotation::default(),
            sync: SyncPolicy::default(),
            cache: None,
            queue_bytes: 256 << 20,
            reorder_wait: Duration::from_millis(100),
            path: "auto".to_owned(),
            costs: Vec::new(),
            relay: Vec::new(),
            threads: 1,
            reports: true,
            transport: TransportChoice::Auto,
            live: false,
        }
    }
}

impl RecordOptions {
    /// The container of a camera's tracks.
    fn container(&self) -> TrackContainer {
        match self.output.as_deref().map(file_names::kind) {
            Some(WriterKind::FragmentedMp4) => TrackContainer::FragmentedMp4(self.rotation),
            _ => TrackContainer::TransportStream,
        }
    }
}

/// A running recording. Dropping it without [`stop`](Recording::stop) signals its threads to end
/// and does not wait for them.
pub struct Recording {
    rows: Vec<RecordedInput>,
    shared: Arc<[StreamState]>,
    streams: Streams,
    clock: ArrivalClock,
    path: String,
    refused: Vec<String>,
    stats: Vec<Arc<Mutex<ReceiverStats>>>,
    syncs: Arc<SyncCounts>,
    writes_files: bool,
    receivers: Vec<(Sender<PortCommand>, JoinHandle<()>)>,
    control: Option<(watch::Sender<bool>, JoinHandle<()>)>,
    /// The writing thread and the closer.
    disks: Vec<JoinHandle<()>>,
}

/// An input of the recording.
struct RecordedInput {
    url: String,
    source: StreamSource,
}

/// State of a stream that the threads share, besides [`RecordedStream`].
#[derive(Default)]
pub(crate) struct StreamState {
    pub(crate) written: Arc<WriteStats>,
    pub(crate) rtcp: Mutex<RtcpStats>,
    pub(crate) sessions: AtomicU64,
    pub(crate) is_over: AtomicBool,
    pub(crate) progress: Mutex<TitleProgress>,
    pub(crate) trouble: Mutex<Option<String>>,
    /// Names of the tracks that are recorded.
    pub(crate) tracks: Mutex<Vec<String>>,
    /// Reason why the server is not asked again.
    pub(crate) refusal: Mutex<Option<String>>,
}

impl Recording {
    /// Starts receiving.
    ///
    /// # Errors
    /// Caller: a wrong setting. Host: ports, memory or threads that are refused.
    pub fn start(options: &RecordOptions) -> Result<Recording, Error> {
        let rows = rows(options)?;
        check(options.transport, &rows)?;
        let wanted = wanted(&options.path, &options.costs)?;
        if let Some(pattern) = &options.output {
            file_names::check(pattern, rows.len())?;
            check_sources(pattern, options, &rows)?;
        }
        let targets = relay::targets(&options.relay, rows.len())?;
        let sources: Vec<_> = rows.iter().map(|row| &row.source).collect();
        let how = (options.output.is_some(), options.threads);
        let backend = ReceiveBackend::open(&wanted, &sources, &targets, how)?;
        let (writes, inbox) = channel();
        let pool = Arc::new(BlockPool::new(options.queue_bytes));
        let shared: Arc<[StreamState]> = rows.iter().map(|_| StreamState::default()).collect();
        let streams = rows.iter().enumerate();
        let streams = streams.map(|(key, row)| stream(key, row, options, &pool, &writes)).collect();
        drop(writes);
        let mut recording = Recording {
            clock: ArrivalClock::start(),
            path: backend.name(),
            refused: backend.refused(),
            stats: Vec::new(),
            syncs: Arc::default(),
            writes_files: options.output.is_some(),
            receivers: Vec::new(),
            control: None,
            disks: Vec::new(),
            rows,
            shared,
            streams,
        };
        recording.start_disks(options, pool, inbox)?;
        recording.start_receivers(backend, &targets)?;
        recording.start_control(options)?;
        Ok(recording)
    }

    /// Figures so far.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            path: self.path.clone(),
            refused: self.refused.clone(),
            seconds: self.clock.now().as_secs_f64(),
            syncs: self.syncs.done.load(Ordering::Relaxed),
            syncs_failed: self.syncs.failed.load(Ordering::Relaxed),
            writes_files: self.writes_files,
            ..Summary::default()
        };
        let (mut dropped, mut unsent) = (vec![0; self.rows.len()], vec![0; self.rows.len()]);
        for stats in &self.stats {
            let stats = lock(stats);
            summary.packets += stats.received.packets;
            summary.bytes += stats.received.bytes;
            summary.calls += stats.received.calls;
            summary.waits += stats.received.waits;
            summary.copied_bytes += stats.received.copied_bytes;
            summary.truncated += stats.received.truncated;
            summary.malformed_frames += stats.received.malformed;
            summary.path_errors += stats.errors;
            summary.last_path_error = stats.last_error.clone().or(summary.last_path_error.take());
            dropped.iter_mut().zip(&stats.dropped).for_each(|(sum, found)| *sum += found);
            unsent.iter_mut().zip(&stats.unsent).for_each(|(sum, found)| *sum += found);
        }
        let rows = self.rows.iter().zip(self.shared.iter()).zip(self.streams.iter());
        summary.streams = rows
            .zip(dropped.into_iter().zip(unsent))
            .map(|(((row, shared), stream), (dropped_by_kernel, dropped_by_relay))| {
                let mut figures = StreamFigures::of(&row.url, shared, stream);
                figures.dropped_by_kernel += dropped_by_kernel;
                figures.dropped_by_relay = dropped_by_relay;
                figures
            })
            .collect();
        summary
    }

    /// Returns true once every stream has ended.
    pub fn is_over(&self) -> bool {
        self.shared.iter().all(|shared| {
            shared.is_over.load(Ordering::Relaxed)
                || shared.written.has_failed.load(Ordering::Relaxed)
        })
    }

    /// Receives the remaining datagrams of the sockets, closes the files, and returns the figures.
    /// Waits for the disk.
    pub fn stop(mut self) -> Summary {
        if let Some((stop, thread)) = self.control.take() {
            // The control thread sends TEARDOWN and BYE while the last packets are still received.
            let _ = stop.send(true);
            let _ = thread.join();
        }
        for (orders, _) in &self.receivers {
            let _ = orders.send(PortCommand::Stop);
        }
        for (_, thread) in self.receivers.drain(..) {
            let _ = thread.join();
        }
        for stream in self.streams.iter() {
            lock(stream).end();
        }
        for thread in self.disks.drain(..) {
            let _ = thread.join();
        }
        self.summary()
    }

    fn start_disks(
        &mut self,
        options: &RecordOptions,
        pool: Arc<BlockPool>,
        inbox: std::sync::mpsc::Receiver<WriteCommand>,
    ) -> Result<(), Error> {
        // The capacity suffices if all streams end a file at once.
        let (closer, closes) = sync_channel(CLOSES_MAX + 2 * self.rows.len());
        let lane = |(index, row): (usize, &RecordedInput)| {
            let pattern = options.output.as_deref()?;
            let names = FileNames::new(pattern, &row.source.label(), index);
            let kind = file_names::kind(pattern);
            Some(StreamFiles::new(names, kind, self.shared[index].written.clone()))
        };
        let lanes = self.rows.iter().enumerate().map(lane).collect();
        let writer = Writer { lanes, pool, sync: options.sync, closer };
        let writing = spawn("write", move || writer.run(&inbox))?;
        let plans = options.output.is_some().then(|| PlanStore::open(options.cache.clone()));
        if let Some(unavailable) = plans.as_ref().and_then(PlanStore::unavailable) {
            tracing::warn!("{unavailable}; name a cache folder that can be written to");
        }
        let syncs = self.syncs.clone();
        let closing = spawn("close", move || {
            crate::closer::run(&closes, plans.as_ref(), &syncs);
        })?;
        self.disks = vec![writing, closing];
        Ok(())
    }

    fn start_receivers(
        &mut self,
        backend: ReceiveBackend,
        targets: &[RelayTarget],
    ) -> Result<(), Error> {
        let choices = match backend {
            ReceiveBackend::Relay(relay) => return self.start_relay(relay),
            ReceiveBackend::Paths(choices) => choices,
        };
        let threads = choices.len();
        for (number, choice) in choices.into_iter().enumerate() {
            let (orders, inbox) = channel();
            let stats = Arc::new(Mutex::default());
            let of_thread = |key: &usize| key % threads == number;
            let held = self.rows.iter().enumerate().filter(|(key, _)| of_thread(key));
            let held = held.filter_map(|(key, row)| match &row.source {
                StreamSource::Udp(port) => Some(BoundPort::new(key as u32, port.clone())),
                StreamSource::Rtsp(_) | StreamSource::Sdp(_) => None,
            });
            let copiers = targets.iter().enumerate().filter(|(key, _)| of_thread(key));
            let copiers = copiers.map(|(key, target)| Ok((key as u32, RelaySocket::new(target)?)));
            let thread = ReceivingThread {
                path: choice.path,
                via: choice.spec.via,
                streams: self.streams.clone(),
                ports: held.collect(),
                frames: FrameInput::default(),
                copiers: copiers.collect::<Result<_, Error>>()?,
                inbox,
                stats: stats.clone(),
                clock: self.clock,
            };
            self.stats.push(stats);
            self.receivers.push((orders, spawn("receive", move || thread.run())?));
        }
        Ok(())
    }

    fn start_relay(&mut self, relay: Box<Relay>) -> Result<(), Error> {
        let (orders, inbox) = channel();
        let stats = Arc::new(Mutex::default());
        let ports = (0..).zip(&self.rows).filter_map(|(key, row)| match &row.source {
            StreamSource::Udp(port) => Some((key, port.address)),
            StreamSource::Rtsp(_) | StreamSource::Sdp(_) => None,
        });
        let (ports, streams) = (ports.collect(), self.streams.clone());
        let (stats, clock) = (stats.clone(), self.clock);
        let thread = RelayThread { relay, streams, ports, inbox, stats: stats.clone(), clock };
        self.stats.push(stats);
        self.receivers.push((orders, spawn("relay", move || thread.run())?));
        Ok(())
    }

    /// Starts RTSP and RTCP, all on one thread.
    fn start_control(&mut self, options: &RecordOptions) -> Result<(), Error> {
        let RecordOptions { reports, live: is_live, transport, .. } = *options;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let host = |source| Error::Host { call: "epoll_create", object: "control".into(), source };
        let runtime = runtime.map_err(host)?;
        let (stop, stopped) = watch::channel(false);
        let ports = self.rows.iter().filter_map(|row| match &row.source {
            StreamSource::Udp(port) => Some(port.address),
            StreamSource::Rtsp(_) | StreamSource::Sdp(_) => None,
        });
        let ports: Arc<[SocketAddr]> = ports.collect();
        let (listens, listening) = channel();
        let tasks = self.rows.iter().enumerate().map(|(key, row)| StreamControl {
            key,
            url: row.url.clone(),
            login: options.logins.get(key).cloned().unwrap_or_default(),
            source: row.source.clone(),
            ports: ports.clone(),
            streams: self.streams.clone(),
            shared: self.shared.clone(),
            receiver: self.receivers[key % self.receivers.len()].0.clone(),
            clock: self.clock,
            reports,
            is_live,
            transport,
            container: options.container(),
            stopped: stopped.clone(),
            listens: matches!(row.source, StreamSource::Sdp(_)).then(|| listens.clone()),
        });
        let tasks: Vec<StreamControl> = tasks.collect();
        drop(listens);
        let thread = spawn("control", move || {
            let local = tokio::task::LocalSet::new();
            let handles: Vec<_> =
                tasks.into_iter().map(|task| local.spawn_local(task.run())).collect();
            runtime.block_on(local.run_until(async {
                for handle in handles {
                    // A panicked task has printed its message; the others continue.
                    let _ = handle.await;
                }
            }));
        })?;
        self.control = Some((stop, thread));
        // Waits until the ports of all descriptions are bound: a sender may start once this
        // returns.
        let _ = listening.recv();
        Ok(())
    }
}

fn rows(options: &RecordOptions) -> Result<Vec<RecordedInput>, Error> {
    let wrong = |found: String, cure: &str| Error::Setting {
        setting: RecordSetting::Url,
        found,
        cure: cure.to_owned(),
    };
    let row =
        |url: &String| Ok(RecordedInput { url: url.clone(), source: StreamSource::parse(url)? });
    let rows = options.urls.iter().map(row).collect::<Result<Vec<_>, Error>>()?;
    if !options.logins.is_empty() && options.logins.len() != rows.len() {
        let found = format!("{} logins for {} of them", options.logins.len(), rows.len());
        return Err(wrong(found, "give as many, or none"));
    }
    if rows.is_empty() || rows.len() > STREAMS_MAX {
        return Err(wrong(format!("{} of them", rows.len()), "write 1 to 4096"));
    }
    for (index, row) in rows.iter().enumerate() {
        // Only ports must be distinct: an RTSP source may be recorded twice.
        let is_same = |other: &RecordedInput| {
            matches!(row.source, StreamSource::Udp(_)) && other.source == row.source
        };
        if rows[..index].iter().any(is_same) {
            return Err(wrong(row.url.clone(), "it is there twice; write it once"));
        }
    }
    Ok(rows)
}

/// Refuses sources that cannot be recorded in files of this pattern: only tracks are put into MP4.
fn check_sources(
    pattern: &str,
    options: &RecordOptions,
    rows: &[RecordedInput],
) -> Result<(), Error> {
    if file_names::kind(pattern) != WriterKind::FragmentedMp4 {
        return Ok(());
    }
    let wrong = |cure: String| {
        let (setting, found) = (RecordSetting::Output, pattern.to_owned());
        Err(Error::Setting { setting, found, cure })
    };
    if let Some(row) = rows.iter().find(|row| matches!(row.source, StreamSource::Udp(_))) {
        return wrong(format!("{} is a transport stream: name its recording .ts", row.url));
    }
    if !options.relay.is_empty() {
        return wrong("transport streams are relayed: name the recording .ts".to_owned());
    }
    let is_file = std::fs::metadata(pattern).map_or(true, |found| found.is_file());
    if !is_file {
        return wrong("a pipe or a device takes one file alone: name the recording .ts".to_owned());
    }
    Ok(())
}

/// Refuses a transport that a recorder does not support, or one of the URLs.
fn check(transport: TransportChoice, rows: &[RecordedInput]) -> Result<(), Error> {
    let TransportChoice::Only(transport) = transport else { return Ok(()) };
    let wrong = |cure: String| {
        let (setting, found) = (RecordSetting::Transport, transport.to_string());
        Err(Error::Setting { setting, found, cure })
    };
    if transport == StreamTransport::Multicast {
        let cure = "write auto, udp, tcp or http; a group is recorded by udp://GROUP:PORT";
        return wrong(cure.to_owned());
    }
    let checked = rows.iter().try_for_each(|row| client::check_transport(&row.url, transport));
    match checked {
        Err(client::Error::Setting { cure, .. }) => wrong(cure),
        _ => Ok(()),
    }
}

fn stream(
    key: usize,
    row: &RecordedInput,
    options: &RecordOptions,
    pool: &Arc<BlockPool>,
    writes: &Sender<WriteCommand>,
) -> Mutex<RecordedStream> {
    let (pool, writes) = (pool.clone(), writes.clone());
    let output = options.output.as_ref().map(|_| match options.container() {
        TrackContainer::FragmentedMp4(_) => {
            RecordOutput::Fragments(FragmentOutput::new(key, pool, writes))
        }
        _ => {
            RecordOutput::Packets(Box::new(StreamOutput::new(key, pool, writes, options.rotation)))
        }
    });
    let senders = match &row.source {
        StreamSource::Udp(port) => port.sources.clone(),
        StreamSource::Rtsp(_) | StreamSource::Sdp(_) => Vec::new(),
    };
    Mutex::new(RecordedStream::new(senders, options.reorder_wait, output))
}

fn spawn(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let failed = |source| Error::Host { call: "clone", object: format!("thread {name}"), source };
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)
}

/// Bounds the descriptors and the socket memory that are requested from the host.
const STREAMS_MAX: usize = 4096;
/// Complete files that may wait for their sync and their plan, besides two per stream.
const CLOSES_MAX: usize = 64;
