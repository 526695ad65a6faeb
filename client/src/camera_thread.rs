// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of a camera: reads the packets of all its tracks, and multiplexes their units.
//!
//! It reads all sockets, then processes all units that have arrived, and pauses
//! ([`SocketPace`]): datagrams are still in the caches when they become units, units when they
//! become a file. One thread for each camera, because a wake-up costs as much as several datagrams;
//! and no units wait for those of a track that another thread would have to read first. The thread
//! never waits for the disk: where the recorder is behind, units stay in their queue, up to its
//! bound.
//!
//! Each round of its loop is a call of [`CameraThread::turn`], which does not wait, and reads the
//! clock of the camera alone: tests call it with a clock that they set.
//!
//! `pagewire lab cameras` measures it beside ffmpeg.
//!
//! Sources: poll(2); `std::thread::park_timeout`.
//! Does not send reports ([`super::rtcp_reporter`] does).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Thread, park_timeout};
use std::time::{Duration, Instant};

use clock::Clock;
use rustix::event::{PollFd, PollFlags};

use super::packet_intake::{Intake, IntakeStep, PacketInput};
use super::receive_thread::{CHECK_EVERY, wait};
use super::socket_pace::SocketPace;
use super::track_packetizer::Packetizer;
use super::track_queue::TrackQueue;
use crate::error::Error;
use crate::rtp_receiver::SocketReader;

/// Tracks and file of a camera, which a thread of its own or the turns of its owner receive.
pub struct CameraThread {
    /// Name of the source, for the log.
    name: Arc<str>,
    tracks: Vec<TrackIntake>,
    queue: TrackQueue,
    packetizer: Packetizer,
    pace: SocketPace,
    clock: Clock,
    phase: CameraPhase,
    /// Dropped last, when the sockets are closed.
    _done: DoneMark,
}

/// Sets a flag when it is dropped.
pub(super) struct DoneMark(pub(super) Arc<AtomicBool>);

/// Phase of a camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CameraPhase {
    Receiving,
    /// All tracks have ended: the last packets are not passed on.
    Ending,
    Ended,
}

/// State of a camera after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraTurn {
    /// More packets may wait.
    More,
    /// All packets were read, or the recorder has no room for the last.
    Empty,
    /// All tracks have ended, and all units are passed on or dropped.
    Ended,
}

/// A track and its packets.
pub(super) struct TrackIntake {
    pub(super) input: PacketInput,
    /// `None` once it has ended.
    pub(super) intake: Option<Intake>,
    /// State of the check that its units can be decoded.
    pub(super) start: StartCheck,
}

/// Check that a decoder can begin somewhere in a track.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum StartCheck {
    /// No unit has arrived.
    #[default]
    Unheard,
    /// Units have arrived since then.
    Since(Instant),
    /// It can, or the log has the reason why not.
    Done,
}

impl CameraThread {
    pub(super) fn new(
        name: Arc<str>,
        tracks: Vec<TrackIntake>,
        queue: TrackQueue,
        packetizer: Packetizer,
        clock: Clock,
        done: DoneMark,
    ) -> CameraThread {
        let pace = pace(&tracks);
        let phase = CameraPhase::Receiving;
        CameraThread { name, tracks, queue, packetizer, pace, clock, phase, _done: done }
    }

    /// Starts the thread. Wake it after a command.
    ///
    /// # Errors
    /// The kernel's answer to clone(2).
    pub(super) fn start(self) -> Result<Thread, Error> {
        let thread =
            std::thread::Builder::new().name("camera".to_owned()).spawn(move || self.run());
        let thread = thread.map_err(|source| Error::Host {
            call: "clone",
            object: "thread camera".into(),
            source,
        })?;
        Ok(thread.thread().clone())
    }

    /// Runs until all tracks have ended and their units are in the file, or the queue is closed.
    fn run(mut self) {
        loop {
            match self.turn() {
                CameraTurn::More => {}
                CameraTurn::Empty => self.pause(),
                CameraTurn::Ended => return,
            }
        }
    }

    /// Receives the packets that wait, up to a bound, and passes on the units that are due.
    pub fn turn(&mut self) -> CameraTurn {
        if self.phase == CameraPhase::Receiving {
            let has_more = self.receive();
            if self.packetizer.step(&mut self.queue).is_ok() {
                return if has_more { CameraTurn::More } else { CameraTurn::Empty };
            }
            self.packetizer.end();
            self.phase = CameraPhase::Ending;
        }
        if self.phase == CameraPhase::Ending {
            if !self.packetizer.flush() && !self.queue.control.is_closed() {
                return CameraTurn::Empty;
            }
            self.packetizer.finish(&self.queue);
            self.phase = CameraPhase::Ended;
        }
        CameraTurn::Ended
    }

