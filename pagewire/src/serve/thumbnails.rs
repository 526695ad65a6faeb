// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags of `pagewire serve` for posters and thumbnails, and the search for ffmpeg.
//!
//! The search runs once, at the start: a program that appears in PATH later is not trusted.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serve::{DecoderCommand, ThumbnailSource};

#[derive(Args)]
#[command(next_help_heading = "Posters and thumbnails")]
pub(super) struct ThumbnailOptions {
    /// Posters and thumbnails of files: auto makes them of key frames when they are asked for,
    /// where ffmpeg is installed; off makes none.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    thumbnails: Thumbnails,
    /// Disk that posters and thumbnails may take in the cache folder, such as 500M, 10G or 0 for
    /// none.
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = super::bytes)]
    thumbnail_cache_size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Thumbnails {
    Auto,
    Off,
}

impl ThumbnailOptions {
    /// Returns the source of thumbnails, and their limit in bytes.
    pub(super) fn source(&self) -> (ThumbnailSource, u64) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let source = match self.thumbnails {
            Thumbnails::Off => ThumbnailSource::None(OFF.to_owned()),
            Thumbnails::Auto => match found(std::env::split_paths(&path), FFMPEG) {
                Some(program) => ThumbnailSource::Decoder(DecoderCommand {
                    launcher: vec![OWN_PROGRAM.into(), "sandbox".into()],
                    program,
                }),
                None => {
                    tracing::info!("{MISSING}");
                    ThumbnailSource::None(MISSING.to_owned())
                }
            },
        };
        (source, self.thumbnail_cache_size)
    }
}

/// Returns the first program of this name in these folders; relative folders are skipped.
fn found(folders: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 > 0)
    };
    let absolute = folders.filter(|folder| folder.is_absolute());
    absolute.map(|folder| folder.join(name)).find(|path| is_program(path))
}

const FFMPEG: &str = "ffmpeg";
/// Path of this program, valid also after its file was replaced by a newer one.
const OWN_PROGRAM: &str = "/proc/self/exe";
const OFF: &str = "this server makes no posters and thumbnails (--thumbnails off)";
const MISSING: &str = "there are no posters and thumbnails: ffmpeg was not in PATH when the server \
    started; install it and start the server again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_program_of_an_absolute_folder_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (part, mode) in [("a", 0o644), ("b", 0o755), ("c", 0o755)] {
            std::fs::create_dir(at(part)).unwrap();
            std::fs::write(at(part).join(FFMPEG), "").unwrap();
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(at(part).join(FFMPEG), mode).unwrap();
        }
        let folders = || ["none", "a", "b", "c"].into_iter().map(at);
        assert_eq!(found(folders(), FFMPEG), Some(at("b").join(FFMPEG)));
        assert_eq!(found(folders(), "ffprobe"), None);
        assert_eq!(found([PathBuf::from(".")].into_iter(), FFMPEG), None);
    }
}
