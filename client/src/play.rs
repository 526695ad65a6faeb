// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verifying play of a stream: its settings, DESCRIBE and SETUP.
//!
//! The module `play_session` runs the play from PLAY to TEARDOWN; `stream_setup` sends SETUP. With
//! [`TransportChoice::Auto`] a second session by TCP follows a first by UDP that the server refused
//! with 461 or that received no packet, as in players.
//!
//! Sources: RFC 2326 §10.2, §10.4, §11.3.12 (461), C.1 (description).
//! Does not seek or change the range while it plays.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clock::Clock;
use media::mux::{MediaWriter, WriterKind};
use media::{Codec, MuxRefusal};
use wire::rtsp::{NptRange, NptStart};
use wire::sdp::TrackOffer;

use super::chosen_stream::{ChosenStream, StreamChoice, choose_streams};
use super::file_writer::FileWriter;
use super::login::ClientLogin;
use super::output_end::OutputEnd;
use super::packet_intake::{AnnouncedSender, StreamFormat};
use super::play_session::{PlaySession, ReceiverTasks, StreamTasks};
use super::receive_thread::ReceiveThread;
use super::rtcp_reporter::RtcpReporter;
use super::rtsp_connection::RtspConnection;
use super::stop::{Stop, stopped};
use super::stream_setup::set_up_streams;
use super::track_file::TrackFile;
use super::track_muxer::TrackMuxer;
use super::track_queue::TrackQueue;
use super::track_receiver::TrackReceiver;
use super::transport::{StreamTransport, TransportChoice};
use super::verdict::Verdict;
use crate::error::{ClientSetting, Error};

/// Stream to play, and settings.
#[non_exhaustive]
pub struct Play {
    /// `rtsp://HOST:PORT/PATH`, without user and password.
    pub url: String,
    /// Answers to a server that asks for a password.
    pub login: ClientLogin,
    /// Writes the transport stream, or the tracks, to this file; replaces an existing file. The
    /// extension selects MP4 or transport stream for tracks.
    pub output: Option<PathBuf>,
    /// Start in normal play time; the beginning by default.
    pub start: Option<Duration>,
    /// Length to play; up to the end by default. PLAY requests that range, and the client leaves a
    /// server that exceeds it.
    pub length: Option<Duration>,
    /// Sends PAUSE after the first duration of play time, waits for the second, and sends PLAY
    /// again.
    pub pause: Option<(Duration, Duration)>,
    /// Transport requested of the server.
    pub transport: TransportChoice,
    /// Ends the play when it is ready, such as on Ctrl-C.
    pub stop: Option<Stop>,
}

impl Play {
    /// The whole asset at `url`, without a file.
    pub fn new(url: impl Into<String>) -> Play {
        let url = url.into();
        let (login, transport) = (ClientLogin::default(), TransportChoice::Auto);
        let (output, start, length, pause, stop) = (None, None, None, None, None);
        Play { url, login, output, start, length, pause, transport, stop }
    }

    /// A copy without `stop`, for one session.
    fn attempt(&self) -> Play {
        let Play { url, login, output, start, length, pause, transport, stop: _ } = self;
        let (url, login, output) = (url.clone(), login.clone(), output.clone());
        let (start, length, pause, transport) = (*start, *length, *pause, *transport);
        Play { url, login, output, start, length, pause, transport, stop: None }
    }
}

/// Progress of a play.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PlayProgress {
    /// Packets received.
    pub packets: u64,
    /// Their payload, in bytes.
    pub payload_bytes: u64,
    /// Packets missing so far; reordered ones may still arrive.
    pub lost: u64,
    /// Length of the received media.
    pub media: Duration,
    /// Length of the announced range, if any.
    pub media_total: Option<Duration>,
    /// Time since the answer to PLAY.
    pub wall: Duration,
    /// Lateness of the last packet against the earliest so far.
    pub lateness: Duration,
    /// The play is paused.
    pub is_paused: bool,
}

/// Plays a stream and returns the verdict. `progress` is called four times a second. Dropping the
/// future ends the play at once, without TEARDOWN.
///
/// # Errors
/// The play cannot begin, or a file cannot be written. The verdict reports faults after the first
/// packet.
pub async fn play(
    mut options: Play,
    progress: impl FnMut(&PlayProgress),
) -> Result<Verdict, Error> {
    let range = range(&options)?;
    let mut stop = options.stop.take().unwrap_or_else(|| Box::pin(pending()));
    let mut progress = progress;
    let first = options.transport.first(&options.url);
    let played = play_by(&options, first, range, &mut stop, &mut progress).await;
    let reason = match &played {
        Err(Error::Refused { status: UNSUPPORTED_TRANSPORT, .. }) => "the server refused UDP (461)",
        Err(Error::NoPacket { .. }) => "no packet came over UDP",
        _ => return played,
    };
    if options.transport != TransportChoice::Auto || first != StreamTransport::Udp {
        return played;
    }
    let second = StreamTransport::Tcp;
    match play_by(&options, second, range, &mut stop, &mut progress).await {
        Ok(verdict) => Ok(Verdict { transport_reason: Some(reason.to_owned()), ..verdict }),
        // The error of the first session is more specific.
        Err(_) => played,
    }
}

