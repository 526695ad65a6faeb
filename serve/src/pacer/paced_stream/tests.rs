// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests departure times of [`super`], and the effects of a refusal or a missing page.

use std::fs::File;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use clock::Clock;
use media::Scanner;
use paths::{Batch, Destination, INTERLEAVED_PATHS, MappedFile, StreamPath};

use super::super::gather::Gather;
use super::super::{PacedSession, PacerCommand, PlayStart, Sending, Thread, Tools};
use super::*;
use crate::channel::window::tests::{GRACE, Scene};
use crate::library::asset::Asset;
use crate::meter::{Meters, PacerMeter};
use crate::pacer::{ByBurst, StreamPaths};
use crate::play::Progress;
use crate::prefetch::Readers;
use crate::wire_image::ImageLayout;
use media::store::{asset_key, random_identity};

/// Creates an asset of `packets` RTP packets with a clock reference in each, of transport packets
/// with 188 or 192 bytes (with a time code before each, as on Blu-ray).
pub(in crate::pacer) fn source(
    folder: &tempfile::TempDir,
    packet_bytes: usize,
    packets: u64,
) -> Arc<Source> {
    let mut bytes = Vec::new();
    for number in 0..7 * packets {
        let mut packet = [0xff; 188];
        packet[..4].copy_from_slice(&[0x47, 1, 0, 0x10]);
        if number.is_multiple_of(7) {
            packet[3..6].copy_from_slice(&[0x20, 183, 0x10]);
            let base = number / 7 * 900;
            packet[6..12].copy_from_slice(&(base << 15 | 0x7e00).to_be_bytes()[2..]);
        }
        bytes.resize(bytes.len() + packet_bytes - 188, 0);
        bytes.extend_from_slice(&packet);
    }
    let path = folder.path().join(format!("{packet_bytes}.ts"));
    std::fs::write(&path, &bytes).unwrap();
    let mut scanner = Scanner::new();
    scanner.feed(&bytes);
    let key = asset_key(&path, &File::open(&path).unwrap()).unwrap();
    let plan = scanner.finish(key.bytes, random_identity()).unwrap();
    assert_eq!((plan.packets(), plan.stride()), (packets, packet_bytes as u64));
    let asset = Arc::new(Asset::new("a.ts".to_owned(), key, plan));
    asset.source(|| MappedFile::open(File::open(&path).unwrap(), "a.ts")).unwrap()
}

#[test]
fn windows_are_as_many_bytes_as_the_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    // Bytes of an RTP packet in the file and in the image.
    for (packet_bytes, form, each) in [
        (188, SendForm::Source, 1316),
        (188, SendForm::Image(ImageLayout::Packets), 1328),
        (188, SendForm::Image(ImageLayout::Frames), 1332),
        (192, SendForm::Source, 1344),
        (192, SendForm::Image(ImageLayout::Packets), 1328),
    ] {
        let source = source(&folder, packet_bytes, 300);
        let plan = &source.asset.plan;
        for packets in [1, 2, 99, 150] {
            let bytes_max = packets * each;
            assert_eq!(within(plan, form, 100..300, bytes_max), 100 + packets, "{form:?}");
            assert_eq!(within(plan, form, 100..300, bytes_max - 1), 99 + packets, "{form:?}");
        }
        assert_eq!(within(plan, form, 100..300, u64::MAX), 300);
    }
}

/// Creates a thread's resources with these paths for datagrams.
pub(in crate::pacer) fn tools(
    gathered: Box<dyn StreamPath>,
    departing: Option<Box<dyn StreamPath>>,
    (meters, readers): (&Meters, &Readers),
    burst: Duration,
) -> Tools {
    Tools {
        gathered: Sending { short: gathered, long: None },
        image: None,
        framed: super::super::open_framed(INTERLEAVED_PATHS[0]).unwrap(),
        framed_image: None,
        departing,
        choice: paths_for_names(),
        gather: Gather::default(),
        meter: PacerMeter::new(meters.pacers[0].clone(), Instant::now()),
        clock: Clock::HOST,
        readers: readers.prefetch_handle(),
        burst,
        ignored_logged: None,
    }
}

/// Returns paths for their names only, whichever path sends.
fn paths_for_names() -> StreamPaths {
    let path = paths::find(paths::Transport::Rtp, "mmap_gso").unwrap();
    let gathered = ByBurst { short: path, long: path };
    StreamPaths { gathered, image: None, framed: INTERLEAVED_PATHS[0], framed_image: None }
}

/// Creates a session over UDP to a socket of its own; all 300 packets are in memory.
fn resident_stream(source: &Arc<Source>, link: &Arc<Link>) -> PacedStream {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    let to = Destination::new(socket, "here".to_owned()).unwrap();
    link.source.answer(0..300, true);
    PacedStream::new(source.clone(), MediaTarget::Datagrams(Box::new(to)), link.clone())
}

