// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy without a cipher: the CPU cost of reading and writing a folder.
//!
//! Every method with read(2) and write(2) has this cost, with any cipher: it is the lower bound
//! of a CPU cost, and most of the cost with a fast cipher. Slices are as long as the engine's, so
//! that read data is still in the second-level cache when it is written.
//!
//! Does not seal; it is measured beside the members and is not one of them.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use seal::engine::SLICE_BYTES;

use super::member::{Layout, Member};
use super::published;
use measure::Error;

pub(super) static MEMBER: Member = Member {
    name: "copy_only",
    summary: "no cipher: read and write in slices, a file a thread; what sealing cannot go below",
    layout: Layout::Clear,
    run: |source, target, threads| published::run(source, target, threads, copy),
};

fn copy(source: &Path, target: &Path) -> Result<(), Error> {
    let (reading, writing) = (
        || Error::host(format!("reading {}", source.display())),
        || Error::host(format!("writing {}", target.display())),
    );
    let mut from = File::open(source).map_err(reading())?;
    let mut to = File::create(target).map_err(writing())?;
    let mut slice = [0; SLICE_BYTES];
    loop {
        match from.read(&mut slice).map_err(reading())? {
            0 => return Ok(()),
            bytes => to.write_all(&slice[..bytes]).map_err(writing())?,
        }
    }
}
