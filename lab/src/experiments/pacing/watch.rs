// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watched sessions: RTSP sessions in the second namespace whose packets are received with the
//! kernel's time of arrival.
//!
//! One thread reads all sockets every millisecond; the times are the kernel's, so its sleep does
//! not blur them. Costs some 20 bytes of memory a packet.
//!
//! Sources: RFC 3550 §5.1, A.3 (loss); `socket(7)` (`SO_TIMESTAMPNS`).
//! Does not send receiver reports; a server's time-out must be longer than a measurement.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use paths::DatagramReader;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use wire::rtp::{Header, Reception};

use super::smoothness::Arrival;
use crate::experiments::peers::rtsp::Session;
use measure::Error;
use measure::meter::{Cores, pin};
use measure::network::Network;

/// Running sessions and the thread that receives from them.
pub(super) struct Watch {
    sessions: Vec<Session>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Watched>, String>>>,
    /// Held open, so that the server's reports have a target.
    _rtcp: Vec<UdpSocket>,
}

/// Packets of a session within the measured time.
pub(super) struct Watched {
    pub(super) arrivals: Vec<Arrival>,
    reception: Reception,
    /// Packets that the socket dropped.
    dropped: u32,
}

impl Watched {
    /// Packets lost or out of order on the way.
    pub(super) fn lost(&self) -> u64 {
        (self.reception.lost() + self.reception.reordered()).saturating_sub(self.dropped.into())
    }
}

impl Watch {
    /// Plays `url` in so many sessions.
    pub(super) fn start(
        network: &Network,
        (url, sessions): (&str, usize),
        cores: &Cores,
    ) -> Result<Watch, Error> {
        let ports: Vec<u16> = (0..sessions).map(|index| FIRST_PORT + 2 * index as u16).collect();
        let bind = |port| network.far_udp(port);
        let sockets = ports.iter().map(|port| bind(*port)).collect::<Result<Vec<_>, _>>()?;
        let rtcp = ports.iter().map(|port| bind(port + 1)).collect::<Result<Vec<_>, _>>()?;
        for socket in &sockets {
            prepare(socket)?;
        }
        let (stop, cores) = (Arc::<AtomicBool>::default(), cores.clone());
        let stop_flag = stop.clone();
        let thread = std::thread::spawn(move || {
            pin(&cores, true);
            receive(&sockets, &stop_flag)
        });
        let thread = Some(thread);
        let mut watch = Watch { sessions: Vec::new(), stop, thread, _rtcp: rtcp };
        for port in ports {
            let play = || Session::play(url, port).map_err(std::io::Error::other);
            watch.sessions.push(network.in_far(play)?);
        }
        Ok(watch)
    }

    /// Stops; returns the packets of each session that arrived within these times.
    pub(super) fn finish(mut self, times: (SystemTime, SystemTime)) -> Result<Vec<Watched>, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("finish is called once");
        let received = thread.join().expect("it does not panic");
        let what = "receiving the watched sessions".to_owned();
        let mut watched = received.map_err(|found| Error::Host { what, found })?;
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (begin, end) = (since(times.0), since(times.1));
        for session in &mut watched {
            session.arrivals.retain(|arrival| (begin..end).contains(&arrival.at));
            // Two processors may timestamp packets in another order than they hand them over.
            session.arrivals.sort_by_key(|arrival| arrival.at);
        }
        Ok(watched)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // An earlier error is reported instead of the thread's.
            let _ = thread.join();
        }
    }
}

fn prepare(socket: &UdpSocket) -> Result<(), Error> {
    let failed = || Error::host("a watching socket");
    socket.set_nonblocking(true).map_err(failed())?;
    if set_socket_recv_buffer_size_force(socket, BUFFER_BYTES).is_err() {
        set_socket_recv_buffer_size(socket, BUFFER_BYTES)
            .map_err(|error| failed()(error.into()))?;
    }
    let timed = DatagramReader::prepare(socket);
    timed.map_err(|errno| failed()(errno.into()))
}

/// Receives until `stop` is set.
fn receive(sockets: &[UdpSocket], stop: &AtomicBool) -> Result<Vec<Watched>, String> {
    let empty = || Watched {
        arrivals: Vec::new(),
        reception: Reception::new(wire::mp2t::CLOCK_RATE_HZ),
        dropped: 0,
    };
    let mut watched: Vec<Watched> = sockets.iter().map(|_| empty()).collect();
    let mut reader = DatagramReader::new(DATAGRAM_BYTES);
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        for (socket, session) in sockets.iter().zip(&mut watched) {
            loop {
                let more = reader.receive(socket).map_err(|errno| errno.to_string())?;
                for datagram in reader.datagrams() {
                    let time = datagram.time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                    let at = time.ok_or("a packet without a time of arrival")?;
                    let (header, payload) =
                        Header::parse(datagram.bytes).map_err(|error| error.to_string())?;
                    session.reception.receive(&header, at);
                    session.dropped = datagram.dropped;
                    session.arrivals.push(Arrival { at, bytes: payload.len() as u32 });
                }
                if session.arrivals.len() > ARRIVALS_MAX {
                    return Err(format!("more than {ARRIVALS_MAX} packets of a session"));
                }
                if !more {
                    break;
                }
            }
        }
        if is_last {
            return Ok(watched);
        }
        std::thread::sleep(READ_EVERY);
    }
}

/// RTP uses the even ports, RTCP the odd ones.
const FIRST_PORT: u16 = 6000;
const DATAGRAM_BYTES: usize = 1500;
const BUFFER_BYTES: usize = 4 << 20;
const READ_EVERY: Duration = Duration::from_millis(1);
/// Half an hour of 5 Mb/s.
const ARRIVALS_MAX: usize = 1_000_000;
