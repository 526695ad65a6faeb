// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and position of a session of tracks ([`super`]) that pauses, and sessions that follow a
//! recording, whose time is that of the test.

use std::fs::File;
use std::net::UdpSocket;
use std::path::Path;

use media::plan::PlanKey;
use media::store::{asset_key, random_identity};
use media::tracks::{MediaSample, Presentation, SampleTableBuilder, Track};
use media::{Codec, Container, Demuxer, RtpIdentity};
use paths::{Destination, MappedFile};

use super::super::media_target::MediaTarget;
use super::super::paced_stream::tests::tools;
use super::*;
use crate::library::asset::LibrarySource;
use crate::library::growing_file::Growth;
use crate::library::track_asset::TrackAsset;
use crate::meter::Meters;
use crate::play::Link;
use crate::prefetch::{Readers, fetch};

/// MPEG audio, layer III, 128 kbit/s, 44.1 kHz: the header of a frame of 417 bytes; 38 frames last
/// a second.
const HEADER: [u8; 4] = [0xff, 0xfb, 0x90, 0x00];
const FRAME_BYTES: usize = 417;

/// Opens a file of `frames` frames.
fn source(folder: &Path, frames: usize) -> Arc<TrackSource> {
    let mut frame = [0; FRAME_BYTES];
    frame[..HEADER.len()].copy_from_slice(&HEADER);
    let path = folder.join("sound.mp3");
    std::fs::write(&path, frame.repeat(frames)).unwrap();
    let file = File::open(&path).unwrap();
    let key = asset_key(&path, &file).unwrap();
    let beginning = frame.repeat(10);
    let mut demuxer = Demuxer::of(&beginning, key.bytes).unwrap();
    while !demuxer.advance(&file, 100).unwrap() {}
    let presentation = demuxer.finish(random_identity).unwrap();
    let asset = Arc::new(TrackAsset::new("sound.mp3".to_owned(), key, presentation));
    asset.source(|| MappedFile::open(file, "sound.mp3")).unwrap()
}

/// Steps until packets that are due within a second are sent.
fn step(tracks: &mut PacedTracks, tools: &mut Tools) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let now = Instant::now();
        assert!(now < deadline, "no chapter came");
        match tracks.step(now, (now + Duration::from_secs(1), Duration::ZERO), tools) {
            Step::Wait => std::thread::sleep(Duration::from_millis(2)),
            Step::Ended(_) => panic!("three seconds do not end so soon"),
            Step::Sent { .. } | Step::Behind => return,
        }
    }
}

/// Returns the sequence numbers of the received packets.
fn sequences(socket: &UdpSocket) -> Vec<u16> {
    let mut packet = [0; 2048];
    let next = || {
        let bytes = socket.recv(&mut packet).ok()?;
        (bytes > 4).then(|| u16::from_be_bytes([packet[2], packet[3]]))
    };
    std::iter::from_fn(next).collect()
}

/// Creates a socket, and the target of packets to it.
fn target() -> (UdpSocket, MediaTarget) {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(receiver.local_addr().unwrap()).unwrap();
    let to = Destination::new(socket, "there".to_owned()).unwrap();
    (receiver, MediaTarget::Datagrams(Box::new(to)))
}

#[test]
fn a_paused_session_holds_no_layout_and_goes_on_with_the_next_packet() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 38 * 4);
    let (receiver, to) = target();
    let (meters, readers) = (Meters::new(1), Readers::start(fetch).unwrap());
    let path = paths::find(paths::Transport::Rtp, "mmap_writev").unwrap();
    let paths::Open::Stream { open, .. } = path.open else { panic!("a path of streams") };
    let burst = Duration::from_millis(500);
    let mut tools = tools(open().unwrap(), None, (&meters, &readers), burst);
    let track = PacedTrack::new(&source, (0, 96), to, Arc::new(Link::default()));
    let mut tracks = PacedTracks::new(source.clone(), track);
    let start = |at| TrackStart {
        source: source.clone(),
        sequence: 0,
        speed: Speed::ONE,
        at,
        limit_ticks: u64::MAX,
    };
    let begin = TrackPlace { leading_ticks: 0, other_ticks: 0, shift_ticks: 0 };
    tracks.play_from(start(Some(begin)), Instant::now());
    step(&mut tracks, &mut tools);
    assert!(tracks.tracks[0].holds_layouts());
    let position = tracks.position();
    assert!(position > 0);

    tracks.stop(Instant::now());
    assert!(!tracks.tracks[0].holds_layouts());
    assert_eq!(tracks.position(), position);

    tracks.play_from(start(None), Instant::now());
    assert_eq!(tracks.position(), position);
    step(&mut tracks, &mut tools);
    let received = sequences(&receiver);
    assert!(received.len() > 2, "{received:?}");
    assert!(received.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{received:?}");
    drop(tools);
    readers.stop();
}

