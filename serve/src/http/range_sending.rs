// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends ranges of a file to a connection, in steps, from page cache to socket.
//!
//! A step sends at most a [`PART_BYTES`] more than [`STEP_BYTES_MAX`]. The first of an answer, of
//! [`FIRST_BYTES_MAX`], is made at once, so that short answers wait for no long ones; the others
//! wait for their turn ([`LongTurns`](super::long_turns::LongTurns)). Before each step the server
//! checks part by part that it is in memory; if its first part is not, a thread that may block
//! fetches that. Ranges that follow each other, as those of one track of an interleaved film, leave
//! together, a mebibyte a step ([`DownloadPath::send_ranges`]); the path of such a step is borrowed
//! for it alone, as it holds a pipe. Where the path cannot join ranges, each range is a step.
//!
//! Costs, with `sendfile` and `vmsplice`: no copy, one system call for a step that the socket
//! accepts as a whole, two where it holds many ranges, and two a part where the check was not made
//! a moment ago. A segment of 3.7 MB with 100 ranges took 1,483 µs of processor time by a
//! `sendfile` a range and 959 in such steps; for 100 connections that read slowly, 0.33 and 0.19
//! s/GB (Xeon 2.5 GHz, Linux 6.18, alternating runs).
//!
//! Of a file of tmpfs, long ranges do not leave from its map, though that took a tenth less than
//! `sendfile` while the socket took everything: reading a hole through a map allocates it for good.
//! Where such a file has holes, each range is a step.
//!
//! Sources: sendfile(2), vmsplice(2).
//! Does not choose the paths ([`crate::path_choice`]).

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use paths::{DownloadPath, MappedFile, SendError, SendStats};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;

use crate::config::Timeouts;
use crate::http::cork::uncork;
use crate::http::download_pace::DownloadPace;
use crate::http::download_paths::BorrowedPath;
use crate::http::joined_files::JoinedFiles;
use crate::http::open_files::{FileContent, OpenFile, PART_BYTES};
use crate::http::transmit::PlainTarget;
use crate::write_deadline::Allowance;

/// Ranges of a file on the way to a connection.
pub(super) struct RangeSending<'a> {
    target: &'a PlainTarget<'a>,
    file: &'a Arc<OpenFile>,
    media: &'a MappedFile,
    path: &'a mut dyn DownloadPath,
    /// True until the first step of the answer.
    is_first: bool,
    allowance: Allowance,
    pub(super) stats: SendStats,
    /// Bytes of the file found in memory by the last look, or between such bytes.
    in_memory: Range<u64>,
    /// Ranges of the step.
    step: Vec<Range<u64>>,
    /// False once ranges could not be sent together.
    are_joined: bool,
}

