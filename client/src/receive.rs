// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that receives: packets from one socket into the books, and into the file.
//!
//! A thread of its own, because a task on a shared executor is late when others are busy, and what
//! it measures is lateness. The time of a packet is taken as soon as the thread has it; the
//! thread's own scheduling delay is in it. Costs one system call a packet, one lock that is hardly
//! ever contended, one copy when a file is written.
//!
//! Packets may come before the answer to PLAY has been read that says which is the first. They are
//! held with their times until it is known ([`Order::Begin`]), so that what was lost at the very
//! start counts as lost.
//!
//! Sources: RFC 3550 §5.1, A.1; RFC 2326 §12.33 (RTP-Info); RFC 2250 §2 (whole TS packets).
//! Does not do: kernel timestamps (they need recvmsg with control data, and that unsafe code).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wire::mp2t::CLOCK_RATE_HZ;
use wire::reorder::Reorder;
use wire::rtp::{Header, Reception, SequenceUpdate};

use super::lateness::Lateness;
use super::output::{Output, Written};
use super::sockets::kernel_drops;
use crate::error::Error;

/// Whose packets are the stream's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    pub(super) host: IpAddr,
    /// Where SETUP did not say, the first packet does.
    pub(super) ssrc: Option<u32>,
    pub(super) payload_type: u8,
}

/// What is known of the stream; shared with those who report.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) ssrc: Option<u32>,
    pub(super) reception: Reception,
    pub(super) lateness: Lateness,
    /// Payload of packets that came for the first time.
    pub(super) payload_bytes: u64,
    /// When the last packet of the stream came.
    pub(super) last: Option<Instant>,
    pub(super) last_timestamp: u32,
    /// Datagrams that were not of this stream, and where the last of them came from.
    pub(super) foreign: u64,
    pub(super) foreign_from: Option<SocketAddr>,
    /// Datagrams that were no RTP.
    pub(super) malformed: u64,
    /// Payloads that were not whole TS packets.
    pub(super) misshapen: u64,
    /// Packets that came although PAUSE had been answered.
    pub(super) while_paused: u64,
    /// RTP-Info named the first number, and this came.
    pub(super) first_instead: Option<u16>,
    pub(super) is_output_broken: bool,
    pub(super) is_receiving: bool,
    pub(super) rtcp: Rtcp,
}

/// What came by RTCP.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rtcp {
    pub(super) sender_reports: u64,
    pub(super) last_sender: Option<(wire::rtcp::SenderInfo, Instant)>,
    pub(super) said_bye: bool,
    pub(super) malformed: u64,
}

/// What the thread is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// Keep what comes: PLAY is being asked for.
    Hold,
    /// PLAY was answered: a new clock, from this sequence number if it was said.
    Begin {
        sequence: Option<u16>,
    },
    /// PAUSE was answered.
    Pause,
    Stop,
}

/// The thread, from outside. Dropping it stops the thread.
pub(super) struct Receiving {
    orders: Sender<Order>,
    books: Arc<Mutex<Books>>,
    ended: oneshot::Receiver<Result<Ended, Error>>,
}

/// What is known when the thread has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) written: Option<Written>,
    /// Packets that the file lacks.
    pub(super) file_missing: u64,
    pub(super) kernel_drops: Option<u64>,
}

impl Receiving {
    /// Starts the thread; what comes is held until the first [`Order::Begin`].
    pub(super) fn start(
        socket: UdpSocket,
        source: Source,
        output: Option<Output>,
    ) -> Result<Receiving, Error> {
        let host = |call| move |source| Error::Host { call, object: "RTP socket".into(), source };
        socket.set_read_timeout(Some(LOOK_EVERY)).map_err(host("setsockopt SO_RCVTIMEO"))?;
        let books = Arc::new(Mutex::new(Books::new(source.ssrc)));
        let (orders, inbox) = channel();
        let (end, ended) = oneshot::channel();
        let thread = Thread {
            socket,
            source,
            books: books.clone(),
            inbox,
            phase: Phase::Held(Held::default()),
            start: Some(None),
            timeline: Timeline::default(),
            reorder: Reorder::default(),
            output,
        };
        std::thread::Builder::new()
            .name("receive".to_owned())
            .spawn(move || {
                // Nobody waits for it when the play was given up.
                let _ = end.send(thread.run());
            })
            .map_err(|source| Error::Host {
                call: "clone",
                object: "thread receive".into(),
                source,
            })?;
        Ok(Receiving { orders, books, ended })
    }

