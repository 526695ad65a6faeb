// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs many RTSP sessions in one process, and finds how many stay timely, and the bottleneck.
//!
//! Each session is complete: SETUP of all streams (the transport stream, or each track of a file)
//! with a pair of UDP ports each, PLAY, receiver reports, keep-alives, TEARDOWN. Thousands of them
//! are cheap because only every n-th is verified. The sockets of the others drop every packet in
//! the kernel (`drop_filter`), which counts them, and at the end the sender reports its own count
//! (RTCP, BYE), so loss is known for every session. One thread (`sample_reader`) reads the verified
//! ones into statistics (`sampled_stats`), with the kernel's time of each packet; frames of tracks
//! are assembled (`sampled_track`). Sessions are tasks (`load_session`) on the caller's tokio
//! runtime, and each has its streams (`session_streams`).
//!
//! Where RTP shares the RTSP connections, one task for each session reads its connection, and skips
//! the packets of sessions that are not verified (`frame_sinks`).
//!
//! With a [`Scenario`] groups of sessions behave differently: `scenario_session` is one session of
//! a group, `group_book` holds a group's figures, `group_outcome` is its report.
//!
//! A load has four stages: starting, spread over the ramp; settling; measuring; and leaving.
//!
//! Costs at 2,500 sessions of 5 Mb/s, 41 of them verified: about 5 % of a core besides the kernel's
//! own work of delivery, three descriptors and about 9 KiB a session.
//!
//! Sources: RFC 2326, RFC 3550, RFC 2250.
//! Does not follow redirections, authenticate, or restart an ended session, except where a scenario
//! requires it.

mod bottleneck;
pub(super) mod descriptors;
mod drop_filter;
mod frame_sinks;
mod group_book;
mod group_outcome;
mod load_session;
#[cfg(test)]
mod load_trials;
mod measure;
mod outcome;
pub(super) mod process_meter;
mod sample_reader;
mod sampled_stats;
mod sampled_track;
mod scenario;
mod scenario_session;
#[cfg(test)]
mod scenario_trials;
mod server_process;
mod session_rtcp;
mod session_streams;
mod session_sums;
pub(crate) mod stages;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use self::load_session::{
    Attention, LEAVING_MAX, LoadState, SETTING_UP_MAX, SessionCounts, SessionEnd, SessionManner,
    connect_control, session,
};
use self::measure::{MeasuredLoad, Measurement};
use self::sample_reader::SampleReader;
use self::sampled_stats::{ExpectedStream, Window};
use self::scenario_session::{RunningScenario, scenario_session};
use self::session_streams::LoadStreams;
use self::stages::{LoadStages, StageCounts};
use super::chosen_stream::{ChosenStream, choose_streams};
use super::lateness::LATE;
use super::login::ClientLogin;
use super::rtsp_client;
use super::stop::Stop;
use super::transport::{StreamTransport, TransportChoice, check_transport};
use crate::error::{ClientSetting, Error};

pub use bottleneck::Bottleneck;
pub use group_outcome::{CountedVisits, FirstPacketMs, GroupOutcome};
pub use outcome::{
    CountedSessions, EndReason, LoadClient, LoadOutcome, VerifiedSessions, VerifiedTrack,
};
pub use scenario::{
    Behaviour, GroupDraft, GroupIdentity, InvalidScenario, Scenario, ScenarioDraft, ScenarioGroup,
    ScenarioKey, TimeRange,
};
pub use stages::{LoadEvent, LoadProgress, LoadStage};

/// Asset to play, number of sessions, and settings of the measurement.
#[non_exhaustive]
pub struct Load {
    /// `rtsp://HOST:PORT/PATH` or `rtsps:`, without user and password.
    pub url: String,
    /// Answers to a server that asks for a password, which each session gives.
    pub login: ClientLogin,
    /// Number of sessions.
    pub sessions: u32,
    /// Transport requested of the server: UDP, TCP or HTTP; by default UDP, with TLS TCP.
    pub transport: StreamTransport,
    /// Length of the measured time, during which all sessions play.
    pub length: Duration,
    /// Time over which the starts are spread; by default two milliseconds a session and at least a
    /// second.
    pub ramp: Option<Duration>,
    /// Every n-th session is verified, none for 0; by default about 40 in all. With none, the
    /// packets may be discarded on their way: their absence is reported, but is not a loss.
    pub sample: Option<u32>,
    /// Allowed lateness of a packet against the earliest of its stream, each relative to its due
    /// time; by default 25 ms, and [`PICTURE_SPREAD`] more for video tracks.
    pub within: Option<Duration>,
    /// A local address to connect from and to receive at.
    pub source: Option<IpAddr>,
    /// The asset: payloads of verified sessions are compared with it. Only for transport streams of
    /// 188-byte packets; an error for an asset of tracks.
    pub file: Option<PathBuf>,
    /// Groups of sessions that behave differently; by default, all play from the beginning to the
    /// end. With a scenario `sample` applies to each group.
    pub scenario: Option<Scenario>,
    /// Ends the load when it is ready, such as on Ctrl-C.
    pub stop: Option<Stop>,
}

