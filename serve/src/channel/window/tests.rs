// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that parts of a window continue each other, and that the oldest are dropped.

use media::Scanner;
use media::store::random_identity;

use media::TICKS_PER_SECOND;

use super::planner::PartScans;
use super::*;

static CLIP: &[u8] = include_bytes!("../../../../pagewire/assets/clip.ts");

/// A window to which a clip was written in parts of a second or more.
pub(crate) struct Scene {
    pub(crate) window: Arc<ChannelWindow>,
    writer: WindowWriter,
    scans: PartScans,
    /// The clip as a file, for comparison.
    clip: media::plan::PacketPlan,
}

impl Scene {
    pub(crate) fn new(shift: Duration) -> Scene {
        let window = Arc::new(ChannelWindow::new("news", "News".to_owned(), shift, &Clock::HOST));
        let mut writer = WindowWriter::open(window.clone(), shift, None).unwrap();
        writer.set_part_ticks(TICKS_PER_SECOND);
        let mut scanner = Scanner::new();
        scanner.feed(CLIP);
        let clip = scanner.finish(CLIP.len() as u64, random_identity()).unwrap();
        Scene { window, writer, scans: PartScans::default(), clip }
    }

    /// Sends the clip, whose first packet is due at `begins`.
    pub(crate) fn send(&mut self, begins: u64) {
        self.send_with(begins, |_, _| ());
    }

    /// Sends the clip; `look` has the window and the time after each of its plans.
    fn send_with(&mut self, begins: u64, mut look: impl FnMut(&Arc<ChannelWindow>, u64)) {
        let mut piece = vec![0; 1 << 20];
        // Tables begin a payload sooner or later; here each of them does.
        for (number, packet) in CLIP.chunks_exact(188).enumerate() {
            self.writer.add(packet, begins + self.clip.ticks_of(number as u64), number == 0);
            if number % 100 == 0 {
                self.writer.flush();
                self.scans.look(&self.window, &mut piece, true);
                look(&self.window, begins + self.clip.ticks_of(number as u64));
            }
        }
        self.writer.flush();
        self.scans.look(&self.window, &mut piece, true);
    }
}

#[test]
fn parts_continue_each_other() {
    let mut scene = Scene::new(Duration::from_secs(3600));
    assert!(scene.window.assets.newest().is_none() && scene.window.assets.live_packet().is_none());
    scene.send(5_000_000_000);
    let parts = scene.window.assets.planned();
    assert!(parts.len() > 2, "{} parts", parts.len());
    let mut bytes = Vec::new();
    for pair in parts.windows(2) {
        let (one, next) = (&pair[0].asset, &pair[1].asset);
        assert!(!one.is_growing() && one.continues());
        assert_eq!(next.first_packet(), one.first_packet() + one.plan.packets());
        let numbers = (one.plan.identity().first_sequence, next.plan.identity().first_sequence);
        assert_eq!(numbers.0.wrapping_add(one.plan.packets() as u16), numbers.1);
        assert_eq!(one.plan.identity().ssrc, next.plan.identity().ssrc);
        let ends = pair[0].timestamp_of(next.first_packet());
        let apart = ends.wrapping_sub(pair[1].timestamp_of(next.first_packet())) as i32;
        assert!(apart.abs() <= 1, "{apart} ticks between the end and the next start");
        let step = one.timestamp(next.first_ticks()).wrapping_sub(next.plan.timestamp(0)) as i32;
        assert!(step.abs() <= 1, "one clock, rounded to ticks of 90 kHz");
        let following = pair[0].following().expect("it is there");
        assert_eq!(following.asset.first_packet(), next.first_packet());
    }
    for part in &parts {
        let mut piece = vec![0; part.media.bytes() as usize];
        std::os::unix::fs::FileExt::read_exact_at(part.media.file(), &mut piece, 0).unwrap();
        assert_eq!(piece[1..3], [0x40, 0], "it begins with tables");
        bytes.extend_from_slice(&piece);
    }
    let first_tables = CLIP.chunks_exact(188).position(|packet| packet[1..3] == [0x40, 0]);
    let start = 188 * first_tables.unwrap();
    // The last part is too short for a plan.
    assert!(bytes.len() > CLIP.len() * 3 / 4, "{} bytes", bytes.len());
    assert!(CLIP[start..].starts_with(&bytes), "nothing is lost or twice");
}

