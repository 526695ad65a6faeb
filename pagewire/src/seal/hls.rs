// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal hls`, `unseal hls` and `seal verify hls`: films as folders of segments for HTTP
//! Live Streaming.
//!
//! The secret is a key, never a passphrase: a server derives the same keys from it, and a folder of
//! films stores no salt.
//!
//! A film is one MPEG-TS file and the HLS presentation made of it (RFC 8216). [`seal::hls`] does
//! the work.

use std::io::{IsTerminal, Write};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::{Args, ValueEnum};
use seal::hls::{self, HlsProgress, KeyFolder, KeyUri, Keys, Protection, SegmentKeySource};
use seal::key::Secret;
use seal::{Error, counted};

use super::keys::{self, Ask};
use super::{Running, Total, Writing, failures};
use crate::escape::Escaped;

#[derive(Args)]
pub(crate) struct Options {
    /// MPEG-TS file, or a folder of them.
    source: PathBuf,
    /// The folder in which each film becomes a folder: master.m3u8, media.m3u8 and its segments.
    target: PathBuf,
    #[command(flatten)]
    key: keys::Keys,
    /// Cut the films into segments without encryption.
    #[arg(long, conflicts_with_all = ["key-source", "key_uri", "rotate", "iv", "keys"])]
    no_key: bool,
    /// Target duration of segments in seconds; key frames further apart make longer ones.
    #[arg(long, value_name = "SECONDS", default_value_t = 6, value_parser = seconds())]
    target_duration: u64,
    /// URI of the keys in playlists; {name} and {number} are replaced.
    #[arg(long, value_name = "URI", default_value = KeyUri::USUAL)]
    key_uri: String,
    /// New key every N segments [default: one key a film].
    #[arg(long, value_name = "N")]
    rotate: Option<NonZeroU64>,
    /// Initialisation vector of a segment.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Iv::Sequence)]
    iv: Iv,
    /// Also write the keys to a folder, as NAME/NUMBER.key, for a server without the secret.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Iv {
    /// The segment's number.
    Sequence,
    /// One of its own, in the playlist.
    Random,
}

pub(super) fn run(options: Options) -> ExitCode {
    let running = &options.running;
    let how = running.settings().and_then(|settings| Ok((options.how()?, settings)));
    let (how, settings) = match how {
        Ok(how) => how,
        Err(error) => return failures::list(&[error]),
    };
    // Prints no remark during the run with --json: a script reads them among the notes.
    let planned = if running.json { HlsProgress::default() } else { HlsProgress::telling(tell) };
    let total = || Total {
        bytes: planned.bytes.load(Ordering::Relaxed),
        files: planned.segments.load(Ordering::Relaxed),
    };
    let status = running.run(total, |seen| {
        hls::seal(&options.source, &options.target, &how, &settings, &planned, seen)
    });
    failures::note(&planned.notes.into_inner().unwrap_or_default());
    say_what_is_left_out(&options.target);
    if !running.json && status == ExitCode::SUCCESS {
        options.say_where_it_plays(&planned.titles.into_inner().unwrap_or_default());
    }
    status
}

/// Prints a remark at once, before all files are written.
fn tell(remark: &Error) {
    if std::io::stderr().is_terminal() {
        // Clears the line of the bar; the bar is drawn again below.
        eprint!("\r\x1b[2K");
    }
    failures::note(std::slice::from_ref(remark));
}

/// Reports sources that end within a packet: unsealing does not restore their last bytes, which
/// matters to a user who deletes the source.
fn say_what_is_left_out(sealed: &Path) {
    // Ignores an error: the run has already reported that there is no film.
    for (film, bytes) in hls::cut_off(sealed).unwrap_or_default() {
        let film = Escaped(film.display());
        let bytes = counted(bytes, "byte");
        eprintln!("pagewire: note: {film}: {bytes} at the source's end, no packet, left out");
    }
}

/// `pagewire unseal hls`.
#[derive(Args)]
pub(crate) struct Unseal {
    /// Folder of a sealed film, or a folder that contains such folders.
    source: PathBuf,
    /// MPEG-TS file to write, or a folder for several.
    target: PathBuf,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    opened: Opened,
    #[command(flatten)]
    running: Running,
}

/// Keys that open films.
#[derive(Args)]
pub(crate) struct Opened {
    #[command(flatten)]
    key: keys::Keys,
    /// Folder of keys that `seal hls --keys` wrote; content hashes are not checked then.
    #[arg(long, value_name = "DIR", conflicts_with = "key-source")]
    keys: Option<PathBuf>,
}

