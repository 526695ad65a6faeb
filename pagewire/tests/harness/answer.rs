// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection to the server, byte by byte: a test's bytes are sent unchanged, however wrong
//! they are, and the received bytes are parsed as answers of RTSP or HTTP (both have the same
//! shape).
//!
//! Does not check the correctness of requests. Tests with real clients run their programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// Answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the value of the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the body as text; U+FFFD replaces bytes that are not UTF-8.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection.
pub(crate) struct Line(BufReader<TcpStream>);

impl Line {
    pub(crate) fn to(server: SocketAddr) -> Line {
        Line::over(TcpStream::connect(server).expect("the server listens"))
    }

    /// Connects from one of this machine's other addresses: all of 127.0.0.0/8 is local.
    pub(crate) fn from_address(local: IpAddr, server: SocketAddr) -> Line {
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None);
        let socket = socket.expect("a free descriptor");
        socket.bind(&SocketAddr::new(local, 0).into()).expect("an address of this machine");
        socket.connect(&server.into()).expect("the server listens");
        Line::over(socket.into())
    }

    fn over(stream: TcpStream) -> Line {
        stream.set_nodelay(true).expect("a TCP socket has the option");
        stream.set_read_timeout(Some(ANSWER_WAIT)).expect("a time limit");
        stream.set_write_timeout(Some(ANSWER_WAIT)).expect("a time limit");
        Line(BufReader::new(stream))
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.0.get_ref().local_addr().expect("it is connected")
    }

    /// Sends all bytes; returns `false` when the server has closed the connection meanwhile.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Returns a second sending end, for a thread of its own.
    pub(crate) fn sender(&self) -> Line {
        let stream = self.0.get_ref().try_clone().expect("a free descriptor");
        Line(BufReader::new(stream))
    }

    /// Ends sending; answers can still be read.
    pub(crate) fn end_sending(&self) {
        // An error means that the server has already closed; this is no failure.
        let _ = self.0.get_ref().shutdown(std::net::Shutdown::Write);
    }

    /// Shuts down the connection for all its [`sender`](Self::sender)s.
    pub(crate) fn shut(&mut self) {
        // An error means that the server has already closed; this is no failure.
        let _ = self.0.get_ref().shutdown(std::net::Shutdown::Both);
    }

    /// Returns the next answer; `None` when the connection ends instead.
    ///
    /// # Panics
    /// When neither arrives in time.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let head = self.head()?;
        let mut answer = Answer { status: 0, head, body: Vec::new() };
        let status = answer.head.split(' ').nth(1).and_then(|status| status.parse().ok());
        answer.status = status.unwrap_or_else(|| panic!("a status line in {:?}", answer.head));
        let bytes = answer.header("Content-Length").map_or(0, |v| v.parse().expect("a length"));
        answer.body.resize(bytes, 0);
        self.0.read_exact(&mut answer.body).ok()?;
        Some(answer)
    }

    /// Returns the head of the next answer alone; its body is left unread.
    #[track_caller]
    pub(crate) fn head(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.0.read_until(b'\n', &mut head) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if is_late(&error) => panic!("no answer within {ANSWER_WAIT:?}"),
                Err(_) => return None,
            }
        }
        Some(String::from_utf8(head).expect("heads are ASCII"))
    }

    /// Reads and drops the next available bytes; waits for the first; returns their number.
    #[track_caller]
    pub(crate) fn some(&mut self) -> usize {
        let bytes = self.0.fill_buf().expect("bytes in time").len();
        self.0.consume(bytes);
        bytes
    }

    /// Returns all bytes up to the end of the connection, which must occur within `limit`; and the
    /// elapsed time.
    #[track_caller]
    pub(crate) fn rest(&mut self, limit: Duration) -> (Vec<u8>, Duration) {
        let began = Instant::now();
        let mut rest = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let left = limit.saturating_sub(began.elapsed());
            assert!(!left.is_zero(), "not closed within {limit:?}, {} bytes came", rest.len());
            self.0.get_ref().set_read_timeout(Some(left)).expect("a time limit");
            match self.0.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => rest.extend_from_slice(&piece[..count]),
                // The deadline is checked at the head of the loop.
                Err(error) if is_late(&error) => {}
                // Reset: the server closed before it had read all bytes of this client.
                Err(_) => break,
            }
        }
        self.0.get_ref().set_read_timeout(Some(ANSWER_WAIT)).expect("a time limit");
        (rest, began.elapsed())
    }
}

fn is_late(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock)
}

/// Sends one HTTP request on a connection of its own.
#[track_caller]
pub(crate) fn http(server: SocketAddr, method: &str, target: &str) -> Answer {
    let mut line = Line::to(server);
    line.send(format!("{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
    line.answer().unwrap_or_else(|| panic!("{method} {target}: closed without an answer"))
}

/// As [`http`] with GET, repeated while the server answers 503 with a time to retry.
#[track_caller]
pub(crate) fn get_in_turn(server: SocketAddr, target: &str) -> Answer {
    let deadline = Instant::now() + TURN_WAIT;
    loop {
        let answer = http(server, "GET", target);
        if answer.status != 503 || answer.header("Retry-After").is_none() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{target}: {}", answer.text());
        thread::sleep(ASK_EVERY);
    }
}

/// Guards against hanging; not a measure of speed.
const TURN_WAIT: Duration = Duration::from_secs(200);
const ASK_EVERY: Duration = Duration::from_millis(200);
const ANSWER_WAIT: Duration = Duration::from_secs(60);
