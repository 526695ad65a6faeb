// SPDX-License-Identifier: MIT OR Apache-2.0
//! stream_session: one client's session with its RTP streams on the control side, and the table of
//! all sessions.
//!
//! A session is found by its RTSP identifier (128 random bits, and only from the address that
//! created it), by its RTCP address, and by its number (pacer events). It ends once, by
//! [`StreamSessions::end`], which frees the port, the socket and the pacer's entry. Costs about 1
//! KiB a session here, plus its socket in the kernel.
//!
//! Sources: RFC 2326 §3.4, §12.37 (session identifiers), RFC 3550 §6.
//! Does no I/O.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use media::TICKS_PER_SECOND;
use wire::rtsp::PlayRequest;

use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::limits::SessionPermit;
use crate::pacer::Handle;
use crate::prefetch::{ReadyRange, SendForm};
use crate::rtsp::icmp_faults::{Fault, FaultKind};
use crate::rtsp::play_queue::QueuedPlay;
use crate::rtsp::session_transport::{SessionTransport, UdpTransport};
use crate::watch::LateBuckets;

/// Delivery rate of a play (RFC 2326 §12.35): how many seconds of media are sent in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Speed {
    thousandths: u32,
}

impl Speed {
    pub(crate) const ONE: Speed = Speed { thousandths: 1000 };

    /// Returns the rate nearest to the one asked for: half to four times that of normal play. A
    /// reader that takes less over TCP misses packets, as any slow reader does.
    pub(crate) fn nearest(wanted: f64) -> Speed {
        // No number is cast to zero.
        let thousandths = (wanted.clamp(0.5, 4.0) * 1000.0).round() as u32;
        Speed { thousandths: thousandths.max(500) }
    }

    /// Returns the value of the header.
    pub(crate) fn value(self) -> f64 {
        f64::from(self.thousandths) / 1000.0
    }

    /// Returns the time in which so many seconds of media are sent.
    pub(crate) fn time(self, media_s: f64) -> Duration {
        Duration::from_secs_f64(media_s / self.value())
    }

    /// Returns the media, in ticks, that is sent in this time.
    pub(crate) fn ticks(self, time: Duration) -> u64 {
        let ticks = crate::pacer::ticks(time);
        match self {
            Speed::ONE => ticks,
            Speed { thousandths } => ticks.saturating_mul(thousandths.into()) / 1000,
        }
    }
}

/// Maps wall-clock time to media ticks from one reference point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MediaClock {
    pub(crate) moment: Instant,
    pub(crate) ticks: u64,
    pub(crate) speed: Speed,
}

impl MediaClock {
    pub(crate) fn ticks_at(&self, moment: Instant) -> u64 {
        let passed = self.speed.ticks(moment.saturating_duration_since(self.moment));
        self.ticks.saturating_add(passed)
    }

    /// Returns the media ticks from this moment to the start of a clock that starts later.
    pub(crate) fn ticks_to_start(&self, moment: Instant) -> u64 {
        self.speed.ticks(self.moment.saturating_duration_since(moment))
    }

    pub(crate) fn moment_of(&self, ticks: u64) -> Instant {
        let ahead = u128::from(ticks.saturating_sub(self.ticks));
        let ticks_per_s = TICKS_PER_SECOND / 1000 * u64::from(self.speed.thousandths);
        let ns = ahead * 1_000_000_000 / u128::from(ticks_per_s);
        self.moment + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// Offset that a session adds to sequence numbers and timestamps of its asset's packets.
///
/// Both are continuous and monotonic across jumps (RFC 2326, appendix B): a receiver by RFC 3550
/// §A.1 discards a packet 3000 numbers ahead or 100 behind, and ffmpeg drops everything after a
/// jump back until the numbers have caught up. The shift is zero until the first jump, so the wire
/// image, which holds the asset's own numbers, serves all sessions that play straight on; after a
/// jump a session is served from the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shift {
    pub(crate) sequence: u16,
    pub(crate) timestamp: u32,
}

impl Shift {
    /// Returns the shift with which packet `to` has this sequence number and timestamp.
    pub(crate) fn landing(
        source: &Arc<Source>,
        (sequence, timestamp): (u16, u32),
        to: u64,
    ) -> Shift {
        let first = source.asset.plan.identity().first_sequence;
        let own = first.wrapping_add(to.wrapping_sub(source.asset.first_packet()) as u16);
        Shift {
            sequence: sequence.wrapping_sub(own),
            timestamp: timestamp.wrapping_sub(source.holding(to).timestamp_of(to)),
        }
    }

