// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys derived from passphrases by Argon2id.
//!
//! A passphrase has few bits, so each guess must be expensive: [`Stretch`] sets the cost, and its
//! salt makes each guess valid for one folder only. Both are stored with the sealed files. They are
//! read back from a file of any origin, so their size is limited before memory is allocated.
//!
//! Costs 64 MiB and about 0.2 s of one core, once a run.
//!
//! Sources: RFC 9106 §4 (the second recommended option: 3 passes, 4 lanes, 64 MiB), §3.1. Does not
//! ask for a passphrase and does not judge its strength, except that it refuses an empty one.

use std::path::Path;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::Zeroizing;

use super::file::{self, Exposed};
use super::{KEY_BYTES, Origin, Secret};
use crate::error::Error;

/// Bytes of a salt, as RFC 9106 §3.1 recommends.
pub const SALT_BYTES: usize = 16;
/// Most memory of a stored cost, in KiB: 256 MiB, four times the cost of a new folder.
pub const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// Most memory times passes, in KiB: 1 GiB, about a second of one core; five times a new folder's.
pub const WORK_KIB_MAX: u64 = 1024 * 1024;
/// Most lanes of a stored cost.
pub const LANES_MAX: u32 = 64;

/// Cost of each guess at a passphrase, and the salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Memory, in KiB.
    pub memory_kib: u32,
    /// Number of passes over the memory.
    pub passes: u32,
    /// Number of lanes: the cores that one derivation, an attacker's too, can use at once.
    pub lanes: u32,
    /// Random salt, a new one for each folder.
    pub salt: [u8; SALT_BYTES],
}

impl Stretch {
    /// Makes the recommended cost and a new salt.
    ///
    /// # Errors
    /// [`Error::Host`]: the kernel gives no random bytes.
    pub fn new() -> Result<Self, Error> {
        let mut salt = [0; SALT_BYTES];
        super::random(&mut salt)?;
        Ok(Self { memory_kib: 64 * 1024, passes: 3, lanes: 4, salt })
    }

    /// Returns true when the cost is within this program's limits: a cost read from a file may be
    /// anything.
    pub fn is_payable(&self) -> bool {
        let work_kib = u64::from(self.memory_kib) * u64::from(self.passes);
        (1..=LANES_MAX).contains(&self.lanes)
            && (8 * self.lanes..=MEMORY_KIB_MAX).contains(&self.memory_kib)
            && (1..=WORK_KIB_MAX).contains(&work_kib)
    }
}

/// A passphrase. It is overwritten when it is dropped, and never shown.
pub struct Passphrase {
    text: Zeroizing<Vec<u8>>,
    origin: Origin,
}

