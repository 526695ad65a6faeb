// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans made by somebody else than the server: by a recorder, while it writes the file.
//!
//! The recorder has every byte in its hands once, so that the file need not be read again before it
//! can be streamed: its plan is put where a server with the same cache folder looks first. Nothing
//! breaks when it is not found there, or when the file has changed since: the server plans again.
//! Costs one write of the plan, 16 bytes per clock reference and 8 per entry point.
//!
//! Does not do: make the plan (`media::Scanner` does).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use media::Scanner;

use crate::asset::key;
use crate::cache::Cache;
use crate::library::{identity, name_codecs};

/// The plans in a cache folder.
#[derive(Debug, Clone)]
pub struct Plans(Cache);

impl Plans {
    /// Those that a server has which is given the same folder; its default when none is given. A
    /// folder that cannot be made is a warning, and no plans are kept.
    pub fn open(folder: Option<PathBuf>) -> Plans {
        Plans(Cache::open(folder))
    }

    /// Keeps the plan of a file that is complete. `scanner` was fed all of it; `path` is absolute
    /// and without symbolic links, as the server will see it.
    ///
    /// # Errors
    /// The file cannot be looked at, or has other bytes than were fed, or cannot be streamed: why.
    pub fn keep(&self, path: &Path, file: &File, scanner: Scanner) -> io::Result<()> {
        let key = key(path, file)?;
        let mut plan = scanner.finish(key.bytes, identity()).map_err(io::Error::other)?;
        name_codecs(&mut plan, file);
        self.0.keep_plan(&key, &plan);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_plan_is_found_by_the_key_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a.ts");
        // Null packets with two clock references, a second apart.
        let packet = |pcr: Option<u64>| {
            let mut bytes = [0xff; 188];
            bytes[..4].copy_from_slice(&[0x47, 1, 0, 0x10]);
            if let Some(base) = pcr {
                bytes[3..6].copy_from_slice(&[0x20, 183, 0x10]);
                bytes[6..12].copy_from_slice(&(base << 15 | 0x7e00).to_be_bytes()[2..]);
            }
            bytes
        };
        let bytes = [packet(Some(0)), packet(None), packet(Some(90_000)), packet(None)].concat();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        let plans = Plans::open(Some(folder.path().join("cache")));
        let fed = |bytes: &[u8]| {
            let mut scanner = Scanner::new();
            scanner.feed(bytes);
            scanner
        };
        assert!(plans.keep(&path, &file, fed(&bytes[188..])).is_err(), "not all of it");
        assert!(plans.0.plan(&key(&path, &file).unwrap()).is_none());
        plans.keep(&path, &file, fed(&bytes)).unwrap();
        assert_eq!(plans.0.plan(&key(&path, &file).unwrap()).unwrap().ts_packets(), 4);
    }
}