    /// Returns the shift with which packet `to` continues in place of packet `from`.
    pub(crate) fn jump(self, source: &Arc<Source>, from: u64, to: u64) -> Shift {
        let start = |packet: u64| source.holding(packet).timestamp_of(packet);
        Shift {
            sequence: self.sequence.wrapping_add(from.wrapping_sub(to) as u16),
            timestamp: self.timestamp.wrapping_add(start(from).wrapping_sub(start(to))),
        }
    }
}

/// State of one session that pacer, readers and control share.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) source: Arc<ReadyRange>,
    pub(crate) image: Arc<ReadyRange>,
    progress: Mutex<Progress>,
}

/// Progress of a session's sending.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The next packet of the file or channel to send.
    pub(crate) next: u64,
    /// Packets and payload octets sent, as RTCP counts them.
    pub(crate) packets: u64,
    pub(crate) octets: u64,
    pub(crate) late_max: Duration,
    /// How late they were, those of a slow reader left out.
    pub(crate) late: LateBuckets,
    pub(crate) stalls: u64,
    /// Sends that the kernel refused for want of room.
    pub(crate) refused: u64,
    /// Name of the path that sent last; empty before the first packet.
    pub(crate) path: &'static str,
    /// Packets that a slow reader has missed.
    pub(crate) skipped: u64,
    /// Number of the play that is sent, or was sent last.
    pub(crate) play: u64,
    /// Shift of that play, where it is one of a transport stream.
    pub(crate) shift: Shift,
    /// Numbers by which that shift is ahead of the next packet: those of a lead that is to be sent
    /// before it.
    pub(crate) ahead: u16,
    /// Clock of that play, in ticks of the file or channel; unset until it has started.
    pub(crate) clock: Option<MediaClock>,
    /// Path fault claimed by verified ICMP reports.
    pub(crate) fault: Option<Fault>,
}

/// Packets sent by one step of the pacer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    /// Payload octets.
    pub(crate) octets: u64,
    pub(crate) late_max: Duration,
    pub(crate) late: LateBuckets,
    /// Sends that the kernel refused for want of room.
    pub(crate) refused: u64,
    /// Name of the path.
    pub(crate) path: &'static str,
    /// See [`Progress::ahead`].
    pub(crate) ahead: u16,
}

impl Sent {
    /// True when there is nothing to publish.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets == 0 && self.refused == 0
    }

    /// Adds the packets of one call.
    pub(crate) fn add(&mut self, packets: u64, octets: u64, late: Duration) {
        self.late.add(late, packets);
        self.packets += packets;
        self.octets += octets;
        self.late_max = self.late_max.max(late);
    }
}

impl Link {
    pub(crate) fn mark(&self, form: SendForm) -> Arc<ReadyRange> {
        match form {
            SendForm::Source => self.source.clone(),
            SendForm::Image(_) => self.image.clone(),
        }
    }

    pub(crate) fn start_clock(&self, clock: MediaClock) {
        self.progress.lock().unwrap().clock = Some(clock);
    }

    /// Adds the packets of one step; `next` follows them.
    pub(crate) fn count(&self, next: u64, sent: Sent) {
        let mut progress = self.progress.lock().unwrap();
        progress.next = next;
        progress.packets += sent.packets;
        progress.octets += sent.octets;
        progress.late_max = progress.late_max.max(sent.late_max);
        progress.late.merge(&sent.late);
        progress.refused += sent.refused;
        progress.path = sent.path;
        progress.ahead = sent.ahead;
    }

