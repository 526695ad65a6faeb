// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's RTSP connection: sends requests, matches answers, and makes errors of refusals.
//!
//! An error names the server, the request, the status, the reason in the body, and the cure where
//! it is known, since the user sees nothing else.
//!
//! Without media on the connection, the waiting request reads it; with media, one task does
//! (`frame_reader`).
//!
//! A challenge (401) is answered by [`ConnectionLogin`], for every request and also through a
//! tunnel.
//!
//! Sources: RFC 2326 §7, §10.12, §11, §14.
//! Does not follow redirections of other requests than DESCRIBE, or wait for answers to
//! keep-alives.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use wire::rtsp::client::{Client, DescribedSession, Reply, ReplyReader};
use wire::rtsp::{ChannelPair, Fault, Limits};

use super::channel_rtcp::ChannelRtcp;
use super::connect::{authority, connect, connect_from};
use super::control_stream::{ControlStream, StreamReader};
use super::control_writer::{ControlWriter, SharedWriter};
use super::demultiplexer::{StreamDemultiplexer, StreamPart};
use super::frame_reader::{CLOSED, FrameReader, FrameRoute, NoReply, PacketSink};
use super::login::{
    CHALLENGE, ClientLogin, ConnectionLogin, LoginRefusal, SentAnswer, UNAUTHORIZED, rtsp_server,
};
use super::media_names::names_of;
use super::read_pace::ReadPace;
use super::rtsp_refusal::{WORDS_CHARS_MAX, refusal};
use super::transport::{StreamTransport, check_transport};
use super::unasked_input::{UnaskedCounts, UnaskedInput};
use super::{one_line, rtsp_client, tls, tunnel, without_userinfo};
use crate::error::Error;

/// A connection to an RTSP server.
pub(super) struct RtspConnection {
    pub(super) client: Client,
    login: ConnectionLogin,
    inbound: Inbound,
    writer: SharedWriter,
    is_tunnel: bool,
    /// The connection is another one than at first.
    has_reopened: bool,
    pub(super) local: SocketAddr,
    pub(super) remote: IpAddr,
    pub(super) server: SocketAddr,
    peer: String,
    /// Keep-alives are OPTIONS, not GET_PARAMETER.
    uses_options: bool,
    /// The last keep-alive, until it is granted.
    unanswered: Option<KeepAlive>,
    /// The refusal of a keep-alive was logged.
    warns_no_more: bool,
    /// Counts of unsolicited input.
    pub(super) unasked: Arc<UnaskedCounts>,
}

/// A keep-alive that was sent.
struct KeepAlive {
    cseq: u32,
    answer: Option<SentAnswer>,
}

/// Receiving side of a connection.
enum Inbound {
    /// No media: the waiting request reads.
    Direct(Box<DirectReader>),
    /// A task reads, and separates media from replies.
    Task(ReaderTask),
    /// The connection was given up.
    Ended,
}

/// Receiving side of a connection without media.
struct DirectReader {
    stream: StreamReader,
    demultiplexer: StreamDemultiplexer,
    /// Replies that no request has consumed yet.
    replies: VecDeque<Reply>,
    unasked: UnaskedInput,
    buffer: Vec<u8>,
}

impl DirectReader {
    fn new(stream: StreamReader) -> DirectReader {
        DirectReader {
            stream,
            demultiplexer: StreamDemultiplexer::new(ReplyReader::new(Limits::default())),
            replies: VecDeque::new(),
            unasked: UnaskedInput::new(),
            buffer: vec![0; READ_BYTES],
        }
    }

