// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel under a clock that the test sets: what leaves at which turn, compared exactly with
//! what the producer makes for that time. A minute takes as long as its packets take to make.
//!
//! The packets are sent to sockets of the tests over loopback; after each turn as many are received
//! as the turn has counted, so that the time of a packet is the time of its turn.
//!
//! Does not test a host's clock or scheduler ([`PlayoutThread::run`]); `make test-time` does.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::time::UNIX_EPOCH;

use clock::SetClock;
use media::{TS_PACKET_BYTES, ticks_of};

use super::*;
use crate::channel::playout::ChannelPlan;
use crate::channel::playout::producer::tests::{CLIP, measured, reference};
use crate::channel::settings::ChannelDraft;
use crate::channel::timeline::{Lineup, Timeline, TimelineEntry};

/// Wall time at which each channel here starts, and its playlist with it.
pub(super) const BEGAN: Duration = Duration::from_secs(1_800_000_000);
pub(super) const BURST: Duration = Duration::from_millis(20);
pub(super) const RTP_BYTES: usize = 12;
/// Exceeds the time that packets of a slow stream wait for a full datagram.
const FULL_TICKS: u64 = TICKS_PER_SECOND / 10;
/// A clock reference has 33 bits of 90 kHz.
const WRAP_TICKS: u64 = 300 << 33;

/// A channel whose time the test sets, and the receivers of its two targets.
struct Stage {
    set: SetClock,
    thread: PlayoutThread,
    rtp: UdpSocket,
    udp: UdpSocket,
    sent: Sent,
}

/// Packets that arrived, each with the channel time of the turn that sent it.
#[derive(Default, PartialEq, Eq)]
struct Sent {
    rtp: Vec<(u64, Vec<u8>)>,
    udp: Vec<(u64, Vec<u8>)>,
}

/// Returns a socket at an even port, as RTP has.
fn receiver() -> UdpSocket {
    // The others are kept until one is found, or the kernel chooses them again.
    let mut odd = Vec::new();
    let socket = loop {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        match socket.local_addr().expect("it is bound").port() % 2 {
            0 => break socket,
            _ => odd.push(socket),
        }
    };
    // Against hanging: it is given what was sent before.
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    socket
}

/// Plays the clip again and again from [`BEGAN`] on.
pub(super) fn draft() -> ChannelDraft {
    ChannelDraft {
        playlist: vec!["clip.ts".to_owned()],
        starts_at: Some(jiff::Timestamp::from_second(BEGAN.as_secs() as i64).unwrap().to_string()),
        ..ChannelDraft::default()
    }
}

/// The plan of a channel that plays the clip.
pub(super) fn plan(config: &ChannelConfig) -> ChannelPlan {
    let (file, name) = (Arc::new(measured(CLIP)), Arc::<str>::from("clip.ts"));
    let entries = vec![TimelineEntry { name: name.clone(), duration: Some(file.duration) }];
    let lineup = Lineup { entries, ..Lineup::default() };
    ChannelPlan {
        timeline: Timeline::new(config, &lineup),
        files: HashMap::from([(name, file)]),
        faults: Vec::new(),
        version: 1,
    }
}

impl Stage {
    /// Opens a channel at a wall time since 1970.
    fn open(draft: ChannelDraft, wall: Duration) -> Stage {
        let (rtp, udp) = (receiver(), receiver());
        let address = |socket: &UdpSocket| socket.local_addr().expect("it is bound");
        let send = vec![format!("rtp://{}", address(&rtp)), format!("udp://{}", address(&udp))];
        let config = ChannelDraft { send, ..draft }.check("news").expect("good settings");
        let set = SetClock::at(UNIX_EPOCH + wall);
        let clock = set.clock();
        let shared = Arc::new(ChannelShared::new(&config, &clock));
        shared.set_plan(plan(&config));
        let host = ChannelHost { burst: BURST, cache: None, clock: &clock };
        let thread = PlayoutThread::open(shared, host).expect("a host that has sockets");
        Stage { set, thread, rtp, udp, sent: Sent::default() }
    }