impl Load {
    /// A load of the asset at `url`, for ten seconds.
    pub fn new(url: impl Into<String>, sessions: u32) -> Load {
        let url = url.into();
        let transport = TransportChoice::Auto.first(&url);
        Load {
            url,
            login: ClientLogin::default(),
            sessions,
            transport,
            length: Duration::from_secs(10),
            ramp: None,
            sample: None,
            within: None,
            source: None,
            file: None,
            scenario: None,
            stop: None,
        }
    }

    /// Returns the allowed lateness; before the description is known, that of a transport stream.
    fn within(&self) -> Duration {
        self.within.unwrap_or(LATE)
    }

    fn ramp(&self) -> Duration {
        self.ramp.unwrap_or_else(|| (RAMP_EACH * self.sessions).max(RAMP_MIN))
    }

    fn sample(&self) -> u32 {
        self.sample_of(self.sessions)
    }

    /// Interval of verified sessions among this number of sessions.
    fn sample_of(&self, sessions: u32) -> u32 {
        self.sample.unwrap_or_else(|| (sessions / VERIFIED_USUAL).max(1))
    }
}

/// Plays a stream many times at once. `report` is called four times a second and at each change of
/// stage.
///
/// # Errors
/// No session can begin: a wrong setting, too few descriptors, a server that does not answer or
/// does not have the asset. The outcome reports faults of single sessions. Dropping the future ends
/// the load at once, without TEARDOWN.
pub async fn load(
    mut options: Load,
    mut report: impl FnMut(&LoadEvent),
) -> Result<LoadOutcome, Error> {
    check(&options)?;
    check_transport(&options.url, options.transport)?;
    let scenario = options.scenario.as_ref();
    let scenario = scenario.map(|scenario| RunningScenario::new(scenario, &options)).transpose()?;
    let file = options.file.as_deref().map(load_session::file).transpose()?;
    let mut stop = options.stop.take().unwrap_or_else(|| Box::pin(std::future::pending()));
    let described = tokio::select! {
        described = describe(&options) => described?,
        () = &mut stop => return Err(Error::Peer {
            peer: "load".to_owned(),
            found: "stopped before the first session".to_owned(),
        }),
    };
    let one_kind = || vec![(options.sessions, options.transport)];
    let loads = scenario.as_ref().map_or_else(one_kind, RunningScenario::loads);
    if described.streams.iter().any(ChosenStream::has_pictures) {
        options.within.get_or_insert(LATE + PICTURE_SPREAD);
    }
    let streams = load_streams(&options, described.streams, file)?;
    descriptors::raise_limit(&loads, streams.urls.len())?;
    let window = Arc::new(Window::default());
    let reader = SampleReader::start(window.clone())?;
    let (end, ending) = watch::channel(None);
    let sample = options.sample();
    let shared = Arc::new(LoadState {
        client: described.client,
        server: described.server,
        source: options.source,
        url: options.url.clone(),
        login: options.login.clone(),
        window: window.clone(),
        streams,
        reader: reader.inbox.clone(),
        ending,
        setting_up: Semaphore::new(SETTING_UP_MAX),
        leaving: Semaphore::new(LEAVING_MAX),
        counts: SessionCounts::default(),
        counting: Mutex::default(),
    });
    let scenario = scenario.map(|scenario| Arc::new(scenario.of_asset(described.duration)));
    let of_all = || if sample == 0 { 0 } else { options.sessions.div_ceil(sample) };
    let verified = scenario.as_ref().map_or_else(of_all, |scenario| scenario.verified());
    let ramp_seconds = options.ramp().as_secs_f64();
    report(&LoadEvent::Starting { sessions: options.sessions, verified, ramp_seconds });
    let is_local = described.local == shared.server.ip() || shared.server.ip().is_loopback();
    let counting = shared.clone();
    let stages = LoadStages::new(stop, &mut report, move || counting.counts.now());
    let mut run = LoadRun { options: &options, shared, window, is_local, stages };
    let mut tasks = run.start(scenario.as_ref());
    let measured = run.measure().await;
    end.send_replace(Some(Instant::now() + LEAVING_WAIT));
    let ends = run.stages.leave(&mut tasks).await;
    let is_stopped = run.stages.is_stopped;
    let timers = tokio::task::spawn_blocking(move || reader.stop()).await;
    let timers = timers.unwrap_or_else(|_| sample_reader::delays());
    // All sessions have ended, so this is the last reference.
    let groups = scenario.and_then(Arc::into_inner).map(RunningScenario::books);
    Ok(measured.outcome(&options, &ends, groups, &timers, is_stopped))
}