impl Passphrase {
    /// Makes a passphrase of `text`, byte by byte, unchanged.
    ///
    /// # Errors
    /// [`Error::Option`]: it is empty.
    pub fn new(text: Zeroizing<Vec<u8>>, origin: Origin) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(origin.error("an empty passphrase", "write one that is hard to guess"));
        }
        Ok(Self { text, origin })
    }

    /// Reads the only line of a file. `option` is the option that names the file.
    ///
    /// # Errors
    /// [`Error::Option`]: the file cannot be read, or has more lines or none.
    pub fn from_file(option: &'static str, path: &Path) -> Result<(Self, Option<Exposed>), Error> {
        let (mut text, exposed) = file::read(option, path)?;
        let origin = Origin::new(option, path.display().to_string());
        let line = text.strip_suffix(b"\n").unwrap_or(&text);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.contains(&b'\n') {
            let found = "more than one line";
            return Err(origin.error(found, "name a file of the passphrase and nothing else"));
        }
        let length = line.len();
        text.truncate(length);
        Ok((Self::new(text, origin)?, exposed))
    }

    /// Reads an environment variable. `option` is the option that names the variable.
    ///
    /// # Errors
    /// [`Error::Option`]: no such variable, or an empty one.
    pub fn from_environment(option: &'static str, variable: &str) -> Result<Self, Error> {
        Self::new(super::environment(option, variable)?, Origin::new(option, variable))
    }

    /// Returns the bytes as given, for forms with a key derivation of their own.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// Returns the option and the name from which the passphrase was read.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Derives the key of `key_bytes` bytes (16, 24 or 32) from this passphrase.
    ///
    /// # Errors
    /// [`Error::Option`]: the cost is not [payable](Stretch::is_payable), or the memory cannot be
    /// allocated.
    ///
    /// # Panics
    /// `key_bytes` is not 16, 24 or 32.
    pub fn stretched(&self, stretch: &Stretch, key_bytes: usize) -> Result<Secret, Error> {
        assert!(KEY_BYTES.contains(&key_bytes), "a length that AES takes");
        let unpayable = || {
            let Stretch { memory_kib, passes, lanes, .. } = stretch;
            let found = format!("Argon2 with {memory_kib} KiB, {passes} passes, {lanes} lanes");
            let cure = format!(
                "more than this program pays ({MEMORY_KIB_MAX} KiB, memory times passes \
                 {WORK_KIB_MAX} KiB, {LANES_MAX} lanes), or damaged: no folder that it sealed"
            );
            self.origin.error(&found, cure)
        };
        if !stretch.is_payable() {
            return Err(unpayable());
        }
        let Stretch { memory_kib, passes, lanes, salt } = *stretch;
        let params = Params::new(memory_kib, passes, lanes, Some(key_bytes));
        let params = params.map_err(|_| unpayable())?;
        let mut blocks: Zeroizing<Vec<Block>> = Zeroizing::default();
        let count = params.block_count();
        if blocks.try_reserve_exact(count).is_err() {
            let found = format!("no {memory_kib} KiB of memory for Argon2");
            return Err(self.origin.error(&found, "run where there is as much"));
        }
        blocks.resize(count, Block::new());
        let mut key = Zeroizing::new(vec![0; key_bytes]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into_with_memory(&self.text, &salt, &mut key, &mut blocks[..])
            .map_err(|_| unpayable())?;
        Secret::new(key, self.origin.clone())
    }
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Passphrase(from {})", self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Stretch = Stretch { memory_kib: 32, passes: 1, lanes: 1, salt: [7; SALT_BYTES] };

    fn passphrase(text: &[u8]) -> Passphrase {
        Passphrase::new(Zeroizing::new(text.to_vec()), Origin::new("passphrase", "")).unwrap()
    }

    /// The key is the output of the reference implementation:
    /// `printf 'correct horse' | argon2 0123456789abcdef -id -v 13 -k 64 -t 3 -p 2 -l 32 -r`.
    #[test]
    fn the_reference_implementation_gives_the_same_key() {
        let stretch = Stretch { memory_kib: 64, passes: 3, lanes: 2, salt: *b"0123456789abcdef" };
        let key = passphrase(b"correct horse").stretched(&stretch, 32).unwrap();
        let hex: String = key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, REFERENCE);
    }
    const REFERENCE: &str = "27890f248f30eb925ee642761bb453c06fac79a203bb1a26149f854500979a96";

    #[test]
    fn passphrase_salt_cost_and_length_each_change_the_key() {
        let mut seen = std::collections::HashSet::new();
        let text = passphrase(b"a");
        for stretch in [
            CHEAP,
            Stretch { memory_kib: 40, ..CHEAP },
            Stretch { passes: 2, ..CHEAP },
            Stretch { lanes: 2, ..CHEAP },
            Stretch { salt: [8; SALT_BYTES], ..CHEAP },
        ] {
            for key_bytes in KEY_BYTES {
                assert!(seen.insert(text.stretched(&stretch, key_bytes).unwrap().bytes().to_vec()));
            }
        }
        assert!(seen.insert(passphrase(b"b").stretched(&CHEAP, 32).unwrap().bytes().to_vec()));
        let salts = [Stretch::new().unwrap(), Stretch::new().unwrap()];
        assert_ne!(salts[0].salt, salts[1].salt);
        assert!(salts[0].is_payable());
    }

    #[test]
    fn a_cost_that_a_stranger_wrote_is_refused_before_it_is_paid() {
        for stretch in [
            Stretch { memory_kib: u32::MAX, ..CHEAP },
            Stretch { memory_kib: MEMORY_KIB_MAX + 1, ..CHEAP },
            Stretch { memory_kib: MEMORY_KIB_MAX, passes: 5, ..CHEAP },
            Stretch { memory_kib: 7, ..CHEAP },
            Stretch { memory_kib: 0, ..CHEAP },
            Stretch { passes: 0, ..CHEAP },
            Stretch { passes: u32::MAX, ..CHEAP },
            Stretch { lanes: 0, ..CHEAP },
            Stretch { lanes: u32::MAX, ..CHEAP },
        ] {
            let error = passphrase(b"a").stretched(&stretch, 32).unwrap_err().to_string();
            assert!(error.contains("more than this program pays"), "{error}");
        }
        assert!(Stretch { memory_kib: MEMORY_KIB_MAX, passes: 4, ..CHEAP }.is_payable());
    }

    #[test]
    fn a_file_gives_its_only_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passphrase");
        let from = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            Passphrase::from_file("--passphrase-file", &path)
                .map(|(passphrase, _)| passphrase.text.to_vec())
                .map_err(|error| error.to_string())
        };
        for text in [&b" two words "[..], b" two words \n", b" two words \r\n"] {
            assert_eq!(from(text).unwrap(), b" two words ");
        }
        assert!(from(b"one\ntwo\n").unwrap_err().contains("more than one line"));
        assert!(from(b"\n").unwrap_err().contains("an empty passphrase"));
        assert!(from(b"").unwrap_err().contains("an empty passphrase"));
        assert_eq!(format!("{:?}", passphrase(b"x")), "Passphrase(from passphrase)");
    }
}
