// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs many HLS viewers in one process, and measures how many would not have stalled, and the
//! server's CPU cost.
//!
//! Each viewer is complete: a connection of its own (two where the audio has a separate playlist),
//! every playlist, every segment, the buffer model. Thousands are cheap: a viewer is a task on the
//! caller's runtime, identical playlists are parsed once, and segments are discarded in the kernel
//! except for every n-th viewer, which checks them.
//!
//! Starts are spread over the ramp; the measured time begins when all viewers have started or
//! failed. A viewer that has played to the end is done, and does not start again.
//!
//! Sources: RFC 8216; tcp(7) (MSG_TRUNC).
//! Does not seek, and does not model players that leave.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ViewerSettings;
use super::connection::{FetchTimeouts, HttpConnections, Route};
use super::load_outcome::{HlsLoadOutcome, LoadFigures, ViewerEnd};
use super::playlist::FetchedPlaylist;
use super::verdict::HlsEnd;
use super::viewer::{PlaylistCache, Viewer, WatchPlan};
use crate::connect::connect_from;
use crate::error::{ClientSetting, Error};
use crate::http_url::UrlParts;
use crate::load::descriptors::raise_limit;
use crate::load::process_meter::{ProcessMeter, ProcessUsage};
use crate::load::stages::{LoadStages, StageCounts};
use crate::load::{LoadEvent, LoadStage, resolve};
use crate::stop::Stop;
use crate::transport::StreamTransport;
use crate::wrong_url;

/// Presentation to play, number of viewers, and settings of the measurement.
#[non_exhaustive]
pub struct HlsLoad {
    /// `http://HOST:PORT/PATH` of a master or media playlist.
    pub url: String,
    /// Number of viewers.
    pub viewers: u32,
    /// Settings of each viewer.
    pub settings: ViewerSettings,
    /// Length of the measured time.
    pub length: Duration,
    /// Time over which the starts are spread; by default two milliseconds a viewer and at least a
    /// second.
    pub ramp: Option<Duration>,
    /// Segments of every n-th viewer are checked, none for 0; by default, those of about 40
    /// viewers.
    pub sample: Option<u32>,
    /// A local address to connect from.
    pub source: Option<IpAddr>,
    /// Ends the load when it is ready, such as on Ctrl-C.
    pub stop: Option<Stop>,
    pub(super) timeouts: FetchTimeouts,
}

impl HlsLoad {
    /// A load of the presentation at `url`, for ten seconds.
    pub fn new(url: impl Into<String>, viewers: u32) -> HlsLoad {
        HlsLoad {
            url: url.into(),
            viewers,
            settings: ViewerSettings::default(),
            length: Duration::from_secs(10),
            ramp: None,
            sample: None,
            source: None,
            stop: None,
            timeouts: FetchTimeouts::default(),
        }
    }

    pub(super) fn ramp(&self) -> Duration {
        self.ramp.unwrap_or_else(|| (RAMP_EACH * self.viewers).max(RAMP_MIN))
    }

    fn sample(&self) -> u32 {
        self.sample.unwrap_or_else(|| (self.viewers / VERIFIED_USUAL).max(1))
    }

    fn is_verified(&self, index: u32) -> bool {
        self.sample() > 0 && index.is_multiple_of(self.sample())
    }
}

/// Counts while viewers run.
#[derive(Default)]
struct ViewerCounts {
    failed: AtomicU32,
    ended: AtomicU32,
    left: AtomicU32,
}

impl ViewerCounts {
    fn now(&self, plan: &WatchPlan) -> StageCounts {
        let get = |count: &AtomicU32| count.load(Ordering::Relaxed);
        let [played, failed] = [&plan.started, &self.failed].map(get);
        let [ended, left] = [&self.ended, &self.left].map(get);
        StageCounts { played, failed, ended, left }
    }
}