/// A running load.
struct LoadRun<'a, T, C> {
    options: &'a Load,
    shared: Arc<LoadState>,
    window: Arc<Window>,
    /// The server's address is this machine's.
    is_local: bool,
    stages: LoadStages<'a, T, C>,
}

impl<T: FnMut(&LoadEvent), C: Fn() -> StageCounts> LoadRun<'_, T, C> {
    /// Starts a task for each session, which waits for its start time.
    fn start(&self, scenario: Option<&Arc<RunningScenario>>) -> JoinSet<SessionEnd> {
        let began = Instant::now();
        let (sessions, ramp) = (self.options.sessions, self.options.ramp());
        let mut tasks = JoinSet::new();
        for index in 0..sessions {
            let turn = began + ramp.mul_f64(f64::from(index) / f64::from(sessions));
            let shared = self.shared.clone();
            match scenario {
                Some(scenario) => {
                    tasks.spawn(scenario_session(shared, scenario.clone(), index, turn))
                }
                None => tasks.spawn(session(shared, self.manner(index), turn)),
            };
        }
        tasks
    }

    /// Setup of a session without a scenario.
    fn manner(&self, index: u32) -> SessionManner {
        let (transport, sample) = (self.options.transport, self.options.sample());
        let attention = match sample > 0 && index.is_multiple_of(sample) {
            true => Attention::Verified,
            false => Attention::Counted,
        };
        SessionManner { transport, attention, compares_file: true }
    }

    /// Runs from the first start to the end of the measured time.
    async fn measure(&mut self) -> MeasuredLoad {
        let sessions = self.options.sessions;
        let ramp = self.options.ramp();
        let all_asked = |counts: StageCounts| counts.played + counts.failed >= sessions;
        self.stages.wait(LoadStage::Starting, ramp, Duration::MAX, all_asked).await;
        self.stages.wait(LoadStage::Settling, SETTLE, SETTLE, nobody_plays).await;
        let StageCounts { played, failed, .. } = self.stages.counts();
        if self.stages.is_stopped || played == 0 {
            return MeasuredLoad::nothing(self.is_local);
        }
        let measuring = Measurement::begin(&self.shared, &self.window, self.is_local);
        self.stages.emit(&LoadEvent::Playing { played, failed });
        let length = self.options.length;
        self.stages.wait(LoadStage::Measuring, length, length, nobody_plays).await;
        let measured = measuring.end(&self.window);
        let playing = played.saturating_sub(self.stages.counts().ended);
        self.stages.emit(&LoadEvent::Measured { seconds: measured.seconds(), playing });
        measured
    }
}

fn nobody_plays(counts: StageCounts) -> bool {
    counts.ended >= counts.played
}

/// Description of the asset, for all sessions.
struct DescribedAsset {
    client: wire::rtsp::client::Client,
    server: SocketAddr,
    /// Local address of connections to the server.
    local: IpAddr,
    /// Length of the asset; none for a live stream.
    duration: Option<Duration>,
    streams: Vec<ChosenStream>,
}

/// Sends DESCRIBE once for all sessions.
async fn describe(options: &Load) -> Result<DescribedAsset, Error> {
    let client = rtsp_client(&options.url)?;
    let server = resolve(client.host(), client.port(), options.source).await?;
    let at = (options.source, server);
    let (server_url, login) = ((client, options.url.as_str()), options.login.clone());
    let mut control = connect_control(server_url, login, options.transport, at).await?;
    let described = control.describe_session().await?;
    let duration = described.offer.duration;
    let streams = choose_streams(&control, described)?.streams;
    let needed = options.ramp() + SETTLE + options.length;
    match (&options.scenario, duration) {
        (Some(scenario), duration) => scenario.check_asset(duration, needed)?,
        (None, Some(duration)) if duration < needed => {
            return Err(too_short(duration, needed, options));
        }
        (None, _) => {}
    }
    let local = control.local.ip();
    Ok(DescribedAsset { client: control.client, server, local, duration, streams })
}