impl<'a> RangeSending<'a> {
    /// Begins an answer with ranges of a file, or of several, of which this is the first.
    pub(super) fn new(
        target: &'a PlainTarget<'a>,
        (file, media): (&'a Arc<OpenFile>, &'a MappedFile),
        path: &'a mut dyn DownloadPath,
        timeouts: Timeouts,
    ) -> RangeSending<'a> {
        RangeSending {
            target,
            file,
            media,
            path,
            is_first: true,
            allowance: Allowance::new(timeouts.write),
            stats: SendStats::default(),
            in_memory: 0..0,
            step: Vec::new(),
            are_joined: true,
        }
    }

    /// Sends ranges of several files; false as [`RangeSending::send`].
    pub(super) async fn send_split(
        &mut self,
        files: &'a JoinedFiles,
        ranges: &[Range<u64>],
        pace: &mut DownloadPace<'_>,
    ) -> bool {
        let split: Vec<_> = ranges.iter().flat_map(|range| files.split(range.clone())).collect();
        for of_file in split.chunk_by(|(file, _), (next, _)| Arc::ptr_eq(file, next)) {
            let file = of_file[0].0;
            let FileContent::Open(media) = &file.content else { return false };
            (self.file, self.media, self.in_memory) = (file, media, 0..0);
            let mut run: Vec<_> = of_file.iter().map(|(_, own)| own.clone()).collect();
            if !self.send(&mut run, pace).await {
                return false;
            }
        }
        true
    }

    /// Sends ranges of the file; false when the peer left or the file was shortened.
    pub(super) async fn send(
        &mut self,
        mut ranges: &mut [Range<u64>],
        pace: &mut DownloadPace<'_>,
    ) -> bool {
        let stream = self.target.stream;
        advance(&mut ranges, 0);
        while let [first, ..] = ranges {
            let at = first.start;
            if !self.in_memory.contains(&at) {
                self.find_in_memory(ranges, pace).await;
            }
            let wanted = self.choose(ranges, u64::MAX);
            let (mut bytes, waited) = pace.turn(wanted, Some(stream.as_fd())).await;
            self.allowance.pause(waited);
            match std::mem::replace(&mut self.is_first, false) {
                true => bytes = bytes.min(FIRST_BYTES_MAX),
                false => self.target.turns.next().await,
            }
            if bytes < wanted {
                self.choose(ranges, bytes);
            }
            let step = stream.try_io(Interest::WRITABLE, || self.step().map_err(as_io));
            match step {
                Ok(sent) => {
                    advance(&mut ranges, sent);
                    self.allowance.handed(sent);
                    pace.sent(sent);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if !self.allowance.writable(stream).await {
                        return false;
                    }
                }
                Err(error) => {
                    tracing::debug!("http download, byte {at}: {error}");
                    return false;
                }
            }
        }
        true
    }

    /// Finds the bytes in memory from the first range on, and has the first part fetched if it is
    /// not in memory.
    async fn find_in_memory(&mut self, ranges: &[Range<u64>], pace: &mut DownloadPace<'_>) {
        let (at, end) = (ranges[0].start, end_of_near(ranges));
        // Up to the next border of a part, so that clients share the result.
        let border = (at / PART_BYTES + 1) * PART_BYTES;
        let mut until = border.min(end);
        if fetch((self.file, self.media), at..until, self.target.stream).await {
            pace.stalled();
        }
        // One call sends all bytes in memory that the socket accepts; a stop costs a wake-up.
        while until < end && until - at < STEP_BYTES_MAX {
            let next = (end - until).min(PART_BYTES);
            if !self.file.is_in_memory(self.media, until, next) {
                break;
            }
            until += next;
        }
        self.in_memory = at..until;
    }

    /// Chooses the ranges of a step among those found in memory, of at most `bytes_max`; returns
    /// their bytes.
    fn choose(&mut self, ranges: &[Range<u64>], bytes_max: u64) -> u64 {
        self.step.clear();
        let mut bytes = 0;
        for range in ranges {
            if !self.in_memory.contains(&range.start) || bytes >= bytes_max {
                break;
            }
            let end = range.end.min(self.in_memory.end);
            let end = end.min(range.start.saturating_add(bytes_max - bytes));
            self.step.push(range.start..end);
            bytes += end - range.start;
            if end < range.end {
                break;
            }
        }
        bytes
    }

    /// Makes a step of the chosen ranges; a long one is a step of its own. Where they cannot be
    /// sent together (a file system without maps, a user without room for pipes, a sandbox without
    /// the call) each is.
    fn step(&mut self) -> Result<u64, SendError> {
        let (media, stats) = (self.media, &mut self.stats);
        let socket = self.target.stream.as_fd();
        let (first, bytes) = (self.step[0].start, self.step[0].end - self.step[0].start);
        let may_be_joined = self.are_joined && !self.file.has_holes_in_memory(media);
        if self.step.len() > 1 && bytes < LONG_RANGE_BYTES && may_be_joined {
            let borrowed = self.target.ranges.take().filter(BorrowedPath::is_chosen);
            match borrowed.map(|mut it| it.path().send_ranges(media, &self.step, socket, stats)) {
                Some(Err(SendError::Host { .. })) | None => self.are_joined = false,
                Some(sent) => return sent,
            }
        }
        self.path.send(media, first, bytes, socket, stats)
    }
}

/// Passes over bytes that were sent, and over empty ranges.
fn advance(ranges: &mut &mut [Range<u64>], mut sent: u64) {
    while let Some(first) = ranges.first_mut() {
        let passed = sent.min(first.end - first.start);
        first.start += passed;
        sent -= passed;
        if !first.is_empty() {
            return;
        }
        *ranges = &mut std::mem::take(ranges)[1..];
    }
}

/// Returns the end of the first range and of those that follow it at short distances.
fn end_of_near(ranges: &[Range<u64>]) -> u64 {
    let mut end = ranges[0].end;
    for next in &ranges[1..] {
        if next.start < end || next.start - end > NEAR_BYTES_MAX {
            break;
        }
        end = end.max(next.end);
    }
    end
}

