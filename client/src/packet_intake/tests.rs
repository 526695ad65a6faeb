// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps of an intake: commands, holes, and the units of its packets.

use std::net::Ipv4Addr;
use std::time::UNIX_EPOCH;

use clock::SetClock;
use media::depayload::Depayloader;
use paths::DatagramReader;
use wire::rtcp::SenderInfo;
use wire::rtp::Header;

use super::*;
use crate::track_queue::TrackSink;
use crate::{SenderClock, TrackEvent, TrackOrigin, TrackQueue};

const SSRC: u32 = 7;
const CLOCK_RATE_HZ: u32 = 8000;

/// A track of sound, and a socket of its sender.
struct Sound {
    handle: IntakeHandle,
    intake: Intake,
    input: PacketInput,
    reader: SocketReader,
    sending: UdpSocket,
    /// Keeps the kernel's timestamps enabled.
    _stamped: UdpSocket,
}

/// Returns a socket whose datagrams have times: the kernel starts to timestamp a moment after the
/// first socket has requested it.
fn stamped() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    SocketReader::prepare(&socket).unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    let mut reader = DatagramReader::new(16);
    loop {
        socket.send(b"a").unwrap();
        reader.receive(&socket).unwrap();
        if reader.datagrams().any(|datagram| datagram.time.is_some()) {
            return socket;
        }
    }
}

impl Sound {
    fn new(sink: TrackSink) -> Sound {
        Sound::on(sink, &Clock::HOST)
    }

    fn on(sink: TrackSink, clock: &Clock) -> Sound {
        let text = b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 5004 RTP/AVP 0\r\n";
        let offer = wire::sdp::parse_tracks(text).unwrap();
        let depayloader = Depayloader::new(&offer.tracks[0]).unwrap();
        let track = TrackReceiver::of_recorder(depayloader, sink);
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sending = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sending.connect(socket.local_addr().unwrap()).unwrap();
        let source = AnnouncedSender {
            host: None,
            ssrc: Some(SSRC),
            payload_type: 0,
            clock_rate_hz: CLOCK_RATE_HZ,
        };
        socket.set_nonblocking(true).unwrap();
        let input = PacketInput::Socket(socket);
        let format = StreamFormat::Track(Box::new(track));
        let (handle, intake) = Intake::new(&input, source, format, clock).unwrap();
        let reader = SocketReader::new(intake.clock.clone());
        Sound { handle, intake, input, reader, sending, _stamped: stamped() }
    }

    /// A track that is alone, and the queue of its units.
    fn alone() -> (Sound, TrackQueue) {
        let (mut sinks, queue) = TrackQueue::new(1, &Clock::HOST);
        (Sound::new(sinks.remove(0)), queue)
    }

    /// Sends packets with these numbers, each of 20 ms.
    fn send(&self, sequences: impl IntoIterator<Item = u16>) {
        for sequence in sequences {
            let timestamp = 160 * u32::from(sequence);
            let header = Header { payload_type: 0, marker: false, sequence, timestamp, ssrc: SSRC };
            self.sending.send(&[&header.write()[..], &[0xff; 160]].concat()).unwrap();
        }
    }

    fn begin(&self, sequence: Option<u16>) {
        self.handle.command(Command::Begin { sequence });
    }

    fn step(&mut self) -> IntakeStep {
        let PacketInput::Socket(socket) = &self.input else { panic!("a socket") };
        self.intake.read(&mut self.reader, socket).unwrap()
    }
}

fn next(queue: &mut TrackQueue) -> Option<(usize, TrackEvent)> {
    queue.next(Duration::ZERO).unwrap()
}

#[test]
fn a_sender_report_is_passed_on_ahead_of_the_units_behind_it() {
    let (mut sound, mut queue) = Sound::alone();
    let (ntp, timestamp) = (5 << 32, 160);
    let sender = SenderInfo { ssrc: SSRC, ntp, rtp_timestamp: timestamp, packets: 0, octets: 0 };
    {
        let mut stats = sound.handle.stats();
        stats.rtcp.last_sender = Some((sender, Instant::now()));
        stats.rtcp.sender_reports = 1;
    }
    sound.begin(Some(1));
    sound.send(1..=3);
    assert_eq!(sound.step(), IntakeStep::Empty);
    let mut event = || next(&mut queue).expect("an event").1;
    assert!(matches!(event(), TrackEvent::Codec(_)), "the description names it");
    let TrackEvent::Report(clock) = event() else { panic!("no report") };
    let origin = TrackOrigin { timestamp, clock_rate_hz: CLOCK_RATE_HZ };
    assert_eq!(clock, SenderClock { ntp, origin });
    // The report is sent once.
    assert!((0..3).all(|_| matches!(event(), TrackEvent::Unit(..))));
}

