// SPDX-License-Identifier: MIT OR Apache-2.0
//! One session of a scenario: a task with its group's behaviour until the load ends.
//!
//! A seek is PAUSE, then PLAY with a Range, as players seek: a PLAY while packets flow would make
//! the first packet of the new position ambiguous. PLAY is sent 100 ms after the answer to PAUSE;
//! packets in flight arrive meanwhile, so that no packet is timed against the clock of another
//! play.
//!
//! A slow reader reads at its rate from PLAY on, and a stalled one not at all; both send receiver
//! reports, and no request whose answer they would not read. Both switch to full speed when the
//! load ends, so that they can send TEARDOWN and the losses are known.
//!
//! Sources: RFC 2326 §10.5 (PLAY), §10.6 (PAUSE), §10.7 (TEARDOWN), Appendix B (a pause or a seek
//! leaves no gap in the sequence numbers).
//! Does not change its behaviour after a refusal, or retry a refused seek.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout, timeout_at};
use wire::rtsp::client::Client;
use wire::rtsp::{NptRange, NptStart};

use super::Load;
use super::group_book::{GroupBook, SILENT_AFTER};
use super::load_session::{
    Attention, LoadState, PlayingSession, SETTLE, SessionEnd, SessionManner, start,
};
use super::scenario::{Behaviour, GroupIdentity, Scenario, ScenarioGroup, TimeRange, Timetable};
use super::session_streams::PlayingStream;
use super::session_sums::SessionSum;
use crate::error::Error;
use crate::read_pace::ReadRate;
use crate::stream_stats::lock;
use crate::transport::{StreamTransport, check_transport};

/// A running scenario.
pub(super) struct RunningScenario {
    seed: u64,
    groups: Vec<RunningGroup>,
    /// Group of each session, and its number there, in order of the starts.
    places: Vec<(usize, u32)>,
    /// Length of the asset; none for a live stream.
    duration: Option<Duration>,
}

struct RunningGroup {
    behaviour: Behaviour,
    transport: StreamTransport,
    /// Every n-th session is verified; none for 0.
    sample: u32,
    book: Mutex<Box<GroupBook>>,
}

impl RunningScenario {
    /// Assigns the sessions to the groups.
    ///
    /// # Errors
    /// Caller: a group without a session, or a transport that does not support the behaviour of a
    /// group.
    pub(super) fn new(scenario: &Scenario, options: &Load) -> Result<RunningScenario, Error> {
        let order = scenario.deal(options.sessions)?;
        let mut counts = vec![0; scenario.groups.len()];
        let mut places = Vec::with_capacity(order.len());
        for group in order {
            places.push((group, counts[group]));
            counts[group] += 1;
        }
        let groups = scenario.groups.iter().zip(counts);
        let groups = groups.map(|(group, sessions)| RunningGroup::new(group, sessions, options));
        let groups = groups.collect::<Result<_, Error>>()?;
        Ok(RunningScenario { seed: scenario.seed, groups, places, duration: None })
    }

    /// The same scenario for an asset of this length.
    pub(super) fn of_asset(self, duration: Option<Duration>) -> RunningScenario {
        RunningScenario { duration, ..self }
    }

    /// Numbers of sessions by transport.
    pub(super) fn loads(&self) -> Vec<(u32, StreamTransport)> {
        let of = |group: &RunningGroup| (group.book().identity.sessions, group.transport);
        self.groups.iter().map(of).collect()
    }

    /// Number of verified sessions.
    pub(super) fn verified(&self) -> u32 {
        let of = |group: &RunningGroup| match group.sample {
            0 => 0,
            sample => group.book().identity.sessions.div_ceil(sample),
        };
        self.groups.iter().map(of).sum()
    }

    /// Returns the figures of all groups, at the end.
    pub(super) fn books(self) -> Vec<GroupBook> {
        let unlock = |book: Mutex<Box<GroupBook>>| {
            *book.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
        };
        self.groups.into_iter().map(|group| unlock(group.book)).collect()
    }
}

impl RunningGroup {
    fn new(group: &ScenarioGroup, sessions: u32, options: &Load) -> Result<RunningGroup, Error> {
        let ScenarioGroup { name, behaviour, transport, .. } = group;
        let (behaviour, transport) = (*behaviour, transport.unwrap_or(options.transport));
        let is_judged = behaviour.is_judged();
        if !is_judged && !transport.is_interleaved() {
            return Err(group.needs_a_connection(transport));
        }
        if check_transport(&options.url, transport).is_err() {
            return Err(group.leaves_tls(transport));
        }
        let identity = GroupIdentity {
            name: name.clone(),
            behaviour: behaviour.name(),
            transport,
            is_judged,
            sessions,
        };
        // Slow readers are few, and each one is informative.
        let sample = if is_judged { options.sample_of(sessions) } else { 1 };
        Ok(RunningGroup {
            behaviour,
            transport,
            sample,
            book: Mutex::new(Box::new(GroupBook::new(identity))),
        })
    }

