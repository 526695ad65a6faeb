// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording: its threads, started and stopped in order.
//!
//! Receiving threads (one path each, any number of streams), one that writes, one that waits for
//! disks, and one for control (RTSP and RTCP, on a small executor of its own). They meet in queues
//! and in a short lock a stream.
//!
//! Does not do: show anything; whoever holds a [`Recording`] asks for its [`Summary`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use paths::Port;
use serve::Plans;
use tokio::sync::watch;
use wire::rtp::Reception;

use crate::block::{Order as WriteOrder, Output, Pool, Rotation};
use crate::choice::{Choice, choose, wanted};
use crate::closer::Syncs;
use crate::error::Error;
use crate::figures::{Figures, Summary};
use crate::names::{self, Names};
use crate::receiver::{Clock, Held, Order, Streams, Thread, Told, lock};
use crate::reports::{self, Exchanged};
use crate::session::Asked;
use crate::source::Source;
use crate::stream::Stream;
use crate::writer::{Lane, Sync, Writer, Written};

/// What to record, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// URLs: see [`Source::parse`].
    pub urls: Vec<String>,
    /// The files' names: see the words in `--help`. Without, nothing is written.
    pub output: Option<String>,
    /// When a file is ended and another begun.
    pub rotation: Rotation,
    /// When bytes are made to be on the disk.
    pub sync: Sync,
    /// Where plans are kept for `pagewire serve`; its own default when none is given.
    pub cache: Option<PathBuf>,
    /// Memory for what the disk has not taken yet.
    pub queue_bytes: usize,
    /// How long a packet that is missing is waited for.
    pub reorder_wait: Duration,
    /// Ways of receiving, best first, or `auto`.
    pub path: String,
    /// Receiving threads.
    pub threads: usize,
    /// Whether receiver reports are sent.
    pub reports: bool,
}

impl Options {
    /// These streams, with what is usual for all else.
    pub fn new(urls: Vec<String>) -> Options {
        Options {
            urls,
            output: None,
            rotation: Rotation::default(),
            sync: Sync::default(),
            cache: None,
            queue_bytes: 256 << 20,
            reorder_wait: Duration::from_millis(100),
            path: "auto".to_owned(),
            threads: 1,
            reports: true,
        }
    }
}

/// A recording that runs. Dropped without [`stop`](Recording::stop), its threads are told to end
/// and not waited for.
pub struct Recording {
    rows: Vec<Row>,
    shared: Arc<[Shared]>,
    streams: Streams,
    clock: Clock,
    path: &'static str,
    refused: Vec<String>,
    told: Vec<Arc<Mutex<Told>>>,
    syncs: Arc<Syncs>,
    receivers: Vec<(Sender<Order>, JoinHandle<()>)>,
    control: Option<(watch::Sender<bool>, JoinHandle<()>)>,
    /// The one that writes, and the one behind it.
    disks: Vec<JoinHandle<()>>,
}

/// What a stream was asked for.
struct Row {
    url: String,
    source: Source,
}