    /// Counts packets that a slow reader has missed; `next` follows them.
    pub(crate) fn skip(&self, next: u64, packets: u64) {
        let mut progress = self.progress.lock().unwrap();
        (progress.next, progress.ahead) = (next, 0);
        progress.skipped += packets;
    }

    /// Sets the position of a play about to begin, and the numbers that its lead adds. Called while
    /// the pacer does not send.
    pub(crate) fn start_at(&self, next: u64, ahead: u16) {
        let mut progress = self.progress.lock().unwrap();
        (progress.next, progress.ahead) = (next, ahead);
    }

    /// Notes the play that begins.
    pub(crate) fn note_play(&self, play: u64, shift: Shift) {
        let mut progress = self.progress.lock().unwrap();
        (progress.play, progress.shift, progress.clock) = (play, shift, None);
    }

    pub(crate) fn count_stall(&self) {
        self.progress.lock().unwrap().stalls += 1;
    }

    pub(crate) fn report_fault(&self, kind: FaultKind, now: Instant) {
        let mut progress = self.progress.lock().unwrap();
        progress.fault = Some(Fault::after(progress.fault, kind, now));
    }

    pub(crate) fn progress(&self) -> Progress {
        *self.progress.lock().unwrap()
    }
}

/// Content that a session plays.
pub(crate) enum SessionContent {
    /// A transport stream, or a channel.
    Stream(Arc<Source>),
    /// Tracks of a file.
    Tracks(Arc<TrackSource>),
}