/// Path that sends by a closure, which accepts whole batches or none.
pub(in crate::pacer) struct SendingBy<F>(pub(in crate::pacer) F);

impl<F: FnMut(&Batch<'_>) -> Result<(), SendError> + Send> StreamPath for SendingBy<F> {
    fn send(
        &mut self,
        batch: &Batch<'_>,
        _: &mut Destination,
        stats: &mut SendStats,
    ) -> Result<u32, SendError> {
        (self.0)(batch)?;
        stats.packets += u64::from(batch.packets);
        Ok(batch.packets)
    }
}

#[test]
fn metrics_and_progress_are_read_while_a_send_call_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(&folder, 188, 300);
    let meters = Meters::new(1);
    let (entered, is_entered) = mpsc::channel();
    let (let_go, release) = mpsc::channel();
    let calls = Arc::<AtomicU64>::default();
    let readers = Readers::start(|_| true).unwrap();
    let counted = calls.clone();
    // The first call blocks until it is released.
    let blocked = SendingBy(move |_: &Batch<'_>| {
        if counted.fetch_add(1, Ordering::Relaxed) == 0 {
            entered.send(()).unwrap();
            release.recv().unwrap();
        }
        Ok(())
    });
    let burst = Duration::from_secs(1);
    let mut tools = tools(Box::new(blocked), None, (&meters, &readers), burst);
    let link = Arc::new(Link::default());
    let mut stream = resident_stream(&source, &link);
    stream.play_from(source, 0..300, (Shift::default(), Speed::ONE), None);
    let pacer = std::thread::spawn(move || {
        let now = Instant::now();
        stream.step(now, (now + Duration::from_secs(1), Duration::ZERO), &mut tools);
        tools.meter.publish_before(None, &Clock::HOST);
        (stream.next, tools)
    });
    is_entered.recv().unwrap();
    // Both readers would block until the call ends if a lock were held across it.
    let (answer, answered) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let report = meters.report((1, 0), 1, Default::default());
            answer.send((report.packets, link.progress().packets)).unwrap();
        });
        let seen = answered.recv_timeout(Duration::from_secs(60));
        let_go.send(()).unwrap();
        assert_eq!(seen, Ok((0, 0)), "a reader waits for a send call");
    });
    // The asset has a hundred packets a second; a call sends 48 at most.
    let (next, tools) = pacer.join().unwrap();
    assert_eq!((next, calls.load(Ordering::Relaxed)), (100, 3));
    let report = meters.report((1, 0), 1, Default::default());
    assert_eq!((report.packets, link.progress().packets), (100, 100));
    assert_eq!(tools.meter.counters.late_us.len(), 100);
    readers.stop();
}

/// Each clock begins at the moment at which the clock of the preceding play ends.
#[test]
fn queued_plays_follow_without_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(&folder, 188, 300);
    let meters = Meters::new(1);
    let readers = Readers::start(|_| true).unwrap();
    let (call, sent) = mpsc::channel();
    let (let_go, release) = mpsc::channel::<()>();
    let burst = Duration::from_millis(20);
    let link = Arc::new(Link::default());
    // The first call blocks until it is released.
    let (progress, mut release) = (link.clone(), Some(release));
    let path = SendingBy(move |batch: &Batch<'_>| {
        if let Some(release) = release.take() {
            release.recv().unwrap();
        }
        call.send((progress.progress(), batch.packets)).unwrap();
        Ok(())
    });
    let tools = tools(Box::new(path), None, (&meters, &readers), burst);
    let session = PacedSession::Stream(Box::new(resident_stream(&source, &link)));
    let (events, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let (commands, inbox) = mpsc::channel();
    let pacer = std::thread::spawn(move || Thread::new(tools, inbox, events).run());
    let number = 1;
    commands.send(PacerCommand::Add { number, session: Box::new(session) }).unwrap();
    // The asset has a hundred packets a second.
    let plays = [(0..20, Speed::ONE), (100..120, Speed::nearest(2.0)), (50..60, Speed::ONE)];
    for (index, (packets, speed)) in plays.clone().into_iter().enumerate() {
        let (play, shift) = (index as u64 + 1, Shift::default());
        let (source, lead) = (source.clone(), None);
        let start = PlayStart::Stream { source, shift, speed, packets, lead };
        let command = match index {
            0 => PacerCommand::Play { number, play, start },
            _ => PacerCommand::Queue { number, play, start },
        };
        commands.send(command).unwrap();
    }
    // The first play must not end before the others are queued behind it.
    let_go.send(()).unwrap();
    let event = ended.blocking_recv().unwrap();
    assert_eq!((event.play, event.over), (3, StreamEnd::Finished), "one end of all");
    let calls: Vec<(Progress, u32)> = sent.try_iter().collect();
    assert_eq!(calls.iter().map(|call| call.1).sum::<u32>(), 50);
    let plan = &source.asset.plan;
    for (index, pair) in plays.windows(2).enumerate() {
        let (before, after) = (&pair[0].0, &pair[1].0);
        let of = |play: usize| move |call: &&(Progress, u32)| call.0.play == play as u64;
        // The pacer moves a clock that is far behind: the last clock counts.
        let (last, _) = calls.iter().rfind(of(index + 1)).unwrap();
        let (first, _) = calls.iter().find(of(index + 2)).unwrap();
        let (last_clock, first_clock) = (last.clock.unwrap(), first.clock.unwrap());
        assert_eq!(first_clock.moment, last_clock.moment_of(plan.ticks(before.end)), "{index}");
        assert_eq!(first_clock.ticks, plan.ticks(after.start));
        let next = last.shift.sequence.wrapping_add(before.end as u16);
        assert_eq!(first.shift.sequence.wrapping_add(after.start as u16), next, "numbers run on");
    }
    commands.send(PacerCommand::Stop).unwrap();
    pacer.join().unwrap();
    readers.stop();
}

