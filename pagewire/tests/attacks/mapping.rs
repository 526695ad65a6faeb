// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source that another process changes through a mapping while it is sealed: on a file system
//! where such writes update no time, a second read detects the change (`seal folder --verify`).
//!
//! Sources: mmap(2), tmpfs(5).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::PROGRAM;
use crate::harness::watchdog;
use crate::plants::{JOURNAL, RUN_WAIT, Share};

/// A process that is killed with the test, however the test ends.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Python process changes a mapped file continuously, on a file system where that updates no
/// time. A run is stopped once it has begun to write, until the file has changed.
#[test]
fn a_change_through_a_mapping_is_noticed_by_a_second_read() {
    let share = Share::new();
    let Ok(shm) = TempDir::new_in("/dev/shm") else {
        eprintln!("skip: no /dev/shm, where stores through a mapping set no time");
        return;
    };
    let mapped = shm.path().join("mapped");
    fs::write(&mapped, vec![1; MAPPED_BYTES]).expect("a file");
    let script = "import mmap, sys\n\
        file = open(sys.argv[1], 'r+b')\n\
        pages = mmap.mmap(file.fileno(), 0)\n\
        while True:\n\
        \x20   for page in range(0, len(pages), 4096): pages[page] = (pages[page] + 1) % 256\n";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(&mapped);
    let Ok(writer) = python.spawn() else {
        eprintln!("skip: python3: not installed; changes a file through a mapping");
        return;
    };
    let writer = Killed(writer);
    let source = shm.path().to_str().expect("UTF-8");
    let seal = ["seal", "folder", source, "out", "--key-file", "key", "--verify", "--sync", "none"];
    let deadline = Instant::now() + LONG;
    loop {
        let (code, stderr) = run_stopped_amid(&share, &seal, &mapped, deadline);
        if code == Some(1) && stderr.contains("mapped: changed while") {
            break;
        }
        // It had read the file twice before it was stopped.
        assert_eq!(code, Some(0), "{stderr}");
        assert!(Instant::now() < deadline, "not noticed within {LONG:?}");
        fs::remove_dir_all(share.path("out")).expect("removed");
    }
    drop(writer);
    assert_eq!(share.run(&seal).status.code(), Some(0), "nothing changes it any more");
}

/// Runs pagewire and stops it, from the moment it has written a part of the target until another
/// process has changed `source`; returns exit status and output.
fn run_stopped_amid(
    share: &Share,
    arguments: &[&str],
    source: &Path,
    deadline: Instant,
) -> (Option<i32>, String) {
    let stderr = watchdog::unnamed_file();
    let mut command = Command::new(PROGRAM);
    command.current_dir(share.path("")).args(arguments).stdout(Stdio::null());
    command.stderr(stderr.try_clone().expect("a free descriptor"));
    let mut run = Killed(command.spawn().expect("the program under test starts"));
    while !has_begun(share) && run.0.try_wait().expect("it is our child").is_none() {
        assert!(Instant::now() < deadline, "nothing is written");
        thread::sleep(LOOK_EVERY);
    }
    let pid = Pid::from_child(&run.0);
    // It may have ended.
    let _ = kill_process(pid, Signal::STOP);
    let before = fs::read(source).expect("a file");
    let is_changed = || {
        let now = fs::read(source).expect("a file");
        before.chunks(PAGE).zip(now.chunks(PAGE)).all(|(before, now)| before[0] != now[0])
    };
    while !is_changed() {
        assert!(Instant::now() < deadline, "nobody changes the file");
        thread::sleep(LOOK_EVERY);
    }
    let _ = kill_process(pid, Signal::CONT);
    let status = watchdog::wait(&mut run.0, RUN_WAIT).expect("it ends");
    (status.code(), String::from_utf8_lossy(&watchdog::contents(stderr)).into_owned())
}

/// True when a working folder for `out` has a file with bytes in it.
fn has_begun(share: &Share) -> bool {
    let is_working = |path: &Path| {
        let name = path.file_name().expect("an entry has a name").to_string_lossy();
        name.starts_with(".pagewire-unfinished-seal-out.")
    };
    let paths = |folder: &Path| {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let files = paths(&share.path("")).filter(|path| is_working(path)).flat_map(|at| paths(&at));
    let mut files = files.filter(|path| !path.ends_with(JOURNAL));
    files.any(|path| fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0))
}

/// Reading this many bytes takes long enough to stop the process in between.
const MAPPED_BYTES: usize = 16 << 20;
const PAGE: usize = 4096;
const LONG: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(1);