/// What the threads know of a stream beside [`Stream`].
#[derive(Default)]
struct Shared {
    written: Arc<Written>,
    exchanged: Mutex<Exchanged>,
    sessions: AtomicU64,
    is_over: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl Recording {
    /// Begins to receive.
    ///
    /// # Errors
    /// Caller: an option that cannot be. Host: ports, memory or threads that are refused.
    pub fn start(options: &Options) -> Result<Recording, Error> {
        let rows = rows(options)?;
        let wanted = wanted(&options.path)?;
        if let Some(pattern) = &options.output {
            names::check(pattern, rows.len())?;
        }
        let threads = options.threads.clamp(1, rows.len());
        let choices = choose_all(&wanted, &rows, threads)?;
        let (writes, inbox) = channel();
        let pool = Arc::new(Pool::new(options.queue_bytes));
        let shared: Arc<[Shared]> = rows.iter().map(|_| Shared::default()).collect();
        let streams = rows.iter().enumerate();
        let streams = streams.map(|(key, row)| stream(key, row, options, &pool, &writes)).collect();
        drop(writes);
        let mut recording = Recording {
            clock: Clock::start(),
            path: choices[0].spec.name,
            refused: choices[0].refused.clone(),
            told: Vec::new(),
            syncs: Arc::default(),
            receivers: Vec::new(),
            control: None,
            disks: Vec::new(),
            rows,
            shared,
            streams,
        };
        recording.start_disks(options, pool, inbox)?;
        recording.start_receivers(choices)?;
        recording.start_control(options.reports)?;
        Ok(recording)
    }

    /// How it goes.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            path: self.path,
            refused: self.refused.clone(),
            seconds: self.clock.now().as_secs_f64(),
            syncs: self.syncs.done.load(Ordering::Relaxed),
            syncs_failed: self.syncs.failed.load(Ordering::Relaxed),
            ..Summary::default()
        };
        let mut dropped = vec![0; self.rows.len()];
        for told in &self.told {
            let told = lock(told);
            summary.packets += told.taken.packets;
            summary.bytes += told.taken.bytes;
            summary.calls += told.taken.calls;
            summary.waits += told.taken.waits;
            summary.copied_bytes += told.taken.copied_bytes;
            summary.truncated += told.taken.truncated;
            summary.malformed_frames += told.taken.malformed;
            summary.path_errors += told.errors;
            summary.last_path_error = told.last_error.clone().or(summary.last_path_error.take());
            for (sum, found) in dropped.iter_mut().zip(&told.dropped) {
                *sum += found;
            }
        }
        let rows = self.rows.iter().zip(self.shared.iter()).zip(self.streams.iter());
        summary.streams = rows
            .zip(dropped)
            .map(|(((row, shared), stream), dropped)| figures(row, shared, stream, dropped))
            .collect();
        summary
    }

    /// Whether nothing will come or be written any more: every stream has ended.
    pub fn is_over(&self) -> bool {
        self.shared.iter().all(|shared| {
            shared.is_over.load(Ordering::Relaxed)
                || shared.written.has_failed.load(Ordering::Relaxed)
        })
    }

    /// Takes what is still there, closes the files, and says how it went. Waits for the disk.
    pub fn stop(mut self) -> Summary {
        if let Some((stop, thread)) = self.control.take() {
            // It takes leave of servers and senders while their last packets are still taken.
            let _ = stop.send(true);
            let _ = thread.join();
        }
        for (orders, _) in &self.receivers {
            let _ = orders.send(Order::Stop);
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
        options: &Options,
        pool: Arc<Pool>,
        inbox: std::sync::mpsc::Receiver<WriteOrder>,
    ) -> Result<(), Error> {
        let (closer, closes) = channel();
        let lane = |(index, row): (usize, &Row)| {
            let pattern = options.output.as_deref()?;
            let names = Names::new(pattern, &row.source.label(), index);
            Some(Lane::new(names, self.shared[index].written.clone()))
        };
        let lanes = self.rows.iter().enumerate().map(lane).collect();
        let writer = Writer { lanes, pool, sync: options.sync, closer };
        let writing = spawn("write", move || writer.run(&inbox))?;
        let plans = options.output.is_some().then(|| Plans::open(options.cache.clone()));
        let syncs = self.syncs.clone();
        let closing = spawn("close", move || {
            crate::closer::run(&closes, plans.as_ref(), &syncs);
        })?;
        self.disks = vec![writing, closing];
        Ok(())
    }

    fn start_receivers(&mut self, choices: Vec<Choice>) -> Result<(), Error> {
        let threads = choices.len();
        for (number, choice) in choices.into_iter().enumerate() {
            let (orders, inbox) = channel();
            let told = Arc::new(Mutex::default());
            let held = self.rows.iter().enumerate().filter_map(|(key, row)| match &row.source {
                Source::Udp(port) if key % threads == number => {
                    Some(Held::new(key as u32, port.clone()))
                }
                _ => None,
            });
            let thread = Thread {
                path: choice.path,
                streams: self.streams.clone(),
                ports: held.collect(),
                inbox,
                told: told.clone(),
                clock: self.clock,
            };
            self.told.push(told);
            self.receivers.push((orders, spawn("receive", move || thread.run())?));
        }
        Ok(())
    }

    /// RTSP and RTCP, all on one thread.
    fn start_control(&mut self, reports: bool) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let host = |source| Error::Host { call: "epoll_create", object: "control".into(), source };
        let runtime = runtime.map_err(host)?;
        let (stop, stopped) = watch::channel(false);
        let ports = self.rows.iter().filter_map(|row| match &row.source {
            Source::Udp(port) => Some(port.address),
            Source::Rtsp(_) => None,
        });
        let ports: Arc<[SocketAddr]> = ports.collect();
        let tasks = self.rows.iter().enumerate().map(|(key, row)| Control {
            key,
            url: row.url.clone(),
            source: row.source.clone(),
            ports: ports.clone(),
            streams: self.streams.clone(),
            shared: self.shared.clone(),
            receiver: self.receivers[key % self.receivers.len()].0.clone(),
            clock: self.clock,
            reports,
            stopped: stopped.clone(),
        });
        let tasks: Vec<Control> = tasks.collect();
        let thread = spawn("control", move || {
            let local = tokio::task::LocalSet::new();
            let handles: Vec<_> =
                tasks.into_iter().map(|task| local.spawn_local(task.run())).collect();
            runtime.block_on(local.run_until(async {
                for handle in handles {
                    // One that has panicked has said so; the others go on.
                    let _ = handle.await;
                }
            }));
        })?;
        self.control = Some((stop, thread));
        Ok(())
    }
}

