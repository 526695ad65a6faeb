// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent HTTP/1.1 connections of a viewer: one request at a time, ranges, redirections,
//! deadlines.
//!
//! A body that is not checked is discarded in the kernel by recv with MSG_TRUNC: its bytes are
//! counted and not copied. Heads and bodies are read into one buffer for each thread, so that a
//! waiting viewer holds none.
//!
//! The server may have closed a kept connection in the meantime; a request on it that receives no
//! byte of a response is sent once more on a new one (RFC 9110 §9.2.2).
//!
//! Sources: RFC 9112 §6.3, §7.1, §9.3; RFC 9110 §14, §15.4; tcp(7) (MSG_TRUNC).
//! Does not pipeline, use TLS or proxies, or read compressed bodies.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;
use tokio::time::{timeout, timeout_at};

use super::chunks::ChunkReader;
use super::playlist::ListedResource;
use crate::connect::{connect, connect_from};
use crate::http_head::{HEAD_BYTES_MAX, Head};
use crate::http_url::UrlParts;

/// Route to servers, shared by all viewers of a load.
#[derive(Debug, Clone, Default)]
pub(super) struct Route {
    /// A local address to connect from.
    pub(super) source: Option<IpAddr>,
    /// A host and port with their resolved address.
    pub(super) resolved: Option<Arc<(String, u16, SocketAddr)>>,
}

/// Time-outs of fetches.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchTimeouts {
    /// Limit without a received byte.
    pub(super) read: Duration,
    /// Limit for a whole playlist or init section.
    pub(super) playlist: Duration,
    /// Limit for a whole segment, or `segment_durations` times its duration where that is longer.
    pub(super) segment: Duration,
    pub(super) segment_durations: u32,
    /// Limit without a change of a live playlist; six target durations where that is longer.
    pub(super) quiet: Duration,
}

impl Default for FetchTimeouts {
    fn default() -> FetchTimeouts {
        FetchTimeouts {
            read: Duration::from_secs(20),
            playlist: Duration::from_secs(30),
            segment: Duration::from_secs(60),
            segment_durations: 10,
            quiet: Duration::from_secs(10),
        }
    }
}

/// Target of a body.
pub(super) enum BodyTarget<'a> {
    /// The kernel discards it.
    Discarded,
    /// A function that receives the bytes in order.
    Sink(&'a mut (dyn FnMut(&[u8]) + Send)),
}

/// A whole body.
#[derive(Debug, Clone)]
pub(super) struct FetchedBody {
    /// Address after redirections.
    pub(super) address: UrlParts,
    pub(super) bytes: u64,
    /// Time from the request to the last byte.
    pub(super) wall: Duration,
}

/// Reason for an incomplete body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FetchFault {
    pub(super) found: String,
    /// Bytes of the body before the fault, where it had begun.
    pub(super) offset: Option<u64>,
}

impl FetchFault {
    fn new(found: impl Into<String>) -> FetchFault {
        FetchFault { found: found.into(), offset: None }
    }
}

/// Connections of one viewer.
pub(super) struct HttpConnections {
    route: Route,
    read_wait: Duration,
    /// Kept connections, the latest last.
    kept: Vec<KeptConnection>,
    counts: Arc<FetchCounts>,
}

/// Counts over the connections of a viewer.
#[derive(Debug, Default)]
pub(super) struct FetchCounts {
    pub(super) requests: AtomicU64,
    pub(super) connections: AtomicU64,
}

struct KeptConnection {
    host: String,
    port: u16,
    stream: TcpStream,
    is_used: bool,
}

/// A request and its response on a connection.
struct Exchange<'a> {
    stream: &'a TcpStream,
    read_wait: Duration,
    deadline: Instant,
    /// Bytes that were read but not consumed.
    pending: Vec<u8>,
}

/// Reason for a missing response.
enum NoAnswer {
    /// The kept connection had been closed.
    Stale,
    Fault(FetchFault),
}

impl HttpConnections {
    pub(super) fn new(
        route: Route,
        read_wait: Duration,
        counts: Arc<FetchCounts>,
    ) -> HttpConnections {
        HttpConnections { route, read_wait, kept: Vec::new(), counts }
    }