#[test]
fn viewer_joins_at_a_place_to_start_and_stays_in_the_window() {
    let mut scene = Scene::new(Duration::from_secs(3600));
    scene.send(0);
    let live = scene.window.assets.live_packet().unwrap();
    let part = scene.window.assets.holding(live).unwrap();
    let local = live - part.asset.first_packet();
    assert_eq!(part.asset.plan.entry_from(local), Some(local), "{live} is no place to start");
    assert_eq!(scene.window.assets.playable(live + 1), Some(live + 1));
    assert_eq!(scene.window.assets.playable(u64::MAX), Some(live), "who joins now");
    for source in scene.window.assets.planned() {
        let (first, end) = (source.asset.first_packet(), source.asset.plan.packets());
        for packet in [first, first + end - 1] {
            assert_eq!(scene.window.assets.holding(packet).unwrap().asset.first_packet(), first);
        }
    }
    scene.window.clear();
    assert!(scene.window.assets.playable(live).is_none() && scene.window.assets.newest().is_none());
    assert_eq!(part.media.file().metadata().unwrap().len(), 0, "its memory is free");
}

#[test]
fn oldest_parts_go_with_their_memory() {
    let mut scene = Scene::new(Duration::ZERO);
    scene.send(0);
    let oldest = scene.window.assets.planned().remove(0);
    let later = 2 * GRACE + scene.clip.duration_ticks();
    scene.send(later);
    let parts = scene.window.assets.planned();
    let first = parts[0].asset.first_packet();
    assert!(first > 0 && parts[0].asset.first_ticks() + 2 * GRACE > later);
    assert_eq!(oldest.media.file().metadata().unwrap().len(), 0);
    let resumed = scene.window.assets.playable(1).unwrap();
    assert!(resumed >= first, "who paused for long goes on with the oldest there is");
    assert!(oldest.following().is_some_and(|next| next.asset.first_packet() >= first));
}

#[test]
fn long_window_lies_in_the_cache_folder_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let shift = Duration::from_secs(3600);
    let window = Arc::new(ChannelWindow::new("news", "News".to_owned(), shift, &Clock::HOST));
    let writer = match WindowWriter::open(window.clone(), shift, Some(folder.path())) {
        Ok(writer) => writer,
        Err(error) => return eprintln!("skip: no file without a name in this folder: {error}"),
    };
    drop(writer);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    let missing = folder.path().join("none");
    assert!(WindowWriter::open(window, shift, Some(&missing)).is_err());
}

/// Each viewer keeps its initial distance behind the present; its packets must exist all the time.
#[test]
fn no_viewer_falls_out_of_the_window() {
    // Groups of pictures last a second: of no grace, less than one, and more than some.
    for (shift_s, grace) in [(0, 0), (0, TICKS_PER_SECOND / 2), (2, 0), (4, TICKS_PER_SECOND)] {
        let shift = Duration::from_secs(shift_s);
        let mut scene = Scene::new(shift);
        scene.window.assets.reach.set_grace(grace);
        let mut viewers: Vec<(u64, u64)> = Vec::new();
        let mut furthest = 0;
        scene.send_with(0, |window, now| {
            let parts = window.assets.planned();
            let time_of = |packet: u64| {
                let part = window.assets.holding(packet).expect("there are parts");
                let asset = &part.asset;
                asset.first_ticks() + asset.plan.ticks(packet - asset.first_packet())
            };
            for &(began, behind) in &viewers {
                let at = now - behind;
                let oldest = parts.first().expect("it is not empty").asset.first_ticks();
                assert!(oldest <= at, "began at {began}, {behind} behind, gone at {now}");
            }
            let starts = [
                window.assets.live_packet(),
                window.assets.packet_at(0),
                window.assets.playable(0),
            ];
            for packet in starts.into_iter().flatten() {
                let at = time_of(packet);
                assert!(at <= now, "{at} is not sent yet at {now}");
                viewers.push((now, now - at));
                furthest = furthest.max(now - at);
            }
        });
        assert!(viewers.len() > 100, "{} viewers", viewers.len());
        assert!(furthest >= media::ticks_of(shift), "nobody could go back by {shift_s} s");
    }
}

pub(crate) const GRACE: u64 = 10 * TICKS_PER_SECOND;

/// As on a full disk, whose folder gives no more files.
#[test]
fn present_goes_on_in_memory_when_the_disk_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mut scene = Scene::new(Duration::from_secs(3600));
    let opened = WindowWriter::open(scene.window.clone(), Duration::from_secs(3600), Some(&disk));
    match opened {
        Ok(writer) => scene.writer = writer,
        Err(error) => return eprintln!("skip: no file without a name in this folder: {error}"),
    }
    scene.writer.set_part_ticks(TICKS_PER_SECOND);
    scene.send(0);
    let before = scene.window.assets.planned();
    assert_eq!(scene.window.fault(), None);
    std::fs::remove_dir(&disk).unwrap();
    let length = scene.clip.duration_ticks();
    scene.send(length);
    let parts = scene.window.assets.planned();
    assert!(scene.window.fault().expect("it is told").contains("in memory"));
    assert_eq!(parts.iter().filter(|part| part.media.bytes() == 0).count(), 0, "none is empty");
    let in_memory = |part: &&Arc<WindowPart>| part.is_in_memory;
    let held = scene.window.parts.lock().iter().filter(in_memory).count();
    assert!((1..=7).contains(&held), "{held} parts in memory");
    let first =
        scene.window.parts.lock().iter().find(in_memory).expect("there are some").first_packet;
    let parts: Vec<_> =
        parts.into_iter().filter(|part| part.asset.first_packet() >= first).collect();
    for pair in parts.windows(2) {
        let end = pair[0].asset.first_packet() + pair[0].asset.plan.packets();
        assert_eq!(end, pair[1].asset.first_packet(), "no packet is missing in between");
    }
    assert!(
        scene.window.assets.live_packet() > before.last().map(|part| part.asset.first_packet())
    );
}