    /// Parses bytes of the connection; frames are counted and discarded.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), NoReply> {
        let DirectReader { demultiplexer, replies, unasked, .. } = self;
        unasked.advance(Instant::now());
        demultiplexer.feed(bytes, |part| {
            let accepted = match part {
                StreamPart::Reply(reply) => {
                    replies.push_back(reply);
                    Ok(())
                }
                StreamPart::Frame { channel, data } => unasked.note_frame(channel, data.len()),
                StreamPart::Message(bytes) => unasked.note_message(bytes),
                StreamPart::Strays(bytes) => unasked.note_strays(bytes),
            };
            accepted.map_err(|_| NoReply::Lost(unasked.reason()))
        })
    }
}

/// The task that reads a connection; dropping this ends the task.
struct ReaderTask {
    replies: mpsc::Receiver<Reply>,
    ended: Arc<OnceLock<NoReply>>,
    task: JoinHandle<()>,
}

impl Drop for ReaderTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RtspConnection {
    /// Connects to the server of a URL; uses a tunnel for [`StreamTransport::Http`].
    pub(super) async fn open(
        url: &str,
        login: ClientLogin,
        transport: StreamTransport,
    ) -> Result<RtspConnection, Error> {
        let client = rtsp_client(url)?;
        check_transport(url, transport)?;
        let stream = connect(client.host(), client.port()).await?;
        if transport != StreamTransport::Http {
            return RtspConnection::over(client, login, stream).await;
        }
        let server = stream.peer_addr().map_err(|source| Error::Host {
            call: "getpeername",
            object: authority(client.host(), client.port()),
            source,
        })?;
        RtspConnection::tunnelled((client, url), login, stream, (None, server)).await
    }

    /// Uses an open connection; for an `rtsps:` URL the handshake of TLS follows.
    pub(super) async fn over(
        client: Client,
        mut login: ClientLogin,
        stream: TcpStream,
    ) -> Result<RtspConnection, Error> {
        // TLS hides the password of Basic on the way.
        login.allows_basic |= client.is_tls();
        let stream = secured(&client, &login, stream).await?;
        let ends = ends(&client, &stream)?;
        let (reading, writing) = stream.into_split();
        let login = ConnectionLogin::new(login);
        Ok(RtspConnection::new((client, login), ends, reading, ControlWriter::new(writing)))
    }

    /// Uses an open connection as the first of a tunnel.
    pub(super) async fn tunnelled(
        (client, url): (Client, &str),
        login: ClientLogin,
        stream: TcpStream,
        (source, server): (Option<IpAddr>, SocketAddr),
    ) -> Result<RtspConnection, Error> {
        check_transport(url, StreamTransport::Http)?;
        let mut login = ConnectionLogin::new(login);
        let path = tunnel::path_of(url);
        let connect = || connect_from(source, server);
        let opened = tunnel::open((&client, &path), &mut login, stream, connect).await?;
        let get = ControlStream::Plain(opened.get);
        let ends = ends(&client, &get)?;
        let (reading, get) = get.into_split();
        let writer = ControlWriter::tunnel(ControlStream::Plain(opened.post).into_split().1, get);
        let mut connection = RtspConnection::new((client, login), ends, reading, writer);
        connection.is_tunnel = true;
        if let Inbound::Direct(direct) = &mut connection.inbound {
            direct.feed(&opened.rest).map_err(|no_reply| connection.no_reply("GET", no_reply))?;
        }
        Ok(connection)
    }

    fn new(
        (client, login): (Client, ConnectionLogin),
        (local, server): (SocketAddr, SocketAddr),
        stream: StreamReader,
        writer: SharedWriter,
    ) -> RtspConnection {
        let peer = peer_of(&client);
        let direct = DirectReader::new(stream);
        let unasked = direct.unasked.counts.clone();
        let inbound = Inbound::Direct(Box::new(direct));
        let remote = server.ip();
        RtspConnection {
            client,
            login,
            inbound,
            writer,
            is_tunnel: false,
            has_reopened: false,
            local,
            remote,
            server,
            peer,
            uses_options: false,
            unanswered: None,
            warns_no_more: false,
            unasked,
        }
    }

