// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts and stops the threads of a recording in order.
//!
//! There are receiving threads (one path each, any number of streams), one writer, one closer that
//! waits for disks, one keeper of the files of cameras, and one thread for control (RTSP and RTCP,
//! on its own small executor). They share queues and one briefly held lock per stream.
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
use clock::Clock;
use media::PlanStore;
use media::mux::WriterKind;
use paths::{Relay, RelayTarget};
use tokio::sync::watch;

use crate::closer::{CompleteFile, SyncCounts};
use crate::error::Error;
use crate::fragment_output::FragmentOutput;
use crate::frame_input::FrameInput;
use crate::keeper::{Keeper, KeeperStats, KeptCamera};
use crate::path_choice::{ReceiveCost, wanted};
use crate::receive_backend::ReceiveBackend;
use crate::receiver_reports::RtcpStats;
use crate::receiving_thread::{
    BoundPort, Pacing, PortCommand, ReceiverStats, ReceivingThread, Streams, lock,
};
use crate::recorded_input::RecordedInput;
use crate::recorded_stream::{RecordOutput, RecordedStream};
use crate::recording_session::TitleProgress;
use crate::relay::{self, RelaySocket, RelayThread};
use crate::stream_control::StreamControl;
use crate::stream_figures::{StreamFigures, Summary};
use crate::stream_options::StreamOptions;
use crate::stream_source::StreamSource;
use crate::write_queue::{BlockPool, StreamOutput, WriteCommand};
use crate::writer::{StreamFiles, SyncPolicy, WriteStats, Writer};

/// Streams to record, and settings of all of them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordOptions {
    /// The streams.
    pub streams: Vec<StreamOptions>,
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
}

