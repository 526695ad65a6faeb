// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources that a server holds, before and after: file descriptors, sessions, connections.
//!
//! Paths of downloads are kept once they have been opened, a ring or a pipe each: as many as were
//! in use at once, at most 64. They are counted separately, against that limit.
//!
//! Sources: proc_pid_fd(5).

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::Server;

/// A count made while no client was connected.
pub(crate) struct ResourceSnapshot {
    descriptors: usize,
}

impl ResourceSnapshot {
    /// Counts, once the server is idle. No event shows that its threads have nothing left to do:
    /// the counts of four looks are alike.
    #[track_caller]
    pub(crate) fn of(server: &Server) -> ResourceSnapshot {
        let deadline = Instant::now() + REST_WAIT;
        loop {
            await_nobody(server);
            let counts = [(); 4].map(|()| {
                thread::sleep(LOOK_EVERY);
                descriptors(server)
            });
            if counts.iter().all(|&count| count == counts[0]) {
                return ResourceSnapshot { descriptors: counts[0] };
            }
            assert!(Instant::now() < deadline, "never at rest: {counts:?} descriptors");
        }
    }

    /// Asserts that the server returns to this count.
    #[track_caller]
    pub(crate) fn assert_restored(&self, server: &Server) {
        self.assert_restored_to(server, 0);
    }

    /// As [`ResourceSnapshot::assert_restored`], but `threads` of HTTP, each of which served a
    /// connection, may still have the last downloaded file open: they keep it for some seconds.
    #[track_caller]
    pub(crate) fn assert_restored_but_for_kept_file(&self, server: &Server, threads: usize) {
        self.assert_restored_to(server, threads);
    }

    #[track_caller]
    fn assert_restored_to(&self, server: &Server, more: usize) {
        await_nobody(server);
        let deadline = Instant::now() + REST_WAIT;
        loop {
            let now = descriptors(server);
            if now <= self.descriptors + more {
                return;
            }
            let before = self.descriptors;
            assert!(
                Instant::now() < deadline,
                "{now} descriptors where there were {before}: {:#?}; log: {}",
                open_files(server),
                server.log()
            );
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// Waits until no session is left, and no connection other than the one that queries.
#[track_caller]
pub(crate) fn await_nobody(server: &Server) {
    server.await_index("no session and no connection is left", |index| {
        index["server"]["sessions"] == 0 && index["server"]["connections"] == 1
    });
}

/// Returns the number of sessions now.
#[track_caller]
pub(crate) fn sessions(server: &Server) -> u64 {
    server.index()["server"]["sessions"].as_u64().expect("a count")
}

/// Returns the number of descriptors the server has open, except those of kept download paths.
pub(crate) fn descriptors(server: &Server) -> usize {
    let open = open_files(server);
    let (kept, others): (Vec<_>, Vec<_>) = open.iter().partition(|name| is_of_path(name));
    assert!(kept.len() <= KEPT_MAX, "{} rings, pipes and drains: {open:#?}", kept.len());
    others.len()
}

fn is_of_path(name: &str) -> bool {
    // A pipe is emptied into /dev/null.
    ["anon_inode:[io_uring]", "/dev/null"].contains(&name) || name.starts_with("pipe:")
}

/// Returns the names of the files, sockets and others that the server has open.
pub(crate) fn open_files(server: &Server) -> Vec<String> {
    let folder = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    let link = |entry: fs::DirEntry| Some(fs::read_link(entry.path()).ok()?.display().to_string());
    folder.flatten().filter_map(link).collect()
}

/// A pipe's two ends and its drain for each of 64 paths, a ring per pacer, and the descriptors that
/// the server was started with.
const KEPT_MAX: usize = 3 * 64 + 32;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Guards against hanging; not a measure of speed.
const REST_WAIT: Duration = Duration::from_secs(60);