    /// Starts a task that reads the connection from now on and passes the RTP packets of a channel
    /// to the sink. Returns the RTCP channel.
    ///
    /// # Panics
    /// A task reads the connection already.
    pub(super) fn read_frames(
        &mut self,
        channels: ChannelPair,
        sink: impl PacketSink,
        pace: ReadPace,
    ) -> ChannelRtcp {
        self.read_streams(vec![(channels, sink)], pace).remove(0)
    }

    /// Does the same for several streams; returns the RTCP channel of each.
    ///
    /// # Panics
    /// A task reads the connection already.
    pub(super) fn read_streams<S: PacketSink>(
        &mut self,
        streams: Vec<(ChannelPair, S)>,
        pace: ReadPace,
    ) -> Vec<ChannelRtcp> {
        let Inbound::Direct(direct) = std::mem::replace(&mut self.inbound, Inbound::Ended) else {
            panic!("a task reads the connection already");
        };
        let DirectReader { stream, mut demultiplexer, unasked, .. } = *direct;
        let named = streams.iter().flat_map(|(channels, _)| [channels.rtp, channels.rtcp]);
        demultiplexer.channels = named.collect();
        let (to_replies, replies) = mpsc::channel(REPLIES_MAX);
        let route = |(channels, sink): (ChannelPair, S)| {
            let (rtcp, channel) = ChannelRtcp::new(channels.rtcp, self.writer.clone());
            (FrameRoute { channels, sink, rtcp, is_heard: false }, channel)
        };
        let (routes, channels) = streams.into_iter().map(route).unzip();
        let reader =
            FrameReader { stream, demultiplexer, routes, replies: to_replies, unasked, pace };
        let ended = Arc::new(OnceLock::new());
        let task = tokio::spawn(reader.run(ended.clone()));
        self.inbound = Inbound::Task(ReaderTask { replies, ended, task });
        channels
    }

    /// Connects to the server of a URL and requests the description of a presentation; follows a
    /// few redirections of DESCRIBE. The login is for the server of the URL: another one, by host
    /// or port, gets nothing of it. None leads out of TLS or into it, or away from a pinned
    /// certificate, which the user decides.
    pub(super) async fn open_described(
        url: &str,
        login: &ClientLogin,
        transport: StreamTransport,
    ) -> Result<(RtspConnection, DescribedSession), Error> {
        let first = rtsp_server(url);
        let is_pinned = login.trust.as_ref().is_some_and(|trust| trust.is_pinned);
        let mut url = url.to_owned();
        for _ in 0..REDIRECTIONS_MAX {
            let is_same = rtsp_server(&url) == first;
            let login = if is_same { login.clone() } else { login.redirected() };
            let mut connection = RtspConnection::open(&url, login, transport).await?;
            let reply = connection.send("DESCRIBE", |client| client.describe()).await?;
            let Some(to) = connection.client.moved(&reply) else {
                let described = connection.described(reply)?;
                return Ok((connection, described));
            };
            let shown = connection.login.masked(&to);
            let (is_tls, next) = (connection.client.is_tls(), rtsp_server(&to));
            let fault = match next.as_ref().is_some_and(|next| next.is_tls) {
                true if !is_tls => Some("over TLS"),
                false if is_tls => Some("without TLS"),
                true if is_pinned && next != first => Some("another server than the pinned one"),
                _ => None,
            };
            if let Some(fault) = fault {
                let status = reply.status();
                let found = format!("{status} to {shown}, {fault}; write that address instead");
                return Err(connection.fault("DESCRIBE", found));
            }
            tracing::info!("{}: DESCRIBE: {}; going to {shown}", connection.peer, reply.status());
            url = to;
        }
        let peer = without_userinfo(&url);
        let found = format!("DESCRIBE: more than {REDIRECTIONS_MAX} redirections");
        Err(Error::Peer { peer, found })
    }

    /// Requests the description of a presentation.
    pub(super) async fn describe_session(&mut self) -> Result<DescribedSession, Error> {
        let reply = self.send("DESCRIBE", |client| client.describe()).await?;
        self.described(reply)
    }