    /// Runs one turn, and receives what it sends; returns the time of the next.
    fn turn(&mut self) -> Instant {
        let now = self.set.clock().moment();
        let ticks = self.thread.channel_clock.ticks_at(now.at);
        let counted = self.counted();
        let wake = self.thread.turn(now);
        // As many to each target.
        let packets = (self.counted() - counted) / 2;
        let mut buffer = [0; 2048];
        for (socket, sent) in [(&self.rtp, &mut self.sent.rtp), (&self.udp, &mut self.sent.udp)] {
            for _ in 0..packets {
                let bytes = socket.recv(&mut buffer).expect("it was sent");
                sent.push((ticks, buffer[..bytes].to_vec()));
            }
        }
        wake
    }

    fn counted(&self) -> u64 {
        let counters = &self.thread.shared.counters;
        assert_eq!(counters.dropped_packets.load(Ordering::Relaxed), 0);
        counters.packets.load(Ordering::Relaxed)
    }

    /// Lets time pass; the thread wakes on time.
    fn run_for(&mut self, time: Duration) {
        let until = self.set.now() + time;
        loop {
            let wake = self.turn();
            self.set.advance_to(wake.min(until));
            if wake >= until {
                break;
            }
        }
    }

    fn late_bursts(&self) -> u64 {
        self.thread.shared.counters.late_bursts.load(Ordering::Relaxed)
    }
}

/// Returns what a channel that turns at these times must send: packets of its producer, each at the
/// last turn before it is due.
fn expected(stage: &Stage, turns: impl Iterator<Item = u64>) -> Vec<(u64, ChannelPacket)> {
    let (config, clock) = (&stage.thread.shared.config, &stage.thread.channel_clock);
    let plan = plan(config);
    let mut producer: Option<Producer> = None;
    let mut packets = Vec::new();
    for ticks in turns {
        let producer = producer.get_or_insert_with(|| {
            let mut producer = Producer::new(config, ticks);
            producer.restart_at(ticks + ticks_of(BURST));
            producer
        });
        producer.advance(ticks + ticks_of(LEAD), clock, &plan);
        // The first one tells another server that this one sends.
        if packets.is_empty() {
            packets.extend(producer.next(u64::MAX).map(|packet| (ticks, packet)));
        }
        while let Some(packet) = producer.next(ticks + ticks_of(BURST)) {
            packets.push((ticks, packet));
        }
    }
    packets
}

/// Turns one burst apart, from the start of the channel on.
fn turns(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|turn| ticks_of(BEGAN) + turn * ticks_of(BURST))
}

#[track_caller]
fn assert_sent(stage: &Stage, expected: &[(u64, ChannelPacket)]) {
    let Sent { rtp, udp } = &stage.sent;
    assert_eq!((rtp.len(), udp.len()), (expected.len(), expected.len()));
    let first = Header::parse(&rtp[0].1).expect("RTP").0;
    for (number, ((ticks, packet), (by_rtp, bare))) in
        expected.iter().zip(rtp.iter().zip(udp)).enumerate()
    {
        assert_eq!((by_rtp.0, bare.0), (*ticks, *ticks), "packet {number} leaves at its turn");
        assert!(bare.1 == packet.payload && by_rtp.1[RTP_BYTES..] == packet.payload, "{number}");
        let header = Header::parse(&by_rtp.1).expect("RTP").0;
        let wanted = Header {
            sequence: first.sequence.wrapping_add(number as u16),
            timestamp: (packet.begins / TICKS_PER_TIMESTAMP) as u32,
            ..first
        };
        assert_eq!(header, wanted, "packet {number}");
    }
}

/// Asserts that clock references leave at their turn, or as much later as a datagram takes to be
/// full; returns their number.
#[track_caller]
fn references_at_turns(sent: &[(u64, Vec<u8>)]) -> usize {
    let mut count = 0;
    for (ticks, bytes) in sent {
        for reference in bytes.chunks_exact(TS_PACKET_BYTES).filter_map(reference) {
            let ahead = (reference + FULL_TICKS + WRAP_TICKS - ticks % WRAP_TICKS) % WRAP_TICKS;
            let most = FULL_TICKS + ticks_of(BURST);
            assert!(ahead < most, "{ahead} of {most} ticks");
            count += 1;
        }
    }
    count
}

