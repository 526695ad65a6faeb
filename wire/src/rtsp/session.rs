// SPDX-License-Identifier: MIT OR Apache-2.0
//! State machine of a session from SETUP to its end: allowed methods in each state, and the
//! timeout.
//!
//! The state machine of RFC 2326 A.2 without Init (a session that is not set up does not exist) and
//! without Recording:
//!
//! | state | request | next | |
//! |---|---|---|---|
//! | Ready | SETUP | Ready | other ports |
//! | Ready | PLAY | Playing | |
//! | Ready, played before | PAUSE | Ready | departure: it may cross the end on its way |
//! | Ready, never played | PAUSE | - | 455 |
//! | Playing | SETUP | - | 455: transport is not changed in mid-stream (§10.4) |
//! | Playing | PLAY | Playing | no Range: a sign of life (§10.5); with Range: queued, or a seek |
//! | Playing | PAUSE, end of range | Ready | §10.5: "automatically paused" |
//! | any | TEARDOWN | gone | always; the caller drops the session |
//!
//! Timeout: the session expires when neither an RTSP request nor an RTCP report arrived for the
//! time announced in SETUP (A.2, "wellness"). A session is not bound to its connection (§12.37),
//! but a client whose connection closes without TEARDOWN has most likely died: from then on each
//! RTCP report extends it by only [`CONTROL_GRACE`], until an RTSP request (on a new connection)
//! restores the timeout.
//!
//! A session that has never played ends after a shorter time, even if messages arrive: it holds a
//! socket without use, and a client that intends to play does so at once.
//!
//! Time is the caller's monotonic clock; going backwards does no harm.

use std::time::Duration;

/// Time for which a session outlives its connection, and each RTCP report after that: one report
/// interval (at most 6.2 s, RFC 3550 §6.3.1) and slack.
pub const CONTROL_GRACE: Duration = Duration::from_secs(10);

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// Set up, paused or played to its end.
    Ready,
    /// Media is being sent.
    Playing,
}

/// Channel on which a client was active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControlChannel {
    /// A request in the session.
    Rtsp,
    /// A receiver report about its stream.
    Rtcp,
}

/// The state machine of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtspSession {
    state: SessionState,
    played: bool,
    timeout: Duration,
    control_open: bool,
    active_at: Duration,
    expires_at: Duration,
    play_by: Duration,
}

/// A request that the state does not allow: answer 455 with these methods in Allow (§11.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodNotValid {
    /// The methods that are valid now.
    pub allow: &'static str,
}

impl RtspSession {
    /// A session that was just set up, and is to play within `play_within`.
    pub fn new(now: Duration, timeout: Duration, play_within: Duration) -> Self {
        RtspSession {
            state: SessionState::Ready,
            played: false,
            timeout,
            control_open: true,
            active_at: now,
            expires_at: now.saturating_add(timeout),
            play_by: now.saturating_add(play_within),
        }
    }

    /// Current state.
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// SETUP again, to change the transport.
    ///
    /// # Errors
    /// While playing.
    pub fn setup(&mut self, now: Duration) -> Result<(), MethodNotValid> {
        self.note_activity(now, ControlChannel::Rtsp);
        match self.state {
            SessionState::Ready => Ok(()),
            SessionState::Playing => Err(self.refusal()),
        }
    }

    /// PLAY, valid in both states. Returns the previous state, so that the caller can distinguish a
    /// start from a seek or a keep-alive.
    pub fn play(&mut self, now: Duration) -> SessionState {
        self.note_activity(now, ControlChannel::Rtsp);
        self.played = true;
        std::mem::replace(&mut self.state, SessionState::Playing)
    }

    /// PAUSE: the state before.
    ///
    /// # Errors
    /// The session never played.
    pub fn pause(&mut self, now: Duration) -> Result<SessionState, MethodNotValid> {
        self.note_activity(now, ControlChannel::Rtsp);
        if !self.played {
            return Err(self.refusal());
        }
        Ok(std::mem::replace(&mut self.state, SessionState::Ready))
    }

    /// Notes that the range was played to its end: as if paused (§10.5). The timeout is unchanged.
    pub fn ended(&mut self) {
        self.state = SessionState::Ready;
    }

    /// Records activity of the client. A refused request counts too.
    pub fn note_activity(&mut self, now: Duration, channel: ControlChannel) {
        self.control_open |= channel == ControlChannel::Rtsp;
        self.active_at = self.active_at.max(now);
        let life = if self.control_open { self.timeout } else { self.grace() };
        self.expires_at = self.expires_at.max(now.saturating_add(life));
    }

