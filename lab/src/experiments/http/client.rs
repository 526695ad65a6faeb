// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load client: one thread, epoll, N connections that stay open, one request at a time on each.
//!
//! All connections walk through one list of requests, each from a place of its own on. A connection
//! that has its whole response sends the next request at once. A run ends with its time; responses
//! under way continue in the next run. So a warm-up runs into the measured time, and no time is
//! measured in which connections begin or end.
//!
//! The client must cost less than the server. A response of up to [`COPIED_BYTES`] is one `recv`.
//! Of a longer one, the first part is copied, and the rest is discarded in the kernel by `recv`
//! with MSG_TRUNC: its bytes are counted and not copied, as a network card's would not be copied by
//! the server's processor.
//!
//! Sources: epoll(7), tcp(7) (MSG_TRUNC), RFC 9112 §9.3 (persistent connections).
//! Does not compare bytes; the experiments do, once a turn. Does not pipeline.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};

use super::response::{ResponseReader, Wanted};
use crate::experiments::peers::downloads::connect;

/// File that all connections download.
#[derive(Clone)]
pub(super) struct Target {
    /// Name below the served folder.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Length of a request's part of the file; unset for the whole file.
    pub(super) part: Option<u64>,
}

impl Target {
    /// Returns the request for the part at `place`, or for the whole file, and its response.
    pub(super) fn request(&self, place: u64, more: &str) -> (String, Wanted) {
        let name = &self.name;
        let (range, wanted) = match self.part {
            Some(part) => {
                let last = place + part - 1;
                (format!("Range: bytes={place}-{last}\r\n"), Wanted::part(part))
            }
            None => (String::new(), Wanted::file(self.bytes)),
        };
        (format!("GET /{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n{range}{more}\r\n"), wanted)
    }

    /// Returns the requests for the whole file, or for all of its parts that are whole.
    pub(super) fn requests(&self) -> Vec<ClientRequest> {
        let part = self.part.unwrap_or(self.bytes).max(1);
        let of = |index| self.request(index * part, "");
        let requests = (0..(self.bytes / part).max(1)).map(of);
        requests.map(|(text, wanted)| ClientRequest { text, wanted }).collect()
    }

    /// Returns the place where a connection of `count` begins, spread over the file.
    pub(super) fn first(&self, index: usize, count: usize) -> u64 {
        let parts = self.bytes / self.part.unwrap_or(self.bytes).max(1);
        self.part.map_or(0, |part| part * (index as u64 * parts / count as u64))
    }
}

/// A request as it is sent, and its response.
#[derive(Clone)]
pub(crate) struct ClientRequest {
    pub(crate) text: String,
    pub(crate) wanted: Wanted,
}

/// Result of a run.
#[derive(Default)]
pub(crate) struct Received {
    /// Whole responses.
    pub(crate) responses: u64,
    /// Bytes of bodies, of whole responses and others.
    pub(crate) bytes: u64,
    /// Time from each request to the last byte of its response.
    pub(crate) latencies: Vec<Duration>,
}

pub(crate) struct Client {
    requests: Vec<ClientRequest>,
    connections: Vec<Connection>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    reader: ResponseReader,
    /// Index of the request under way.
    at: usize,
    asked: Instant,
    /// Bytes of bodies so far.
    bytes: u64,
}

impl Client {
    /// Opens all connections and sends the first request on each; there is one at least.
    pub(crate) fn open(
        port: u16,
        count: usize,
        requests: Vec<ClientRequest>,
    ) -> Result<Client, String> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let mut connections = Vec::with_capacity(count);
        for index in 0..count {
            let stream = connect(port).map_err(|error| error.to_string())?;
            // Closed by a reset: thousands of ports would wait for a minute otherwise.
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).map_err(failed("linger"))?;
            stream.set_nonblocking(true).map_err(|error| error.to_string())?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)
                .map_err(failed("epoll_ctl"))?;
            let at = index * requests.len() / count;
            let (reader, asked) = (ResponseReader::new(), Instant::now());
            connections.push(Connection { stream, reader, at, asked, bytes: 0 });
        }
        for connection in &mut connections {
            connection.ask(&requests)?;
        }
        let (events, buffer) = (Vec::with_capacity(EVENTS), vec![0; DISCARDED_BYTES_MAX]);
        Ok(Client { requests, connections, epoll, events, buffer })
    }

    /// Receives for that time, and longer until at least `least` responses are whole.
    pub(crate) fn run(&mut self, time: Duration, least: u64) -> Result<Received, String> {
        let (mut received, end) = (Received::default(), Instant::now() + time);
        let mut quiet_since = Instant::now();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() && received.responses >= least {
                return Ok(received);
            }
            let left = if left.is_zero() { LOOK } else { left.min(LOOK) };
            let wait = Timespec::try_from(left).expect("it is short");
            self.events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("epoll_wait")(errno)),
            }
            if !self.events.is_empty() {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() > QUIET_MAX {
                return Err(format!("nothing came for {} s", QUIET_MAX.as_secs()));
            }
            for event in &self.events {
                let connection = &mut self.connections[event.data.u64() as usize];
                connection.receive(&mut self.buffer, &self.requests, &mut received)?;
            }
        }
    }

    /// Returns the bytes that each connection has received so far.
    pub(super) fn bytes(&self) -> impl Iterator<Item = u64> {
        self.connections.iter().map(|connection| connection.bytes)
    }
}