/// What is exchanged with the other side of one stream.
struct Control {
    key: usize,
    url: String,
    source: Source,
    /// Of all streams.
    ports: Arc<[SocketAddr]>,
    streams: Streams,
    shared: Arc<[Shared]>,
    receiver: Sender<Order>,
    clock: Clock,
    reports: bool,
    stopped: watch::Receiver<bool>,
}

impl Control {
    /// Until it is told to stop, or there is no more to say.
    async fn run(mut self) {
        let (stream, shared) = (&self.streams[self.key], &self.shared[self.key]);
        match &self.source {
            Source::Udp(port) if self.reports => {
                let next = port.address.port().wrapping_add(1);
                let is_free = self.ports.iter().all(|taken| taken.port() != next) && next != 0;
                tokio::select! {
                    () = reports::of_port(port, is_free, stream, &shared.exchanged) => {}
                    // An error means that the recording is gone.
                    _ = self.stopped.changed() => {}
                }
            }
            Source::Udp(_) => {}
            Source::Rtsp(_) => {
                let asked = Asked {
                    url: &self.url,
                    key: self.key as u32,
                    stream,
                    exchanged: &shared.exchanged,
                    receiver: self.receiver,
                    clock: self.clock,
                    sessions: &shared.sessions,
                    is_over: &shared.is_over,
                    trouble: &shared.trouble,
                };
                asked.run(self.stopped).await;
            }
        }
    }
}

fn rows(options: &Options) -> Result<Vec<Row>, Error> {
    let wrong =
        |found: String, cure: &str| Error::Option { option: "URL", found, cure: cure.to_owned() };
    let row = |url: &String| Ok(Row { url: url.clone(), source: Source::parse(url)? });
    let rows = options.urls.iter().map(row).collect::<Result<Vec<_>, Error>>()?;
    if rows.is_empty() || rows.len() > STREAMS_MAX {
        return Err(wrong(format!("{} of them", rows.len()), "write 1 to 4096"));
    }
    for (index, row) in rows.iter().enumerate() {
        // An RTSP server may well be asked twice for the same.
        let is_same =
            |other: &Row| matches!(row.source, Source::Udp(_)) && other.source == row.source;
        if rows[..index].iter().any(is_same) {
            return Err(wrong(row.url.clone(), "it is there twice; write it once"));
        }
    }
    Ok(rows)
}