/// As on a disk that gives a file and takes no byte of it.
#[test]
fn a_part_that_takes_nothing_leaves_no_trace() {
    let mut scene = Scene::new(Duration::from_secs(3600));
    let length = scene.clip.duration_ticks();
    scene.send(0);
    for round in 1..4 {
        scene.writer.close();
        scene.writer.begin_in(round * length, File::open("/dev/null").unwrap());
        scene.send(round * length);
    }
    let parts = scene.window.assets.planned();
    for pair in parts.windows(2) {
        assert!(pair[0].asset.first_packet() < pair[1].asset.first_packet(), "in order, each once");
    }
    assert!(parts.iter().all(|part| part.media.bytes() > 0), "none is empty");
    let identity = format!("{}.1", scene.window.live.identity());
    let listed = scene.window.live.with(&identity, |state, first_byte| {
        let list = state.segments.list().iter();
        let range = |one: &media::GrowingSegment| {
            (one.tables.clone(), first_byte + one.file.start..first_byte + one.file.end)
        };
        list.map(range).collect::<Vec<_>>()
    });
    let listed = listed.expect("there are some");
    assert!(listed.len() > 6, "{listed:?}");
    for (tables, range) in listed {
        let read = scene.window.read(range.clone());
        let read = read.unwrap_or_else(|| panic!("{range:?} is not there"));
        let sent = [&tables[..], &read].concat();
        assert_eq!(sent[1..3], [0x40, 0], "{range:?}: it begins with tables");
    }
}

#[test]
fn segments_are_the_bytes_that_were_sent_and_gone_when_their_part_is() {
    let mut scene = Scene::new(Duration::from_secs(3600));
    let length = scene.clip.duration_ticks();
    for round in 0..4 {
        scene.send(round * length);
    }
    let live = &scene.window.live;
    let identity = format!("{}.1", live.identity());
    let ranges = |state: &mut crate::web::LiveState, first_byte: u64| {
        let list = state.segments.list().iter();
        let ranges = list.map(|one| first_byte + one.file.start..first_byte + one.file.end);
        (first_byte, ranges.collect::<Vec<_>>())
    };
    let (first_byte, segments) = live.with(&identity, ranges).expect("there are some");
    assert!(segments.len() > 6, "{segments:?}");
    assert!(segments.windows(2).all(|pair| pair[0].end == pair[1].start), "{segments:?}");
    let tables = CLIP.chunks_exact(188).position(|packet| packet[1..3] == [0x40, 0]).unwrap();
    let sent = [CLIP; 4].concat()[188 * tables + first_byte as usize..].to_vec();
    for range in &segments {
        let at = (range.start - first_byte) as usize..(range.end - first_byte) as usize;
        assert!(scene.window.read(range.clone()).unwrap() == sent[at], "{range:?}");
    }
    let is_joined = |range: &&std::ops::Range<u64>| {
        scene.window.held((*range).clone()).is_some_and(|held| held.len() == 2)
    };
    assert!(segments.iter().filter(is_joined).count() > 1, "segments lie in two parts");
    // Other addresses name nothing.
    assert!(live.with("1-2-3.1", ranges).is_none());
    let oldest = scene.window.change_parts(VecDeque::pop_front).unwrap();
    let file = scene.window.held(segments[1].clone()).unwrap().swap_remove(0).file;
    oldest.drop_bytes();
    assert!(scene.window.read(segments[0].clone()).is_none(), "its part is gone");
    drop(file);
    scene.window.clear();
    assert!(segments.iter().all(|range| scene.window.read(range.clone()).is_none()));
    assert!(live.with(&identity, ranges).is_none());
    // The window continues under another identity, whose bytes have other numbers.
    for round in 4..8 {
        scene.send(round * length);
    }
    let identity = format!("{}.1", scene.window.live.identity());
    let (_, later) = scene.window.live.with(&identity, ranges).expect("there are some");
    assert!(later[0].start >= segments.last().unwrap().end, "{later:?}");
}
