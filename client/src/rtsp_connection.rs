// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RTSP connection of the client: a request, its answer, and the error for a refusal.
//!
//! An error names the server, the request, the status, the reason in the body, and the cure where
//! it is known: its reader has nothing else.
//!
//! Sources: RFC 2326 §7, §11.
//! Does not follow redirections (3xx are refusals), authenticate, or send a second request before
//! the answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use wire::rtsp::client::{Client, DescribeReply, Reply, ReplyReader};
use wire::rtsp::{Fault, Limits, Malformed};

use super::media_names::names_of;
use super::{one_line, rtsp_client, without_userinfo};
use crate::error::Error;

/// A connection to an RTSP server.
pub(super) struct RtspConnection {
    pub(super) client: Client,
    stream: TcpStream,
    reader: ReplyReader,
    buffer: Vec<u8>,
    pub(super) local: SocketAddr,
    pub(super) remote: IpAddr,
    peer: String,
}

impl RtspConnection {
    /// Connects to the server of a URL.
    pub(super) async fn connect(url: &str) -> Result<RtspConnection, Error> {
        let client = rtsp_client(url)?;
        let stream = connect(client.host(), client.port()).await?;
        RtspConnection::over(client, stream)
    }

    /// Uses a connection that is open.
    pub(super) fn over(client: Client, stream: TcpStream) -> Result<RtspConnection, Error> {
        let peer = format!("rtsp {}", authority(client.host(), client.port()));
        let name = |source| Error::Host { call: "getsockname", object: peer.clone(), source };
        let (local, remote) =
            (stream.local_addr().map_err(name)?, stream.peer_addr().map_err(name)?);
        let reader = ReplyReader::new(Limits::default());
        let buffer = vec![0; READ_BYTES];
        Ok(RtspConnection { client, stream, reader, buffer, local, remote: remote.ip(), peer })
    }

    /// Asks for the description.
    pub(super) async fn describe(&mut self) -> Result<DescribeReply, Error> {
        let reply = self.ask("DESCRIBE", |client| client.describe()).await?;
        self.client.described(&reply).map_err(|malformed| match malformed.fault {
            Fault::NoTransportStream { offered } => {
                let (peer, offered) = (self.peer.clone(), names_of(&offered));
                Error::NoTransportStream { peer, offered }
            }
            _ => self.fault("DESCRIBE", malformed),
        })
    }

    /// Sends a request and waits for its answer. Any status but 200 is an error.
    pub(super) async fn ask(
        &mut self,
        what: &'static str,
        request: impl FnOnce(&mut Client) -> Vec<u8>,
    ) -> Result<Reply, Error> {
        let request = request(&mut self.client);
        let reply = match timeout(ANSWER_WAIT, self.exchange(&request)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(NoReply::Malformed(found))) => return Err(self.fault(what, found)),
            Ok(Err(NoReply::Lost(found))) => return Err(self.lost(what, found)),
            Err(_) => {
                return Err(self.lost(what, format!("no answer in {} s", ANSWER_WAIT.as_secs())));
            }
        };
        match reply.status() {
            200 => Ok(reply),
            status => {
                let found = format!("{what}: {}", refusal(&reply));
                Err(Error::Refused { peer: self.peer.clone(), status, found })
            }
        }
    }

    fn lost(&self, what: &str, found: impl std::fmt::Display) -> Error {
        Error::Lost { peer: self.peer.clone(), found: format!("{what}: {found}") }
    }

    /// Makes the error for a faulty answer.
    pub(super) fn fault(&self, what: &str, found: impl std::fmt::Display) -> Error {
        Error::Peer { peer: self.peer.clone(), found: format!("{what}: {found}") }
    }

    /// Waits until the server closes the connection; returns the reason. Drops unasked messages.
    pub(super) async fn closed(&mut self) -> String {
        loop {
            match self.stream.read(&mut self.buffer).await {
                Ok(0) => return "the server closed the connection".to_owned(),
                Ok(bytes) => {
                    self.reader.feed(&self.buffer[..bytes]);
                    loop {
                        match self.reader.next_reply() {
                            Ok(Some(_)) => {}
                            Ok(None) => break,
                            Err(malformed) => return malformed.to_string(),
                        }
                    }
                }
                Err(error) => return format!("the connection broke: {error}"),
            }
        }
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Reply, NoReply> {
        let broke = |error: io::Error| NoReply::Lost(format!("the connection broke: {error}"));
        self.stream.write_all(request).await.map_err(broke)?;
        loop {
            match self.reader.next_reply().map_err(NoReply::Malformed)? {
                // Some servers omit CSeq; only one request can be meant.
                Some(reply) if reply.cseq().is_none_or(|cseq| cseq == self.client.cseq()) => {
                    return Ok(reply);
                }
                Some(_) => continue,
                None => {}
            }
            match self.stream.read(&mut self.buffer).await.map_err(broke)? {
                0 => return Err(NoReply::Lost(CLOSED.to_owned())),
                bytes => self.reader.feed(&self.buffer[..bytes]),
            }
        }
    }
}