/// Plays an HLS presentation many times at once. `report` is called four times a second and at
/// each change of stage.
///
/// # Errors
/// No viewer can begin: a wrong setting, too few descriptors, a server that does not answer or does
/// not have the playlist. The outcome reports faults of single viewers.
pub async fn load_hls(
    mut options: HlsLoad,
    mut report: impl FnMut(&LoadEvent),
) -> Result<HlsLoadOutcome, Error> {
    check(&options)?;
    let address = UrlParts::parse(&options.url).ok_or_else(|| wrong_url(&options.url))?;
    let mut stop = options.stop.take().unwrap_or_else(|| Box::pin(std::future::pending()));
    let server = resolve(&address.host, address.port, options.source).await?;
    let resolved = Some(Arc::new((address.host.clone(), address.port, server)));
    let plan = Arc::new(WatchPlan {
        address,
        settings: options.settings,
        start: None,
        length: None,
        is_fast: false,
        route: Route { source: options.source, resolved },
        timeouts: options.timeouts,
        playlists: PlaylistCache::default(),
        bytes: AtomicU64::new(0),
        started: AtomicU32::new(0),
    });
    let has_audio = tokio::select! {
        looked = look(&plan) => looked?,
        () = &mut stop => return Err(Error::Peer {
            peer: "load".to_owned(),
            found: "stopped before the first viewer".to_owned(),
        }),
    };
    // A viewer has as many descriptors as an RTSP session over TCP, or in a tunnel.
    let kind = if has_audio { StreamTransport::Http } else { StreamTransport::Tcp };
    raise_limit(&[(options.viewers, kind)], 1)?;
    let is_local = is_local(&options, server).await;
    let verified = (0..options.viewers).filter(|index| options.is_verified(*index)).count() as u32;
    let ramp_seconds = options.ramp().as_secs_f64();
    report(&LoadEvent::Starting { sessions: options.viewers, verified, ramp_seconds });
    let counts = Arc::<ViewerCounts>::default();
    let (started, counted) = (plan.clone(), counts.clone());
    let stages = LoadStages::new(stop, &mut report, move || counted.now(&started));
    let timers = Arc::new(Mutex::new(delays()));
    let mut run = HlsLoadRun { options: &options, counts, plan, timers, stages };
    let (end, ending) = watch::channel(false);
    let mut tasks = run.start(&ending);
    let (figures, usage) = run.measure(server, is_local).await;
    end.send_replace(true);
    let ends = run.stages.leave(&mut tasks).await;
    let timers = run.timers.lock().unwrap_or_else(PoisonError::into_inner);
    let figures = LoadFigures { is_interrupted: run.stages.is_stopped, ..figures };
    Ok(HlsLoadOutcome::new(&options, &ends, &figures, &usage, &timers))
}

/// Fetches the playlist once for all viewers: returns true where the audio has a separate playlist.
async fn look(plan: &WatchPlan) -> Result<bool, Error> {
    let viewer = Viewer::new(plan, false, None);
    let mut connections =
        HttpConnections::new(plan.route.clone(), plan.timeouts.read, viewer.counts.clone());
    let read = viewer.playlist(&mut connections, &plan.address).await;
    match read.map_err(|fault| viewer.refused(&plan.address, &fault))? {
        (FetchedPlaylist::Media(_), _) => Ok(false),
        (FetchedPlaylist::Master(master), _) => {
            Ok(master.variants.iter().any(|variant| master.audio_of(variant).is_some()))
        }
    }
}

async fn is_local(options: &HlsLoad, server: SocketAddr) -> bool {
    let local = connect_from(options.source, server).await.and_then(|stream| {
        stream.local_addr().map_err(|source| Error::Host {
            call: "getsockname",
            object: server.to_string(),
            source,
        })
    });
    server.ip().is_loopback() || local.is_ok_and(|local| local.ip() == server.ip())
}

/// A running load.
struct HlsLoadRun<'a, T, C> {
    options: &'a HlsLoad,
    counts: Arc<ViewerCounts>,
    plan: Arc<WatchPlan>,
    timers: Arc<Mutex<Histogram<u64>>>,
    stages: LoadStages<'a, T, C>,
}

impl<T: FnMut(&LoadEvent), C: Fn() -> StageCounts> HlsLoadRun<'_, T, C> {
    /// Starts a task for each viewer, which waits for its start time.
    fn start(&self, ending: &watch::Receiver<bool>) -> JoinSet<ViewerEnd> {
        let began = Instant::now();
        let (viewers, ramp) = (self.options.viewers, self.options.ramp());
        let mut tasks = JoinSet::new();
        for index in 0..viewers {
            let turn = began + ramp.mul_f64(f64::from(index) / f64::from(viewers));
            let (plan, counts) = (self.plan.clone(), self.counts.clone());
            let is_verified = self.options.is_verified(index);
            tasks.spawn(view(plan, counts, ending.clone(), turn, is_verified));
        }
        tasks
    }

    /// Runs from the first start to the end of the measured time.
    async fn measure(&mut self, server: SocketAddr, is_local: bool) -> (LoadFigures, ProcessUsage) {
        let (viewers, ramp) = (self.options.viewers, self.options.ramp());
        let all_asked = |counts: StageCounts| counts.played + counts.failed >= viewers;
        let most = ramp + START_WAIT;
        self.stages.wait(LoadStage::Starting, ramp, most, all_asked).await;
        if self.stages.is_stopped || self.stages.counts().played == 0 {
            return (LoadFigures::default(), ProcessUsage::nothing(is_local));
        }
        let nobody_plays = |counts: StageCounts| counts.ended >= viewers;
        self.stages.wait(LoadStage::Settling, SETTLE, SETTLE, nobody_plays).await;
        let StageCounts { played, failed, .. } = self.stages.counts();
        let meter = ProcessMeter::begin(server, is_local);
        let (began, before) = (Instant::now(), self.plan.bytes.load(Ordering::Relaxed));
        let timers = tokio::spawn(watch_timers(self.timers.clone()));
        self.stages.emit(&LoadEvent::Playing { played, failed });
        let length = self.options.length;
        self.stages.wait(LoadStage::Measuring, length, length, nobody_plays).await;
        let usage = meter.end(began.elapsed());
        timers.abort();
        let bytes = self.plan.bytes.load(Ordering::Relaxed) - before;
        let playing = viewers.saturating_sub(self.stages.counts().ended);
        self.stages.emit(&LoadEvent::Measured { seconds: usage.seconds(), playing });
        (LoadFigures { bytes, ..LoadFigures::default() }, usage)
    }
}