impl Opened {
    fn source(&self) -> Result<SegmentKeySource, Error> {
        match &self.keys {
            Some(folder) => Ok(SegmentKeySource::Folder(KeyFolder::new(folder))),
            None => source_of(&self.key),
        }
    }
}

/// Derives keys from the named secret; returns no keys where none is named: the films may be clear.
fn source_of(keys: &keys::Keys) -> Result<SegmentKeySource, Error> {
    match keys.is_key() {
        true => Ok(SegmentKeySource::Derived(Keys::new(&secret(keys)?))),
        false => Ok(SegmentKeySource::None),
    }
}

pub(crate) fn unseal(options: &Unseal) -> ExitCode {
    let running = &options.running;
    let keys = running.settings().and_then(|settings| Ok((options.opened.source()?, settings)));
    let (keys, settings) = match keys {
        Ok(keys) => keys,
        Err(error) => return failures::list(&[error]),
    };
    let (source, target, force) = (&options.source, &options.target, options.force);
    let status = running
        .run(Total::default, |seen| hls::unseal(source, target, &keys, force, &settings, seen));
    say_what_is_left_out(source);
    status
}

/// `pagewire seal verify hls`.
#[derive(Args)]
pub(crate) struct Verify {
    /// Folder of a sealed film, or a folder that contains such folders.
    target: PathBuf,
    /// Source to compare byte for byte; without it the stored hashes are compared.
    #[arg(long, value_name = "SOURCE")]
    source: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    opened: Opened,
}

pub(super) fn verify(options: &Verify) -> ExitCode {
    let running = &options.running;
    let keys = running.settings().and_then(|settings| Ok((options.opened.source()?, settings)));
    let (keys, settings) = match keys {
        Ok(keys) => keys,
        Err(error) => return failures::list(&[error]),
    };
    let (target, source) = (&options.target, options.source.as_deref());
    running.run(Total::default, |seen| hls::verify(target, source, &keys, &settings, seen))
}

impl Options {
    /// Prints the command that serves the target and the address of the first title.
    fn say_where_it_plays(&self, titles: &[String]) {
        let Some(first) = titles.first() else { return };
        let keys = match (&self.keys, self.no_key || self.key_uri != KeyUri::USUAL) {
            (_, true) => String::new(),
            (Some(keys), _) => format!(" --keys {}", keys.display()),
            (None, _) => format!(" --hls-key-file {}", self.key.file_or("FILE")),
        };
        let serve = format!("pagewire serve {}{keys}", self.target.display());
        let others = match titles.len() - 1 {
            0 => String::new(),
            others => format!("\n{others} more: NAME/{} of each", hls::MASTER),
        };
        // Ignores a closed standard output.
        let _ = writeln!(
            std::io::stdout(),
            "to play it: {}\n            http://127.0.0.1:8080/{first}{others}",
            Escaped(&serve)
        );
    }

    fn how(&self) -> Result<hls::HlsOptions, Error> {
        let protection = if self.no_key { None } else { Some(self.protection()?) };
        let (target_s, sync, force) =
            (self.target_duration, self.writing.sync(), self.writing.force);
        Ok(hls::HlsOptions { target_s, protection, force, sync })
    }

    fn protection(&self) -> Result<Protection, Error> {
        let uri = KeyUri::parse(&self.key_uri)?;
        Ok(Protection {
            keys: Keys::new(&secret(&self.key)?),
            uri,
            rotation: self.rotate,
            has_random_iv: self.iv == Iv::Random,
            folder: self.keys.clone().map(KeyFolder::new),
        })
    }
}

/// Returns the secret of films, which is a key. Never asks for a passphrase.
pub(crate) fn secret(keys: &keys::Keys) -> Result<Secret, Error> {
    if !keys.is_key() {
        return Err(Error::Option {
            option: "--key-file",
            found: "not given".to_owned(),
            cure: "films take a key, which their server has too: openssl rand -hex 32 > FILE, and \
                   --key-file FILE"
                .to_owned(),
        });
    }
    keys.read(Ask::Once)?.secret(None, SECRET_BYTES)
}

/// Recommended length of a new secret; an existing one may be shorter.
const SECRET_BYTES: usize = 32;

/// Parses a target duration from one second to a minute, the longest that a player waits for.
fn seconds() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=60)
}