/// Content that the current or last play of a session sends.
pub(crate) enum Played<'a> {
    Stream(&'a Arc<Source>),
    /// The file itself, or its pictures at another rate.
    Tracks(&'a Arc<TrackSource>),
}

/// One RTP stream of a session: its only one, or a track.
pub(crate) struct RtpStream {
    /// Index of the track; 0 for a transport stream.
    pub(crate) track: usize,
    pub(crate) ssrc: u32,
    pub(crate) clock_rate_hz: u32,
    pub(crate) link: Arc<Link>,
    pub(crate) transport: SessionTransport,
    pub(crate) receiver: Mutex<wire::rtcp::ReceiverView>,
}

impl RtpStream {
    /// Returns what its receiver has reported.
    pub(crate) fn receiver_view(&self) -> wire::rtcp::ReceiverView {
        *self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session.
pub(crate) struct StreamSession {
    pub(crate) number: u64,
    pub(crate) id: String,
    pub(crate) began: Instant,
    /// User who has logged in, if one has.
    pub(crate) user: OnceLock<String>,
    /// The host that created the session; only this host may command it.
    pub(crate) peer: IpAddr,
    pub(crate) content: SessionContent,
    /// Its RTP streams; at least one.
    streams: RwLock<Arc<[Arc<RtpStream>]>>,
    /// `None` for a session whose media goes to a group.
    pub(crate) pacer: Option<Handle>,
    /// Canonical name in the sender reports (RFC 7022), the same for all of its streams.
    pub(crate) cname: String,
    /// Number of the control connection that created the session.
    pub(crate) connection: u64,
    /// Time of silence after which it ends, as the answers to its SETUPs say.
    pub(crate) timeout: Duration,
    pub(crate) control: Mutex<SessionControl>,
    /// Released when the session ends, before later holders drop the session.
    pub(crate) permit: Mutex<Option<SessionPermit>>,
}

/// What a new session is made of.
pub(crate) struct NewSession {
    pub(crate) number: u64,
    pub(crate) peer: IpAddr,
    pub(crate) connection: u64,
    pub(crate) timeout: Duration,
    pub(crate) content: SessionContent,
    pub(crate) stream: Arc<RtpStream>,
    pub(crate) pacer: Option<Handle>,
    pub(crate) control: SessionControl,
    pub(crate) permit: SessionPermit,
}

impl StreamSession {
    pub(crate) fn new(new: NewSession) -> StreamSession {
        StreamSession {
            number: new.number,
            id: random_id(),
            began: Instant::now(),
            user: OnceLock::new(),
            peer: new.peer,
            content: new.content,
            streams: RwLock::new(Arc::new([new.stream])),
            pacer: new.pacer,
            cname: random_cname(),
            connection: new.connection,
            timeout: new.timeout,
            control: Mutex::new(new.control),
            permit: Mutex::new(Some(new.permit)),
        }
    }

    /// Returns its RTP streams, in the order of their SETUPs.
    pub(crate) fn streams(&self) -> Arc<[Arc<RtpStream>]> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the stream that was set up first.
    pub(crate) fn first_stream(&self) -> Arc<RtpStream> {
        self.streams()[0].clone()
    }

    /// True when its media uses its RTSP connection, and ends with it.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.first_stream().transport.is_interleaved()
    }

    /// Returns the client's address, for the log.
    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.first_stream().transport.peer()
    }

    /// Stops the session's media; returns the next packet (of tracks: its due time) once nothing
    /// more will be sent.
    pub(crate) async fn pause(&self) -> Option<u64> {
        self.pacer.as_ref()?.pause().await
    }
}

/// The part of a session that commands and time change.
pub(crate) struct SessionControl {
    pub(crate) state: wire::rtsp::RtspSession,
    /// First packet of the next PLAY without a range, and its end; due times for tracks.
    pub(crate) resume: u64,
    pub(crate) end: u64,
    /// True when the next PLAY of tracks without a range goes on with each track's next packet.
    pub(crate) is_paused: bool,
    /// Shift of the current or last play.
    pub(crate) shift: Shift,
    /// The same for tracks and for trick play: what is added to presentation time, in ticks.
    pub(crate) shift_ticks: i64,
    /// Pictures that the current or last play shows; unset in normal play. While it is set, the
    /// places above are its due times.
    pub(crate) trick: Option<Arc<TrackSource>>,
    pub(crate) speed: Speed,
    /// Time of the next sender report.
    pub(crate) report_at: Duration,
    pub(crate) bye_sent: bool,
    /// Number of PLAYs, queued ones included, so that the end of an earlier one is not taken for
    /// that of a later.
    pub(crate) play: u64,
    /// Number of the play under way, or of the last one.
    pub(crate) under_way: u64,
    /// Request with the range of that play.
    pub(crate) asked: Option<PlayRequest>,
    /// Plays that follow it, in order.
    pub(crate) queue: VecDeque<QueuedPlay>,
}

impl SessionControl {
    /// Returns what the current or last play sends.
    pub(crate) fn played<'a>(&'a self, content: &'a SessionContent) -> Played<'a> {
        Played::of(self.trick.as_ref(), content)
    }
}

impl<'a> Played<'a> {
    /// Returns what a play sends that shows `pictures`, or the session's content.
    pub(crate) fn of(
        pictures: Option<&'a Arc<TrackSource>>,
        content: &'a SessionContent,
    ) -> Played<'a> {
        match (pictures, content) {
            (Some(pictures), _) | (None, SessionContent::Tracks(pictures)) => {
                Played::Tracks(pictures)
            }
            (None, SessionContent::Stream(source)) => Played::Stream(source),
        }
    }
}

/// Table of all sessions. One lock, held for look-ups only.
pub(crate) struct StreamSessions {
    tables: Mutex<Tables>,
    next_number: AtomicU64,
}

#[derive(Default)]
struct Tables {
    by_id: HashMap<String, Arc<StreamSession>>,
    by_number: HashMap<u64, Arc<StreamSession>>,
    by_rtcp: HashMap<SocketAddr, Arc<StreamSession>>,
}

