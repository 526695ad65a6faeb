// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fragmented MP4 that grows as a test writes it, locked as by `pagewire receive`.
//!
//! The film is made by ffmpeg: H.264 with B-frames and AAC, a key frame and a fragment every 2 s.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, mem};

use rustix::fs::{FlockOperation, fcntl_lock};

use super::Place;
use super::film::{ffmpeg, made, or_skip};

/// Seconds of a fragment.
pub(crate) const FRAGMENT_S: usize = 2;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A film in fragments, and the file that gets them one by one.
pub(crate) struct GrowingFilm {
    /// The film whole.
    pub(crate) path: PathBuf,
    /// The beginning, then each fragment with its media, the first one last.
    left: Vec<Vec<u8>>,
    recording: Option<File>,
}

/// Makes a film of so many seconds, whose sound begins `later` seconds after its pictures. `None`,
/// with the reason printed for `test`, where ffmpeg or its encoders are missing.
pub(crate) fn film(test: &str, seconds: usize, later: usize) -> Option<PathBuf> {
    let mut command = ffmpeg();
    let (length, offset) = (seconds.to_string(), later.to_string());
    let sound = (seconds - later).to_string();
    command.args(["-f", "lavfi", "-t", &length, "-i", "testsrc2=size=320x180:rate=25"]);
    command.args(["-itsoffset", &offset, "-f", "lavfi", "-t", &sound]);
    command.args(["-i", "sine=frequency=440:sample_rate=48000"]);
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-b_strategy", "0"]);
    command.args(["-g", "50", "-keyint_min", "50", "-sc_threshold", "0", "-b:v", "400k"]);
    command.args(["-pix_fmt", "yuv420p", "-c:a", "aac", "-b:a", "64k"]);
    // Without an index at the end, which a recording does not have.
    let flags = "frag_keyframe+empty_moov+default_base_moof+skip_trailer";
    command.args(["-movflags", flags, "-f", "mp4"]);
    or_skip(test, made(&mut command, "growing.mp4"))
}

impl GrowingFilm {
    /// Creates the locked file of this name with the beginning of a film, without fragments.
    pub(crate) fn begin(place: &Place, name: &str, film: &Path) -> GrowingFilm {
        let bytes = fs::read(film).expect("it was made");
        let mut pieces: Vec<Vec<u8>> = vec![Vec::new()];
        let mut rest = &bytes[..];
        while let Some((head, _)) = rest.split_first_chunk::<8>() {
            let size = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if &head[4..] == b"moof" {
                pieces.push(Vec::new());
            }
            let (found, behind) = rest.split_at(size);
            pieces.last_mut().expect("one at least").extend(found);
            rest = behind;
        }
        let recording = File::create(place.folder().join(name)).expect("room for a file");
        // Of this process; it is gone when the process closes the file, however it has opened it.
        fcntl_lock(&recording, FlockOperation::NonBlockingLockExclusive).expect("a lock");
        pieces.reverse();
        let mut film =
            GrowingFilm { path: film.to_owned(), left: pieces, recording: Some(recording) };
        film.write(1);
        film
    }

    /// Writes so many more fragments.
    pub(crate) fn write(&mut self, fragments: usize) {
        for _ in 0..fragments {
            let next = self.left.pop().expect("a fragment");
            self.recording().write_all(&next).expect("room for it");
        }
    }

    /// Writes all that is left.
    pub(crate) fn write_rest(&mut self) {
        self.write(self.left.len());
    }

    /// Writes the first half of the next fragment.
    pub(crate) fn write_half(&mut self) {
        let next = self.left.pop().expect("a fragment");
        self.recording().write_all(&next[..next.len() / 2]).expect("room for it");
    }

    /// Writes each fragment when its last picture is over, as a recorder does, and ends with the
    /// last one, or when `stop` is set.
    pub(crate) fn write_in_time(mut self, stop: Arc<AtomicBool>) -> JoinHandle<()> {
        let began = Instant::now();
        thread::spawn(move || {
            for end_s in (1..).map(|number| number * FRAGMENT_S as u64).take(self.left.len()) {
                let due = began + Duration::from_secs(end_s);
                while Instant::now() < due && !stop.load(Ordering::Relaxed) {
                    thread::sleep(due.saturating_duration_since(Instant::now()).min(LOOK_EVERY));
                }
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                self.write(1);
            }
        })
    }

    pub(crate) fn recording(&mut self) -> &mut File {
        self.recording.as_mut().expect("it is written")
    }

    /// Ends the recorder.
    pub(crate) fn end(&mut self) {
        drop(mem::take(&mut self.recording));
    }
}
