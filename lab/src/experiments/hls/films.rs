// SPDX-License-Identifier: MIT OR Apache-2.0
//! Films of the experiment, made by ffmpeg: one of 5 Mb/s as MP4 and as a transport stream, and one
//! of two hours with tiny pictures.
//!
//! ffmpeg encodes some seconds (H.264 with B-frames, a key frame every two seconds; AAC) and
//! repeats them without encoding. Its MP4 has chunks of a picture or two and the sound beside them,
//! so the samples of one track alone lie in many places of the file, as in most MP4 files.
//!
//! Sources: ffmpeg(1) (`-stream_loop`), ffmpeg-codecs(1) (libx264).
//! Does not package segments; `packager` does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use measure::Error;
use measure::scratch::failed;

/// A film.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Film {
    /// MP4 of 5 Mb/s.
    Mp4,
    /// The same pictures and sound as a transport stream.
    Ts,
    /// MP4 of two hours.
    Long,
}

impl Film {
    /// Returns the name of its file.
    pub(super) fn name(self) -> &'static str {
        match self {
            Film::Mp4 => "film.mp4",
            Film::Ts => "film.ts",
            Film::Long => "long.mp4",
        }
    }

    /// Returns its file below the folder of films. Each has a folder of its own, so that a server
    /// that serves one has no other to plan.
    pub(super) fn path(self, films: &Path) -> PathBuf {
        self.folder(films).join(self.name())
    }

    /// Returns the folder that holds nothing else.
    pub(super) fn folder(self, films: &Path) -> PathBuf {
        films.join(match self {
            Film::Mp4 => "mp4",
            Film::Ts => "ts",
            Film::Long => "long",
        })
    }

    /// Writes the film; the MP4 film precedes the transport stream, which is made of it.
    pub(super) fn write(self, films: &Path, quick: bool) -> Result<(), Error> {
        let folder = self.folder(films);
        std::fs::create_dir(&folder).map_err(failed("making", &folder))?;
        let target = self.path(films);
        match self {
            Film::Mp4 => {
                let pieces = if quick { PIECES_QUICK } else { PIECES };
                write_repeated(&films.join("piece.mp4"), FILM, pieces, &target)
            }
            Film::Ts => remux_as_ts(&Film::Mp4.path(films), &target),
            Film::Long => write_repeated(&films.join("minute.mp4"), MINUTE, LONG_PIECES, &target),
        }
    }
}

/// Returns the version of ffmpeg.
///
/// # Errors
/// [`Error::Unavailable`] where it is missing.
pub(crate) fn probe() -> Result<String, Error> {
    let version = crate::experiments::peers::peer::version(PROGRAM, &["-version"], "version");
    version.map_err(|found| Error::Unavailable {
        need: "ffmpeg with libx264, which makes the films",
        found: format!("{found}; apt install ffmpeg"),
    })
}

/// Writes an MP4 film of 5 Mb/s that lasts that long at least.
pub(crate) fn write_film(target: &Path, time: Duration) -> Result<(), Error> {
    write_film_of(FILM, target, time)
}

/// Writes a film that lasts that long at least; `how` has the options of ffmpeg for a piece of
/// [`PIECE_SECONDS`].
pub(crate) fn write_film_of(how: &str, target: &Path, time: Duration) -> Result<(), Error> {
    let pieces = time.as_secs().div_ceil(PIECE_SECONDS).max(1) as u32;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    write_repeated(&target.with_file_name(format!(".piece-{name}")), how, pieces, target)
}

/// Writes the same pictures and sound as a transport stream.
pub(crate) fn remux_as_ts(film: &Path, target: &Path) -> Result<(), Error> {
    let mut command = ffmpeg();
    command.arg("-i").arg(film).args(["-c", "copy", "-f", "mpegts"]).arg(target);
    run(command)
}

fn write_repeated(piece: &Path, how: &str, pieces: u32, target: &Path) -> Result<(), Error> {
    let mut command = ffmpeg();
    command.args(how.split(' ')).arg(piece);
    run(command)?;
    let mut command = ffmpeg();
    command.args(["-stream_loop", &(pieces - 1).to_string(), "-i"]).arg(piece);
    command.args(["-c", "copy"]).arg(target);
    run(command)?;
    std::fs::remove_file(piece).map_err(failed("removing", piece))
}

/// Returns a command that writes over existing files and prints errors alone.
pub(super) fn ffmpeg() -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["-v", "error", "-nostdin", "-y"]);
    command
}

/// Runs a program to its end.
///
/// # Errors
/// [`Error::Host`] with the last line that it prints.
pub(super) fn run(mut command: Command) -> Result<(), Error> {
    let what = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(Error::host(&*what))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = stderr.lines().last().unwrap_or("it printed nothing");
    Err(Error::Host { what, found: format!("{}; {last}", output.status) })
}

const PROGRAM: &str = "ffmpeg";
/// The length that a piece such as [`FILM`] has.
pub(crate) const PIECE_SECONDS: u64 = 12;
/// Two minutes of media.
const PIECES: u32 = 10;
const PIECES_QUICK: u32 = 3;
/// Minutes.
const LONG_PIECES: u32 = 120;
/// A piece of the film, at a constant rate.
const FILM: &str = "-f lavfi -i testsrc2=size=640x360:rate=25 \
    -f lavfi -i sine=frequency=330:sample_rate=48000 -t 12 -c:v libx264 -preset veryfast \
    -pix_fmt yuv420p -g 50 -keyint_min 50 -sc_threshold 0 -b:v 4870k -minrate 4870k \
    -maxrate 4870k -bufsize 4870k -x264-params nal-hrd=cbr -c:a aac -b:a 128k -ac 2";
const MINUTE: &str = "-f lavfi -i testsrc2=size=64x36:rate=5 \
    -f lavfi -i sine=frequency=330:sample_rate=16000 -t 60 -c:v libx264 -preset veryfast \
    -pix_fmt yuv420p -g 10 -keyint_min 10 -sc_threshold 0 -c:a aac -b:a 16k -ac 1";