impl StreamSessions {
    pub(crate) fn new() -> StreamSessions {
        StreamSessions { tables: Mutex::default(), next_number: AtomicU64::new(1) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn insert(&self, session: Arc<StreamSession>) {
        let mut tables = self.tables.lock().unwrap();
        if let Some(rtcp_peer) = session.first_stream().transport.rtcp_peer() {
            tables.by_rtcp.insert(rtcp_peer, session.clone());
        }
        tables.by_number.insert(session.number, session.clone());
        tables.by_id.insert(session.id.clone(), session);
    }

    /// Adds a stream to a session; returns false if the session has ended or has the track.
    pub(crate) fn add_stream(&self, session: &Arc<StreamSession>, stream: Arc<RtpStream>) -> bool {
        let mut tables = self.tables.lock().unwrap();
        if !tables.by_number.contains_key(&session.number) {
            return false;
        }
        let mut streams = session.streams.write().unwrap_or_else(PoisonError::into_inner);
        if streams.iter().any(|other| other.track == stream.track) {
            return false;
        }
        if let Some(rtcp_peer) = stream.transport.rtcp_peer() {
            tables.by_rtcp.insert(rtcp_peer, session.clone());
        }
        *streams = streams.iter().cloned().chain([stream]).collect();
        true
    }

    /// Finds a session by RTSP identifier for commands from `peer`; `None` for other hosts'
    /// sessions.
    pub(crate) fn find(&self, id: &str, peer: IpAddr) -> Option<Arc<StreamSession>> {
        let tables = self.tables.lock().unwrap();
        tables.by_id.get(id).filter(|session| session.peer == peer).cloned()
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<Arc<StreamSession>> {
        self.tables.lock().unwrap().by_number.get(&number).cloned()
    }

    pub(crate) fn by_rtcp(&self, from: SocketAddr) -> Option<Arc<StreamSession>> {
        self.tables.lock().unwrap().by_rtcp.get(&from).cloned()
    }

    /// Removes the session and stops its stream. False if it was removed before.
    pub(crate) fn end(&self, session: &Arc<StreamSession>) -> bool {
        let mut tables = self.tables.lock().unwrap();
        if tables.by_number.remove(&session.number).is_none() {
            return false;
        }
        tables.by_id.remove(&session.id);
        let same = |found: &Arc<StreamSession>| found.number == session.number;
        session.pacer.iter().for_each(Handle::remove);
        drop(session.permit.lock().unwrap().take());
        for stream in session.streams().iter() {
            if let Some(rtcp_peer) = stream.transport.rtcp_peer()
                && tables.by_rtcp.get(&rtcp_peer).is_some_and(same)
            {
                tables.by_rtcp.remove(&rtcp_peer);
            }
            if let SessionTransport::Udp(UdpTransport { rtcp_task: Some(task), .. }) =
                &stream.transport
            {
                task.abort();
            }
        }
        true
    }

    pub(crate) fn all(&self) -> Vec<Arc<StreamSession>> {
        self.tables.lock().unwrap().by_number.values().cloned().collect()
    }

    /// Returns the number of sessions whose media uses their RTSP connection.
    pub(crate) fn interleaved(&self) -> usize {
        let tables = self.tables.lock().unwrap();
        tables.by_number.values().filter(|session| session.is_interleaved()).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.lock().unwrap().by_number.len()
    }
}

/// Returns a random canonical name (CNAME).
pub(crate) fn random_cname() -> String {
    let mut bits = [0_u8; 12];
    getrandom::fill(&mut bits).expect("the kernel has random bits once it runs");
    wire::rtcp::cname(bits)
}

/// Returns 128 random bits in hexadecimal: RFC 2326 §3.4 asks for at least 64.
pub(crate) fn random_id() -> String {
    let mut bits = [0_u8; 16];
    getrandom::fill(&mut bits).expect("the kernel has random bits once it runs");
    bits.iter().map(|byte| format!("{byte:02x}")).collect()
}