    fn described(&mut self, reply: Reply) -> Result<DescribedSession, Error> {
        let reply = self.granted("DESCRIBE", reply)?;
        self.client.described_session(&reply).map_err(|malformed| match malformed.fault {
            Fault::NoStream { offered } => self.no_transport_stream(&[offered]),
            _ => self.fault("DESCRIBE", malformed),
        })
    }

    /// Makes the error for a description without a stream that can be received.
    pub(super) fn no_transport_stream(&self, offered: &[String]) -> Error {
        let (peer, offered) = (self.peer.clone(), names_of(&offered.join(", ")));
        Error::NoTransportStream { peer, offered }
    }

    /// Sends a request and waits for its answer. Any status but 200 is an error.
    pub(super) async fn ask(
        &mut self,
        what: &'static str,
        request: impl FnOnce(&mut Client) -> Vec<u8>,
    ) -> Result<Reply, Error> {
        let reply = self.send(what, request).await?;
        self.granted(what, reply)
    }

    /// Sends a request and waits for its answer of any status but 401, which is answered.
    async fn send(
        &mut self,
        what: &'static str,
        request: impl FnOnce(&mut Client) -> Vec<u8>,
    ) -> Result<Reply, Error> {
        let mut request = request(&mut self.client);
        // Held until the password is known to be right or wrong.
        let mut turn = None;
        loop {
            if turn.is_none() {
                let waited = self.login.turn().await;
                turn = waited.map_err(|reason| self.login_error(what, reason))?;
            }
            let (authorized, sent) = self.login.authorize(&request);
            let late = |_| Err(NoReply::Lost(format!("no answer in {} s", ANSWER_WAIT.as_secs())));
            let reply = timeout(ANSWER_WAIT, self.exchange(&authorized)).await;
            let is_late = reply.is_err();
            let reply = match reply.unwrap_or_else(late) {
                Ok(reply) => reply,
                Err(NoReply::Lost(found)) => {
                    // The connection may have ended behind the challenge, before the answer.
                    let is_early = !is_late && self.login.is_first(sent.as_ref());
                    if is_early && !self.has_reopened && self.reopen().await? {
                        request = self.client.again(&request);
                        continue;
                    }
                    // Some cameras refuse a password so.
                    return Err(match self.login.unanswered(sent.as_ref(), &found) {
                        Some(reason) => self.login_error(what, reason),
                        None => self.no_reply(what, NoReply::Lost(found)),
                    });
                }
                Err(no_reply) => return Err(self.no_reply(what, no_reply)),
            };
            match reply.status() {
                UNAUTHORIZED => {
                    let field = reply.header(CHALLENGE);
                    let challenged = self.login.accept_challenge(field, sent.as_ref());
                    challenged.map_err(|reason| self.login_error(what, reason))?;
                    request = self.client.again(&request);
                    let closes = reply.header("Connection").unwrap_or_default().split(',');
                    if closes.map(str::trim).any(|word| word.eq_ignore_ascii_case("close")) {
                        self.reopen().await?;
                    }
                }
                status => {
                    match status {
                        200 => self.login.note_granted(sent.as_ref()),
                        FORBIDDEN => self.login.note_forbidden(sent.as_ref()),
                        _ => {}
                    }
                    return Ok(reply);
                }
            }
        }
    }

    /// Opens another connection in place of this one, which the server closes behind a challenge.
    /// Its session, if any, continues: RTSP binds none to a connection (RFC 2326 §1.1). Returns
    /// false where that is not possible.
    async fn reopen(&mut self) -> Result<bool, Error> {
        // Media on the connection and tunnels end with it: the next request reports the end.
        if !matches!(self.inbound, Inbound::Direct(_)) || self.is_tunnel {
            return Ok(false);
        }
        self.has_reopened = true;
        let stream = connect_from(Some(self.local.ip()), self.server).await?;
        let stream = secured(&self.client, self.login.login(), stream).await?;
        (self.local, self.server) = ends(&self.client, &stream)?;
        let (reading, writing) = stream.into_split();
        self.inbound = Inbound::Direct(Box::new(DirectReader::new(reading)));
        self.writer = ControlWriter::new(writing);
        Ok(true)
    }