    fn book(&self) -> MutexGuard<'_, Box<GroupBook>> {
        lock(&self.book)
    }
}

/// End of a visit.
enum VisitEnd {
    /// The server ended it, or refused an action.
    Broken(String),
    /// The session leaves by itself.
    Over,
    /// The load ends.
    LoadEnded,
}

/// A session with its state between visits.
struct ScenarioSession {
    shared: Arc<LoadState>,
    scenario: Arc<RunningScenario>,
    group: usize,
    is_verified: bool,
    timetable: Timetable,
    sum: SessionSum,
    visits: u32,
    /// Rate of a slow reader; set to full speed before TEARDOWN.
    rate: Option<watch::Sender<ReadRate>>,
}

/// Runs a session from its start to the end of the load.
pub(super) async fn scenario_session(
    shared: Arc<LoadState>,
    scenario: Arc<RunningScenario>,
    number: u32,
    turn: Instant,
) -> SessionEnd {
    let (group, place) = scenario.places[number as usize];
    let sample = scenario.groups[group].sample;
    let is_verified = sample > 0 && place.is_multiple_of(sample);
    let timetable = Timetable::new(scenario.seed, number);
    let mut ending = shared.ending.clone();
    let mut session = ScenarioSession {
        shared,
        scenario,
        group,
        is_verified,
        timetable,
        sum: SessionSum::default(),
        visits: 0,
        rate: None,
    };
    tokio::select! {
        () = sleep_until(turn.into()) => {}
        _ = ending.wait_for(Option::is_some) => return SessionEnd::default(),
    }
    let is_played = session.visit_again_and_again(&mut ending).await;
    let counts = &session.shared.counts;
    if is_played {
        counts.left.fetch_add(1, Ordering::Relaxed);
        if session.is_verified {
            session.group().book().verified.judge(session.sum, false);
        }
    }
    SessionEnd { is_played, ..SessionEnd::default() }
}

type Ending = watch::Receiver<Option<Instant>>;

impl ScenarioSession {
    fn group(&self) -> &RunningGroup {
        &self.scenario.groups[self.group]
    }

    /// Returns true where the first start was granted, or a later start of a session that retries.
    async fn visit_again_and_again(&mut self, ending: &mut Ending) -> bool {
        let behaviour = self.group().behaviour;
        let mut is_first = true;
        loop {
            let started = tokio::select! {
                started = self.start() => started,
                _ = ending.wait_for(Option::is_some) => return self.visits > 0,
            };
            let counts = &self.shared.counts;
            if is_first {
                let counter = if started.is_ok() { &counts.played } else { &counts.failed };
                counter.fetch_add(1, Ordering::Relaxed);
            }
            is_first = false;
            let is_over = match started {
                Ok(playing) => {
                    self.group().book().started(self.visits == 0);
                    self.visits += 1;
                    self.visit(playing, ending).await
                }
                Err(error) => {
                    let failed = (Instant::now(), error.to_string());
                    self.group().book().failed.add(&failed);
                    !behaviour.comes_back()
                }
            };
            let (Behaviour::Leave { away, .. } | Behaviour::Vanish { away, .. }) = behaviour else {
                return self.visits > 0;
            };
            let away = self.timetable.time(away);
            if is_over {
                return self.visits > 0;
            }
            tokio::select! {
                () = sleep(away) => {}
                _ = ending.wait_for(Option::is_some) => return self.visits > 0,
            }
        }
    }

    async fn start(&mut self) -> Result<PlayingSession, Error> {
        let _turn = self.shared.setting_up.acquire().await;
        let RunningGroup { behaviour, transport, .. } = *self.group();
        let attention = match behaviour {
            Behaviour::Slow { .. } | Behaviour::Stall => {
                let (rate, rates) = watch::channel(ReadRate::Full);
                self.rate = Some(rate);
                Attention::Limited(rates)
            }
            _ if self.is_verified => Attention::Verified,
            _ => Attention::Counted,
        };
        let compares_file = !matches!(behaviour, Behaviour::Seek { .. });
        let manner = SessionManner { transport, attention, compares_file };
        let playing = start(&self.shared, manner).await?;
        if let Some(rate) = &self.rate {
            rate.send_replace(match behaviour {
                Behaviour::Slow { bytes_per_second } => ReadRate::BytesPerSecond(bytes_per_second),
                _ => ReadRate::Stopped,
            });
        }
        Ok(playing)
    }