    /// Fetches a file or a part of it, of at most `bytes_max`.
    pub(super) async fn fetch(
        &mut self,
        wanted: &ListedResource,
        bytes_max: u64,
        within: Duration,
        target: &mut BodyTarget<'_>,
    ) -> Result<FetchedBody, FetchFault> {
        let began = Instant::now();
        let deadline = began + within;
        let mut wanted = wanted.clone();
        for _ in 0..=REDIRECTIONS_MAX {
            let mut connection = self.connection(&wanted.address, deadline).await?;
            let mut answer = self.answer(&connection, &wanted, deadline).await;
            if let (Err(NoAnswer::Stale), true) = (&answer, connection.is_used) {
                connection = self.open(&wanted.address, deadline).await?;
                answer = self.answer(&connection, &wanted, deadline).await;
            }
            let (head, pending) = answer.map_err(|no_answer| match no_answer {
                NoAnswer::Fault(fault) => fault,
                NoAnswer::Stale => {
                    FetchFault::new("the server closed the connection instead of answering")
                }
            })?;
            if let Some(location) = head.location.as_deref().filter(|_| is_redirection(&head)) {
                let to = wanted.address.join(location);
                wanted.address = to.ok_or_else(|| {
                    FetchFault::new(format!(
                        "{} to {location:.200}, no http:// address",
                        head.status
                    ))
                })?;
                continue;
            }
            let read_wait = self.read_wait;
            let stream = &connection.stream;
            let mut exchange = Exchange { stream, read_wait, deadline, pending };
            if let Err(found) = check_head(&head, &wanted, bytes_max) {
                return Err(exchange.with_reason(&head, found).await);
            }
            let bytes = exchange.body(&head, bytes_max, target).await?;
            if let Some(span) = wanted.span.filter(|span| span.bytes != bytes) {
                let found = format!("{bytes} bytes, not the {} of the range", span.bytes);
                return Err(FetchFault { found, offset: Some(bytes) });
            }
            let is_kept = !head.closes && (head.is_chunked || head.content_bytes.is_some());
            if is_kept && exchange.pending.is_empty() {
                self.keep(connection);
            }
            return Ok(FetchedBody { address: wanted.address, bytes, wall: began.elapsed() });
        }
        Err(FetchFault::new(format!("more than {REDIRECTIONS_MAX} redirections")))
    }

    /// Returns the kept connection to the server of the address, or a new one.
    async fn connection(
        &mut self,
        to: &UrlParts,
        deadline: Instant,
    ) -> Result<KeptConnection, FetchFault> {
        let is_it = |kept: &KeptConnection| kept.port == to.port && kept.host == to.host;
        match self.kept.iter().position(is_it) {
            Some(at) => Ok(self.kept.remove(at)),
            None => self.open(to, deadline).await,
        }
    }

    async fn open(&self, to: &UrlParts, deadline: Instant) -> Result<KeptConnection, FetchFault> {
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        let opening = async {
            match &self.route.resolved {
                Some(known) if known.0 == to.host && known.1 == to.port => {
                    connect_from(self.route.source, known.2).await
                }
                _ => connect(&to.host, to.port).await,
            }
        };
        let opened = timeout_at(deadline.into(), opening).await;
        let opened = opened.map_err(|_| FetchFault::new("no connection in time"))?;
        let stream = opened.map_err(|error| FetchFault::new(error.to_string()))?;
        Ok(KeptConnection { host: to.host.clone(), port: to.port, stream, is_used: false })
    }

    fn keep(&mut self, connection: KeptConnection) {
        if self.kept.len() >= KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push(KeptConnection { is_used: true, ..connection });
    }