/// Creates the streams that each session sets up.
fn load_streams(
    options: &Load,
    chosen: Vec<ChosenStream>,
    file: Option<Arc<Vec<u8>>>,
) -> Result<LoadStreams, Error> {
    let has_tracks = chosen.iter().any(|stream| stream.depayloader.is_some());
    if let Some(path) = options.file.as_ref().filter(|_| has_tracks) {
        let cure = "leave it out: packets of tracks are no ranges of the file; their frames are \
                    put together and counted without it";
        let (setting, found) = (ClientSetting::File, path.display().to_string());
        return Err(Error::Setting { setting, found, cure: cure.to_owned() });
    }
    let most = SESSIONS_MAX / (chosen.len() as u32).max(1);
    if options.sessions > most {
        let cure = format!(
            "write {most} or less: each has {} streams, and an address has no more pairs of UDP \
             ports",
            chosen.len()
        );
        let found = options.sessions.to_string();
        return Err(Error::Setting { setting: ClientSetting::Sessions, found, cure });
    }
    let (mut urls, mut expected) = (Vec::new(), Vec::new());
    for ChosenStream { url, offer, depayloader } in chosen {
        urls.push(url);
        expected.push(ExpectedStream {
            ssrc: None,
            payload_type: offer.payload_type,
            clock_rate_hz: offer.clock_rate_hz,
            sequence: None,
            within: options.within(),
            file: file.clone(),
            track: depayloader.map(|_| Arc::new(offer)),
        });
    }
    Ok(LoadStreams { urls, expected })
}

/// Resolves a name to its first address that `source` can reach.
pub(super) async fn resolve(
    host: &str,
    port: u16,
    source: Option<IpAddr>,
) -> Result<SocketAddr, Error> {
    let object = || super::connect::authority(host, port);
    let found = tokio::net::lookup_host((host, port)).await;
    let mut found =
        found.map_err(|source| Error::Host { call: "resolve", object: object(), source })?;
    let fits = |address: &SocketAddr| source.is_none_or(|own| own.is_ipv4() == address.is_ipv4());
    found.find(fits).ok_or_else(|| Error::Setting {
        setting: ClientSetting::SourceAddress,
        found: source.map_or_else(String::new, |source| source.to_string()),
        cure: format!("{} has no address of that family; write one of the other", object()),
    })
}

fn too_short(duration: Duration, needed: Duration, options: &Load) -> Error {
    let ramp = options.ramp().as_secs_f64();
    Error::Setting {
        setting: ClientSetting::Seconds,
        found: format!("{:.1}", options.length.as_secs_f64()),
        cure: format!(
            "with a ramp of {ramp:.1} s the first session has to play for {:.1} s and the asset \
             ends after {:.1} s; name a longer asset, or a shorter time or ramp",
            needed.as_secs_f64(),
            duration.as_secs_f64()
        ),
    }
}

fn check(options: &Load) -> Result<(), Error> {
    let wrong = |setting, found: String, cure: &str| {
        Err(Error::Setting { setting, found, cure: cure.to_owned() })
    };
    if options.sessions == 0 || options.sessions > SESSIONS_MAX {
        let cure = format!("write 1 to {SESSIONS_MAX}; an address has no more pairs of UDP ports");
        return wrong(ClientSetting::Sessions, options.sessions.to_string(), &cure);
    }
    for (setting, time) in
        [(ClientSetting::Seconds, options.length), (ClientSetting::Ramp, options.ramp())]
    {
        if time > TIME_MAX {
            return wrong(setting, time.as_secs().to_string(), "write a day (86400) or less");
        }
    }
    if options.transport == StreamTransport::Multicast {
        let cure = "write udp, tcp or http; all sessions would share one group";
        return wrong(ClientSetting::Transport, options.transport.to_string(), cure);
    }
    if options.length < LENGTH_MIN {
        let found = format!("{} s", options.length.as_secs_f64());
        return wrong(ClientSetting::Seconds, found, "write 0.1 or more");
    }
    Ok(())
}

/// A long picture is sent over its display time, not at once: at 25 pictures a second its last
/// packet is due this much later than its first, with the same timestamp.
pub const PICTURE_SPREAD: Duration = Duration::from_millis(40);

/// Each needs a pair of ports.
const SESSIONS_MAX: u32 = 32_000;
const TIME_MAX: Duration = Duration::from_secs(86_400);
const LENGTH_MIN: Duration = Duration::from_millis(100);
/// 500 sessions a second: the setup rate is not part of the measurement.
const RAMP_EACH: Duration = Duration::from_millis(2);
const RAMP_MIN: Duration = Duration::from_secs(1);
/// Enough to notice a fault of one session in forty.
const VERIFIED_USUAL: u32 = 40;
/// The last sessions have passed their first seconds: the server has read files ahead and built
/// wire images.
const SETTLE: Duration = Duration::from_secs(2);
/// Deadline for leaving: a server that hangs is not awaited longer.
const LEAVING_WAIT: Duration = Duration::from_secs(20);