/// Plays in one session.
async fn play_by(
    options: &Play,
    transport: StreamTransport,
    range: NptRange,
    stop: &mut Stop,
    progress: &mut impl FnMut(&PlayProgress),
) -> Result<Verdict, Error> {
    let (session, equipment) = tokio::select! {
        prepared = prepare(options.attempt(), transport) => prepared?,
        () = stopped(stop) => return Err(Error::Peer {
            peer: "play".to_owned(),
            found: "stopped before the stream began".to_owned(),
        }),
    };
    session.play_to_end(range, equipment, stop, progress).await
}

/// Sends DESCRIBE and SETUP.
async fn prepare(
    options: Play,
    transport: StreamTransport,
) -> Result<(PlaySession, ReceiverTasks), Error> {
    let opened = RtspConnection::open_described(&options.url, &options.login, transport).await;
    let (mut control, described) = opened?;
    let duration = described.offer.duration;
    let StreamChoice { streams: chosen, left_out, .. } = choose_streams(&control, described)?;
    let is_presentation = chosen.iter().any(|stream| stream.depayloader.is_some());
    let kind = match &options.output {
        Some(path) if is_presentation => Some(writer_kind(path, &chosen)?),
        _ => None,
    };
    let urls: Vec<_> = chosen.iter().map(|stream| stream.url.clone()).collect();
    let setups = set_up_streams(&mut control, transport, &urls).await?;
    let (sinks, queue) = TrackQueue::new(chosen.len(), &Clock::HOST);
    let mut sinks = sinks.into_iter();
    let rates = chosen.iter().map(|stream| stream.offer.clock_rate_hz).collect();
    // Only after SETUP: a refusal by the server must not destroy an existing file.
    let (mut plain_file, mut track_file) = (None, None);
    let output_end = OutputEnd::default();
    if let Some(path) = options.output.as_deref() {
        match kind {
            Some(kind) => {
                let mut muxer = TrackMuxer::new(kind, chosen.len(), &Clock::HOST);
                muxer.name_languages(chosen.iter().map(|stream| stream.offer.language.as_deref()));
                track_file = Some(TrackFile::create(path, muxer, queue, rates, &output_end)?);
            }
            None => plain_file = Some(FileWriter::create(path, &output_end)?),
        }
    }
    let mut streams = Vec::with_capacity(setups.len());
    let mut first_reply = None;
    for (stream, set_up) in chosen.into_iter().zip(setups) {
        let ChosenStream { url, offer, depayloader } = stream;
        let sink = sinks.next().filter(|_| track_file.is_some());
        let track = depayloader.is_some().then(|| offer.format_name());
        let format = match depayloader {
            None => StreamFormat::TransportStream(plain_file.take()),
            Some(depayloader) => {
                let is_video = offer.media == "video";
                StreamFormat::Track(Box::new(TrackReceiver::new(depayloader, is_video, sink)))
            }
        };
        let TrackOffer { payload_type, clock_rate_hz, .. } = offer;
        let ssrc = set_up.reply.ssrc;
        let sender = AnnouncedSender { host: Some(set_up.host), ssrc, payload_type, clock_rate_hz };
        let receiving = ReceiveThread::start(set_up.input, sender, format)?;
        let reporter = RtcpReporter::new(set_up.rtcp, receiving.intake.shared());
        first_reply.get_or_insert(set_up.reply);
        streams.push(StreamTasks {
            receiving,
            reporter,
            url,
            track,
            clock_rate_hz,
            place: set_up.place,
            buffer_bytes: set_up.buffer_bytes,
        });
    }
    let reply = first_reply.expect("a description has a stream");
    let equipment = ReceiverTasks { streams, transport, track_file, output_end };
    let mut session = PlaySession::new(options, control, &reply, duration);
    session.left_out = left_out;
    Ok((session, equipment))
}

/// The file format for an output of tracks. PCM that the format does not hold is refused before
/// play.
fn writer_kind(path: &Path, chosen: &[ChosenStream]) -> Result<WriterKind, Error> {
    let refused = |refusal: MuxRefusal| Error::Setting {
        setting: ClientSetting::Output,
        found: path.display().to_string(),
        cure: refusal.to_string(),
    };
    let kind = WriterKind::of_name(path).map_err(refused)?;
    let codecs = chosen.iter().filter_map(|stream| stream.depayloader.as_ref()?.codec());
    for codec in codecs.filter(|codec| matches!(codec, Codec::Pcm(_))) {
        MediaWriter::new(kind, std::slice::from_ref(codec)).map_err(refused)?;
    }
    Ok(kind)
}

/// Checks the settings and returns the range to request.
fn range(options: &Play) -> Result<NptRange, Error> {
    let wrong = |setting, found: Duration, cure: &str| Error::Setting {
        setting,
        found: format!("{} s", found.as_secs_f64()),
        cure: cure.to_owned(),
    };
    if let Some(length) = options.length.filter(|length| *length < LENGTH_MIN) {
        return Err(wrong(ClientSetting::Length, length, "write a millisecond or more"));
    }
    if let Some((_, rest)) = options.pause.filter(|(_, rest)| *rest < LENGTH_MIN) {
        return Err(wrong(
            ClientSetting::Pause,
            rest,
            "write how long to pause, a millisecond or more",
        ));
    }
    let start = options.start.unwrap_or_default();
    let end = options.length.map(|length| start.saturating_add(length));
    Ok(NptRange { start: NptStart::At(start), end })
}

/// RFC 2326 §11.3.12.
const UNSUPPORTED_TRANSPORT: u16 = 461;
/// Normal play time is written in milliseconds; a shorter range would be empty.
const LENGTH_MIN: Duration = Duration::from_millis(1);