    /// Sends the request and reads the head; also returns the bytes received after it.
    async fn answer(
        &self,
        connection: &KeptConnection,
        wanted: &ListedResource,
        deadline: Instant,
    ) -> Result<(Head, Vec<u8>), NoAnswer> {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let range = wanted.span.map_or_else(String::new, |span| {
            format!("Range: bytes={}-{}\r\n", span.offset, span.end() - 1)
        });
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: pagewire\r\nAccept: */*\r\n{range}\r\n",
            wanted.address.path,
            wanted.address.authority()
        );
        let stream = &connection.stream;
        if write_all(stream, request.as_bytes(), deadline).await.is_err() {
            return Err(NoAnswer::Stale);
        }
        let read_wait = self.read_wait;
        let mut exchange = Exchange { stream, read_wait, deadline, pending: Vec::new() };
        let head = exchange.head().await?;
        Ok((head, exchange.pending))
    }
}

/// Writes to a borrowed stream.
async fn write_all(stream: &TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let writing = async {
        let mut left = bytes;
        while !left.is_empty() {
            stream.writable().await?;
            match stream.try_write(left) {
                Ok(sent) => left = &left[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    timeout_at(deadline.into(), writing)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl Exchange<'_> {
    /// Receives once, `room` bytes at most; 0 at the end of the connection. `use_bytes` gets them,
    /// unless the kernel discards them.
    async fn receive(
        &self,
        room: usize,
        flags: RecvFlags,
        mut use_bytes: impl FnMut(&[u8]),
    ) -> Result<usize, FetchFault> {
        let mut call = || {
            SCRATCH.with_borrow_mut(|scratch| {
                let room = room.min(scratch.len());
                let (_, received) = recv(self.stream, &mut scratch[..room], flags)?;
                if !flags.contains(RecvFlags::TRUNC) {
                    use_bytes(&scratch[..received]);
                }
                Ok(received)
            })
        };
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(FetchFault::new(LATE));
            }
            // Where bytes are available, no timer is set; the task budget lets other viewers run.
            consume_budget().await;
            match self.stream.try_io(Interest::READABLE, &mut call) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(received) => return Ok(received),
                Err(error) => {
                    return Err(FetchFault::new(format!("the connection broke: {error}")));
                }
            }
            let wait = left.min(self.read_wait);
            match timeout(wait, self.stream.readable()).await {
                Ok(_) => {}
                Err(_) if left <= self.read_wait => {
                    return Err(FetchFault::new(LATE));
                }
                Err(_) => {
                    let seconds = self.read_wait.as_secs_f64();
                    return Err(FetchFault::new(format!("no byte came in {seconds} s")));
                }
            }
        }
    }

    async fn head(&mut self) -> Result<Head, NoAnswer> {
        loop {
            if let Some(end) = self.pending.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = Head::parse(&self.pending[..end])
                    .map_err(|found| NoAnswer::Fault(FetchFault::new(found)))?;
                self.pending.drain(..end + 4);
                // RFC 9110 §15.2: interim responses precede the final one.
                if (100..200).contains(&head.status) {
                    continue;
                }
                return Ok(head);
            }
            if self.pending.len() >= HEAD_BYTES_MAX {
                let found = format!("head of more than {HEAD_BYTES_MAX} bytes");
                return Err(NoAnswer::Fault(FetchFault::new(found)));
            }
            let mut pending = std::mem::take(&mut self.pending);
            let room = HEAD_READ_BYTES;
            let append = |bytes: &[u8]| pending.extend_from_slice(bytes);
            let received = self.receive(room, RecvFlags::empty(), append).await;
            self.pending = pending;
            match received {
                Ok(0) if self.pending.is_empty() => return Err(NoAnswer::Stale),
                Ok(0) => {
                    return Err(NoAnswer::Fault(FetchFault::new("the connection ended in a head")));
                }
                Ok(_) => {}
                Err(fault) if self.pending.is_empty() && fault.found.starts_with(BROKE) => {
                    return Err(NoAnswer::Stale);
                }
                Err(fault) => return Err(NoAnswer::Fault(fault)),
            }
        }
    }

    /// Makes a fault that includes the server's explanation, if the body is a line of text.
    async fn with_reason(&mut self, head: &Head, found: String) -> FetchFault {
        if head.status < 400 {
            return FetchFault::new(found);
        }
        let mut body = Vec::new();
        let mut sink = |bytes: &[u8]| body.extend_from_slice(bytes);
        // A partial body suffices.
        let _ = self.body(head, REASON_BYTES_MAX, &mut BodyTarget::Sink(&mut sink)).await;
        FetchFault::new(head.refusal(&body))
    }

    async fn body(
        &mut self,
        head: &Head,
        bytes_max: u64,
        target: &mut BodyTarget<'_>,
    ) -> Result<u64, FetchFault> {
        if head.is_chunked {
            return self.chunks(bytes_max, target).await;
        }
        let whole = head.content_bytes;
        let due = |bytes: u64| whole.map_or(u64::MAX, |whole| whole - bytes);
        let mut pending = std::mem::take(&mut self.pending);
        let first = usize::try_from(due(0)).unwrap_or(usize::MAX).min(pending.len());
        target.write(&pending[..first]);
        pending.drain(..first);
        self.pending = pending;
        let mut bytes = first as u64;
        while whole != Some(bytes) {
            let room = usize::try_from(due(bytes)).unwrap_or(usize::MAX).min(SCRATCH_BYTES);
            let received = match target {
                BodyTarget::Discarded => self.receive(room, RecvFlags::TRUNC, |_| {}).await,
                BodyTarget::Sink(sink) => {
                    self.receive(room, RecvFlags::empty(), |part| sink(part)).await
                }
            };
            let received = received.map_err(|fault| FetchFault { offset: Some(bytes), ..fault })?;
            bytes += received as u64;
            match (received, whole) {
                (0, None) => return Ok(bytes),
                (0, Some(whole)) => {
                    let found = format!("the connection ended at byte {bytes} of {whole}");
                    return Err(FetchFault { found, offset: Some(bytes) });
                }
                _ if bytes > bytes_max => {
                    let found = format!("more than {bytes_max} bytes");
                    return Err(FetchFault { found, offset: Some(bytes) });
                }
                _ => {}
            }
        }
        Ok(bytes)
    }

    async fn chunks(
        &mut self,
        bytes_max: u64,
        target: &mut BodyTarget<'_>,
    ) -> Result<u64, FetchFault> {
        let mut reader = ChunkReader::default();
        let mut bytes = 0;
        loop {
            let read = reader.read(&self.pending, |part| {
                bytes += part.len() as u64;
                target.write(part);
            });
            let fault = |found: String| FetchFault { found, offset: Some(bytes) };
            let used = read.map_err(fault)?;
            self.pending.drain(..used);
            if reader.is_done() {
                return Ok(bytes);
            }
            if bytes > bytes_max {
                return Err(fault(format!("more than {bytes_max} bytes")));
            }
            let mut pending = std::mem::take(&mut self.pending);
            let append = |part: &[u8]| pending.extend_from_slice(part);
            let received = self.receive(CHUNK_READ_BYTES, RecvFlags::empty(), append).await;
            self.pending = pending;
            match received {
                Ok(0) => return Err(fault("the connection ended between chunks".to_owned())),
                Ok(_) => {}
                Err(found) => return Err(fault(found.found)),
            }
        }
    }
}

impl BodyTarget<'_> {
    fn write(&mut self, bytes: &[u8]) {
        if let BodyTarget::Sink(sink) = self {
            sink(bytes);
        }
    }
}

fn is_redirection(head: &Head) -> bool {
    matches!(head.status, 301 | 302 | 303 | 307 | 308)
}

/// Checks the head of a response that is not a redirection.
fn check_head(head: &Head, wanted: &ListedResource, bytes_max: u64) -> Result<(), String> {
    let status = format!("{} {}", head.status, head.reason);
    match (head.status, wanted.span, head.content_range) {
        (200, None, _) => {}
        (206, Some(span), Some((first, last, _))) => {
            let (wanted_first, wanted_last) = (span.offset, span.end() - 1);
            if (first, last) != (wanted_first, wanted_last) {
                return Err(format!(
                    "bytes {first}-{last} came, and {wanted_first}-{wanted_last} were asked for"
                ));
            }
        }
        (206, Some(_), None) => return Err("206 without Content-Range (RFC 9110 §15.3.7)".into()),
        (200, Some(_), _) => return Err("200 to a Range request: all of the file".into()),
        _ => return Err(status.trim_end().to_owned()),
    }
    if head.is_encoded {
        return Err("a compressed body, which was not asked for".to_owned());
    }
    match head.content_bytes {
        Some(bytes) if !head.is_chunked && bytes > bytes_max => {
            Err(format!("{bytes} bytes, more than the {bytes_max} that are read here"))
        }
        _ => Ok(()),
    }
}

thread_local! {
    /// Bytes discarded by the kernel are not written to it, and its pages stay unused.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
}

const SCRATCH_BYTES: usize = 1 << 20;
/// Limit of an explanation read from a server.
const REASON_BYTES_MAX: u64 = 4 << 10;
/// A head and a little of the body; the rest of the body is received in larger pieces.
const HEAD_READ_BYTES: usize = 2 << 10;
const CHUNK_READ_BYTES: usize = 64 << 10;
const REDIRECTIONS_MAX: u32 = 5;
/// Playlists and segments may be on two servers.
const KEPT_MAX: usize = 2;
const LATE: &str = "not whole in the time allowed";
const BROKE: &str = "the connection broke";
