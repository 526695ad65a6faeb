// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments prepared as files for nginx: by shaka-packager where it is in PATH, otherwise by
//! ffmpeg.
//!
//! shaka-packager puts one track into a segment of MP4, so ffmpeg makes segments with pictures and
//! sound together, and those of transport streams: both programs copy the packets.
//!
//! Sources: shaka-packager's documentation (stream descriptors, `--segment_duration`);
//! ffmpeg-formats(1) (hls).
//! Does not compare the segments with those that pagewire makes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::films::{ffmpeg, run};
use super::parts::{Media, Part};
use measure::Error;
use measure::scratch::failed;

/// Prepared segments in the order of play, and their maker.
pub(super) struct Packaged {
    pub(super) by: &'static str,
    pub(super) files: Vec<PathBuf>,
}

/// Makes the segments of a part in a folder.
pub(super) fn package(part: &Part, film: &Path, folder: &Path) -> Result<Packaged, Error> {
    std::fs::create_dir(folder).map_err(failed("making", folder))?;
    let shaka = match part.media {
        Media::Pictures => Some("video"),
        Media::Sound => Some("audio"),
        _ => None,
    };
    let (by, extension) = match (shaka, shaka_packager()) {
        (Some(stream), Some(program)) => {
            let mut command = Command::new(program);
            command.arg(format!(
                "in={},stream={stream},init_segment={folder}/init.mp4,\
                 segment_template={folder}/$Number$.m4s",
                film.display(),
                folder = folder.display(),
            ));
            command.args(["--segment_duration", SECONDS, "--quiet"]);
            run(command)?;
            (SHAKA, "m4s")
        }
        _ => ("ffmpeg", by_ffmpeg(part, film, folder)?),
    };
    let files = numbered(folder, extension)?;
    if files.is_empty() {
        let found = format!("{by} made no segment of {}", film.display());
        return Err(Error::Host { what: "packaging".to_owned(), found });
    }
    Ok(Packaged { by, files })
}

/// Writes the playlist that pagewire made, as a file.
pub(super) fn copy_of(playlist: &str, folder: &Path) -> Result<Packaged, Error> {
    std::fs::create_dir(folder).map_err(failed("making", folder))?;
    let path = folder.join("media.m3u8");
    std::fs::write(&path, playlist).map_err(failed("writing", &path))?;
    Ok(Packaged { by: "a copy of pagewire's answer", files: vec![path] })
}

/// Makes the segments; returns the ends of their names.
fn by_ffmpeg(part: &Part, film: &Path, folder: &Path) -> Result<&'static str, Error> {
    let extension = if part.media == Media::Stream { "ts" } else { "m4s" };
    let mut command = ffmpeg();
    command.arg("-i").arg(film).args(["-c", "copy"]);
    match part.media {
        Media::Pictures => _ = command.args(["-map", "0:v"]),
        Media::Sound => _ = command.args(["-map", "0:a"]),
        _ => {}
    }
    command.args(["-f", "hls", "-hls_time", SECONDS, "-hls_playlist_type", "vod"]);
    if part.media != Media::Stream {
        command.args(["-hls_segment_type", "fmp4", "-hls_fmp4_init_filename", "init.mp4"]);
    }
    command.arg("-hls_segment_filename").arg(folder.join(format!("%d.{extension}")));
    command.arg(folder.join("media.m3u8"));
    run(command)?;
    Ok(extension)
}

/// Returns the files that are named by a number, in its order.
fn numbered(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Error> {
    let entries = std::fs::read_dir(folder).map_err(failed("reading", folder))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<(u32, PathBuf)> = paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)))
        .collect();
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Returns the program in PATH: its package of npm names it after the system.
fn shaka_packager() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let found = |folder: PathBuf| SHAKA_NAMES.iter().map(move |name| folder.join(name));
    std::env::split_paths(&folders).flat_map(found).find(|path| path.is_file())
}

const SHAKA: &str = "shaka-packager";
const SHAKA_NAMES: &[&str] = &["packager", "packager-linux-x64", "packager-linux-arm64"];
/// Length of a segment, as pagewire's.
const SECONDS: &str = "6";

#[test]
fn segments_are_in_the_order_of_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["10.m4s", "9.m4s", "init.mp4", "media.m3u8", "x.m4s"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let files = numbered(folder.path(), "m4s").unwrap();
    assert_eq!(files, ["9.m4s", "10.m4s"].map(|name| folder.path().join(name)));
}