/// Frames of Opus a second, and the bytes of each.
const FRAMES_PER_S: u32 = 50;
const OPUS_BYTES: u32 = 20;

/// Frames of each track: from and until these tenths of a second.
type Frames<'a> = &'a [&'a [(u32, u32)]];

/// Receives the packets of a track.
struct Receiver {
    socket: UdpSocket,
    next: Option<u16>,
    count: usize,
}

/// A recording with tracks of Opus, and a session that plays all of them.
struct Recording {
    folder: tempfile::TempDir,
    growth: Arc<Growth>,
    tracks: PacedTracks,
    receivers: Vec<Receiver>,
    tools: Tools,
    readers: Readers,
    now: Instant,
}

impl Recording {
    /// Begins with these frames, known up to so many seconds, and plays it.
    fn begin(frames: Frames<'_>, known_s: u64) -> Recording {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.mp4"), vec![7; 1 << 20]).unwrap();
        let growth = Arc::new(Growth::new());
        let source = recorded(folder.path(), frames, Some((&growth, known_s)));
        let mut receivers = Vec::new();
        let mut paced = (0..frames.len()).map(|index| {
            let (receiver, to) = target();
            receivers.push(Receiver { socket: receiver, next: None, count: 0 });
            PacedTrack::new(&source, (index, 96), to, Arc::new(Link::default()))
        });
        let mut tracks = PacedTracks::new(source.clone(), paced.next().unwrap());
        paced.for_each(|track| assert!(tracks.add(track) > 0));
        let (meters, readers) = (Meters::new(1), Readers::start(fetch).unwrap());
        let path = paths::find(paths::Transport::Rtp, "mmap_writev").unwrap();
        let paths::Open::Stream { open, .. } = path.open else { panic!("a path of streams") };
        let tools = tools(open().unwrap(), None, (&meters, &readers), TICK);
        let at = TrackPlace { leading_ticks: 0, other_ticks: 0, shift_ticks: 0 };
        let now = Instant::now();
        let start = TrackStart {
            source,
            sequence: 0,
            speed: Speed::ONE,
            at: Some(at),
            limit_ticks: u64::MAX,
        };
        tracks.play_from(start, now);
        Recording { folder, growth, tracks, receivers, tools, readers, now }
    }

    /// Continues the recording, which has these frames now, known up to so many seconds; it is over
    /// without.
    fn grow(&self, frames: Frames<'_>, known_s: Option<u64>) {
        let growth = known_s.map(|known_s| (&self.growth, known_s));
        let source = recorded(self.folder.path(), frames, growth);
        self.growth.set_newest(Some(LibrarySource::Tracks(source)));
    }

    /// Plays for so many tenths of a second; true when the play is over.
    fn play(&mut self, tenths: u32) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        for _ in 0..tenths {
            loop {
                assert!(Instant::now() < deadline, "no chapter came");
                let wake = (self.now + TICK, Duration::ZERO);
                match self.tracks.step(self.now, wake, &mut self.tools) {
                    Step::Wait => std::thread::yield_now(),
                    Step::Ended(StreamEnd::Finished) => return true,
                    Step::Ended(_) => panic!("it broke off"),
                    Step::Sent { .. } | Step::Behind => break,
                }
            }
            self.now += TICK;
            // A socket has room for some hundred.
            self.receivers.iter_mut().for_each(Receiver::receive);
        }
        false
    }

    /// Returns the number of packets that came on each track since the last call.
    fn received(&mut self) -> Vec<usize> {
        self.receivers.iter_mut().for_each(Receiver::receive);
        self.receivers.iter_mut().map(|receiver| std::mem::take(&mut receiver.count)).collect()
    }

    fn end(self) {
        drop(self.tools);
        self.readers.stop();
    }
}