    /// Returns true where the session does not return.
    async fn visit(&mut self, mut playing: PlayingSession, ending: &mut Ending) -> bool {
        let behaviour = self.group().behaviour;
        let began = Instant::now();
        let end = tokio::select! {
            end = self.behave(&mut playing) => end,
            _ = ending.wait_for(Option::is_some) => VisitEnd::LoadEnded,
        };
        let is_brief = began.elapsed() < SILENT_AFTER;
        if !playing.is_paused {
            self.note_first_packet(&playing);
        }
        let is_load_over = matches!(end, VisitEnd::LoadEnded);
        let end = self.catch_up(&mut playing, end).await;
        if let (VisitEnd::Broken(_), false) = (&end, behaviour.comes_back()) {
            self.shared.counts.ended.fetch_add(1, Ordering::Relaxed);
        }
        let is_broken = matches!(end, VisitEnd::Broken(_));
        let end = match (end, behaviour) {
            (VisitEnd::Over, Behaviour::Vanish { .. }) => playing.vanish(),
            (VisitEnd::Broken(reason), _) => {
                playing.leave(&self.shared, Some((Instant::now(), reason))).await
            }
            _ => playing.leave(&self.shared, None).await,
        };
        let end = SessionEnd { is_brief, ..end };
        let group = &self.scenario.groups[self.group];
        group.book().ended(&end, &mut self.sum);
        is_load_over || is_broken && !behaviour.comes_back()
    }

    /// Makes a slow reader read at full speed; it may find that the server has ended the session.
    async fn catch_up(&self, playing: &mut PlayingSession, end: VisitEnd) -> VisitEnd {
        let Some(rate) = &self.rate else { return end };
        rate.send_replace(ReadRate::Full);
        match timeout(SETTLE, playing.run()).await {
            Ok(reason) if matches!(end, VisitEnd::LoadEnded) => VisitEnd::Broken(reason),
            _ => end,
        }
    }

    /// Performs actions until the visit is over.
    async fn behave(&mut self, playing: &mut PlayingSession) -> VisitEnd {
        let until = |time: Duration| (Instant::now() + time).into();
        loop {
            let wait = match self.group().behaviour {
                Behaviour::Steady | Behaviour::Slow { .. } | Behaviour::Stall => None,
                Behaviour::Seek { every } | Behaviour::Pause { every, .. } => Some(every),
                Behaviour::Leave { stay, .. } | Behaviour::Vanish { stay, .. } => Some(stay),
            };
            let Some(wait) = wait else { return VisitEnd::Broken(playing.run().await) };
            let wait = self.timetable.time(wait);
            if let Ok(reason) = timeout_at(until(wait), playing.run()).await {
                return VisitEnd::Broken(reason);
            }
            let acted = match self.group().behaviour {
                Behaviour::Seek { every } => self.seek(playing, every).await,
                Behaviour::Pause { pause, .. } => self.pause(playing, pause).await,
                _ => return VisitEnd::Over,
            };
            if let Err(reason) = acted {
                return VisitEnd::Broken(reason);
            }
        }
    }

    async fn seek(&mut self, playing: &mut PlayingSession, every: TimeRange) -> Result<(), String> {
        // A scenario that seeks in a live stream was refused earlier.
        let duration = self.scenario.duration.unwrap_or_default();
        let place = self.timetable.place(duration, every.most);
        self.stop(playing).await?;
        sleep(SETTLE).await;
        play_again(playing, Some(place)).await?;
        self.group().book().actions.seeks += 1;
        Ok(())
    }

    async fn pause(
        &mut self,
        playing: &mut PlayingSession,
        pause: TimeRange,
    ) -> Result<(), String> {
        let pause = self.timetable.time(pause).max(SETTLE);
        self.stop(playing).await?;
        // Keep-alives continue.
        if let Ok(reason) = timeout_at((Instant::now() + pause).into(), playing.run()).await {
            return Err(reason);
        }
        play_again(playing, None).await?;
        self.group().book().actions.pauses += 1;
        Ok(())
    }

    /// Sends PAUSE.
    async fn stop(&self, playing: &mut PlayingSession) -> Result<(), String> {
        let asked = playing.control.ask("PAUSE", Client::pause).await;
        asked.map_err(|error| error.to_string())?;
        playing.is_paused = true;
        self.note_first_packet(playing);
        Ok(())
    }

    fn note_first_packet(&self, playing: &PlayingSession) {
        let verified = playing.streams.iter().filter_map(PlayingStream::stats);
        let firsts: Vec<_> = verified.map(|stats| lock(stats).first_packet()).collect();
        // A slow reader misses packets on purpose.
        let group = self.group();
        if !firsts.is_empty() && group.behaviour.is_judged() {
            group.book().first_packet(playing.asked_at, firsts.into_iter().flatten().min());
        }
    }
}

/// Sends PLAY to a paused session: from a position, or from where it stopped.
async fn play_again(playing: &mut PlayingSession, place: Option<Duration>) -> Result<(), String> {
    for stats in playing.streams.iter().filter_map(PlayingStream::stats) {
        // All packets of the last play have been read.
        lock(stats).renew(place.is_some());
    }
    let range = place.map(|place| NptRange { start: NptStart::At(place), end: None });
    playing.asked_at = Instant::now();
    let asked = playing.control.ask("PLAY", |client| client.play(range)).await;
    asked.map_err(|error| error.to_string())?;
    playing.is_paused = false;
    Ok(())
}
