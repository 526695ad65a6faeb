// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients: one RTSP connection and one UDP socket a session, all sockets read by one thread.
//!
//! RTP and RTCP share a port (RFC 5761), so that a session costs one socket here. Costs one `recv`
//! a packet and one `epoll_wait` for many.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::epoll;
use wire::rtp::{Header, Reception};
use wire::rtsp::client::{Client, ReplyReader};
use wire::rtsp::{Limits, Ports};

use crate::error::Error;

/// What the clients saw.
pub(super) struct Seen {
    /// While counting.
    pub(super) received: u64,
    /// From the first packet on.
    pub(super) received_in_all: u64,
    pub(super) lost: u64,
    pub(super) late_us: Histogram<u64>,
}

impl Seen {
    pub(super) fn share_later_than(&self, us: u64) -> f64 {
        let later = self.late_us.len() - self.late_us.count_between(0, us);
        later as f64 / self.late_us.len().max(1) as f64
    }
}

pub(super) struct Clients {
    control: Vec<Control>,
    phase: Arc<AtomicU8>,
    receiving: JoinHandle<Result<Seen, Error>>,
}

struct Control {
    stream: TcpStream,
    client: Client,
    replies: ReplyReader,
}

/// One session's media as it arrives.
struct Media {
    socket: UdpSocket,
    reception: Reception,
    /// Arrival of the earliest packet so far less its media time, in microseconds.
    base_us: Option<i64>,
    /// Lateness samples wait here until counting ends: (arrival less media time) in microseconds.
    transits_us: Vec<i64>,
    first_timestamp: Option<u32>,
    received: u64,
    received_in_all: u64,
}

impl Clients {
    /// Sets up and plays `count` sessions, one after the other.
    pub(super) fn start(url: String, count: usize) -> Result<Clients, Error> {
        let mut media = Vec::with_capacity(count);
        let mut control = Vec::with_capacity(count);
        for _ in 0..count {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
                .map_err(Error::host("a client's UDP socket (ulimit -n?)"))?;
            socket.set_nonblocking(true).map_err(Error::host("a client's UDP socket"))?;
            let local = socket.local_addr().map_err(Error::host("a client's UDP socket"))?;
            let mut session = Control::open(&url)?;
            let ports = Ports { rtp: local.port(), rtcp: local.port() };
            let setup = session.client.setup(ports);
            let reply = session.ask(&setup)?;
            session.client.set_up(&reply).map_err(refused)?;
            control.push(session);
            media.push(Media {
                socket,
                reception: Reception::new(wire::sdp::CLOCK_RATE_HZ),
                base_us: None,
                transits_us: Vec::new(),
                first_timestamp: None,
                received: 0,
                received_in_all: 0,
            });
        }
        let phase = Arc::new(AtomicU8::new(WARMING));
        let told = phase.clone();
        let receiving = std::thread::Builder::new()
            .name("clients".to_owned())
            .spawn(move || receive(media, &told))
            .map_err(Error::host("a thread"))?;
        for session in &mut control {
            let play = session.client.play(None);
            let reply = session.ask(&play)?;
            session.client.started(&reply).map_err(refused)?;
        }
        Ok(Clients { control, phase, receiving })
    }

    pub(super) fn begin_counting(&mut self) {
        self.phase.store(COUNTING, Ordering::Relaxed);
    }

    /// Ends all sessions and reads what is still on its way.
    pub(super) fn finish(mut self) -> Result<Seen, Error> {
        self.phase.store(ENDING, Ordering::Relaxed);
        for session in &mut self.control {
            let pause = session.client.pause();
            session.ask(&pause)?;
        }
        std::thread::sleep(DRAIN);
        self.phase.store(OVER, Ordering::Relaxed);
        for session in &mut self.control {
            let teardown = session.client.teardown();
            session.ask(&teardown)?;
        }
        self.receiving.join().expect("the receiving thread does not panic")
    }
}

impl Control {
    fn open(url: &str) -> Result<Control, Error> {
        let client = Client::new(url).map_err(refused)?;
        let stream = TcpStream::connect((client.host(), client.port()))
            .map_err(Error::host("connecting to the server"))?;
        stream.set_nodelay(true).map_err(Error::host("a client's connection"))?;
        stream.set_read_timeout(Some(REPLY_WAIT)).map_err(Error::host("a client's connection"))?;
        Ok(Control { stream, client, replies: ReplyReader::new(Limits::default()) })
    }

    fn ask(&mut self, request: &[u8]) -> Result<wire::rtsp::client::Reply, Error> {
        self.stream.write_all(request).map_err(Error::host("asking the server"))?;
        let mut buffer = [0; 2048];
        loop {
            if let Some(reply) = self.replies.next().map_err(refused)? {
                return Ok(reply);
            }
            match self.stream.read(&mut buffer).map_err(Error::host("the server's reply"))? {
                0 => {
                    let found = "the connection was closed".to_owned();
                    return Err(Error::Host { what: "the server's reply".to_owned(), found });
                }
                count => self.replies.feed(&buffer[..count]),
            }
        }
    }
}

fn receive(mut media: Vec<Media>, phase: &AtomicU8) -> Result<Seen, Error> {
    let failed = |e: rustix::io::Errno| Error::host("epoll")(e.into());
    let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for (index, session) in media.iter().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&events, session.socket.as_fd(), data, epoll::EventFlags::IN).map_err(failed)?;
    }
    let began = Instant::now();
    let mut ready = Vec::with_capacity(READY_MAX);
    let mut datagram = [0; 2048];
    loop {
        let now = phase.load(Ordering::Relaxed);
        if now == OVER {
            return summary(&media);
        }
        ready.clear();
        let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let buffer = rustix::buffer::spare_capacity(&mut ready);
        match epoll::wait(&events, buffer, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        for event in &ready {
            let session = &mut media[event.data.u64() as usize];
            while let Ok(count) = session.socket.recv(&mut datagram) {
                session.take(&datagram[..count], began.elapsed(), now);
            }
        }
    }
}

impl Media {
    fn take(&mut self, datagram: &[u8], arrival: Duration, phase: u8) {
        // RFC 5761 §4: RTCP packet types on a shared port.
        if datagram.get(1).is_some_and(|kind| (192..=223).contains(kind)) {
            return;
        }
        let Ok((header, _)) = Header::parse(datagram) else { return };
        self.reception.receive(&header, arrival);
        self.received_in_all += 1;
        let first = *self.first_timestamp.get_or_insert(header.timestamp);
        let media_us = i64::from(header.timestamp.wrapping_sub(first) as i32) * 100 / 9;
        let transit = arrival.as_micros() as i64 - media_us;
        self.base_us = Some(self.base_us.map_or(transit, |base| base.min(transit)));
        if phase == COUNTING {
            self.received += 1;
            self.transits_us.push(transit);
        }
    }
}

fn summary(media: &[Media]) -> Result<Seen, Error> {
    let late_us = Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds are constants");
    let mut seen = Seen { received: 0, received_in_all: 0, lost: 0, late_us };
    for session in media {
        seen.received += session.received;
        seen.received_in_all += session.received_in_all;
        seen.lost += session.reception.lost();
        let base = session.base_us.unwrap_or(0);
        for transit in &session.transits_us {
            seen.late_us.saturating_record((transit - base).max(1) as u64);
        }
    }
    Ok(seen)
}

fn refused(error: wire::rtsp::Malformed) -> Error {
    Error::Host { what: "the server's answer".to_owned(), found: error.to_string() }
}

const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const ENDING: u8 = 2;
const OVER: u8 = 3;
const READY_MAX: usize = 256;
const REPLY_WAIT: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_millis(500);