    fn login_error(&self, what: &str, reason: LoginRefusal) -> Error {
        Error::Login { peer: self.peer.clone(), request: what.to_owned(), reason }
    }

    fn granted(&self, what: &str, reply: Reply) -> Result<Reply, Error> {
        match reply.status() {
            200 => Ok(reply),
            status => {
                let found = format!("{what}: {}", self.login.masked(&refusal(&reply)));
                Err(Error::Refused { peer: self.peer.clone(), status, found })
            }
        }
    }

    /// Makes the error for a missing answer.
    fn no_reply(&self, what: &str, no_reply: NoReply) -> Error {
        let found = match no_reply {
            NoReply::Malformed(found) => return self.fault(what, found),
            NoReply::Tls(fault) => return Error::Tls { peer: self.peer.clone(), fault },
            NoReply::Lost(found) if found == CLOSED => format!("{CLOSED} instead of answering"),
            NoReply::Lost(found) => found,
        };
        Error::Lost { peer: self.peer.clone(), found: format!("{what}: {found}") }
    }

    /// Name of the server, for messages.
    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Makes the error for a faulty answer.
    pub(super) fn fault(&self, what: &str, found: impl std::fmt::Display) -> Error {
        Error::Peer { peer: self.peer.clone(), found: format!("{what}: {found}") }
    }

    /// Logs ignored parts of an answer.
    pub(super) fn note_ignored(&self, what: &str, ignored: &[String]) {
        for part in ignored {
            let part = one_line(&self.login.masked(part), WORDS_CHARS_MAX);
            tracing::warn!("{}: {what}: ignored what cannot be believed: {part}", self.peer);
        }
    }

    /// Makes the error for a stream that was granted and does not arrive.
    pub(super) fn no_packet(&self, found: impl std::fmt::Display) -> Error {
        Error::NoPacket { peer: self.peer.clone(), found: format!("PLAY was granted: {found}") }
    }

    /// Sends a keep-alive without waiting for the answer: a server may omit it, refuse it or answer
    /// with another CSeq, and send media all the same. Unless the last keep-alive was granted, the
    /// method changes between GET_PARAMETER and OPTIONS: some servers support only one of them.
    pub(super) fn keep_alive(&mut self) -> Result<(), Error> {
        let writer = self.writer.clone();
        // A report in progress holds the lock briefly; the next keep-alive serves as well.
        let Ok(mut writer) = writer.try_lock() else { return Ok(()) };
        self.uses_options ^= self.unanswered.is_some();
        let request = match self.uses_options {
            false => self.client.get_parameter(),
            true => self.client.options(),
        };
        let (request, answer) = self.login.authorize(&request);
        self.unanswered = Some(KeepAlive { cseq: self.client.cseq(), answer });
        let written = writer.try_send(&request);
        drop(writer);
        written.map_err(|error| self.no_reply("keep-alive", NoReply::broke(&error)))
    }

    /// Handles a reply that no request waits for. A challenge is answered by the next keep-alive:
    /// nonces expire in the course of a long session.
    fn note_unawaited(&mut self, reply: &Reply) {
        let is_its = |asked: &mut KeepAlive| reply.cseq().is_none_or(|cseq| cseq == asked.cseq);
        let Some(asked) = self.unanswered.take_if(is_its) else { return };
        match reply.status() {
            200 => self.login.note_granted(asked.answer.as_ref()),
            UNAUTHORIZED => {
                let field = reply.header(CHALLENGE);
                if let Err(reason) = self.login.accept_challenge(field, asked.answer.as_ref()) {
                    if !std::mem::replace(&mut self.warns_no_more, true) {
                        tracing::warn!("{}: keep-alive: 401; {reason}", self.peer);
                    }
                    self.unanswered = Some(asked);
                }
            }
            _ => self.unanswered = Some(asked),
        }
    }