impl Receiver {
    /// Receives packets, of which none is missing or there twice.
    fn receive(&mut self) {
        for number in sequences(&self.socket) {
            assert_eq!(number, self.next.unwrap_or(number));
            (self.next, self.count) = (Some(number.wrapping_add(1)), self.count + 1);
        }
    }
}

/// The recording with these frames.
fn recorded(
    folder: &Path,
    frames: Frames<'_>,
    growth: Option<(&Arc<Growth>, u64)>,
) -> Arc<TrackSource> {
    let file = File::open(folder.join("a.mp4")).unwrap();
    let duration = 48_000 / FRAMES_PER_S;
    let track = |(index, spans): (usize, &&[(u32, u32)])| {
        let mut table = SampleTableBuilder::new(48_000, 1 << 20);
        let numbers = spans
            .iter()
            .flat_map(|&(begin, end)| begin * FRAMES_PER_S / 10..end * FRAMES_PER_S / 10);
        for number in numbers {
            let sample = MediaSample {
                file_offset: u64::from(number * OPUS_BYTES) + ((index as u64) << 19),
                bytes: OPUS_BYTES,
                decode: u64::from(number * duration),
                offset: 0,
                duration,
                is_start: true,
            };
            table.push(sample).unwrap();
        }
        let identity =
            RtpIdentity { ssrc: index as u32, first_sequence: 65_500, first_timestamp: 9 };
        let samples = table.finish().unwrap();
        Track::new(index as u32 + 1, Codec::Opus { channels: 2 }, samples, identity)
    };
    let tracks = frames.iter().enumerate().map(track).collect();
    let container = Container::FragmentedMp4;
    let presentation = Presentation::assemble(container, 1 << 20, tracks, Vec::new()).unwrap();
    let key = PlanKey { bytes: 1 << 20, ..asset_key(&folder.join("a.mp4"), &file).unwrap() };
    let asset = TrackAsset::new("a.mp4".to_owned(), key, presentation);
    let asset = match growth {
        Some((growth, known_s)) => asset.growing(growth, known_s * TICKS_PER_SECOND),
        None => asset,
    };
    Arc::new(asset).opened(MappedFile::open(file, "a.mp4").unwrap())
}

const TICK: Duration = Duration::from_millis(100);

#[test]
fn a_session_follows_a_recording_and_waits_where_it_ran_dry() {
    let mut scene = Recording::begin(&[&[(0, 45)]], 4);
    assert!(!scene.play(30));
    let early = scene.received()[0];
    assert!((140..=160).contains(&early), "{early}");
    assert!(!scene.play(40));
    // Whole seconds of what is there.
    assert_eq!(early + scene.received()[0], 4 * 50);
    assert!(scene.tracks.clock.is_none(), "the clock stops");
    assert_eq!(scene.tracks.stopped_at(), 4 * TICKS_PER_SECOND);
    scene.grow(&[&[(0, 65)]], Some(6));
    assert!(!scene.play(10));
    assert_eq!(scene.received(), [0], "two seconds more do not last");
    scene.grow(&[&[(0, 85)]], Some(8));
    assert!(!scene.play(20));
    let paced = scene.received()[0];
    assert!((90..=115).contains(&paced), "at its own pace: {paced}");
    // In time: it does not run dry.
    scene.grow(&[&[(0, 125)]], Some(12));
    assert!(!scene.play(40));
    assert!(scene.tracks.clock.is_some());
    let more = scene.received()[0];
    assert!((190..=210).contains(&more), "{more}");
    scene.grow(&[&[(0, 128)]], None);
    assert!(scene.play(60), "it ends");
    let all = 4 * 50 + paced + more + scene.received()[0];
    assert_eq!(all, 128 * 5);
    scene.end();
}

