// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check that keys belong to the titles in a folder: run by a server before it delivers keys, and
//! by `unseal` before it writes.
//!
//! Only the first segment of each title is checked: its first packets must begin with sync bytes
//! and its end must be padding. A wrong key passes once in 2²⁴ times. Costs a playlist and two
//! reads of a few hundred bytes a title.
//!
//! Does not find damage further in, or wrong keys after the first of a title; `seal verify hls`
//! does. Skips titles whose keys are not below `/keys/`: another server has those.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use media::TS_PACKET_BYTES;
use openssl::symm::{Cipher, Crypter, Mode};
use rustix::fs::OFlags;
use rustix::io::Errno;
use walkdir::WalkDir;

use super::FilmFault;
use super::key_source::SegmentKeySource;
use super::playlist::{MEDIA, read_playlist, segment_name};
use super::segment_cipher::{BLOCK_BYTES, KEY_BYTES, without_padding};
use crate::dir_handle::DirHandle;
use crate::error::Error;
use crate::target_path::c_string;
use crate::trust::{self, Writer};

/// Result of the check of a folder's titles.
#[derive(Debug, Default)]
pub struct Compatibility {
    /// Titles whose first segment opens.
    pub opened: u64,
    /// Titles that do not open, each with the reason.
    pub refused: Vec<Error>,
}

/// Checks encrypted titles at or below `folder` whose keys are on the folder's own server, at most
/// `titles_max` of them. Skips folders that are not titles made by this program.
pub fn fit(folder: &Path, keys: &SegmentKeySource, titles_max: usize) -> Compatibility {
    let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
    let walk = WalkDir::new(folder).min_depth(1).sort_by_file_name().into_iter();
    let seen = walk.filter_entry(|entry| !is_hidden(entry.file_name())).filter_map(Result::ok);
    let playlists = seen.filter(|entry| entry.file_type().is_file() && entry.file_name() == MEDIA);
    let titles = playlists.filter_map(|entry| looked_at(entry.path().parent()?, keys));
    let mut fit = Compatibility::default();
    for title in titles.take(titles_max) {
        match title {
            Ok(()) => fit.opened += 1,
            Err(error) => fit.refused.push(error),
        }
    }
    fit
}

/// True when the first key in the head of the playlist is on the folder's own server. False when
/// the playlist is no regular file, or too long.
fn has_local_keys(folder: &DirHandle) -> bool {
    let Ok(name) = c_string(MEDIA.as_ref()) else { return false };
    let flags = OFlags::RDONLY;
    let opened = trust::open(folder, &name, flags, Writer::Anybody, SERVED_PLAYLIST_BYTES_MAX);
    let Ok(Some(file)) = opened else { return false };
    let mut text = Vec::new();
    if file.take(HEAD_BYTES_MAX).read_to_end(&mut text).is_err() {
        return false;
    }
    let text = String::from_utf8_lossy(&text);
    let tag = text.lines().find(|line| line.starts_with("#EXT-X-KEY:"));
    tag.is_some_and(|tag| tag.contains("/keys/"))
}

/// Checks that the title in `folder` opens; `None` if it is no encrypted title made here.
fn looked_at(folder: &Path, keys: &SegmentKeySource) -> Option<Result<(), Error>> {
    let root = DirHandle::open(folder).ok()?;
    has_local_keys(&root).then(|| opens(&root, keys)).flatten()
}

/// Checks that the first segment of the title in `root` opens; `None` if it is no encrypted title
/// made here.
pub(super) fn opens(root: &DirHandle, keys: &SegmentKeySource) -> Option<Result<(), Error>> {
    let folder = root.path();
    let playlist = read_playlist(root, "").ok()?;
    playlist.rotation?;
    let name = c_string(segment_name("", 0).as_ref()).ok()?;
    let opened = || -> Result<(), Error> {
        let key = match keys.key(&playlist, 0)? {
            Some(key) => key,
            None => return Err(Error::file(folder, FilmFault::KeyNeeded.into())),
        };
        let segment = trust::open(root, &name, OFlags::RDONLY, Writer::Anybody, u64::MAX)?
            .ok_or_else(|| root.error("open", &name, Errno::NOENT))?;
        let path = root.shown(&name);
        let bytes = segment.metadata().map_err(Error::host("fstat", &path))?.len();
        let is_open = is_opened(&segment, bytes, &key, playlist.iv(0));
        if is_open.map_err(Error::host("read", &path))? {
            return Ok(());
        }
        Err(Error::file(folder, FilmFault::OtherKey.into()))
    };
    Some(opened())
}

/// Bytes of a playlist that are read first: its first key is in the first lines.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Most bytes of a served playlist: 50,000 segments and more; a server need not wait for longer
/// ones.
const SERVED_PLAYLIST_BYTES_MAX: u64 = 16 << 20;

fn is_opened(segment: &File, bytes: u64, key: &[u8; KEY_BYTES], iv: [u8; 16]) -> io::Result<bool> {
    // Two packets, in whole blocks.
    const HEAD: usize = (2 * TS_PACKET_BYTES).next_multiple_of(BLOCK_BYTES);
    let shortest = (2 * TS_PACKET_BYTES / BLOCK_BYTES * BLOCK_BYTES) as u64;
    if bytes < shortest || !bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(false);
    }
    let mut head = vec![0; HEAD.min(usize::try_from(bytes).unwrap_or(HEAD))];
    segment.read_exact_at(&mut head, 0)?;
    let head = deciphered(&head, key, &iv)?;
    let mut end = [0; 2 * BLOCK_BYTES];
    segment.read_exact_at(&mut end, bytes - 2 * BLOCK_BYTES as u64)?;
    let (before, last) = end.split_at(BLOCK_BYTES);
    let last = deciphered(last, key, before)?;
    let is_sync = |at: usize| head[at] == 0x47;
    Ok(is_sync(0) && is_sync(TS_PACKET_BYTES) && without_padding(&last).is_some())
}

/// Deciphers whole blocks and keeps the padding.
fn deciphered(bytes: &[u8], key: &[u8; KEY_BYTES], iv: &[u8]) -> io::Result<Vec<u8>> {
    let mut crypter = Crypter::new(Cipher::aes_128_cbc(), Mode::Decrypt, key, Some(iv))?;
    crypter.pad(false);
    let mut clear = vec![0; bytes.len() + Cipher::aes_128_cbc().block_size()];
    let count = crypter.update(bytes, &mut clear)?;
    clear.truncate(count);
    Ok(clear)
}
