// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source folders to be sealed, and the check of their outputs.
//!
//! Every file has its own bytes; no cipher's speed depends on them.
//!
//! Sources: the file-encryption paper, table 1, for the sizes.
//! Does not measure time: making, verifying and removing are outside every measured time.

use std::fs;
use std::path::{Path, PathBuf};

use openssl::symm::{Cipher, decrypt};

use super::member::{IV, KEY, Layout, Member};
use measure::Error;
use measure::scratch::{ScratchDir, failed};

/// Files to be sealed, in one folder.
pub(super) struct Source {
    pub(super) path: PathBuf,
    /// Sizes in the order of the names.
    pub(super) sizes: Vec<u64>,
}

impl Source {
    pub(super) fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    fn name(index: usize) -> String {
        format!("{index:06}")
    }

    /// Writes a folder of files of the given sizes.
    pub(super) fn make(scratch: &ScratchDir, name: &str, sizes: Vec<u64>) -> Result<Source, Error> {
        let path = scratch.folder(name)?;
        let mut noise = NOISE_SEED;
        let mut bytes = Vec::new();
        for (index, &size) in sizes.iter().enumerate() {
            bytes.clear();
            while (bytes.len() as u64) < size {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                bytes.extend_from_slice(&noise.to_le_bytes());
            }
            bytes.truncate(size as usize);
            let file = path.join(Source::name(index));
            fs::write(&file, &bytes).map_err(failed("writing", &file))?;
        }
        Ok(Source { path, sizes })
    }

    /// Links the first `count` files into a folder of their own.
    pub(super) fn first(
        &self,
        scratch: &ScratchDir,
        name: &str,
        count: usize,
    ) -> Result<Source, Error> {
        let path = scratch.folder(name)?;
        let sizes: Vec<u64> = self.sizes.iter().take(count).copied().collect();
        for index in 0..sizes.len() {
            let file = Source::name(index);
            let linked = fs::hard_link(self.path.join(&file), path.join(&file));
            linked.map_err(failed("linking", &path))?;
        }
        Ok(Source { path, sizes })
    }

    /// Checks that OpenSSL decrypts every output to its source, and that there is no other output.
    pub(super) fn verify(member: &Member, source: &Source, target: &Path) -> Result<(), Error> {
        let wrong = |found: String| Error::Wrong { member: member.name.to_owned(), found };
        let key = &KEY;
        for index in 0..source.sizes.len() {
            let name = Source::name(index);
            let clear = fs::read(source.path.join(&name)).map_err(failed("reading", target))?;
            let path = target.join(&name);
            let sealed = fs::read(&path).map_err(failed("reading", &path))?;
            let (iv, body) = match member.layout {
                Layout::Clear if sealed == clear => continue,
                Layout::Clear => return Err(wrong(format!("{name} is not its source"))),
                Layout::Body => (&IV[..], &sealed[..]),
                Layout::IvBody => sealed
                    .split_at_checked(IV.len())
                    .ok_or_else(|| wrong(format!("{name} is shorter than an IV")))?,
            };
            let opened = decrypt(Cipher::aes_128_cbc(), key, Some(iv), body)
                .map_err(|error| wrong(format!("{name}: OpenSSL cannot open it: {error}")))?;
            if opened != clear {
                return Err(wrong(format!("{name}: OpenSSL opens something else in it")));
            }
        }
        Self::count(member, source, target)
    }

    /// Checks that every output has its size, and that there is no other; done after each timed
    /// run.
    pub(super) fn count(member: &Member, source: &Source, target: &Path) -> Result<(), Error> {
        let wrong = |found: String| Error::Wrong { member: member.name.to_owned(), found };
        let mut files = 0;
        for entry in fs::read_dir(target).map_err(failed("listing", target))? {
            let entry = entry.map_err(failed("listing", target))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            let size = name.parse().ok().and_then(|index: usize| source.sizes.get(index));
            let size = size.ok_or_else(|| wrong(format!("{name} is of no source")))?;
            let found = entry.metadata().map_err(failed("looking at", target))?.len();
            let expected = member.layout.sealed_bytes(*size);
            if found != expected {
                return Err(wrong(format!("{name} has {found} bytes, not {expected}")));
            }
            files += 1;
        }
        match files == source.sizes.len() {
            true => Ok(()),
            false => Err(wrong(format!("{files} files of {}", source.sizes.len()))),
        }
    }
}

const NOISE_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::super::member::MEMBERS;
    use super::*;

    #[test]
    fn an_output_that_is_not_its_source_is_found() {
        let here = tempfile::tempdir().unwrap();
        let mut scratch = ScratchDir::new(Some(here.path())).unwrap();
        let source = Source::make(&scratch, "source", vec![0, 15, 16, 4000]).unwrap();
        assert_eq!(source.bytes(), 4031);
        let member = &MEMBERS[0];
        let target = scratch.target();
        (member.run)(&source.path, &target, 2).unwrap();
        Source::verify(member, &source, &target).unwrap();
        let file = target.join(Source::name(3));
        let mut sealed = fs::read(&file).unwrap();
        sealed[100] ^= 1;
        fs::write(&file, &sealed).unwrap();
        let found = Source::verify(member, &source, &target).unwrap_err().to_string();
        assert!(found.contains("000003"), "{found}");
        fs::write(&file, &sealed[..sealed.len() - 16]).unwrap();
        let found = Source::count(member, &source, &target).unwrap_err().to_string();
        assert!(found.contains("4000 bytes, not 4016"), "{found}");
        fs::remove_file(&file).unwrap();
        let found = Source::count(member, &source, &target).unwrap_err().to_string();
        assert!(found.contains("3 files of 4"), "{found}");
    }

    #[test]
    fn the_first_files_are_the_same_files() {
        let here = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::new(Some(here.path())).unwrap();
        let all = Source::make(&scratch, "all", vec![5; 3]).unwrap();
        let two = all.first(&scratch, "two", 2).unwrap();
        assert_eq!(two.sizes, [5, 5]);
        let read = |source: &Source| fs::read(source.path.join(Source::name(1))).unwrap();
        assert_eq!(read(&two), read(&all));
        assert_ne!(read(&all), fs::read(all.path.join(Source::name(0))).unwrap());
        ScratchDir::remove(&all.path).unwrap();
        assert_eq!(read(&two).len(), 5);
    }
}