/// The packets are more than a call reads, and the last of them fills a hole whose time has
/// elapsed on the reader's clock.
#[test]
fn a_packet_that_waits_in_the_socket_is_not_given_up() {
    // The kernel's times are those of sending, which must take less than a hole waits.
    let (mut sound, mut queue) = loop {
        let (sound, queue) = Sound::alone();
        sound.begin(Some(1));
        let began = Instant::now();
        sound.send([1].into_iter().chain(3..=PACKETS).chain([2]));
        if began.elapsed() < TRACK_REORDER.wait {
            break (sound, queue);
        }
    };
    std::thread::sleep(TRACK_REORDER.wait);
    assert_eq!(sound.step(), IntakeStep::More);
    assert_eq!(sound.step(), IntakeStep::Empty);
    let units = std::iter::from_fn(|| next(&mut queue)).filter_map(|(_, event)| match event {
        TrackEvent::Unit(unit, _) => Some(unit.time),
        _ => None,
    });
    let times: Vec<_> = units.collect();
    assert_eq!(times.len(), usize::from(PACKETS));
    assert!(times.is_sorted() && sound.handle.stats().receiver.missing() == 0, "{times:?}");
}

#[test]
fn a_stopped_intake_ends_when_its_socket_is_empty() {
    let (mut sound, mut queue) = Sound::alone();
    sound.begin(Some(1));
    sound.send([1]);
    sound.handle.command(Command::Stop { is_cut: false });
    sound.send([2]);
    assert_eq!(sound.step(), IntakeStep::Empty);
    assert_eq!(sound.step(), IntakeStep::Ended);
    sound.intake.close(&sound.input, None).unwrap();
    let units = std::iter::from_fn(|| queue.next(Duration::ZERO).ok().flatten());
    assert_eq!(units.filter(|(_, event)| matches!(event, TrackEvent::Unit(..))).count(), 2);
    assert!(queue.next(Duration::ZERO).is_err(), "the track has ended");
}

/// The track whose units leave now.
fn unit_tracks(queue: &mut TrackQueue) -> Vec<usize> {
    let events = std::iter::from_fn(|| next(queue));
    let units = events.filter(|(_, event)| matches!(event, TrackEvent::Unit(..)));
    units.map(|(track, _)| track).collect()
}

#[test]
fn units_of_two_tracks_leave_in_order_of_arrival_also_those_held_until_play() {
    let (mut sinks, mut queue) = TrackQueue::new(2, &Clock::HOST);
    let [mut held, mut begun] = [(); 2].map(|()| Sound::new(sinks.remove(0)));
    begun.begin(None);
    held.send([1]);
    begun.send([1]);
    for sound in [&mut held, &mut begun] {
        assert_eq!(sound.step(), IntakeStep::Empty);
    }
    assert!(unit_tracks(&mut queue).is_empty(), "one track waits for the answer to PLAY");
    held.begin(None);
    held.step();
    assert_eq!(unit_tracks(&mut queue), [0, 1]);
    // A track that sends nothing is read all the same.
    begun.send([2]);
    begun.step();
    assert!(unit_tracks(&mut queue).is_empty());
    held.step();
    assert_eq!(unit_tracks(&mut queue), [1]);
}

/// A clock of 1970: the kernel's times are in its future, so a datagram arrives when it is read.
fn set_clock() -> SetClock {
    SetClock::at(UNIX_EPOCH)
}

#[test]
fn units_of_other_tracks_wait_for_those_behind_a_hole() {
    const MOMENT: Duration = Duration::from_nanos(1);
    let set = set_clock();
    let (mut sinks, mut queue) = TrackQueue::new(2, &set.clock());
    let [mut broken, mut whole] = [(); 2].map(|()| Sound::on(sinks.remove(0), &set.clock()));
    broken.begin(Some(1));
    whole.begin(Some(1));
    broken.send([1, 3]);
    broken.step();
    set.advance(MOMENT);
    whole.send([1]);
    whole.step();
    assert_eq!(unit_tracks(&mut queue), [0]);
    set.advance(TRACK_REORDER.wait - 2 * MOMENT);
    for left in [&[][..], &[0, 1]] {
        broken.step();
        assert_eq!(unit_tracks(&mut queue), left, "the packet behind the hole arrived first");
        set.advance(MOMENT);
    }
    assert_eq!(broken.handle.stats().receiver.missing(), 1);
}

#[test]
fn a_sender_that_ignores_the_end_is_read_for_a_fifth_of_a_second() {
    let set = set_clock();
    let (mut sinks, mut queue) = TrackQueue::new(1, &set.clock());
    let mut sound = Sound::on(sinks.remove(0), &set.clock());
    sound.begin(Some(1));
    sound.handle.command(Command::Stop { is_cut: true });
    let mut steps = [0, 199, 1].into_iter().zip(1..).map(|(ms, sequence)| {
        set.advance(Duration::from_millis(ms));
        sound.send([sequence]);
        sound.step()
    });
    assert_eq!(steps.next(), Some(IntakeStep::Empty));
    assert_eq!(steps.next(), Some(IntakeStep::Empty));
    assert_eq!(steps.next(), Some(IntakeStep::Ended));
    assert_eq!(unit_tracks(&mut queue), [0; 3]);
}

const PACKETS: u16 = 40;