    /// Receives packets of all tracks; returns true if more may wait.
    fn receive(&mut self) -> bool {
        let (mut has_more, now) = (false, self.clock.now());
        for (number, track) in self.tracks.iter_mut().enumerate() {
            match track.read() {
                Ok(more) => has_more |= more,
                Err(error) => tracing::warn!("{}: track {number}: {error}", self.name),
            }
            if let Some(lacks) = track.lacks(now) {
                let seconds = START_WAIT.as_secs();
                tracing::warn!(
                    "{}: track {number}: {lacks} in {seconds} s, so nothing of it can be decoded; \
                     let the camera send them more often",
                    self.name
                );
            }
        }
        has_more
    }

    /// Lets packets collect; a wake-up ends the pause.
    fn pause(&self) {
        let is_ending = self.tracks.iter().all(TrackIntake::is_ending);
        match if is_ending { SocketPace::Gathered(FULL_WAIT) } else { self.pace } {
            SocketPace::Gathered(pause) => park_timeout(pause),
            SocketPace::Prompt => {
                let sockets = self.tracks.iter().filter_map(TrackIntake::socket);
                let mut readable: Vec<_> =
                    sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
                wait(&mut readable, CHECK_EVERY);
            }
        }
    }
}

impl Drop for DoneMark {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl TrackIntake {
    /// Receives the packets that wait; returns true if there may be more.
    ///
    /// # Errors
    /// The socket has failed: the track has ended.
    fn read(&mut self) -> Result<bool, Error> {
        let Some(intake) = &mut self.intake else { return Ok(false) };
        let step = match &self.input {
            PacketInput::Socket(socket) => {
                let mut reader = SocketReader::of_spare(intake.clock.clone());
                let step = read_on(|| intake.read(&mut reader, socket));
                reader.give_back();
                step
            }
            PacketInput::Frames(frames) => {
                read_on(|| Ok(intake.read_frames(frames, Duration::ZERO)))
            }
        };
        match step {
            Ok(IntakeStep::More) => Ok(true),
            Ok(IntakeStep::Empty) => Ok(false),
            Ok(IntakeStep::Ended) => self.close(None).map(|()| false),
            Err(error) => self.close(Some(error)).map(|()| false),
        }
    }

    /// Returns, once, what a decoder needs and has not arrived.
    fn lacks(&mut self, now: Instant) -> Option<&'static str> {
        let (units, starts, has_codec) = self.intake.as_ref()?.units()?;
        match self.start {
            StartCheck::Unheard if units > 0 => self.start = StartCheck::Since(now),
            StartCheck::Since(_) if starts > 0 && has_codec => self.start = StartCheck::Done,
            StartCheck::Since(since) if now.saturating_duration_since(since) >= START_WAIT => {
                self.start = StartCheck::Done;
                return Some(if starts > 0 { "no parameter sets" } else { "no whole key frame" });
            }
            _ => {}
        }
        None
    }

    fn close(&mut self, failure: Option<Error>) -> Result<(), Error> {
        let closed = self.intake.take().map(|intake| intake.close(&self.input, failure));
        closed.transpose().map(|_| ())
    }

    /// True once it is stopped, or has ended.
    fn is_ending(&self) -> bool {
        self.intake.as_ref().is_none_or(Intake::is_stopping)
    }

    /// The socket of a track that has not ended.
    fn socket(&self) -> Option<&std::net::UdpSocket> {
        match &self.input {
            PacketInput::Socket(socket) => self.intake.as_ref().map(|_| socket),
            PacketInput::Frames(_) => None,
        }
    }
}

/// The pace that all inputs allow.
fn pace(tracks: &[TrackIntake]) -> SocketPace {
    let paces = tracks.iter().map(|track| match &track.input {
        PacketInput::Socket(socket) => SocketPace::of_recorder(socket),
        PacketInput::Frames(_) => SocketPace::OF_FRAMES,
    });
    paces.min().unwrap_or(SocketPace::Prompt)
}

/// Reads while more packets wait, up to [`READS_MAX`] times.
fn read_on(mut read: impl FnMut() -> Result<IntakeStep, Error>) -> Result<IntakeStep, Error> {
    for _ in 1..READS_MAX {
        match read()? {
            IntakeStep::More => {}
            step => return Ok(step),
        }
    }
    read()
}

/// The key frames of cameras are usually a few seconds apart.
const START_WAIT: Duration = Duration::from_secs(10);
/// Most calls in a row for one track: the units of a flooded socket must leave their queue.
const READS_MAX: u32 = 64;
/// Time until a stopped track, or a full recorder, is tried again.
const FULL_WAIT: Duration = Duration::from_millis(2);