    pub(super) fn order(&self, order: Order) {
        // A thread that has ended has said why, to `stop`.
        let _ = self.orders.send(order);
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        open(&self.books)
    }

    pub(super) fn shared(&self) -> Arc<Mutex<Books>> {
        self.books.clone()
    }

    /// Takes what is still in the socket, closes the file, and ends the thread.
    pub(super) async fn stop(self) -> Result<Ended, Error> {
        self.order(Order::Stop);
        self.ended.await.unwrap_or_else(|_| {
            let source = io::Error::other("the thread panicked");
            Err(Error::Host { call: "receive", object: "RTP".into(), source })
        })
    }
}

/// The books are figures: those that a panicking thread left are as good as any.
pub(super) fn open(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    fn new(ssrc: Option<u32>) -> Books {
        Books {
            ssrc,
            reception: Reception::new(CLOCK_RATE_HZ),
            lateness: Lateness::default(),
            payload_bytes: 0,
            last: None,
            last_timestamp: 0,
            foreign: 0,
            foreign_from: None,
            malformed: 0,
            misshapen: 0,
            while_paused: 0,
            first_instead: None,
            is_output_broken: false,
            is_receiving: true,
            rtcp: Rtcp::default(),
        }
    }
}

struct Thread {
    socket: UdpSocket,
    source: Source,
    books: Arc<Mutex<Books>>,
    inbox: Receiver<Order>,
    phase: Phase,
    /// Until the first packet: the sequence number that RTP-Info named, if it did.
    start: Option<Option<u16>>,
    timeline: Timeline,
    reorder: Reorder,
    output: Option<Output>,
}

/// Packets that wait for the answer to PLAY, with their times.
#[derive(Default)]
struct Held {
    packets: Vec<(Instant, Vec<u8>)>,
    bytes: usize,
}

enum Phase {
    Held(Held),
    Playing,
    Paused(Instant),
    /// Takes what is there, until then.
    Stopping(Instant),
}

/// Arrival times for the jitter: without the pauses, which are none of the network's doing.
#[derive(Debug, Default)]
struct Timeline {
    origin: Option<Instant>,
    left_out: Duration,
    last: Option<(Duration, u32)>,
    is_new: bool,
}

impl Thread {
    fn run(mut self) -> Result<Ended, Error> {
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let mut failure = None;
        loop {
            let received = self.socket.recv_from(&mut buffer);
            let arrival = Instant::now();
            // Before the packet: an order was given before it could be sent.
            self.obey();
            match received {
                Ok((bytes, from)) => self.receive(&buffer[..bytes], from, arrival),
                Err(error) if is_idle(&error) => {
                    if matches!(self.phase, Phase::Stopping(_)) {
                        break;
                    }
                }
                Err(source) => {
                    let object = format!("UDP port {}", self.port());
                    failure = Some(Error::Host { call: "recvfrom", object, source });
                    break;
                }
            }
            if matches!(self.phase, Phase::Stopping(until) if arrival >= until) {
                break;
            }
        }
        open(&self.books).is_receiving = false;
        let kernel_drops = kernel_drops(&self.socket);
        let written = self.close()?;
        let file_missing = self.reorder.missing();
        failure.map_or(Ok(Ended { written, file_missing, kernel_drops }), Err)
    }

    fn port(&self) -> u16 {
        self.socket.local_addr().map_or(0, |local| local.port())
    }

    fn close(&mut self) -> Result<Option<Written>, Error> {
        let Some(mut output) = self.output.take() else { return Ok(None) };
        self.reorder.finish(|bytes, _| output.push(bytes));
        output.finish().map(Some)
    }

