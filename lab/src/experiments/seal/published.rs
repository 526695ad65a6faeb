// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published method: OpenSSL, one file a thread, files divided among threads beforehand.
//!
//! Steps for a file: get its size, allocate two buffers of it, read all of it, encrypt all of it in
//! one call, write all of it under its final name. Threads are started for the folder and each has
//! a contiguous part of it (`schedule(static)` as GCC's OpenMP divides). A byte is copied twice and
//! passes through memory four times once a file exceeds the caches. A killed run leaves a file that
//! looks complete.
//!
//! One thing differs from C: the output buffer is allocated zeroed (calloc instead of malloc),
//! which costs nothing where it comes fresh from the kernel, as large ones mostly do. A C program
//! written after the paper (gcc -O2 -fopenmp, OpenSSL 3.0) had a CPU cost of 1.86 s/GB for 100
//! files of 4 MiB and 5.86 for 10,000 of 4 KiB; this had 1.85 and 5.86 in the same minutes.
//!
//! Sources: the file-encryption paper, sections 4.1 to 4.3; EVP_EncryptInit(3); OpenMP 4.0 §2.7.1
//! (static schedule).
//! Adds nothing to the steps of the paper's program.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

use super::member::{Account, IV, KEY, Layout, Member};
use measure::Error;

pub(super) static MEMBER: Member = Member {
    name: "published",
    summary: "the paper's method: OpenSSL EVP, a file a thread, static schedule, whole files",
    layout: Layout::Body,
    run: |source, target, threads| run(source, target, threads, seal),
};

/// Seals every file of `source` by `one`; each thread has a contiguous part of them.
pub(super) fn run(
    source: &Path,
    target: &Path,
    threads: usize,
    one: fn(&Path, &Path) -> Result<(), Error>,
) -> Result<Account, Error> {
    let listing = |folder: &Path| Error::host(format!("listing {}", folder.display()));
    fs::create_dir(target).map_err(Error::host(format!("making {}", target.display())))?;
    // Listed twice, as in the paper: once to count.
    let count = fs::read_dir(source).map_err(listing(source))?.count();
    let mut names = Vec::with_capacity(count);
    for entry in fs::read_dir(source).map_err(listing(source))? {
        names.push(entry.map_err(listing(source))?.file_name());
    }
    let part = |names: &[std::ffi::OsString]| {
        names.iter().try_for_each(|name| one(&source.join(name), &target.join(name)))
    };
    std::thread::scope(|scope| {
        let mut parts = (0..threads).map(|thread| &names[share(names.len(), threads, thread)]);
        let own = parts.next().unwrap_or_default();
        let started: Vec<_> = parts.map(|names| scope.spawn(|| part(names))).collect();
        let joined = started.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        std::iter::once(part(own)).chain(joined).fold(Ok(()), Result::and)
    })?;
    Ok(None)
}

/// Returns a thread's part: equal parts, the first ones longer by one file where needed.
fn share(count: usize, threads: usize, thread: usize) -> std::ops::Range<usize> {
    let (each, left) = (count / threads, count % threads);
    let from = each * thread + left.min(thread);
    from..from + each + usize::from(thread < left)
}

fn seal(source: &Path, target: &Path) -> Result<(), Error> {
    let clear = read(source)?;
    let mut sealed = vec![0; clear.len() + IV.len()];
    let length = encrypt(&clear, &mut sealed).map_err(|error| Error::Host {
        what: format!("encrypting {}", source.display()),
        found: error.to_string(),
    })?;
    write(target, &sealed[..length])
}

fn encrypt(clear: &[u8], sealed: &mut [u8]) -> Result<usize, openssl::error::ErrorStack> {
    let mut context = CipherCtx::new()?;
    context.encrypt_init(Some(Cipher::aes_128_cbc()), Some(&KEY), Some(&IV))?;
    let length = context.cipher_update(clear, Some(sealed))?;
    Ok(length + context.cipher_final(&mut sealed[length..])?)
}

/// Reads a file into a buffer of its size.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let reading = || Error::host(format!("reading {}", path.display()));
    let mut file = File::open(path).map_err(reading())?;
    let bytes = file.metadata().map_err(reading())?.len();
    // One more block for the padding.
    let mut clear = Vec::with_capacity(bytes as usize + IV.len());
    // The kernel fills the reserved buffer in one call, without zeroing it first.
    file.read_to_end(&mut clear).map_err(reading())?;
    Ok(clear)
}

/// Writes a file under its final name.
pub(super) fn write(path: &Path, sealed: &[u8]) -> Result<(), Error> {
    let mut file = File::create(path).map_err(Error::host(format!("making {}", path.display())))?;
    file.write_all(sealed).map_err(Error::host(format!("writing {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_one_thread_s_and_parts_differ_by_one() {
        for count in [0, 1, 9, 10, 100] {
            for threads in [1, 2, 4, 10, 20, 50, 100] {
                let parts: Vec<_> = (0..threads).map(|n| share(count, threads, n)).collect();
                assert_eq!(parts.first().map(|part| part.start), Some(0));
                assert_eq!(parts.last().map(|part| part.end), Some(count));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
                let lengths = || parts.iter().map(ExactSizeIterator::len);
                assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1);
            }
        }
        assert_eq!(share(10, 4, 0), 0..3);
    }

    #[test]
    fn a_missing_source_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new("/nowhere/at/all");
        let error = run(source, &folder.path().join("target"), 3, seal).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
    }
}
