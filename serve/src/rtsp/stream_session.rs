// SPDX-License-Identifier: MIT OR Apache-2.0
//! One client's session with its RTP streams on the control side, and the table of all sessions.
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
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use wire::rtsp::PlayRequest;

use crate::library::asset::Source;
use crate::library::track_asset::TrackSource;
use crate::limits::SessionPermit;
use crate::pacer::Handle;
use crate::play::{Link, Speed};
use crate::random::{random_cname, random_id};
use crate::rtsp::play_queue::QueuedPlay;
use crate::rtsp::play_span::PlaySpan;
use crate::rtsp::session_transport::{SessionTransport, UdpTransport};

/// Content that a session plays.
pub(crate) enum SessionContent {
    /// A transport stream, or a channel.
    Stream(Arc<Source>),
    /// Tracks of a file.
    Tracks(Arc<TrackSource>),
}

impl SessionContent {
    /// Returns the name of the file or channel.
    pub(crate) fn name(&self) -> &str {
        match self {
            SessionContent::Stream(source) => &source.asset.name,
            SessionContent::Tracks(source) => &source.asset.name,
        }
    }
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
    /// Returns the state that its receiver has reported.
    pub(crate) fn receiver_view(&self) -> wire::rtcp::ReceiverView {
        *self.receiver.lock()
    }
}

/// A session.
pub(crate) struct StreamSession {
    pub(crate) number: u64,
    pub(crate) id: String,
    pub(crate) began: Instant,
    /// User who has logged in, if one has.
    pub(crate) user: OnceLock<String>,
    /// The host that created the session; requests from other hosts are refused.
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
    /// Silence after which the session ends, as the responses to its SETUPs announce.
    pub(crate) timeout: Duration,
    pub(crate) control: Mutex<SessionControl>,
    /// Released when the session ends, before later holders drop the session.
    pub(crate) permit: Mutex<Option<SessionPermit>>,
}

/// Parts of a new session.
pub(crate) struct NewSession {
    pub(crate) number: u64,
    pub(crate) began: Instant,
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
            began: new.began,
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
        self.streams.read().clone()
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

/// State of a session that requests and timers change.
pub(crate) struct SessionControl {
    pub(crate) state: wire::rtsp::RtspSession,
    /// Media of the current or last play. While nothing is sent, its position is that of the next
    /// PLAY without a range.
    pub(crate) span: PlaySpan,
    /// True if the next PLAY of tracks without a range continues with each track's next packet.
    pub(crate) is_paused: bool,
    /// True if a track was added since the last PLAY: it has no next packet to continue with.
    pub(crate) has_new_track: bool,
    pub(crate) speed: Speed,
    /// Time of the next sender report.
    pub(crate) report_at: Duration,
    pub(crate) bye_sent: bool,
    /// Number of PLAYs, queued ones included; distinguishes the end of an earlier play from the end
    /// of a later one.
    pub(crate) play: u64,
    /// Number of the play under way, or of the last one.
    pub(crate) under_way: u64,
    /// Request with the range of that play.
    pub(crate) asked: Option<PlayRequest>,
    /// Plays that follow it, in order.
    pub(crate) queue: VecDeque<QueuedPlay>,
}

impl SessionControl {
    /// Creates the state of a session that has not played yet.
    pub(super) fn new(content: &SessionContent, state: wire::rtsp::RtspSession) -> SessionControl {
        SessionControl {
            state,
            span: PlaySpan::whole(content),
            is_paused: false,
            has_new_track: false,
            speed: Speed::ONE,
            report_at: Duration::ZERO,
            bye_sent: false,
            play: 0,
            under_way: 0,
            asked: None,
            queue: VecDeque::new(),
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
        let mut tables = self.tables.lock();
        if let Some(rtcp_peer) = session.first_stream().transport.rtcp_peer() {
            tables.by_rtcp.insert(rtcp_peer, session.clone());
        }
        tables.by_number.insert(session.number, session.clone());
        tables.by_id.insert(session.id.clone(), session);
    }

    /// Adds a stream to a session; returns false if the session has ended or has the track.
    pub(crate) fn add_stream(&self, session: &Arc<StreamSession>, stream: Arc<RtpStream>) -> bool {
        let mut tables = self.tables.lock();
        if !tables.by_number.contains_key(&session.number) {
            return false;
        }
        let mut streams = session.streams.write();
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
        let tables = self.tables.lock();
        tables.by_id.get(id).filter(|session| session.peer == peer).cloned()
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<Arc<StreamSession>> {
        self.tables.lock().by_number.get(&number).cloned()
    }

    pub(crate) fn by_rtcp(&self, from: SocketAddr) -> Option<Arc<StreamSession>> {
        self.tables.lock().by_rtcp.get(&from).cloned()
    }

    /// Removes the session and stops its stream. False if it was removed before.
    pub(crate) fn end(&self, session: &Arc<StreamSession>) -> bool {
        let mut tables = self.tables.lock();
        if tables.by_number.remove(&session.number).is_none() {
            return false;
        }
        tables.by_id.remove(&session.id);
        let same = |found: &Arc<StreamSession>| found.number == session.number;
        session.pacer.iter().for_each(Handle::remove);
        drop(session.permit.lock().take());
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
        self.tables.lock().by_number.values().cloned().collect()
    }

    /// Returns the number of sessions whose media uses their RTSP connection.
    pub(crate) fn interleaved(&self) -> usize {
        let tables = self.tables.lock();
        tables.by_number.values().filter(|session| session.is_interleaved()).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.lock().by_number.len()
    }
}