#[test]
fn a_track_that_was_silent_continues_in_time() {
    let mut scene = Recording::begin(&[&[(0, 55)], &[(0, 20)]], 1);
    assert!(!scene.play(60));
    assert_eq!(scene.received(), [50, 50]);
    scene.grow(&[&[(0, 105)], &[(0, 20)]], Some(10));
    assert!(!scene.play(60));
    let [loud, silent] = scene.received()[..] else { panic!("two tracks") };
    assert!((295..=310).contains(&loud), "{loud}");
    assert_eq!(silent, 50);
    // Frames for the time that was sent are left out.
    scene.grow(&[&[(0, 165)], &[(0, 20), (60, 65), (110, 165)]], Some(16));
    assert!(!scene.play(60));
    let [more, heard] = scene.received()[..] else { panic!("two tracks") };
    assert!((295..=310).contains(&more), "{more}");
    scene.grow(&[&[(0, 168)], &[(0, 20), (60, 65), (110, 168)]], None);
    assert!(scene.play(100), "it ends");
    let [rest, end] = scene.received()[..] else { panic!("two tracks") };
    assert_eq!(50 + loud + more + rest, 168 * 5);
    assert_eq!(heard + end, 58 * 5);
    scene.end();
}

/// Regression: pictures that came twelve seconds behind the sound, as after a pause of the camera,
/// were left out to the end.
#[test]
fn a_track_that_falls_behind_is_waited_for() {
    let mut scene = Recording::begin(&[&[(0, 105)], &[(0, 20)]], 10);
    assert!(!scene.play(120));
    assert_eq!(scene.received(), [500, 100]);
    scene.grow(&[&[(0, 225)], &[(0, 85)]], Some(8));
    assert!(!scene.play(30));
    assert_eq!(scene.received(), [0, 0], "pictures for the time that was sent");
    scene.grow(&[&[(0, 265)], &[(0, 145)]], Some(14));
    assert!(!scene.play(60));
    assert_eq!(scene.received(), [200, 200], "from 10 s on");
    scene.grow(&[&[(0, 265)], &[(0, 200)]], None);
    assert!(scene.play(150), "it ends");
    assert_eq!(scene.received(), [(265 - 140) * 5, (200 - 140) * 5]);
    scene.end();
}

/// Regression: a viewer who had waited for a silent source waited once more as the gap was played.
#[test]
fn a_gap_that_was_waited_for_is_not_played() {
    let mut scene = Recording::begin(&[&[(0, 45)]], 4);
    assert!(!scene.play(240));
    assert_eq!(scene.received(), [200]);
    scene.grow(&[&[(0, 45), (245, 300)]], Some(29));
    assert!(!scene.play(65));
    let soon = scene.received()[0];
    // Half a second, a second of the gap, then five of what is new.
    assert!((240..=260).contains(&soon), "{soon}");
    scene.grow(&[&[(0, 45), (245, 300)]], None);
    assert!(scene.play(100), "it ends");
    assert_eq!(200 + soon + scene.received()[0], (45 + 55) * 5);
    scene.end();
}

#[test]
fn a_session_before_the_end_waits_for_a_track_that_fell_behind() {
    let mut scene = Recording::begin(&[&[(0, 130), (131, 152)], &[(0, 100)]], 15);
    assert!(!scene.play(130));
    scene.received();
    scene.grow(&[&[(0, 130), (131, 223)], &[(0, 101)]], Some(10));
    assert!(!scene.play(60));
    assert_eq!(scene.received(), [0, 0]);
    // With three seconds less a tenth it waits on.
    for (tenths, known_s) in [(121, 12), (141, 14), (163, 16), (181, 18)] {
        scene.grow(&[&[(0, 130), (131, 120 + tenths)], &[(0, tenths)]], Some(known_s));
        assert!(!scene.play(20));
    }
    scene.grow(&[&[(0, 130), (131, 321)], &[(0, 201)]], None);
    assert!(scene.play(300), "it ends");
    assert_eq!(scene.received(), [(321 - 131) * 5, (201 - 150) * 5]);
    scene.end();
}