/// Loads the range into memory on a thread that may block, unless it is there; true when it was
/// not. Bytes written before leave meanwhile.
async fn fetch(
    (file, media): (&Arc<OpenFile>, &MappedFile),
    range: Range<u64>,
    stream: &TcpStream,
) -> bool {
    if file.is_in_memory(media, range.start, range.end - range.start) {
        return false;
    }
    uncork(stream.as_fd());
    let file = file.clone();
    let fetched = spawn_blocking(move || match &file.content {
        FileContent::Open(media) => media.prefetch_unless(range, false),
        FileContent::Held(_) => Ok(()),
    });
    if let Ok(Err(error)) = fetched.await {
        // The following send reports the error with its consequences.
        tracing::debug!("http download: {error}");
    }
    true
}

fn as_io(error: SendError) -> std::io::Error {
    match error {
        SendError::Blocked => std::io::ErrorKind::WouldBlock.into(),
        other => std::io::Error::other(other.to_string()),
    }
}

/// Bytes that a call may send, except those to the next border of a part.
const STEP_BYTES_MAX: u64 = 4 << 20;
/// Bytes of an answer's first step.
const FIRST_BYTES_MAX: u64 = 256 << 10;
/// Ranges of this length are sent by a call each: it costs about a microsecond, their bytes fifty.
const LONG_RANGE_BYTES: u64 = 256 << 10;
/// Bytes between two ranges that are checked and fetched together with them.
const NEAR_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::BorrowedFd;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::sync::atomic::{AtomicU64, Ordering};

    use paths::{Errno, Error, Open, Spec, SystemCalls, Transport};
    use rustix::fs::{MemfdFlags, memfd_create};
    use tokio::net::TcpListener;

    use super::*;
    use crate::http::download_paths::Downloads;
    use crate::http::long_turns::LongTurns;

    /// errno(3).
    const EPERM: i32 = 1;
    const ENFILE: i32 = 23;
    /// Tries of [`Refused`].
    static TRIES: AtomicU64 = AtomicU64::new(0);

    /// A path whose call this process may not make.
    struct Refused;

    impl DownloadPath for Refused {
        fn send(
            &mut self,
            media: &MappedFile,
            _: u64,
            _: u64,
            _: BorrowedFd<'_>,
            _: &mut SendStats,
        ) -> Result<u64, SendError> {
            TRIES.fetch_add(1, Ordering::Relaxed);
            let object = media.name().into();
            Err(SendError::Host { call: "vmsplice", object, errno: Errno::new(EPERM) })
        }
    }

    const fn spec(open: fn() -> Result<Box<dyn DownloadPath>, Error>) -> Spec {
        Spec {
            name: "refused",
            transport: Transport::Tcp,
            summary: "",
            copies_per_byte: 0,
            header_copies: 0,
            system_calls: SystemCalls::PerStep(0),
            sources: &[],
            probe: |_| Ok(()),
            open: Open::Download(open),
        }
    }

    /// Sends these ranges, in steps of many by the paths of `ranges`; returns the bytes received
    /// and the calls.
    async fn sent(
        content: &[u8],
        list: &[Range<u64>],
        (downloads, ranges): (&Downloads, &Downloads),
    ) -> (Vec<u8>, u64) {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        sent_of(file, list, (downloads, ranges)).await
    }

    /// Sends these ranges of a file, as [`sent`].
    async fn sent_of(
        file: File,
        list: &[Range<u64>],
        (downloads, ranges): (&Downloads, &Downloads),
    ) -> (Vec<u8>, u64) {
        let file = Arc::new(OpenFile::made("film.mp4", file).unwrap());
        let FileContent::Open(media) = &file.content else { panic!("it is not held") };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::net::TcpStream::connect(address).unwrap().read_to_end(&mut all).unwrap();
            all
        });
        let (stream, _): (TcpStream, _) = listener.accept().await.unwrap();
        let turns = LongTurns::new();
        let keeping = tokio::spawn(turns.clone().run());
        let target =
            PlainTarget { stream: &stream, downloads, ranges, turns: &turns, is_encrypted: false };
        let (mut path, mut list) = (downloads.take().unwrap(), list.to_vec());
        let timeouts = crate::config::Config::new("/").timeouts;
        let mut sending = RangeSending::new(&target, (&file, media), path.path(), timeouts);
        assert!(sending.send(&mut list, &mut DownloadPace::default()).await);
        let calls = sending.stats.calls;
        keeping.abort();
        drop(stream);
        (reading.join().unwrap(), calls)
    }

    /// Joined, and where no pipe is left or the call is refused, which is tried once an answer.
    #[tokio::test]
    async fn many_ranges_arrive_by_few_calls_or_one_each() {
        static REFUSED: Spec = spec(|| Ok(Box::new(Refused)));
        static UNOPENED: Spec = spec(|| {
            let object = "a pipe".into();
            Err(Error::Host { call: "pipe2", object, errno: Errno::new(ENFILE) })
        });
        let joined = paths::find(Transport::Tcp, "vmsplice").unwrap();
        let content: Vec<u8> = (0..4_000_000_u32).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect();
        // Across borders of parts and far from each other, behind each other, and backwards.
        let near = (0..200).map(|n| n * 15_000..n * 15_000 + 10_000);
        let list: Vec<Range<u64>> =
            near.chain([3_900_000..3_900_100, 5..5, 100..200, 0..300_000, 7..9]).collect();
        let bytes = |range: &Range<u64>| &content[range.start as usize..range.end as usize];
        let expected: Vec<u8> = list.iter().flat_map(bytes).copied().collect();
        let sendfile = Downloads::sendfile();
        for (spec, most) in [(joined, 80), (&REFUSED, u64::MAX), (&UNOPENED, u64::MAX)] {
            let ranges = Downloads::new(spec);
            let (arrived, calls) = sent(&content, &list, (&sendfile, &ranges)).await;
            let (got, wanted) = (arrived.len(), expected.len());
            assert!(arrived == expected, "{}: {got} of {wanted} bytes", spec.name);
            assert!(calls <= most, "{}: {calls} calls for {} ranges", spec.name, list.len());
        }
        assert_eq!(TRIES.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_hole_of_a_file_in_memory_stays_a_hole() {
        let same = File::from(memfd_create("holes", MemfdFlags::CLOEXEC).unwrap());
        same.set_len(8 << 20).unwrap();
        let ranges = Downloads::new(paths::find(Transport::Tcp, "vmsplice").unwrap());
        let many: Vec<_> = (0..800).map(|n| n * 10_000..n * 10_000 + 5_000).collect();
        let whole = 0..8 << 20;
        for (list, bytes) in [(vec![whole], 8 << 20), (many, 800 * 5_000)] {
            let file = same.try_clone().unwrap();
            let (arrived, _) = sent_of(file, &list, (&Downloads::sendfile(), &ranges)).await;
            assert!(arrived == vec![0; bytes], "{} bytes", arrived.len());
            assert_eq!(same.metadata().unwrap().blocks(), 0);
        }
    }

    /// Its reports in the error queue do not end the connection.
    #[tokio::test]
    async fn a_long_download_by_zerocopy_is_whole() {
        let content: Vec<u8> = (0..40_000_000_u32).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect();
        let zerocopy = Downloads::new(paths::find(Transport::Tcp, "zerocopy").unwrap());
        let whole = 0..content.len() as u64;
        let (arrived, _) = sent(&content, &[whole], (&zerocopy, &zerocopy)).await;
        assert!(arrived == content, "{} of {} bytes", arrived.len(), content.len());
    }

    #[test]
    fn ranges_are_looked_for_together_as_far_as_they_are_near() {
        let end = |list: &[Range<u64>]| end_of_near(list);
        assert_eq!(end(&[10..20, 99_999..100_000]), 20);
        assert_eq!(end(&[10..20, 30..40, 40 + NEAR_BYTES_MAX..200_000]), 200_000);
        assert_eq!(end(&[10..20, 30..40, 41 + NEAR_BYTES_MAX..200_000]), 40);
        assert_eq!(end(&[10..20, 5..8, 30..40]), 20, "backwards");
    }

    #[test]
    fn what_was_sent_is_passed_over() {
        let mut list = [3..3, 10..20, 20..20, 5..8, 30..40];
        let mut rest = &mut list[..];
        advance(&mut rest, 0);
        assert_eq!(rest[0], 10..20);
        advance(&mut rest, 4);
        assert_eq!(rest[0], 14..20);
        advance(&mut rest, 8);
        assert_eq!((rest.len(), &rest[0]), (2, &(7..8)));
        advance(&mut rest, 11);
        assert!(rest.is_empty());
    }
}