    fn obey(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Hold) => self.phase = Phase::Held(Held::default()),
                Ok(Order::Begin { sequence }) => self.begin(sequence),
                Ok(Order::Pause) => self.phase = Phase::Paused(Instant::now()),
                Err(TryRecvError::Empty) => return,
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => {
                    if !matches!(self.phase, Phase::Stopping(_)) {
                        self.begin_held();
                        // Where that cannot be set the time-out of the socket does, later.
                        let _ = self.socket.set_nonblocking(true);
                        self.phase = Phase::Stopping(Instant::now() + STOP_AFTER);
                    }
                    return;
                }
            }
        }
    }

    fn begin(&mut self, sequence: Option<u16>) {
        if let Some(start) = &mut self.start {
            *start = sequence;
        }
        open(&self.books).lateness.renew();
        self.timeline.is_new = true;
        self.begin_held();
    }

    fn begin_held(&mut self) {
        if let Phase::Held(held) = std::mem::replace(&mut self.phase, Phase::Playing) {
            for (arrival, packet) in held.packets {
                self.take(&packet, arrival);
            }
        }
    }

    fn receive(&mut self, packet: &[u8], from: SocketAddr, arrival: Instant) {
        if from.ip().to_canonical() != self.source.host.to_canonical() {
            let mut books = open(&self.books);
            books.foreign += 1;
            books.foreign_from = Some(from);
            return;
        }
        if let Phase::Held(held) = &mut self.phase {
            if held.packets.len() < HELD_PACKETS_MAX && held.bytes < HELD_BYTES_MAX {
                held.packets.push((arrival, packet.to_vec()));
                held.bytes += packet.len();
                return;
            }
            // The answer is overdue: go on without what it would have said.
            self.begin_held();
        }
        self.take(packet, arrival);
    }

    /// A packet from the right host.
    fn take(&mut self, packet: &[u8], arrival: Instant) {
        let mut guard = open(&self.books);
        let books = &mut *guard;
        let Ok((header, payload)) = Header::parse(packet) else {
            books.malformed += 1;
            return;
        };
        if header.payload_type != self.source.payload_type
            || *books.ssrc.get_or_insert(header.ssrc) != header.ssrc
        {
            books.foreign += 1;
            return;
        }
        if let Some(announced) = self.start.take() {
            first(books, &mut self.reorder, announced, header.sequence);
        }
        let time = self.timeline.at(arrival, header.timestamp);
        let kind = books.reception.receive(&header, time);
        books.last = Some(arrival);
        if matches!(self.phase, Phase::Paused(since) if arrival >= since + PAUSE_GRACE) {
            books.while_paused += 1;
        }
        match kind {
            SequenceUpdate::Duplicate | SequenceUpdate::Stray | SequenceUpdate::Old => return,
            SequenceUpdate::Restarted => {
                self.reorder.finish(|bytes, _| push(&mut self.output, bytes))
            }
            SequenceUpdate::InOrder
            | SequenceUpdate::AfterGap { .. }
            | SequenceUpdate::Reordered => {}
        }
        if kind != SequenceUpdate::Reordered {
            books.last_timestamp = header.timestamp;
        }
        self.timeline.took(time, header.timestamp);
        books.lateness.arrived(header.timestamp, arrival);
        let payload = &packet[payload];
        books.payload_bytes += payload.len() as u64;
        books.misshapen += u64::from(!is_transport_stream(payload));
        if self.output.is_some() {
            let output = &mut self.output;
            self.reorder.push(header.sequence, payload, time, |bytes, _| push(output, bytes));
            books.is_output_broken = self.output.as_ref().is_some_and(Output::is_broken);
        }
    }
}

fn push(output: &mut Option<Output>, bytes: &[u8]) {
    if let Some(output) = output {
        output.push(bytes);
    }
}

/// Where the stream begins: as announced, if the first packet is not far behind that.
fn first(books: &mut Books, reorder: &mut Reorder, announced: Option<u16>, found: u16) {
    match announced {
        Some(sequence) if found.wrapping_sub(sequence) < FIRST_DISTANCE_MAX => {
            books.reception = Reception::starting_at(CLOCK_RATE_HZ, sequence);
            reorder.start_at(sequence);
        }
        Some(_) => books.first_instead = Some(found),
        None => {}
    }
}