impl Connection {
    fn ask(&mut self, requests: &[ClientRequest]) -> Result<(), String> {
        self.asked = Instant::now();
        self.reader.begin();
        // A request fits into the socket's buffer, which is empty.
        self.stream
            .write_all(requests[self.at].text.as_bytes())
            .map_err(|error| format!("sending a request: {error}"))
    }

    /// Receives once; sends the next request after a whole response.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        requests: &[ClientRequest],
        received: &mut Received,
    ) -> Result<(), String> {
        let (room, flags) = match self.reader.left() {
            Some(left) if left > COPIED_BYTES as u64 => {
                (left.min(DISCARDED_BYTES_MAX as u64) as usize, RecvFlags::TRUNC)
            }
            _ => (COPIED_BYTES, RecvFlags::empty()),
        };
        let count = match recv(&self.stream, &mut buffer[..room], flags) {
            Ok((_, count)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(failed("recv")(errno)),
        };
        if count == 0 {
            return Err("the server closed a connection".to_owned());
        }
        let body = if flags.contains(RecvFlags::TRUNC) {
            self.reader.skip(count as u64)?;
            count
        } else {
            self.reader.feed(&buffer[..count], requests[self.at].wanted)?.len()
        };
        self.bytes += body as u64;
        received.bytes += body as u64;
        if self.reader.left() == Some(0) {
            received.latencies.push(self.asked.elapsed());
            received.responses += 1;
            self.at = (self.at + 1) % requests.len();
            self.ask(requests)?;
        }
        Ok(())
    }
}

/// Receives and discards all bytes until the end of the connection; returns their number.
pub(super) fn drain(stream: &TcpStream, buffer: &mut [u8]) -> Result<u64, String> {
    let mut bytes = 0;
    loop {
        match recv(stream, &mut *buffer, RecvFlags::TRUNC) {
            Ok((_, 0)) => return Ok(bytes),
            Ok((_, count)) => bytes += count as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("recv")(errno)),
        }
    }
}

fn failed(call: &'static str) -> impl FnOnce(Errno) -> String {
    move |errno| format!("{call}: {errno}")
}

/// Longest part of a response that is copied to this program.
const COPIED_BYTES: usize = 64 << 10;
/// Most bytes that one call discards.
pub(super) const DISCARDED_BYTES_MAX: usize = 4 << 20;
const EVENTS: usize = 256;
const LOOK: Duration = Duration::from_millis(100);
const QUIET_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// Serves `connections` that request a file of `body`, or parts of it, until they end.
    fn serve(connections: usize, body: Vec<u8>) -> (u16, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = std::thread::spawn(move || {
            std::thread::scope(|scope| {
                for _ in 0..connections {
                    let (stream, _) = listener.accept().unwrap();
                    scope.spawn(|| respond(stream, &body));
                }
            });
        });
        (port, serving)
    }

    fn respond(mut stream: TcpStream, body: &[u8]) {
        let mut request = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut request) {
            let text = String::from_utf8_lossy(&request[..count]).into_owned();
            let range = text.lines().find_map(|line| line.strip_prefix("Range: bytes="));
            let (status, part) = match range.and_then(|range| range.split_once('-')) {
                Some((first, last)) => {
                    (206, &body[first.parse().unwrap()..=last.parse::<usize>().unwrap()])
                }
                None => (200, body),
            };
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n", part.len());
            if stream.write_all(&[head.as_bytes(), part].concat()).is_err() {
                return;
            }
        }
    }

    #[test]
    fn all_connections_are_served_and_counted() {
        let target = |bytes, part| Target { name: "file".to_owned(), bytes, part };
        for target in [target(1_000, None), target(300_000, None), target(300_000, Some(90_000))] {
            let (port, serving) = serve(3, vec![7; target.bytes as usize]);
            let mut client = Client::open(port, 3, target.requests()).unwrap();
            let received = client.run(Duration::from_millis(20), 9).unwrap();
            assert!(received.responses >= 9);
            assert_eq!(received.latencies.len() as u64, received.responses);
            assert!(received.bytes >= received.responses * target.part.unwrap_or(target.bytes));
            assert_eq!(client.bytes().sum::<u64>(), received.bytes);
            // The threads that answer begin in no order.
            let until = Instant::now() + Duration::from_secs(60);
            while client.bytes().any(|bytes| bytes == 0) {
                assert!(Instant::now() < until, "a connection is not served");
                client.run(Duration::from_millis(20), 1).unwrap();
            }
            drop(client);
            serving.join().unwrap();
        }
    }

    #[test]
    fn another_length_than_that_of_the_file_is_an_error() {
        let (port, serving) = serve(1, vec![7; 999]);
        let target = Target { name: "file".to_owned(), bytes: 1_000, part: None };
        let mut client = Client::open(port, 1, target.requests()).unwrap();
        let found = client.run(Duration::from_millis(20), 1).err().unwrap();
        assert!(found.contains("Some(999)"), "{found}");
        drop(client);
        serving.join().unwrap();
    }

    #[test]
    fn parts_walk_through_the_file_and_never_past_its_end() {
        let target = Target { name: "file".to_owned(), bytes: 100, part: Some(30) };
        let texts: Vec<_> = target.requests().into_iter().map(|request| request.text).collect();
        let of = |place| target.request(place, "").0;
        assert_eq!(texts, [of(0), of(30), of(60)]);
        assert_eq!([0, 1, 2].map(|index| target.first(index, 3)), [0, 30, 60]);
        let (request, wanted) = target.request(30, "");
        assert!(request.contains("Range: bytes=30-59\r\n") && wanted == Wanted::part(30));
    }
}