    /// Waits until the server closes the connection; returns the reason. Drops unsolicited
    /// messages, whose number the readers bound.
    pub(super) async fn closed(&mut self) -> String {
        loop {
            match self.reply().await {
                Ok(reply) => self.note_unawaited(&reply),
                Err(NoReply::Lost(found)) => return found,
                Err(NoReply::Malformed(malformed)) => return malformed.to_string(),
                Err(NoReply::Tls(fault)) => return fault.to_string(),
            }
        }
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Reply, NoReply> {
        let written = self.writer.lock().await.send(request).await;
        written.map_err(|error| NoReply::broke(&error))?;
        loop {
            let reply = self.reply().await?;
            // An interim answer: the final one follows (RFC 2326 §7.1.1).
            if (100..200).contains(&reply.status()) {
                continue;
            }
            // Some servers omit CSeq; the answer then belongs to the only pending request.
            if reply.cseq().is_none_or(|cseq| cseq == self.client.cseq()) {
                return Ok(reply);
            }
            self.note_unawaited(&reply);
        }
    }

    /// Waits for the next reply. Dropping the future loses none.
    async fn reply(&mut self) -> Result<Reply, NoReply> {
        match &mut self.inbound {
            Inbound::Direct(direct) => loop {
                if let Some(reply) = direct.replies.pop_front() {
                    return Ok(reply);
                }
                let DirectReader { stream, buffer, .. } = &mut **direct;
                let read = stream.read(buffer).await;
                let bytes = read.map_err(|error| NoReply::broke(&error))?;
                if bytes == 0 {
                    return Err(NoReply::Lost(CLOSED.to_owned()));
                }
                // Moved out, which copies no bytes.
                let buffer = std::mem::take(&mut direct.buffer);
                let fed = direct.feed(&buffer[..bytes]);
                direct.buffer = buffer;
                fed?;
            },
            Inbound::Task(task) => match task.replies.recv().await {
                Some(reply) => Ok(reply),
                None => {
                    let ended = task.ended.get().cloned();
                    Err(ended.unwrap_or_else(|| NoReply::Lost("the reader has ended".to_owned())))
                }
            },
            Inbound::Ended => Err(NoReply::Lost("the connection was given up".to_owned())),
        }
    }
}

/// Name of the server in messages.
fn peer_of(client: &Client) -> String {
    let scheme = if client.is_tls() { "rtsps" } else { "rtsp" };
    format!("{scheme} {}", authority(client.host(), client.port()))
}

/// A new connection, for an `rtsps:` URL one of TLS.
async fn secured(
    client: &Client,
    login: &ClientLogin,
    stream: TcpStream,
) -> Result<ControlStream, Error> {
    if !client.is_tls() {
        return Ok(ControlStream::Plain(stream));
    }
    let peer = peer_of(client);
    let stream = tls::handshake(stream, client.host(), login.trust.as_ref(), &peer).await?;
    Ok(ControlStream::Tls(Box::new(stream)))
}

/// Local and remote address.
fn ends(client: &Client, stream: &ControlStream) -> Result<(SocketAddr, SocketAddr), Error> {
    let failed = |source| Error::Host { call: "getsockname", object: peer_of(client), source };
    stream.ends().map_err(failed)
}

const FORBIDDEN: u16 = 403;
/// DESCRIBE may have to wait for a read from a cold disk.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 4096;
/// Limit of redirections, that of early browsers.
const REDIRECTIONS_MAX: u32 = 5;
/// Queued replies; one request at a time is in flight.
const REPLIES_MAX: usize = 16;