#[test]
fn a_lead_is_sent_once_with_the_first_packet_due_and_counts_for_the_next_play() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(&folder, 188, 300);
    let (meters, readers) = (Meters::new(1), Readers::start(|_| true).unwrap());
    let path = Box::new(SendingBy(|_: &Batch<'_>| Ok(())));
    let mut tools = tools(path, None, (&meters, &readers), Duration::from_millis(5));
    let link = Arc::new(Link::default());
    let mut stream = resident_stream(&source, &link);
    let MediaTarget::Datagrams(to) = &stream.to else { panic!("over UDP") };
    let socket = to.socket().try_clone().unwrap();
    // The lead has ten packets and a short one, in place of three of the plan.
    let content: Vec<u8> = (0..72).flat_map(|number| [number; 188]).collect();
    let lead = StreamLead::of(100..103, &content);
    assert_eq!(lead.room(), 8);
    let shift = Shift { sequence: 1000, timestamp: 9 };
    let behind = (shift.behind(Some(&lead)), Speed::ONE);
    let now = Instant::now();
    // Media sent earlier lasts for a second.
    let sent_until = now + Duration::from_secs(1);
    stream.sent_until = Some(sent_until);
    stream.play_from(source.clone(), 100..300, behind, Some(lead));
    assert_eq!(stream.position(), 100);
    let mut step = |stream: &mut PacedStream, now: Instant| {
        stream.step(now, (now + Duration::from_millis(5), Duration::ZERO), &mut tools);
    };
    step(&mut stream, now);
    let received = || {
        let mut datagram = [0; 2000];
        let bytes = socket.recv(&mut datagram).ok()?;
        Some(datagram[..bytes].to_vec())
    };
    assert_eq!((received(), stream.position()), (None, 100), "it is not due");
    step(&mut stream, sent_until);
    assert_eq!(stream.position(), 104, "a packet is due");
    step(&mut stream, sent_until);
    let plan = &source.asset.plan;
    let timestamp = plan.timestamp(plan.ticks(100)).wrapping_add(9);
    let packets: Vec<Vec<u8>> = std::iter::from_fn(received).collect();
    assert_eq!(packets.len(), 11);
    for (number, packet) in (0..).zip(&packets) {
        let sequence = u64::from(1100_u16.wrapping_add(number));
        assert_eq!(packet[..12], plan.header_at(sequence, timestamp));
    }
    let payload: Vec<u8> = packets.iter().flat_map(|packet| packet[12..].to_vec()).collect();
    assert!(payload == content);
    let first = plan.identity().first_sequence;
    assert_eq!(stream.next_sequence(), first.wrapping_add(1112), "one follows the lead");
    assert_eq!(link.progress().packets, 12);
    // At a hundred packets a second the lead lasts as long as eleven packets of the asset.
    let ends = stream.end_moment().unwrap();
    stream.stop();
    let lasts = stream.sent_until.unwrap() - sent_until;
    assert!(lasts >= Duration::from_millis(120), "{lasts:?}");
    assert!(ends - sent_until >= Duration::from_millis(1970 + 110), "{:?}", ends - sent_until);
    readers.stop();
}

/// Path that keeps the departure and the number of packets of every batch.
fn recording_path(calls: mpsc::Sender<(Option<Departure>, u32)>) -> Box<dyn StreamPath> {
    Box::new(SendingBy(move |batch: &Batch<'_>| {
        calls.send((batch.departure, batch.packets)).unwrap();
        Ok(())
    }))
}