impl RecordOptions {
    /// A recording of these streams with default settings.
    pub fn new(streams: Vec<StreamOptions>) -> RecordOptions {
        RecordOptions {
            streams,
            sync: SyncPolicy::default(),
            cache: None,
            queue_bytes: 256 << 20,
            reorder_wait: Duration::from_millis(100),
            path: "auto".to_owned(),
            costs: Vec::new(),
            relay: Vec::new(),
            threads: 1,
            reports: true,
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
    /// The writing thread, the closer, and the keeper of the files of cameras, in the order in
    /// which they end.
    disks: Vec<JoinHandle<()>>,
}

/// State of a stream that the threads share, besides [`RecordedStream`].
#[derive(Default)]
pub(crate) struct StreamState {
    pub(crate) written: Arc<WriteStats>,
    pub(crate) kept: Arc<KeeperStats>,
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
        let rows = RecordedInput::all(options)?;
        if let Err(error) = paths::raise_descriptor_limit() {
            tracing::warn!("setrlimit RLIMIT_NOFILE: {error}; recording fewer streams");
        }
        let wanted = wanted(&options.path, &options.costs)?;
        let writes_files = rows.iter().any(|row| row.kind().is_some());
        let targets = relay::targets(&options.relay, rows.len())?;
        let how = (writes_files, options.threads);
        let backend = ReceiveBackend::open(&wanted, &rows, &targets, how)?;
        let (writes, inbox) = channel();
        let pool = Arc::new(BlockPool::new(options.queue_bytes));
        let shared: Arc<[StreamState]> = rows.iter().map(|_| StreamState::default()).collect();
        let streams = rows.iter().enumerate();
        let wait = options.reorder_wait;
        let streams = streams
            .map(|(key, row)| stream(key, row, wait, &pool, &writes, &Clock::HOST))
            .collect();
        drop(writes);
        let mut recording = Recording {
            clock: ArrivalClock::start(&Clock::HOST),
            path: backend.name(),
            refused: backend.refused(),
            stats: Vec::new(),
            syncs: Arc::default(),
            writes_files,
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
        let now = self.clock.now();
        let mut summary = Summary {
            path: self.path.clone(),
            refused: self.refused.clone(),
            seconds: now.as_secs_f64(),
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
                let mut figures = StreamFigures::of(row, shared, stream, now);
                figures.dropped_by_kernel += dropped_by_kernel;
                figures.dropped_by_relay = dropped_by_relay;
                figures
            })
            .collect();
        summary
    }

    /// Returns true once every stream has ended.
    pub fn is_over(&self) -> bool {
        self.rows.iter().zip(self.shared.iter()).all(|(row, shared)| {
            let has_failed = shared.written.has_failed.load(Ordering::Relaxed);
            shared.is_over.load(Ordering::Relaxed) || has_failed && row.camera().is_none()
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
            let (names, kind) = row.file_names(index).zip(row.kind())?;
            let files = StreamFiles::new(names, kind, self.shared[index].written.clone());
            Some(if row.camera().is_some() { files.resuming() } else { files })
        };
        let lanes = self.rows.iter().enumerate().map(lane).collect();
        let writer = Writer { lanes, pool, sync: options.sync, closer, clock: Clock::HOST };
        let writing = spawn("write", move || writer.run(&inbox))?;
        let plans = self.writes_files.then(|| Arc::new(PlanStore::open(options.cache.clone())));
        if let Some(unavailable) = plans.as_ref().and_then(|plans| plans.unavailable()) {
            tracing::warn!("{unavailable}; name a cache folder that can be written to");
        }
        self.disks.push(writing);
        let complete = self.start_keeper(plans.as_ref())?;
        let syncs = self.syncs.clone();
        let closing = spawn("close", move || {
            crate::closer::run(&closes, plans.as_deref(), &syncs, complete.as_ref());
        })?;
        // The keeper ends when the closer has.
        self.disks.insert(1, closing);
        Ok(())
    }

    /// Starts the thread that keeps the files of cameras, if there are any; returns the sender of
    /// complete files.
    fn start_keeper(
        &mut self,
        plans: Option<&Arc<PlanStore>>,
    ) -> Result<Option<Sender<CompleteFile>>, Error> {
        let kept = self.rows.iter().zip(self.shared.iter()).enumerate();
        let kept = kept.filter_map(|(stream, (row, shared))| {
            let files = row.camera()?.clone();
            let request = row.options.rotation.request.clone()?;
            let (written, stats) = (shared.written.clone(), shared.kept.clone());
            let length = row.options.rotation.time;
            Some(KeptCamera { stream, files, request, length, written, stats })
        });
        let kept: Vec<KeptCamera> = kept.collect();
        let Some(plans) = plans.filter(|_| !kept.is_empty()) else { return Ok(None) };
        let keeper = Keeper::new(kept, plans.clone())?;
        let (complete, inbox) = channel();
        self.disks.push(spawn("keep", move || keeper.run(&inbox))?);
        Ok(Some(complete))
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
            let held =
                held.filter_map(|(key, row)| Some(BoundPort::new(key as u32, row.port()?.clone())));
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
                clock: self.clock.clone(),
                pace: Pacing::default(),
                check_at: Duration::ZERO,
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
        let (stats, clock) = (stats.clone(), self.clock.clone());
        let thread = RelayThread { relay, streams, ports, inbox, stats: stats.clone(), clock };
        self.stats.push(stats);
        self.receivers.push((orders, spawn("relay", move || thread.run())?));
        Ok(())
    }

    /// Starts RTSP and RTCP, all on one thread.
    fn start_control(&mut self, options: &RecordOptions) -> Result<(), Error> {
        let reports = options.reports;
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
            url: row.options.url.clone(),
            shown: row.shown(),
            login: row.options.login.clone(),
            source: row.source.clone(),
            ports: ports.clone(),
            streams: self.streams.clone(),
            shared: self.shared.clone(),
            receiver: self.receivers[key % self.receivers.len()].0.clone(),
            clock: self.clock.clone(),
            reports,
            is_live: row.options.live,
            is_endless: row.camera().is_some(),
            transport: row.options.transport,
            container: row.container(),
            media: row.options.media,
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

fn stream(
    key: usize,
    row: &RecordedInput,
    reorder_wait: Duration,
    pool: &Arc<BlockPool>,
    writes: &Sender<WriteCommand>,
    clock: &Clock,
) -> Mutex<RecordedStream> {
    let (pool, writes, clock) = (pool.clone(), writes.clone(), clock.clone());
    let output = row.kind().map(|kind| match kind {
        WriterKind::FragmentedMp4 => {
            RecordOutput::Fragments(FragmentOutput::new(key, pool, writes, clock))
        }
        _ => {
            let rotation = row.options.rotation.clone();
            RecordOutput::Packets(Box::new(StreamOutput::new(key, pool, writes, rotation, clock)))
        }
    });
    let senders = match &row.source {
        StreamSource::Udp(port) => port.sources.clone(),
        StreamSource::Rtsp(_) | StreamSource::Sdp(_) => Vec::new(),
    };
    Mutex::new(RecordedStream::new(senders, reorder_wait, output))
}

fn spawn(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let failed = |source| Error::Host { call: "clone", object: format!("thread {name}"), source };
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)
}

/// Complete files that may wait for their sync and their plan, besides two per stream.
const CLOSES_MAX: usize = 64;
