// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects the positions at which a recorded transport stream continues in a new file, so that
//! playback can start there.
//!
//! A file past its time limit, or after a request for another file, ends at the next position where
//! playback can start. A file with a size limit ends at the last such position that is safe: where
//! another group of pictures, a quarter longer than the longest of the file, would exceed the
//! limit. A stream without such positions is cut ten seconds after the time limit or the request,
//! or at the size limit. A new file begins with the tables in force at its start, unless they lie
//! directly before it in the stream, and with the parameter sets that it lacks. All other bytes of
//! a file are those of its stream.
//!
//! Costs an inspection of each header word; nothing without limits.
//!
//! Does not move bytes ([`super::write_queue`] does).

use std::time::Duration;

use media::mux::{GroupBytes, Rotation};
use media::{StreamEntry, StreamUnits, TS_PACKET_BYTES};

/// Limits of the files of a stream, and the search for positions at which a file can end.
#[derive(Debug)]
pub(crate) struct FileCutter {
    rotation: Rotation,
    units: StreamUnits,
    /// Distances between the positions where playback can start.
    groups: GroupBytes,
    /// Requests for another file before this one began.
    requests: u64,
    /// Age of the file at which a later request was found.
    requested: Option<Duration>,
}

impl FileCutter {
    /// Returns a cutter for these limits; `None` if there are none.
    pub(crate) fn new(rotation: Rotation) -> Option<FileCutter> {
        let is_never = rotation.is_never();
        let cutter = || FileCutter {
            rotation,
            units: StreamUnits::default(),
            groups: GroupBytes::default(),
            requests: 0,
            requested: None,
        };
        (!is_never).then(cutter)
    }

    /// Size limit of a file in bytes: whole packets, at least one.
    pub(crate) fn bytes_max(&self) -> Option<u64> {
        let packet = TS_PACKET_BYTES as u64;
        self.rotation.bytes.map(|bytes| (bytes / packet).max(1) * packet)
    }

    /// True if a file must end at its current position, even if playback cannot start there.
    pub(crate) fn is_over(&mut self, bytes: u64, age: Duration) -> bool {
        if self.is_requested() {
            self.requested.get_or_insert(age);
        }
        self.bytes_max().is_some_and(|max| bytes >= max)
            || self.rotation.time.is_some_and(|limit| age >= limit + START_WAIT)
            || self.requested.is_some_and(|requested| age >= requested + START_WAIT)
    }

    fn is_requested(&self) -> bool {
        self.rotation.requests() != self.requests
    }

    /// Scans the next packets of the stream.
    pub(crate) fn feed(&mut self, packets: &[u8]) {
        self.units.feed(packets);
    }

    /// Removes and returns the next position where playback can start.
    pub(crate) fn next_start(&mut self) -> Option<StreamEntry> {
        self.units.next_start()
    }

    /// Bytes from the start of a packet to the end of the scanned packets.
    pub(crate) fn bytes_from(&self, packet: u64) -> u64 {
        (self.units.packets() - packet) * TS_PACKET_BYTES as u64
    }

    /// Bytes at the end of the scanned packets that may still become a position where playback can
    /// start.
    pub(crate) fn undecided_bytes(&self) -> u64 {
        self.bytes_from(self.units.settled())
    }

    /// True if a file of age `age` ends at a start position that lies `bytes` after the start of
    /// the file.
    pub(crate) fn ends_at(&mut self, bytes: u64, age: Duration) -> bool {
        self.groups.end_file_at(bytes, self.bytes_max())
            || self.rotation.time.is_some_and(|limit| age >= limit)
            || self.is_requested()
    }

    /// Returns the packets that precede the access unit of `start` at the beginning of a file.
    pub(crate) fn lead(&self, start: &StreamEntry) -> Vec<u8> {
        self.units.lead(start)
    }

    /// Begins a new file.
    pub(crate) fn begin_file(&mut self) {
        self.groups = GroupBytes::default();
        (self.requests, self.requested) = (self.rotation.requests(), None);
    }
}