/// One path a receiving thread, with its share of the ports.
fn choose_all(
    wanted: &[&'static paths::ReceiveSpec],
    rows: &[Row],
    threads: usize,
) -> Result<Vec<Choice>, Error> {
    let of = |number: usize| {
        let ports = rows.iter().enumerate().filter_map(move |(key, row)| match &row.source {
            Source::Udp(port) if key % threads == number => Some((key as u32, port)),
            _ => None,
        });
        ports.collect::<Vec<(u32, &Port)>>()
    };
    (0..threads).map(|number| choose(wanted, &of(number))).collect()
}

fn stream(
    key: usize,
    row: &Row,
    options: &Options,
    pool: &Arc<Pool>,
    writes: &Sender<WriteOrder>,
) -> Mutex<Stream> {
    let output = options.output.as_ref();
    let output = output.map(|_| Output::new(key, pool.clone(), writes.clone(), options.rotation));
    let senders = match &row.source {
        Source::Udp(port) => port.sources.clone(),
        Source::Rtsp(_) => Vec::new(),
    };
    Mutex::new(Stream::new(senders, options.reorder_wait, output))
}

fn figures(row: &Row, shared: &Shared, stream: &Mutex<Stream>, dropped: u64) -> Figures {
    let mut stream = lock(stream);
    let clock_jitter = stream.monitor.take_jitter_ticks();
    let (counts, seen) = (stream.counts, *stream.monitor.counts());
    let source = stream.sources.followed().or(stream.sources.valid().last());
    let reception = source.map(|source| &source.reception);
    let count = |of: fn(&Reception) -> u64| reception.map_or(0, of);
    let (written, exchanged) = (&shared.written, *lock(&shared.exchanged));
    let failure = lock(&written.failure).clone();
    let is_over = shared.is_over.load(Ordering::Relaxed);
    Figures {
        url: row.url.clone(),
        form: match (stream.is_bare(), source) {
            (true, _) => "ts",
            (false, Some(_)) => "rtp",
            (false, None) => "",
        },
        sender: stream.heard.map(|(_, sender)| sender.to_string()),
        ssrc: source.map(|source| format!("{:08x}", source.ssrc)),
        packets: counts.packets,
        payload_bytes: counts.payload_bytes,
        lost: count(Reception::lost),
        missing: stream.missing(),
        reordered: count(Reception::reordered),
        duplicates: count(Reception::duplicates),
        late: counts.late,
        restarts: count(Reception::restarts),
        jitter_ms: reception.map_or(0.0, |r| r.jitter_time().as_secs_f64() * 1e3),
        sources: stream.sources.valid().count() as u64,
        sources_followed: stream.sources.chosen(),
        sources_forgotten: stream.sources.forgotten(),
        foreign: counts.foreign,
        malformed: counts.malformed,
        misshapen: counts.misshapen,
        ts_packets: seen.packets,
        continuity_errors: seen.continuity_errors,
        sync_byte_errors: seen.sync_byte_errors,
        sync_losses: seen.sync_losses,
        transport_errors: seen.transport_errors,
        clock_discontinuities: seen.clock_discontinuities,
        clock_jitter_ms: ticks_ms(clock_jitter),
        clock_jitter_ms_max: ticks_ms(seen.jitter_ticks_max),
        outages: counts.outages,
        outage_s: counts.outage.as_secs_f64(),
        dropped_by_kernel: dropped,
        dropped_by_disk: stream.dropped_packets() + written.dropped_packets.load(Ordering::Relaxed),
        written_bytes: written.bytes.load(Ordering::Relaxed),
        files: written.files.load(Ordering::Relaxed),
        file: lock(&written.path).clone(),
        sender_reports: exchanged.sender_reports,
        reports_sent: exchanged.sent,
        said_bye: exchanged.byes > 0,
        sessions: shared.sessions.load(Ordering::Relaxed),
        has_failed: failure.is_some(),
        ended: failure.or_else(|| is_over.then(|| "complete".to_owned())),
        trouble: lock(&shared.trouble).clone(),
    }
}

fn ticks_ms(ticks: u64) -> f64 {
    ticks as f64 * 1e3 / media::TICKS_PER_SECOND as f64
}

fn spawn(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let failed = |source| Error::Host { call: "clone", object: format!("thread {name}"), source };
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)
}

/// Descriptors and memory for sockets are the host's to grant; this bounds what is asked for.
const STREAMS_MAX: usize = 4096;
