// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and position of a session of tracks ([`super`]) that pauses.

use std::fs::File;
use std::net::UdpSocket;
use std::path::Path;

use media::Demuxer;
use media::store::{asset_key, random_identity};
use paths::{Destination, MappedFile};

use super::super::media_target::MediaTarget;
use super::super::paced_stream::tests::tools;
use super::*;
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

#[test]
fn a_paused_session_holds_no_layout_and_goes_on_with_the_next_packet() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), 38 * 4);
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(receiver.local_addr().unwrap()).unwrap();
    let to = Destination::new(socket, "there".to_owned()).unwrap();
    let (meters, readers) = (Meters::new(1), Readers::start(fetch).unwrap());
    let path = paths::find(paths::Transport::Rtp, "mmap_writev").unwrap();
    let paths::Open::Stream { open, .. } = path.open else { panic!("a path of streams") };
    let burst = Duration::from_millis(500);
    let mut tools = tools(open().unwrap(), None, (&meters, &readers), burst);
    let to = MediaTarget::Datagrams(Box::new(to));
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
    tracks.play_from(start(Some(begin)));
    step(&mut tracks, &mut tools);
    assert!(tracks.tracks[0].holds_layouts());
    let position = tracks.position();
    assert!(position > 0);

    tracks.stop();
    assert!(!tracks.tracks[0].holds_layouts());
    assert_eq!(tracks.position(), position);

    tracks.play_from(start(None));
    assert_eq!(tracks.position(), position);
    step(&mut tracks, &mut tools);
    let received = sequences(&receiver);
    assert!(received.len() > 2, "{received:?}");
    assert!(received.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{received:?}");
    drop(tools);
    readers.stop();
}