/// Time to wait for a start position after the time limit: as long as the longest segment.
const START_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    use media::mux::FileRequest;

    use super::*;
    use crate::write_queue::{BlockPool, StreamOutput, WriteCommand};

    const PACKET: usize = TS_PACKET_BYTES;

    /// Tables of a programme with one video stream: the PAT in packet 0, the PMT in packet 1.
    fn tables() -> Vec<u8> {
        let pat = [0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xe1, 0, 0xe8, 0xf9, 0x5e, 0x7d];
        let map = [2, 0xb0, 18, 0, 1, 0xc1, 0, 0, 0xe1, 1, 0xf0, 0, 0x1b, 0xe1, 1, 0xf0, 0];
        let map = [&map[..], &[0x4f, 0xc4, 0x3d, 0x1b]].concat();
        [
            packet(0, true, &[&[0], &pat[..]].concat()),
            packet(0x100, true, &[&[0], &map[..]].concat()),
        ]
        .concat()
    }

    fn packet(pid: u16, starts: bool, payload: &[u8]) -> Vec<u8> {
        let word = pid | u16::from(starts) << 14;
        let mut packet = vec![0x47, (word >> 8) as u8, word as u8, 0x10];
        packet.extend_from_slice(payload);
        packet.resize(PACKET, 0xff);
        packet
    }

    /// A picture of `packets` packets.
    fn picture(is_key: bool, packets: usize) -> Vec<u8> {
        let slice = if is_key { 0x65 } else { 0x41 };
        let unit =
            [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, slice, if is_key { 0x88 } else { 0x9a }];
        let rest = packet(0x101, false, &[0xff; 8]).repeat(packets - 1);
        [packet(0x101, true, &unit), rest].concat()
    }

    struct Trial {
        output: StreamOutput,
        pool: Arc<BlockPool>,
        inbox: Receiver<WriteCommand>,
    }

    impl Trial {
        fn new(bytes: Option<u64>, seconds: Option<u64>) -> Trial {
            let time = seconds.map(Duration::from_secs);
            Trial::of(Rotation { bytes, time, ..Rotation::default() })
        }

        fn of(rotation: Rotation) -> Trial {
            let (orders, inbox) = channel();
            let pool = Arc::new(BlockPool::new(1 << 24));
            Trial {
                output: StreamOutput::new(0, pool.clone(), orders, rotation, clock::Clock::HOST),
                pool,
                inbox,
            }
        }

        /// Returns the files written for a stream whose parts arrive at these seconds.
        fn files(mut self, parts: &[(u64, Vec<u8>)]) -> Vec<Vec<u8>> {
            parts.iter().for_each(|(second, part)| self.push(*second, part));
            self.end()
        }

        fn push(&mut self, second: u64, part: &[u8]) {
            let now = Duration::from_secs(second);
            part.chunks(7 * PACKET).for_each(|datagram| self.output.push(datagram, now));
            self.output.tick(now);
        }

        /// Returns the files.
        fn end(mut self) -> Vec<Vec<u8>> {
            self.output.end();
            let mut files = vec![Vec::new()];
            for order in self.inbox.try_iter() {
                match order {
                    WriteCommand::Write { stream, block, .. } => {
                        files.last_mut().expect("one").extend_from_slice(&block);
                        self.pool.give(stream, block);
                    }
                    WriteCommand::Rotate { .. } => files.push(Vec::new()),
                    WriteCommand::End { .. } => {}
                }
            }
            files
        }
    }

    /// A key picture and nine others, of ten packets each.
    fn group() -> Vec<u8> {
        [picture(true, 10), picture(false, 10).repeat(9)].concat()
    }

    #[test]
    fn a_file_ends_where_play_can_start_and_the_next_has_the_tables() {
        let half = group().len() / 2;
        let mut parts = vec![(0, tables())];
        for at in [0, 2, 4, 6, 8] {
            parts.push((at, group()[..half].to_vec()));
            // The three seconds have passed here, but playback cannot start here.
            parts.push((at + 1, group()[half..].to_vec()));
        }
        let files = Trial::new(None, Some(3)).files(&parts);
        let of = |groups| [tables(), group().repeat(groups)].concat();
        assert!(files == [of(2), of(2), of(1)], "{:?}", lengths(&files));
    }

    #[test]
    fn parameter_sets_that_came_once_begin_each_file() {
        let sets = [0, 0, 0, 1, 0x67, 0x64, 0, 0x1f, 0xac, 0, 0, 0, 1, 0x68, 0xee, 0x3c];
        let unit = [&[0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0], &sets[..], &[0, 0, 1, 0x65, 0x88]].concat();
        let first = [packet(0x101, true, &unit), picture(false, 10)].concat();
        let mut parts = vec![(0, [tables(), first.clone()].concat())];
        // The second group has no tables directly before it.
        parts.push((4, [tables(), group()].concat()));
        parts.push((8, group()));
        let files = Trial::new(None, Some(3)).files(&parts);
        assert_eq!(lengths(&files), [2 + 11 + 2, 2 + 16 + 100, 2 + 16 + 100]);
        for file in &files[1..] {
            assert!(file.starts_with(&tables()) && file.ends_with(&group()));
            let lead = file[2 * PACKET..18 * PACKET].chunks(PACKET);
            let payload: Vec<u8> =
                lead.flat_map(|packet| packet[5 + usize::from(packet[4])..].to_vec()).collect();
            assert!(payload.starts_with(&[0, 0, 1, 0xe0]) && payload.ends_with(&sets));
        }
    }

    #[test]
    fn a_request_ends_a_file_where_play_can_start_next() {
        let request = FileRequest::default();
        let limits = Rotation { request: Some(request.clone()), ..Rotation::default() };
        let mut trial = Trial::of(limits.clone());
        // The file that begins later is the requested one.
        request.make();
        trial.push(0, &[tables(), group()].concat());
        trial.push(1, &group());
        request.make();
        request.make();
        trial.push(2, &picture(false, 10));
        trial.push(3, &group());
        trial.push(4, &group());
        let expected = [
            [tables(), group().repeat(2), picture(false, 10)].concat(),
            [tables(), group().repeat(2)].concat(),
        ];
        let files = trial.end();
        assert!(files == expected, "{:?}", lengths(&files));

        let mut trial = Trial::of(limits);
        let rest = picture(false, 10);
        trial.push(0, &[tables(), group()].concat());
        request.make();
        for second in 1..15 {
            trial.push(second, &rest);
        }
        // Play can start nowhere: ten seconds later.
        assert_eq!(lengths(&trial.end()), [2 + 100 + 10 * 10, 4 * 10]);
    }

    #[test]
    fn tables_that_lie_before_it_begin_the_next_file() {
        let led = |at: u8| {
            let mut bytes = [tables(), group()].concat();
            (bytes[3], bytes[PACKET + 3]) = (0x10 | at, 0x10 | at);
            bytes
        };
        let parts: Vec<_> = (0..5).map(|at| (2 * u64::from(at), led(at))).collect();
        let files = Trial::new(None, Some(3)).files(&parts);
        let pairs = [[led(0), led(1)].concat(), [led(2), led(3)].concat()];
        assert!(files == [&pairs[..], &[led(4)]].concat(), "{:?}", lengths(&files));
    }

    #[test]
    fn a_file_of_limited_size_ends_where_another_group_would_not_fit() {
        let stream = [tables(), group().repeat(10)].concat();
        let files = Trial::new(Some(350 * PACKET as u64), None).files(&[(0, stream)]);
        assert_eq!(lengths(&files), [302, 302, 302, 102]);
        assert!(files.iter().all(|file| file.starts_with(&[tables(), group()].concat())));
    }

    #[test]
    fn where_play_can_start_nowhere_a_file_ends_late_or_at_its_size() {
        let rest = picture(false, 10).repeat(10);
        let parts: Vec<_> = (0..15).map(|at| (at, rest.clone())).collect();
        let files = Trial::new(None, Some(3)).files(&[&[(0, tables())], &parts[..]].concat());
        assert_eq!(lengths(&files), [2 + 13 * 100, 200]);
        let files = Trial::new(Some(350 * PACKET as u64), None).files(&parts);
        assert_eq!(lengths(&files), [350, 350, 350, 350, 100]);
    }

    #[test]
    fn a_picture_that_is_known_late_is_not_written_before() {
        let delimiter = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 9, 0x10];
        let slice = packet(0x101, false, &[0, 0, 1, 0x65, 0x88]);
        let late = [packet(0x101, true, &delimiter), slice, group()].concat();
        for before in [1021, 1020, 500] {
            let first = [tables(), picture(true, before)].concat();
            // The block is full between the two packets, or it is written because of its age.
            let (head, tail) = late.split_at(PACKET);
            let parts = [(0, first.clone()), (4, head.to_vec()), (5, tail.to_vec())];
            let files = Trial::new(None, Some(3)).files(&parts);
            assert!(files == [first, [tables(), late.clone()].concat()], "{:?}", lengths(&files));
        }
    }

    #[test]
    fn no_file_has_tables_alone() {
        let stream = [tables(), picture(true, 3).repeat(20)].concat();
        let files = Trial::new(Some(3 * PACKET as u64), None).files(&[(0, stream)]);
        assert!(files.iter().all(|file| *file != tables()), "{:?}", lengths(&files));
    }

    /// An access unit whose picture never arrives does not stay undecided: its position is dropped.
    #[test]
    fn an_access_unit_without_a_picture_is_given_up() {
        let mut cutter =
            FileCutter::new(Rotation { bytes: Some(1), ..Rotation::default() }).unwrap();
        let delimiter = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 9, 0x10];
        cutter.feed(&[tables(), packet(0x101, true, &delimiter)].concat());
        assert_eq!(cutter.undecided_bytes(), PACKET as u64);
        (0..20_000).for_each(|_| cutter.feed(&packet(0x102, false, &[0; 8])));
        assert!(cutter.next_start().is_none());
        assert_eq!(cutter.undecided_bytes(), 0);
    }

    fn lengths(files: &[Vec<u8>]) -> Vec<usize> {
        files.iter().map(|file| file.len() / PACKET).collect()
    }
}