#[test]
fn a_burst_with_departure_times_is_spread_over_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(&folder, 188, 300);
    let meters = Meters::new(1);
    let readers = Readers::start(|_| true).unwrap();
    let (usual, sent_at_once) = mpsc::channel();
    let (departing, sent) = mpsc::channel();
    let burst = Duration::from_millis(100);
    let (usual, departing) = (recording_path(usual), recording_path(departing));
    let mut tools = tools(usual, Some(departing), (&meters, &readers), burst);
    for packets in [1, 2, 4] {
        let mut stream = resident_stream(&source, &Arc::new(Link::default()));
        stream.departures = Some(Departures::for_test(packets));
        stream.play_from(source.clone(), 0..300, (Shift::default(), Speed::ONE), None);
        let now = Instant::now();
        stream.step(now, (now + Duration::from_millis(100), Duration::ZERO), &mut tools);
        let calls: Vec<(Option<Departure>, u32)> = sent.try_iter().collect();
        let handed = calls.iter().map(|call| call.1).sum::<u32>();
        assert_eq!(handed, 11, "a burst and the lead of 5 ms, at 100 a second");
        assert!(calls.iter().all(|call| u64::from(call.1) <= packets), "{calls:?}");
        assert_eq!(calls.len(), 11_usize.div_ceil(packets as usize));
        // Packets are 10 ms apart; the times are those of the first packet of each call.
        let clock = stream.clock.expect("it plays");
        let reading = stream.departures.as_ref().unwrap().reading();
        let first = calls[0].0.expect("it has a time");
        let apart = Duration::from_millis(10 * packets);
        for (number, call) in calls.iter().enumerate().skip(1) {
            let due = clock.moment + apart * number as u32;
            let found = call.0.expect("it has a time");
            assert!(found > first);
            // Two readings of a clock differ only by the time between their halves.
            let slack = Duration::from_millis(1);
            let (soonest, latest) =
                (reading.departure(due - slack), reading.departure(due + slack));
            assert!((soonest..=latest).contains(&found), "{number} of {packets}");
        }
    }
    assert_eq!(sent_at_once.try_iter().count(), 0);
    readers.stop();
}

/// Returns the first packet of the oldest part.
fn first_of(scene: &Scene) -> u64 {
    scene.window.assets.holding(0).unwrap().asset.first_packet()
}

/// The viewer of the part was further behind than the channel keeps.
#[test]
fn a_viewer_whose_part_is_dropped_goes_on_with_the_oldest_there_is() {
    let mut scene = Scene::new(Duration::ZERO);
    scene.send(0);
    let oldest = scene.window.assets.holding(0).unwrap();
    let meters = Meters::new(1);
    let readers = Readers::start(crate::prefetch::fetch).unwrap();
    let burst = Duration::from_millis(20);
    // The path accepts every batch of a file that has bytes.
    let path = SendingBy(|batch: &Batch<'_>| {
        let paths::BatchForm::Gathered { source, .. } = batch.form else { panic!("no images") };
        match source.file().metadata().unwrap().len() {
            0 => Err(SendError::Shrunk { at: 0 }),
            _ => Ok(()),
        }
    });
    let mut tools = tools(Box::new(path), None, (&meters, &readers), burst);
    let link = Arc::new(Link::default());
    let mut stream = resident_stream(&oldest, &link);
    stream.play_from(oldest.clone(), 0..u64::MAX, (Shift::default(), Speed::ONE), None);
    link.source.answer(0..300, true);
    let mut step = |stream: &mut PacedStream| {
        let now = Instant::now();
        stream.step(now, (now + burst, Duration::ZERO), &mut tools)
    };
    assert!(matches!(step(&mut stream), Step::Sent { .. }));
    let left = stream.position();
    scene.send(3 * GRACE);
    assert_eq!(oldest.media.file().metadata().unwrap().len(), 0, "it was dropped");
    // Due packets are requested again when they are due.
    let deadline = Instant::now() + Duration::from_secs(60);
    while stream.position() < first_of(&scene) {
        assert!(Instant::now() < deadline, "it stays at {}", stream.position());
        assert!(!matches!(step(&mut stream), Step::Ended(_)), "the viewer is sent away");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (arrived, sent) = (stream.position(), link.progress().packets);
    assert!(arrived > left && link.progress().skipped >= arrived - left - sent);
    while link.progress().packets == sent {
        assert!(Instant::now() < deadline, "nothing more is sent");
        assert!(!matches!(step(&mut stream), Step::Ended(_)));
        std::thread::sleep(Duration::from_millis(5));
    }
    readers.stop();
}
