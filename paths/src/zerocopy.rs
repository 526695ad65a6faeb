// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zero-copy sends of one socket that the kernel has not reported yet.
//!
//! The kernel's report names numbers of sends, not bytes; the bytes of each are kept here until
//! then, so that copies by the kernel can be counted in bytes. Costs 4 bytes for each unreported
//! send, at most [`UNREPORTED_MAX`].
//!
//! No other state is kept: the kernel holds the pages, so the mapping may be removed. A file
//! overwritten in place meanwhile is sent with its new content.
//!
//! Reports may arrive out of order and joined. A joined report has the copying flag of the first
//! (Linux 6.18 `net/core/skbuff.c`, `__msg_zerocopy_callback`), so the figure is only as exact as
//! the kernel's account; reading a report after every send leaves little to join.
//!
//! Sources: Linux `Documentation/networking/msg_zerocopy.rst`.
//!
//! Does not read reports from the socket ([`crate::sys::next_error`]).

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use crate::error::Errno;
use crate::report::PathReport;
use crate::send_stats::SendStats;
use crate::sys::{self, ErrorQueueEntry, ZerocopyReport};

/// Sends without a report after which the next ones are plain. The kernel's own limit is not much
/// above (`optmem_max`: 128 KiB, and about 0.8 KiB a send).
pub(crate) const UNREPORTED_MAX: usize = 128;

/// Marks a send that was reported or refused: no report is due.
const DONE: u32 = u32::MAX;

/// The unreported sends of a socket, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unreported {
    /// Number of the oldest.
    first: u32,
    /// Bytes of each, or [`DONE`].
    bytes: VecDeque<u32>,
    /// Reports of the path that were between those of sends.
    path_reports: Vec<PathReport>,
}

impl Unreported {
    /// True when another zero-copy send is allowed.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes.len() < UNREPORTED_MAX
    }

    /// Records an accepted zero-copy send of `bytes` bytes.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.bytes.push_back(u32::try_from(bytes).unwrap_or(DONE - 1));
    }

    /// Reads one report, if there is one, with one call.
    pub(crate) fn reap(
        &mut self,
        socket: BorrowedFd<'_>,
        stats: &mut SendStats,
    ) -> Result<(), Errno> {
        match sys::next_error(socket, stats)? {
            ErrorQueueEntry::Zerocopy(report) => stats.zerocopy_copied_bytes += self.settle(report),
            ErrorQueueEntry::Path(report) if self.path_reports.len() < UNREPORTED_MAX => {
                self.path_reports.push(report);
            }
            // A path with zero-copy sends carries no departure times.
            ErrorQueueEntry::Path(_) | ErrorQueueEntry::Departure(_) | ErrorQueueEntry::Local => {}
        }
        Ok(())
    }

    /// Removes and returns the reports of the path received meanwhile.
    pub(crate) fn take_path_reports(&mut self) -> Vec<PathReport> {
        std::mem::take(&mut self.path_reports)
    }

    /// Reads all waiting reports. Required after a refused send and before the next: the refused
    /// send may have used up its number (a datagram that was made and then refused) or not (a
    /// datagram that was never made), and only its report, available at once, shows which.
    pub(crate) fn reap_all(&mut self, socket: BorrowedFd<'_>, stats: &mut SendStats) {
        while self.reap(socket, stats).is_ok() {}
    }

    /// Records a report; returns the number of our bytes that the kernel copied.
    fn settle(&mut self, report: ZerocopyReport) -> u64 {
        let mut copied_bytes = 0;
        let reported = report.last.wrapping_sub(report.first);
        for (index, bytes) in self.bytes.iter_mut().enumerate() {
            let number = self.first.wrapping_add(index as u32);
            if number.wrapping_sub(report.first) <= reported && *bytes != DONE {
                copied_bytes += if report.copied { u64::from(*bytes) } else { 0 };
                *bytes = DONE;
            }
        }
        // A refused send has used up a number without an accepted send.
        let next = self.first.wrapping_add(self.bytes.len() as u32);
        let beyond = report.last.wrapping_sub(next);
        if beyond < UNREPORTED_MAX as u32 {
            self.bytes.extend(std::iter::repeat_n(DONE, beyond as usize + 1));
        }
        while self.bytes.front() == Some(&DONE) {
            self.bytes.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        copied_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(first: u32, last: u32, copied: bool) -> ZerocopyReport {
        ZerocopyReport { first, last, copied }
    }

    #[test]
    fn bytes_are_those_of_the_numbers_reported() {
        let mut unreported = Unreported::default();
        [10, 20, 30, 40].into_iter().for_each(|bytes| unreported.sent(bytes));
        assert_eq!(unreported.settle(report(1, 2, true)), 50);
        assert_eq!(unreported.settle(report(1, 2, true)), 0, "once");
        assert_eq!(unreported.settle(report(0, 0, false)), 0);
        assert_eq!((unreported.first, unreported.bytes.len()), (3, 1));
        assert_eq!(unreported.settle(report(3, 3, true)), 40);
        assert_eq!((unreported.first, unreported.bytes.len()), (4, 0));
    }

    #[test]
    fn a_refused_send_may_have_used_its_number_up() {
        let mut unreported = Unreported::default();
        unreported.sent(10);
        assert_eq!(unreported.settle(report(0, 1, true)), 10);
        unreported.sent(30);
        assert_eq!(unreported.settle(report(2, 2, true)), 30);
        // An earlier send is still unreported.
        unreported.sent(40);
        assert_eq!(unreported.settle(report(4, 4, true)), 0);
        unreported.sent(50);
        assert_eq!(unreported.settle(report(5, 5, true)), 50);
        assert_eq!(unreported.settle(report(3, 3, true)), 40);
        assert_eq!((unreported.first, unreported.bytes.len()), (6, 0));
    }

    #[test]
    fn numbers_begin_again_after_the_last() {
        let mut unreported = Unreported { first: u32::MAX - 1, ..Unreported::default() };
        [1, 2, 3, 4].into_iter().for_each(|bytes| unreported.sent(bytes));
        assert_eq!(unreported.settle(report(u32::MAX, 0, true)), 5);
        assert_eq!(unreported.settle(report(u32::MAX - 1, u32::MAX - 1, true)), 1);
        assert_eq!(unreported.settle(report(1, 1, true)), 4);
        assert_eq!((unreported.first, unreported.bytes.len()), (2, 0));
    }

    #[test]
    fn there_is_an_end_to_what_is_out() {
        let mut unreported = Unreported::default();
        let sent = (0..1000).take_while(|_| {
            let room = unreported.has_room();
            unreported.sent(1);
            room
        });
        assert_eq!(sent.count(), UNREPORTED_MAX);
    }
}