impl Timeline {
    /// The time of an arrival. The first of a new clock is made to fit on the last of the old.
    fn at(&mut self, arrival: Instant, timestamp: u32) -> Duration {
        let origin = *self.origin.get_or_insert(arrival);
        let passed = arrival.saturating_duration_since(origin);
        if std::mem::take(&mut self.is_new)
            && let Some((last, last_timestamp)) = self.last
        {
            let step = timestamp.wrapping_sub(last_timestamp).cast_signed().max(0);
            let due = last + Duration::from_secs(u64::from(step.unsigned_abs())) / CLOCK_RATE_HZ;
            self.left_out = passed.saturating_sub(due);
        }
        passed.saturating_sub(self.left_out)
    }

    fn took(&mut self, time: Duration, timestamp: u32) {
        self.last = Some((time, timestamp));
    }
}

fn is_idle(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// RFC 2250 §2: an integral number of TS packets.
pub(super) fn is_transport_stream(payload: &[u8]) -> bool {
    !payload.is_empty()
        && payload.len().is_multiple_of(media::TS_PACKET_BYTES)
        && payload.chunks_exact(media::TS_PACKET_BYTES).all(|packet| packet[0] == SYNC_BYTE)
}

/// An order is obeyed after so long at most when nothing comes.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A sender that does not stop when told to is not listened to for ever.
const STOP_AFTER: Duration = Duration::from_millis(200);
/// Packets under way when PAUSE is answered.
const PAUSE_GRACE: Duration = Duration::from_millis(200);
/// Ten seconds of 8 Mb/s: an answer that takes longer than that is not waited for.
const HELD_PACKETS_MAX: usize = 8192;
const HELD_BYTES_MAX: usize = 16 << 20;
/// A.1 MAX_DROPOUT: a first packet further on than this is no stream with a loss at its start.
pub(super) const FIRST_DISTANCE_MAX: u16 = 3000;
const DATAGRAM_BYTES_MAX: usize = 65_536;
/// ISO/IEC 13818-1 §2.4.3.3.
const SYNC_BYTE: u8 = 0x47;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_pause_is_taken_out_of_the_jitters_time() {
        let mut timeline = Timeline::default();
        let (from, ms) = (Instant::now(), Duration::from_millis);
        assert_eq!(timeline.at(from, 0), ms(0));
        timeline.took(ms(0), 0);
        let time = timeline.at(from + ms(15), 900);
        assert_eq!(time, ms(15));
        timeline.took(time, 900);
        timeline.is_new = true;
        // Due 10 ms after the last, whenever it came; the next is late by what it is late.
        assert_eq!(timeline.at(from + ms(3000), 1800), ms(25));
        assert_eq!(timeline.at(from + ms(3012), 2700), ms(37));
    }

    #[test]
    fn a_receiver_that_is_dropped_leaves_no_thread_behind() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = IpAddr::from(Ipv4Addr::LOCALHOST);
        let source = Source { host, ssrc: None, payload_type: 33 };
        let receiving = Receiving::start(socket, source, None).unwrap();
        let books = receiving.shared();
        drop(receiving);
        // The thread holds the other end of the books; a minute is not a limit but a last resort.
        let until = Instant::now() + Duration::from_secs(60);
        while Arc::strong_count(&books) > 1 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(Arc::strong_count(&books), 1);
    }

    #[test]
    fn whole_ts_packets_are_told_from_others() {
        let packet = |first: u8| [[first; 1].to_vec(), vec![0; 187]].concat();
        assert!(is_transport_stream(&packet(0x47)));
        assert!(is_transport_stream(&[packet(0x47), packet(0x47)].concat()));
        assert!(!is_transport_stream(&[packet(0x47), packet(0x48)].concat()));
        assert!(!is_transport_stream(&packet(0x47)[..187]));
        assert!(!is_transport_stream(&[]));
    }
}
