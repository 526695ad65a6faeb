// SPDX-License-Identifier: MIT OR Apache-2.0
//! tests: parts of a window continue each other, and the oldest go.

use media::Scanner;
use media::store::random_identity;

use super::planner::PartScans;
use super::*;

static CLIP: &[u8] = include_bytes!("../../../../pagewire/assets/clip.ts");

/// A window to which a clip was written in parts of a second or more.
struct Scene {
    window: Arc<ChannelWindow>,
    writer: WindowWriter,
    scans: PartScans,
    /// The clip as a file, for comparison.
    clip: media::plan::PacketPlan,
}

impl Scene {
    fn new(shift: Duration) -> Scene {
        let window = Arc::new(ChannelWindow::new("news"));
        let mut writer = WindowWriter::open(window.clone(), shift, None).unwrap();
        writer.set_part_ticks(TICKS_PER_SECOND);
        let mut scanner = Scanner::new();
        scanner.feed(CLIP);
        let clip = scanner.finish(CLIP.len() as u64, random_identity()).unwrap();
        Scene { window, writer, scans: PartScans::default(), clip }
    }

    /// Sends the clip, whose first packet is due at `begins`.
    fn send(&mut self, begins: u64) {
        let mut piece = vec![0; 1 << 20];
        // Tables begin a payload sooner or later; here each of them does.
        for (number, packet) in CLIP.chunks_exact(188).enumerate() {
            self.writer.add(packet, begins + self.clip.ticks_of(number as u64));
            if number % 100 == 0 {
                self.writer.flush();
                self.scans.look(&self.window, &mut piece);
            }
        }
        self.writer.flush();
        self.scans.look(&self.window, &mut piece);
    }
}

#[test]
fn parts_continue_each_other() {
    let mut scene = Scene::new(Duration::from_secs(3600));
    assert!(scene.window.newest().is_none() && scene.window.live_packet().is_none());
    scene.send(5_000_000_000);
    let parts = scene.window.planned();
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
    let live = scene.window.live_packet().unwrap();
    let part = scene.window.holding(live).unwrap();
    let local = live - part.asset.first_packet();
    assert_eq!(part.asset.plan.entry_from(local), Some(local), "{live} is no place to start");
    assert_eq!(scene.window.playable(live + 1), Some(live + 1));
    assert_eq!(scene.window.playable(u64::MAX), Some(live), "who joins now");
    for source in scene.window.planned() {
        let (first, end) = (source.asset.first_packet(), source.asset.plan.packets());
        for packet in [first, first + end - 1] {
            assert_eq!(scene.window.holding(packet).unwrap().asset.first_packet(), first);
        }
    }
    scene.window.clear();
    assert!(scene.window.playable(live).is_none() && scene.window.newest().is_none());
    assert_eq!(part.media.file().metadata().unwrap().len(), 0, "its memory is free");
}

#[test]
fn oldest_parts_go_with_their_memory() {
    let mut scene = Scene::new(Duration::ZERO);
    scene.send(0);
    let oldest = scene.window.planned().remove(0);
    let later = 2 * GRACE_TICKS + scene.clip.duration_ticks();
    scene.send(later);
    let parts = scene.window.planned();
    let first = parts[0].asset.first_packet();
    assert!(first > 0 && parts[0].asset.first_ticks() + 2 * GRACE_TICKS > later);
    assert_eq!(oldest.media.file().metadata().unwrap().len(), 0);
    let resumed = scene.window.playable(1).unwrap();
    assert!(resumed >= first, "who paused for long goes on with the oldest there is");
    assert!(oldest.following().is_some_and(|next| next.asset.first_packet() >= first));
}

#[test]
fn long_window_lies_in_the_cache_folder_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let window = Arc::new(ChannelWindow::new("news"));
    let shift = Duration::from_secs(3600);
    let writer = match WindowWriter::open(window.clone(), shift, Some(folder.path())) {
        Ok(writer) => writer,
        Err(error) => return eprintln!("skip: no file without a name in this folder: {error}"),
    };
    drop(writer);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    let missing = folder.path().join("none");
    assert!(WindowWriter::open(window, shift, Some(&missing)).is_err());
}
