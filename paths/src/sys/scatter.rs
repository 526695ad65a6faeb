// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading one range of a file into many places by one call.
//!
//! The counterpart of [`super::Scratch`] and its `Gather`: payloads that follow each other in the
//! file go to their places in the frames, and the gaps between them are dropped.
//!
//! Sources: `preadv(2)`.
//!
//! Does not repeat a short read; returns the number of bytes.

use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;

use crate::error::Errno;
use crate::send_stats::SendStats;
use crate::sys::counted;
use crate::sys::send::RANGES_MAX;

/// Largest gap that is read and dropped.
const DROPPED_BYTES_MAX: usize = 4096;

/// Buffers for a list of places, reused from call to call, and for dropped gaps.
#[derive(Debug)]
pub(crate) struct ScatterScratch {
    places: Vec<libc::iovec>,
    dropped: Box<[u8]>,
}

// SAFETY: the addresses in it are used through a Scatter alone, which clears the list when it
// begins and borrows all that it then adds; between two Scatters the list is only memory to be
// overwritten.
unsafe impl Send for ScatterScratch {}

impl ScatterScratch {
    pub(crate) fn new() -> Self {
        let dropped = vec![0; DROPPED_BYTES_MAX].into();
        Self { places: Vec::with_capacity(RANGES_MAX), dropped }
    }

    /// Begins an empty list.
    pub(crate) fn scatter<'data>(&mut self) -> Scatter<'_, 'data> {
        self.places.clear();
        Scatter { scratch: self, start: 0, bytes: 0, data: PhantomData }
    }
}

/// Places for a range of a file; `'data` is their lifetime.
#[derive(Debug)]
pub(crate) struct Scatter<'scratch, 'data> {
    scratch: &'scratch mut ScatterScratch,
    /// Offset of the range in the file.
    start: u64,
    bytes: u64,
    data: PhantomData<&'data mut [u8]>,
}

impl<'data> Scatter<'_, 'data> {
    /// Returns the number of bytes on the list, those to be dropped included.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a place for the file's bytes from `offset` on; returns it when they do not follow the
    /// list's last bytes (or not closely enough), or the list is full.
    pub(crate) fn add(
        &mut self,
        offset: u64,
        place: &'data mut [u8],
    ) -> Result<(), &'data mut [u8]> {
        if self.scratch.places.is_empty() {
            self.start = offset;
        }
        let gap = offset.checked_sub(self.start.saturating_add(self.bytes));
        let gap = match gap.map(usize::try_from) {
            Some(Ok(gap)) if gap <= DROPPED_BYTES_MAX => gap,
            _ => return Err(place),
        };
        if self.scratch.places.len() + 2 > RANGES_MAX {
            return Err(place);
        }
        if gap > 0 {
            let start = self.scratch.dropped.as_mut_ptr();
            self.scratch.places.push(libc::iovec { iov_base: start.cast(), iov_len: gap });
        }
        let (start, bytes) = (place.as_mut_ptr(), place.len());
        self.scratch.places.push(libc::iovec { iov_base: start.cast(), iov_len: bytes });
        self.bytes += (gap + bytes) as u64;
        Ok(())
    }

    /// Fills the list's places and empties the list; fewer bytes when the file ends.
    pub(crate) fn read(&mut self, file: &File, stats: &mut SendStats) -> Result<u64, Errno> {
        let offset = libc::off_t::try_from(self.start).map_err(|_| Errno::new(libc::EOVERFLOW))?;
        stats.calls += 1;
        // SAFETY: every place on the list was added by `add`: either borrowed for `'data`, which
        // `self` keeps alive, and apart from all others by that borrow, or the scratch's own bytes,
        // of which none is ever read. Their number is at most UIO_MAXIOV, an int.
        let read = unsafe {
            let count = self.scratch.places.len() as libc::c_int;
            libc::preadv(file.as_raw_fd(), self.scratch.places.as_ptr(), count, offset)
        };
        self.scratch.places.clear();
        self.bytes = 0;
        let read = counted(read)? as u64;
        stats.copied_bytes += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn places_take_what_is_theirs_and_gaps_are_dropped() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"0123456789abcdef", 0).unwrap();
        let (mut one, mut two, mut three) = ([0; 3], [0; 4], [0; 9]);
        let (mut before, mut far) = ([0; 1], [0; 1]);
        let mut scratch = ScatterScratch::new();
        let mut stats = SendStats::default();
        let mut list = scratch.scatter();
        assert!(list.add(2, &mut one).is_ok());
        assert!(list.add(4, &mut before).is_err(), "before the end of the last");
        assert!(list.add(7, &mut two).is_ok());
        assert!(list.add(11 + 5000, &mut far).is_err(), "too far behind");
        assert_eq!(list.bytes(), 9);
        assert_eq!(list.read(&file, &mut stats), Ok(9));
        assert!(list.add(11, &mut three).is_ok());
        assert_eq!(list.read(&file, &mut stats), Ok(5));
        assert_eq!((&one, &two, &three), (b"234", b"789a", b"bcdef\0\0\0\0"));
        assert_eq!((stats.calls, stats.copied_bytes), (2, 14));
    }

    #[test]
    fn a_list_takes_no_more_than_a_call_does() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100_000).unwrap();
        let mut data = vec![1_u8; 2000];
        let mut scratch = ScatterScratch::new();
        let mut list = scratch.scatter();
        let places = data.chunks_mut(1).zip(0..);
        let added = places.map_while(|(place, number)| list.add(2 * number, place).ok()).count();
        // Each place except the first has a gap before it.
        assert_eq!(added, RANGES_MAX / 2);
        let bytes = list.bytes();
        assert_eq!(list.read(&file, &mut SendStats::default()), Ok(bytes));
    }
}
