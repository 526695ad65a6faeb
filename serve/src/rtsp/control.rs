// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends sender reports and BYE, reads receiver reports, and ends sessions.
//!
//! One task checks all sessions four times a second and handles the pacers' events as they arrive;
//! another reads the shared RTCP port. Costs about a microsecond per session and check.
//!
//! Sources: RFC 3550 §6.2 (interval), §6.4 (reports), §6.6 (BYE); RFC 2326 §12.37 (time-out).
//! Does not adapt the media rate to receiver reports; the rate of stored media is fixed.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use clock::{Clock, Moment};
use media::TICKS_PER_SECOND;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use wire::http::escape_path;
use wire::rtcp::{self, ReceiverView, RtcpItem};
use wire::rtsp::{ControlChannel, SessionState};

use crate::access_log::AccessLine;
use crate::limits::Refused;
use crate::meter::Meters;
use crate::pacer::{Event, StreamEnd};
use crate::play::Progress;
use crate::play::icmp_faults::Voices;
use crate::random::random_u32;
use crate::rtsp::play_span::PlaySpan;
use crate::rtsp::session_transport::SessionTransport;
use crate::rtsp::stream_session::{RtpStream, SessionContent, SessionControl, StreamSession};
use crate::server_state::ServerState;

/// Runs the housekeeping until it is aborted.
pub(crate) async fn housekeeping(
    server: Arc<ServerState>,
    mut events: mpsc::UnboundedReceiver<Event>,
) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            _ = looks.tick() => look(&server),
            Some(event) = events.recv() => over(&server, event),
        }
    }
}

/// Ends a session: stops media, sends BYE, frees its resources.
pub(crate) fn end(server: &ServerState, session: &Arc<StreamSession>, reason: &str) {
    if server.sessions.end(session) {
        bye(session, &mut session.control.lock(), reason, server.clock.moment());
        let (number, peer) = (session.number, session.peer_address());
        let streams = session.streams();
        let progress = total(&streams);
        if progress.packets == 0 {
            // Such an end is unremarkable, and a flood of SETUPs must not flood the log.
            tracing::debug!("session {number} of {peer}: {reason}");
            return;
        }
        log_access(server, session, &progress);
        let views = streams.iter().map(|stream| {
            let view = *stream.receiver.lock();
            let words = in_words(&view, stream.clock_rate_hz);
            match &session.content {
                SessionContent::Tracks(source) if streams.len() > 1 => {
                    // The track's number in the file, as in the index.
                    let id = source.asset.presentation.tracks()[stream.track].id;
                    format!("track {id}: {words}")
                }
                SessionContent::Tracks(_) | SessionContent::Stream(_) => words,
            }
        });
        tracing::info!(
            "session {number} of {peer}: {reason}; {} packets, {:.1} ms late at most, {} stalls; \
             {}{}",
            progress.packets,
            progress.late_max.as_secs_f64() * 1e3,
            progress.stalls,
            skipped_in_words(progress.skipped),
            views.collect::<Vec<_>>().join("; "),
        );
    }
}

/// Adds a line for the session to the access log.
fn log_access(server: &ServerState, session: &StreamSession, progress: &Progress) {
    let Some(log) = &server.access_log else { return };
    log.write(AccessLine {
        address: session.peer.to_canonical(),
        user: session.user.get().cloned(),
        request: format!("PLAY /{} RTSP/1.0", escape_path(session.content.name())),
        status: 200,
        bytes: progress.octets,
        referer: None,
        user_agent: None,
    });
}

/// Returns the progress of all streams of a session together.
pub(crate) fn total(streams: &[Arc<RtpStream>]) -> Progress {
    streams.iter().map(|stream| stream.link.progress()).fold(Progress::default(), |sum, one| {
        let mut late = sum.late;
        late.merge(&one.late);
        Progress {
            packets: sum.packets + one.packets,
            octets: sum.octets + one.octets,
            late_max: sum.late_max.max(one.late_max),
            late,
            stalls: sum.stalls + one.stalls,
            refused: sum.refused + one.refused,
            skipped: sum.skipped + one.skipped,
            ..one
        }
    })
}

/// Describes the packets that a slow reader has missed, for the log.
fn skipped_in_words(packets: u64) -> String {
    match packets {
        0 => String::new(),
        packets => format!("the reader was slow over TCP and missed {packets} packets; "),
    }
}