/// Reason why a request has no answer.
enum NoReply {
    /// The connection ended.
    Lost(String),
    /// The received bytes are no answer.
    Malformed(Malformed),
}

/// Opens a TCP connection to the first address of a name that accepts it.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, Error> {
    connected(authority(host, port), TcpStream::connect((host, port))).await
}

/// Opens a TCP connection to an address, from `source` where that is given.
pub(super) async fn connect_from(
    source: Option<IpAddr>,
    to: SocketAddr,
) -> Result<TcpStream, Error> {
    let connecting = async {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(source) = source {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        socket.connect(to).await
    };
    let from = source.map_or_else(String::new, |source| format!(" from {source}"));
    connected(format!("{to}{from}"), connecting).await
}

async fn connected(
    object: String,
    connecting: impl Future<Output = io::Result<TcpStream>>,
) -> Result<TcpStream, Error> {
    let failed = |source| Error::Host { call: "connect", object: object.clone(), source };
    let late = || {
        let waited =
            format!("no answer in {} s; is it on, and no firewall between?", CONNECT_WAIT_S);
        io::Error::new(io::ErrorKind::TimedOut, waited)
    };
    let connecting = timeout(Duration::from_secs(CONNECT_WAIT_S), connecting);
    let stream = connecting.await.unwrap_or_else(|_| Err(late())).map_err(failed)?;
    // Requests are small, and each is waited for.
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Describes a status other than 200.
fn refusal(reply: &Reply) -> String {
    let reason = one_line(reply.reason(), WORDS_CHARS_MAX);
    let body = one_line(&String::from_utf8_lossy(&reply.body), WORDS_CHARS_MAX);
    // A body that repeats the reason stands alone.
    let text = match body.strip_prefix(reason.as_str()) {
        _ if body.is_empty() => format!("{} {reason}", reply.status()),
        Some(_) => format!("{} {body}", reply.status()),
        None => format!("{} {reason}: {body}", reply.status()),
    };
    let moved = reply.header("Location").filter(|_| (300..=399).contains(&reply.status()));
    let moved = moved.filter(|address| !address.trim().is_empty());
    match (cure(reply.status()), moved) {
        (_, Some(address)) => {
            let address = one_line(&without_userinfo(address), WORDS_CHARS_MAX);
            format!("{text}; it moved: give {address} instead")
        }
        ("", None) => text,
        (cure, None) => format!("{text}; {cure}"),
    }
}

fn cure(status: u16) -> &'static str {
    match status {
        300..=399 => "give the address it moved to",
        401 | 407 => "it wants a password, which this client cannot give",
        404 => "the index of the server lists what is there",
        415 => "it can be downloaded over HTTP",
        453 | 503 => "the server is full; try again later",
        454 => "the server has ended the session, or was restarted",
        457 => "start before the end of the asset",
        461 => "it does not send RTP over UDP to this address",
        _ => "",
    }
}

const CLOSED: &str = "the server closed the connection instead of answering";
const CONNECT_WAIT_S: u64 = 5;
/// A cold disk may be read before DESCRIBE is answered.
const ANSWER_WAIT: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 4096;
const WORDS_CHARS_MAX: usize = 300;
