// SPDX-License-Identifier: MIT OR Apache-2.0
//! The camera of the documents: a server at the usual ports of RTSP, with a transport stream at
//! `/stream` and tracks of H.264 and AAC at `/video.mp4`.
//!
//! Where a document's commands have the camera's password, it asks for it by Digest.
//!
//! Does not record; the commands of the documents do.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use media::cmaf::{TrackSegments, init_section};
use media::{ElementaryDemuxer, RtpIdentity, Scanner, copy_elementary};

use crate::blocks::Shown;
use crate::harness::answer::http;
use crate::shell::{SERVING, Shell};

/// Starts the camera, if a command names it.
pub(crate) fn start(shell: &mut Shell, commands: &[Shown]) {
    let names = |text: &str| commands.iter().any(|one| one.command.contains(text));
    if names("anna:PASSWORD@camera/") {
        shell.run(ADD_USER, &[0]);
        shell.start_aside(&format!("{CAMERA} --digest-users camera.users"), SERVING);
        let address = ADDRESS.parse().expect("an address");
        assert_eq!(http(address, "GET", "/video.mp4").status, 401, "without the password");
    } else if names("://camera/") {
        shell.start_aside(CAMERA, SERVING);
    }
}

/// Puts the film with tracks into the camera's folder.
pub(crate) fn put_tracks(folder: &Path) {
    let path = folder.join("video.mp4");
    fs::write(&path, tracks()).expect("room for a file");
    // A file that has just been written would be one that still grows.
    let file = File::options().append(true).open(&path).expect("it was written");
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("an own file");
}

/// Returns the built-in clip as fragmented MP4.
fn tracks() -> Vec<u8> {
    let mut scanner = Scanner::new();
    scanner.feed(CLIP);
    let plan = scanner.finish(CLIP.len() as u64, IDENTITY).expect("a good stream");
    let mut demuxer = ElementaryDemuxer::new(&plan);
    while !demuxer.advance(&plan, CLIP, 500).expect("a good stream") {}
    let whole = demuxer.finish(|| IDENTITY).expect("its tracks can be streamed");
    let segments = TrackSegments::of_elementary(&whole, 2).expect("key frames");
    let read = |track, samples, media: &mut Vec<u8>| {
        copy_elementary(&plan, &whole, (track, samples), CLIP, media)
    };
    let sample = |track, number| {
        let mut bytes = Vec::new();
        read(track, number..number + 1, &mut bytes).map(|_| bytes)
    };
    let both: Vec<usize> = (0..whole.tracks().len()).collect();
    assert_eq!(both, [0, 1], "pictures and sound");
    let mut film = init_section(&whole, &both, None, sample).expect("codecs of MP4");
    let rendition = segments.rendition(&both).expect("pictures and sound");
    for number in 0..rendition.segments().len() {
        let copied = rendition.copied(&whole, &segments, number, false, &mut { read });
        let copied = copied.expect("a good stream").expect("a segment");
        film.extend(copied.head);
        film.extend(copied.media);
    }
    film
}

static CLIP: &[u8] = include_bytes!("../../assets/clip.ts");
const IDENTITY: RtpIdentity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };

const ADDRESS: &str = "127.0.0.2:80";
const ADD_USER: &str = "pagewire passwd --digest camera.users anna";
const CAMERA: &str = "pagewire serve camera --rtsp 127.0.0.2:554 --http 127.0.0.2:80 \
                      --rtsps 127.0.0.2:322 --tls-cert camera.pem --tls-key camera.key";