/// Describes a receiver's reports for the log.
fn in_words(view: &ReceiverView, clock_rate_hz: u32) -> String {
    if view.reports == 0 {
        return "the receiver reported nothing".to_owned();
    }
    let lost = match view.last.lost {
        lost @ 0.. => format!("the receiver lost {lost}"),
        // More packets arrived than were sent (RFC 3550 §6.4.1).
        more => format!("the receiver lost none and had {} twice", more.unsigned_abs()),
    };
    let jitter_ms = f64::from(view.jitter_max) * 1e3 / f64::from(clock_rate_hz);
    let round_trip = match view.round_trip {
        Some(time) => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        None => "not known".to_owned(),
    };
    format!("{lost}, jitter {jitter_ms:.1} ms at most, round trip {round_trip}")
}

/// Reads RTCP from one socket until it is aborted or the server has stopped.
pub(crate) async fn receive_rtcp(socket: Arc<UdpSocket>, server: Weak<ServerState>) {
    let mut datagram = vec![0; RTCP_BYTES_MAX];
    loop {
        match socket.recv_from(&mut datagram).await {
            Ok((count, from)) => {
                let Some(server) = server.upgrade() else { return };
                on_rtcp(&server, from, &datagram[..count]);
            }
            // ICMP reports that the client's RTCP port is closed; only reports about the media port
            // count.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
            Err(error) => {
                tracing::warn!("rtcp: {error}");
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
}

/// Handles a datagram received on the shared RTCP port.
pub(crate) fn on_rtcp(server: &ServerState, from: SocketAddr, datagram: &[u8]) {
    match server.sessions.by_rtcp(from) {
        Some(session) => take_rtcp(server, &session, datagram),
        // Its session has just ended or belongs to the previous server process, or it is noise.
        None => server.old_sessions.iter().for_each(|old| old.pass_on(from, datagram)),
    }
}

/// Processes RTCP of a session's client.
pub(crate) fn take_rtcp(server: &ServerState, session: &StreamSession, datagram: &[u8]) {
    let seen = match rtcp::parse(datagram) {
        Ok(seen) => seen,
        Err(malformed) => {
            Meters::count(&server.meters.requests_malformed);
            tracing::debug!("rtcp {}: {malformed}", session.peer_address());
            return;
        }
    };
    let (now, arrival) = (server.now(), ntp(server.clock.moment()));
    session.control.lock().state.note_activity(now, ControlChannel::Rtcp);
    let streams = session.streams();
    for item in seen {
        // A receiver's BYE is not treated as TEARDOWN: anyone can send RTCP from a forged address.
        if let RtcpItem::Report { report, .. } = item
            && let Some(stream) = streams.iter().find(|stream| stream.ssrc == report.ssrc)
        {
            let mut receiver = stream.receiver.lock();
            if receiver.reports > 0 {
                server.watch.reported(&receiver.last, &report);
            }
            receiver.take(&report, arrival);
        }
    }
}

fn look(server: &Arc<ServerState>) {
    server.index.drop_idle();
    server.channel_lists.drop_idle();
    let now = server.now();
    for session in server.sessions.all() {
        let mut control = session.control.lock();
        control.catch_up(&session);
        let playing = control.state.state() == SessionState::Playing;
        if let SessionTransport::Interleaved { output, .. } = &session.first_stream().transport {
            // Sends the rest of a frame that no later send call has completed.
            output.flush();
        }
        if now >= control.state.expires_at() {
            let has_played = control.state.has_played();
            drop(control);
            if has_played {
                end(server, &session, "not heard from");
            } else {
                server.limits.refusals.note(Refused::NotPlayed, session.peer);
                end(server, &session, "not played in time after SETUP");
            }
        } else if let Some(reason) = playing.then(|| fault(server, &session, &control)).flatten() {
            drop(control);
            end(server, &session, reason);
        } else if playing && now >= control.report_at {
            control.report_at = now + rtcp::report_interval(false, random_u32());
            report(&session, &control, server.clock.moment());
        }
    }
}

/// Returns the reason if ICMP reports about the path end a session.
fn fault(
    server: &ServerState,
    session: &StreamSession,
    control: &SessionControl,
) -> Option<&'static str> {
    let verdict = |stream: &Arc<RtpStream>| {
        let fault = stream.link.progress().fault?;
        let receiver = stream.receiver.lock();
        let voices = Voices {
            silent_for: server.now().saturating_sub(control.state.active_at()),
            reports: receiver.reports > 0,
            receives: receiver.last.fraction_lost < u8::MAX,
        };
        fault.verdict(server.clock.now(), voices)
    };
    session.streams().iter().find_map(verdict)
}

/// Sends BYE to a client whose stream has ended, unless a new PLAY has begun meanwhile. BYE is sent
/// to another port than the media, so it can overtake the last packets, and clients that read RTCP
/// first (ffmpeg's rtpproto.c) discard media not read by then: hence the wait.
async fn farewell(session: Arc<StreamSession>, play: u64, clock: Clock) {
    tokio::time::sleep(BYE_AFTER).await;
    let mut control = session.control.lock();
    if control.play == play {
        bye(&session, &mut control, "end of stream", clock.moment());
    }
}

fn report(session: &StreamSession, control: &SessionControl, now: Moment) {
    for stream in session.streams().iter() {
        let progress = stream.link.progress();
        // No report is due before the first packet, or between two plays.
        if progress.clock.is_some() && progress.play == control.under_way {
            let sender = sender(session, stream, control, now);
            stream.transport.send_rtcp(&rtcp::sender_report(&sender, &session.cname));
        }
    }
}

fn bye(session: &StreamSession, control: &mut SessionControl, reason: &str, now: Moment) {
    if !std::mem::replace(&mut control.bye_sent, true) {
        control.catch_up(session);
        for stream in session.streams().iter() {
            let sender = sender(session, stream, control, now);
            stream.transport.send_bye(&rtcp::sender_bye(&sender, &session.cname, reason));
        }
    }
}

/// Returns the packet and octet counts and the current time of the stream's clock.
fn sender(
    session: &StreamSession,
    stream: &RtpStream,
    control: &SessionControl,
    now: Moment,
) -> rtcp::SenderInfo {
    let progress = stream.link.progress();
    let (ticks, ahead_ticks) = match progress.clock {
        Some(clock) => (clock.ticks_at(now.at), clock.ticks_to_start(now.at)),
        None => (0, 0),
    };
    // The clock of a play that follows another starts later than its first packets are sent.
    let ahead = u128::from(ahead_ticks) * u128::from(stream.clock_rate_hz);
    let ahead = (ahead / u128::from(TICKS_PER_SECOND)) as u32;
    let rtp_timestamp = match &control.span {
        PlaySpan::Packets(span) => {
            span.source.asset.timestamp(ticks).wrapping_add(span.shift.timestamp)
        }
        PlaySpan::Samples(span) => {
            let source = &span.source;
            let presented = source.asset.presentation.presented_of_due(ticks);
            let track = match &session.content {
                SessionContent::Tracks(whole) => &whole.asset.presentation.tracks()[stream.track],
                SessionContent::Stream(_) => &source.asset.presentation.tracks()[0],
            };
            track.timestamp(presented + span.shift_ticks)
        }
    };
    rtcp::SenderInfo {
        ssrc: stream.ssrc,
        ntp: ntp(now),
        rtp_timestamp: rtp_timestamp.wrapping_sub(ahead),
        // These are 32-bit counts that wrap (RFC 3550 §6.4.1).
        packets: progress.packets as u32,
        octets: progress.octets as u32,
    }
}

/// Returns the time of the wall clock in the form of NTP (RFC 3550 §4).
fn ntp(now: Moment) -> u64 {
    rtcp::ntp(now.since_epoch().unwrap_or_default())
}

fn over(server: &ServerState, event: Event) {
    let Some(session) = server.sessions.by_number(event.number) else { return };
    match event.over {
        StreamEnd::Finished => {
            let mut control = session.control.lock();
            if event.play != control.play {
                return;
            }
            control.catch_up(&session);
            control.state.ended();
            control.span.rewind();
            control.is_paused = false;
            drop(control);
            tokio::spawn(farewell(session, event.play, server.clock.clone()));
        }
        StreamEnd::Gone => end(server, &session, "the way to the client is gone"),
        StreamEnd::Broken(reason) => {
            tracing::warn!("session {}: {reason}", session.number);
            end(server, &session, "the file cannot be sent any more");
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longer than the largest burst's lead over its due time plus a slow client's pause.
const BYE_AFTER: Duration = Duration::from_millis(300);
const RTCP_BYTES_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_told_of_in_words() {
        let mut view = ReceiverView::default();
        assert_eq!(in_words(&view, 90_000), "the receiver reported nothing");
        (view.reports, view.last.lost, view.jitter_max) = (3, 7, 45);
        let expected = "the receiver lost 7, jitter 0.5 ms at most, round trip not known";
        assert_eq!(in_words(&view, 90_000), expected);
        (view.last.lost, view.round_trip) = (-1, Some(Duration::from_nanos(335_693)));
        let expected = "the receiver lost none and had 1 twice, jitter 0.5 ms at most, round trip \
                        0.3 ms";
        assert_eq!(in_words(&view, 90_000), expected);
    }
}

#[cfg(test)]
#[path = "time_out_tests.rs"]
mod time_out_tests;