/// Four times the file and a piece of it, at a constant rate and without.
#[test]
fn a_minute_leaves_at_its_turns_packet_by_packet() {
    for constant_rate_kbps in [None, Some(1500)] {
        let mut stage = Stage::open(ChannelDraft { constant_rate_kbps, ..draft() }, BEGAN);
        stage.run_for(Duration::from_secs(60));
        assert_sent(&stage, &expected(&stage, turns(3000)));
        assert_eq!(stage.late_bursts(), 0);
        let counters = &stage.thread.shared.counters;
        assert_eq!(counters.programmes.load(Ordering::Relaxed), 5);
        let references = references_at_turns(&stage.sent.udp[1..]);
        // At least every tenth of a second (ISO/IEC 13818-1 §2.7.2).
        assert!(references > 600, "{references}");
    }
}

/// Until a second the media are sent late, with nothing lost; after that they are left out.
#[test]
fn thread_that_stood_still_sends_all_of_a_second_and_leaves_out_more() {
    let mut stage = Stage::open(draft(), BEGAN);
    stage.run_for(Duration::from_secs(2));
    let begun = stage.sent.udp.len();
    stage.set.advance(Duration::from_millis(900));
    stage.run_for(Duration::from_millis(100));
    let stalled = turns(100).chain(turns(150).skip(145));
    assert_sent(&stage, &expected(&stage, stalled));
    assert_eq!(stage.late_bursts(), 1);
    let (at, made_up) = (stage.sent.udp[begun].0, &stage.sent.udp[begun..]);
    let at_once = made_up.iter().filter(|(ticks, _)| *ticks == at).count();
    assert!(at_once > made_up.len() * 4 / 5, "{at_once} of {} leave at once", made_up.len());

    stage.set.advance(Duration::from_secs(5));
    let before = stage.sent.udp.len();
    stage.run_for(Duration::from_millis(100));
    assert_eq!(stage.late_bursts(), 2);
    let count = references_at_turns(&stage.sent.udp[before..]);
    assert!(count > 0, "its clock is that of the wall again");
}

/// The stream's own clock runs on; the programme is that of the new time at the next turn.
#[test]
fn wall_clock_that_is_set_changes_the_programme_at_one_turn() {
    let mut stage = Stage::open(draft(), BEGAN);
    stage.run_for(Duration::from_secs(5));
    let programmes =
        |stage: &Stage| stage.thread.shared.counters.programmes.load(Ordering::Relaxed);
    assert_eq!(programmes(&stage), 1);
    let offset = |stage: &Stage| stage.thread.producer.on_air().expect("it plays").offset;
    let entered = offset(&stage).abs_diff(BURST);
    assert!(entered <= Duration::from_micros(1), "from the start, but for the burst of a peer");
    let (length, wall) = (measured(CLIP).duration, BEGAN + Duration::from_secs(5));
    // Six seconds into the clip, an hour of it later.
    let turns_of_clip = Duration::from_secs(3600).as_nanos().div_ceil(length.as_nanos());
    let later = BEGAN + length * turns_of_clip as u32 + Duration::from_secs(6);
    stage.set.set_wall(UNIX_EPOCH + later);
    let last = stage.sent.rtp.len() - 1;
    stage.run_for(BURST * 2);
    assert_eq!(programmes(&stage), 2);
    // Packets that were made before, a lead ahead, are still sent.
    let entered = offset(&stage).saturating_sub(Duration::from_secs(6));
    assert!(entered.abs_diff(LEAD) <= BURST, "{entered:?}");
    stage.run_for(Duration::from_secs(1));
    let times = stage.sent.rtp[last..]
        .iter()
        .map(|(_, packet)| Header::parse(packet).expect("RTP").0.timestamp);
    let times: Vec<u32> = times.collect();
    for pair in times.windows(2) {
        let apart = pair[1].wrapping_sub(pair[0]);
        assert!(apart < 90_000 / 5, "timestamps {pair:?} do not jump");
    }
    // Back, and to a time before 1970, which is not followed.
    stage.set.set_wall(UNIX_EPOCH + wall);
    stage.run_for(BURST * 2);
    assert_eq!(programmes(&stage), 3);
    stage.set.set_wall(UNIX_EPOCH - Duration::from_secs(1));
    stage.run_for(BURST * 2);
    assert_eq!(programmes(&stage), 3);
}