/// Runs one viewer until it or the load ends.
async fn view(
    plan: Arc<WatchPlan>,
    counts: Arc<ViewerCounts>,
    mut ending: watch::Receiver<bool>,
    turn: Instant,
    is_verified: bool,
) -> ViewerEnd {
    tokio::select! {
        () = tokio::time::sleep_until(turn.into()) => {}
        _ = ending.wait_for(|is_ending| *is_ending) => return ViewerEnd::default(),
    }
    let viewer = Viewer::new(&plan, is_verified, None);
    let watched = tokio::select! {
        watched = viewer.watch() => Some(watched),
        // The sender exists until all have ended.
        _ = ending.wait_for(|is_ending| *is_ending) => None,
    };
    let reason = match watched {
        None => {
            counts.left.fetch_add(1, Ordering::Relaxed);
            None
        }
        Some(watched) => {
            counts.ended.fetch_add(1, Ordering::Relaxed);
            match watched {
                Ok(HlsEnd::Complete) => None,
                Ok(end) => Some(end.to_string()),
                Err(error) => Some(error.to_string()),
            }
        }
    };
    let end = ViewerEnd::new(&viewer, is_verified, reason);
    if end.start.is_none() && end.reason.is_some() {
        counts.failed.fetch_add(1, Ordering::Relaxed);
    }
    end
}

/// Measures the lateness of timers of this runtime.
async fn watch_timers(delays: Arc<Mutex<Histogram<u64>>>) {
    loop {
        let due = Instant::now() + TIMER_EVERY;
        tokio::time::sleep_until(due.into()).await;
        let late = Instant::now().saturating_duration_since(due);
        let mut delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
        delays.saturating_record((late.as_micros() as u64).max(1));
    }
}

fn delays() -> Histogram<u64> {
    Histogram::new_with_bounds(1, DELAY_US_MAX, 2).expect("bounds are constants")
}

fn check(options: &HlsLoad) -> Result<(), Error> {
    let wrong = |setting, found: String, cure: &str| {
        Err(Error::Setting { setting, found, cure: cure.to_owned() })
    };
    if options.viewers == 0 || options.viewers > VIEWERS_MAX {
        let cure = format!("write 1 to {VIEWERS_MAX}; an address has no more ports");
        return wrong(ClientSetting::Sessions, options.viewers.to_string(), &cure);
    }
    for (setting, time) in
        [(ClientSetting::Seconds, options.length), (ClientSetting::Ramp, options.ramp())]
    {
        if time > TIME_MAX {
            return wrong(setting, time.as_secs().to_string(), "write a day (86400) or less");
        }
    }
    if options.length < LENGTH_MIN {
        let found = format!("{} s", options.length.as_secs_f64());
        return wrong(ClientSetting::Seconds, found, "write 0.1 or more");
    }
    Ok(())
}

const VIEWERS_MAX: u32 = 60_000;
const TIME_MAX: Duration = Duration::from_secs(86_400);
const LENGTH_MIN: Duration = Duration::from_millis(100);
const RAMP_EACH: Duration = Duration::from_millis(2);
const RAMP_MIN: Duration = Duration::from_secs(1);
const VERIFIED_USUAL: u32 = 40;
/// A viewer that has not started by then counts as waiting.
const START_WAIT: Duration = Duration::from_secs(10);

/// Time for the last viewers to fill their buffers: the initial prefetch is not part of a steady
/// load.
const SETTLE: Duration = Duration::from_secs(2);
const TIMER_EVERY: Duration = Duration::from_millis(10);
const DELAY_US_MAX: u64 = 60_000_000;