    /// Notes that the session's connection closed without TEARDOWN.
    pub fn control_closed(&mut self, now: Duration) {
        self.control_open = false;
        self.expires_at = self.expires_at.min(now.saturating_add(self.grace()));
    }

    /// Time of the client's last activity.
    pub fn active_at(&self) -> Duration {
        self.active_at
    }

    /// Time at which the session expires without further activity.
    pub fn expires_at(&self) -> Duration {
        if self.played { self.expires_at } else { self.expires_at.min(self.play_by) }
    }

    /// True once it was played.
    pub fn has_played(&self) -> bool {
        self.played
    }

    fn grace(&self) -> Duration {
        self.timeout.min(CONTROL_GRACE)
    }

    fn refusal(&self) -> MethodNotValid {
        let allow = match (self.state, self.played) {
            (SessionState::Playing, _) => "OPTIONS, DESCRIBE, PLAY, PAUSE, TEARDOWN, GET_PARAMETER",
            (SessionState::Ready, true) => super::METHODS,
            (SessionState::Ready, false) => {
                "OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER"
            }
        };
        MethodNotValid { allow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn states_follow_the_table() {
        let mut session = RtspSession::new(at(0), TIMEOUT, TIMEOUT);
        assert_eq!(session.setup(at(1)), Ok(()));
        let refusal = session.pause(at(1)).unwrap_err();
        assert!(!refusal.allow.contains("PAUSE") && refusal.allow.contains("PLAY"));
        assert_eq!(session.play(at(2)), SessionState::Ready);
        assert_eq!(session.play(at(3)), SessionState::Playing);
        let refusal = session.setup(at(3)).unwrap_err();
        assert!(!refusal.allow.contains("SETUP") && refusal.allow.contains("PAUSE"));
        assert_eq!(session.pause(at(4)), Ok(SessionState::Playing));
        assert_eq!((session.state(), session.setup(at(5))), (SessionState::Ready, Ok(())));
        assert_eq!(session.play(at(6)), SessionState::Ready);
        session.ended();
        assert_eq!(session.pause(at(7)), Ok(SessionState::Ready));
    }

    #[test]
    fn every_word_extends_the_life_and_silence_ends_it() {
        let mut session = RtspSession::new(at(100), TIMEOUT, Duration::MAX);
        assert_eq!(session.expires_at(), at(160));
        session.note_activity(at(130), ControlChannel::Rtcp);
        assert_eq!(session.expires_at(), at(190));
        assert!(session.setup(at(140)).is_ok());
        assert_eq!(session.expires_at(), at(200));
        // Time that runs backwards shortens nothing.
        session.note_activity(at(90), ControlChannel::Rtsp);
        assert_eq!(session.expires_at(), at(200));
        session.note_activity(Duration::MAX, ControlChannel::Rtsp);
        assert_eq!(session.expires_at(), Duration::MAX);
    }

    #[test]
    fn a_closed_connection_leaves_a_grace() {
        let mut session = RtspSession::new(at(0), TIMEOUT, TIMEOUT);
        assert_eq!(session.play(at(1)), SessionState::Ready);
        session.control_closed(at(5));
        assert_eq!(session.expires_at(), at(15));
        session.note_activity(at(8), ControlChannel::Rtcp);
        assert_eq!(session.expires_at(), at(18));
        session.note_activity(at(12), ControlChannel::Rtsp);
        assert_eq!(session.expires_at(), at(72));
        // A grace never lengthens the life.
        let mut session = RtspSession::new(at(0), TIMEOUT, TIMEOUT);
        session.control_closed(at(55));
        assert_eq!(session.expires_at(), at(60));
    }

    #[test]
    fn a_session_that_is_not_played_ends_whatever_is_heard() {
        let mut session = RtspSession::new(at(0), TIMEOUT, at(10));
        session.note_activity(at(9), ControlChannel::Rtsp);
        session.note_activity(at(9), ControlChannel::Rtcp);
        assert_eq!((session.expires_at(), session.has_played()), (at(10), false));
        assert_eq!(session.play(at(9)), SessionState::Ready);
        assert_eq!((session.expires_at(), session.has_played()), (at(69), true));
        session.ended();
        assert_eq!(session.expires_at(), at(69));
    }
}
