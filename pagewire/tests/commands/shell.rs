// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs command lines as a reader would type them: one after the other, in one folder, with servers
//! and recorders left running in the background. A password prompt gets the password from the
//! variable `PASSWORD`, which the documents use.
//!
//! Does not choose the commands; the tests do.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use media::mp4::FragmentedFile;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::answer::http;
use crate::harness::{PROGRAM, watchdog};

/// A reader's folder, and the programs running in it.
pub(crate) struct Shell {
    folder: PathBuf,
    path: String,
    running: Vec<Running>,
    logs: usize,
}

/// A server or recorder.
struct Running {
    /// Line that it printed when it was ready; empty for a program that keeps running.
    ready: &'static str,
    command: String,
    child: Child,
    log: PathBuf,
}

impl Shell {
    /// `folder` is where commands run; `pagewire` is the program under test.
    pub(crate) fn new(folder: &Path) -> Shell {
        let programs = Path::new(PROGRAM).parent().expect("it lies in a folder");
        let path = std::env::var("PATH").expect("a PATH");
        let path = format!("{}:{}:{path}", folder.display(), programs.display());
        fs::write(folder.join(TYPED), "PASSWORD\n").expect("room for a file");
        Shell { folder: folder.to_owned(), path, running: Vec::new(), logs: 0 }
    }

    fn command(&mut self, line: &str) -> (Command, PathBuf) {
        self.logs += 1;
        let log = self.folder.join(format!(".log-{}", self.logs));
        let mut command = Command::new("sh");
        command
            .args(["-euc", &format!("exec < {TYPED}\n{line}")])
            .current_dir(&self.folder)
            .env("PATH", &self.path)
            // Calibrated once for all tests, outside the user's own cache.
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
        (command, log)
    }

    /// Runs a command to its end, which must have one of these statuses; returns its output.
    pub(crate) fn run(&mut self, line: &str, statuses: &[i32]) -> String {
        let (mut command, _) = self.command(line);
        let outcome = watchdog::run(&mut command, LIMIT).expect("there is a shell");
        let printed = String::from_utf8_lossy(&outcome.stdout) + outcome.stderr.as_str();
        let is_good = outcome.status.code().is_some_and(|code| statuses.contains(&code));
        assert!(is_good, "{line}: {}:\n{printed}", outcome.status);
        printed.into_owned()
    }

    /// Starts a server or a recorder and waits until it prints `ready`; returns its output. The
    /// previous program with the same ready line ends first, because both use the usual ports.
    pub(crate) fn start(&mut self, line: &str, ready: &'static str) -> String {
        self.end_of(ready);
        self.start_aside(line, ready);
        let last = self.running.last_mut().expect("it runs");
        last.ready = ready;
        last.printed()
    }

    /// As [`Shell::start`], but it runs to the end beside all others.
    pub(crate) fn start_aside(&mut self, line: &str, ready: &str) {
        let (mut command, log) = self.command(line);
        let file = File::create(&log).expect("a log");
        command.stdout(file.try_clone().expect("a descriptor")).stderr(file);
        let child = command.spawn().expect("there is a shell");
        let mut one = Running { ready: "", command: line.to_owned(), child, log };
        let deadline = Instant::now() + READY_WAIT;
        while !one.printed().contains(ready) {
            let ended = one.child.try_wait().expect("it is our child");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{line}: {ended:?}, without {ready:?}:\n{}",
                one.printed()
            );
            sleep(LOOK_EVERY);
        }
        if ready == SERVING {
            one.await_files();
        }
        self.running.push(one);
    }

    /// Returns the files of recordings that have media.
    pub(crate) fn recordings(&self) -> BTreeSet<PathBuf> {
        let folders = RECORDED.iter().filter_map(|name| fs::read_dir(self.folder.join(name)).ok());
        let paths = folders.flatten().map(|entry| entry.expect("it can be read").path());
        paths.filter(|path| has_media(path)).collect()
    }

    /// Waits until there are `count` recordings more than `before`: a recorder that received
    /// nothing fails.
    pub(crate) fn await_recordings(&mut self, before: &BTreeSet<PathBuf>, count: usize) {
        let deadline = Instant::now() + READY_WAIT;
        loop {
            let last = self.running.last_mut().expect("the recorder runs");
            let ended = last.child.try_wait().expect("it is our child");
            let more = self.recordings().difference(before).count();
            if more >= count {
                return;
            }
            let last = self.running.last().expect("the recorder runs");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{}: {ended:?}, {more} of {count} recordings have bytes:\n{}",
                last.command,
                last.printed()
            );
            sleep(LOOK_EVERY);
        }
    }

    /// Ends the programs that printed `ready`.
    pub(crate) fn end_of(&mut self, ready: &str) {
        self.end(|one| one.ready == ready);
    }

    /// Ends all running programs.
    pub(crate) fn stop(&mut self) {
        self.end(|_| true);
    }

    /// Ends programs by SIGTERM; the status has to be 0.
    fn end(&mut self, which: impl Fn(&Running) -> bool) {
        let (ended, left) = self.running.drain(..).partition::<Vec<_>, _>(which);
        self.running = left;
        for mut one in ended {
            signal(&one.child, Signal::TERM);
            let status = watchdog::wait(&mut one.child, LIMIT);
            let (command, printed) = (&one.command, one.printed());
            let status = status.unwrap_or_else(|| panic!("{command}: does not end:\n{printed}"));
            assert!(status.success(), "{command}: {status}:\n{printed}");
        }
    }
}

impl Running {
    /// Waits until a server has read its files, so that all of them can be played.
    fn await_files(&self) {
        let printed = self.printed();
        let ready = printed.lines().find(|line| line.starts_with(SERVING)).expect("it is ready");
        let address = ready.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.and_then(|address| address.parse().ok()).expect("an address");
        let deadline = Instant::now() + READY_WAIT;
        loop {
            let answer = http(address, "GET", "/index.json");
            // Where a password or a signed address is required, this client has none.
            if matches!(answer.status, 401 | 403) {
                return;
            }
            let index: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
            let total = &index["total"];
            if total["files"].as_u64() > Some(0) && total["waiting"] == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "{}: not read: {index:#}", self.command);
            sleep(LOOK_EVERY);
        }
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.log).expect("its log")
    }
}

/// A program that a failed test has left is killed.
impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            signal(&self.child, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for mut one in self.running.drain(..) {
            signal(&one.child, Signal::KILL);
            let _ = one.child.wait();
        }
    }
}

/// Signals the program that a shell waits for; the shell then ends with its status.
fn signal(shell: &Child, signal: Signal) {
    let mut pid = shell.id();
    loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let child = children.ok().and_then(|all| all.split_whitespace().next()?.parse().ok());
        let Some(child) = child else { break };
        pid = child;
    }
    // A program that has ended needs no signal.
    let _ = kill_process(Pid::from_raw(pid as i32).expect("not process 0"), signal);
}

/// True for a transport stream with bytes, and for an MP4 file with a whole fragment.
fn has_media(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str());
    match (end, fs::read(path)) {
        (Some("ts"), Ok(bytes)) => !bytes.is_empty(),
        (Some("mp4"), Ok(bytes)) => has_fragment(&bytes),
        _ => false,
    }
}

fn has_fragment(file: &[u8]) -> bool {
    let first = FragmentedFile::open(file, file.len() as u64).and_then(|file| file.first());
    first.is_ok_and(|first| first.is_some())
}

/// Folders into which the documents' commands record.
const RECORDED: [&str; 2] = ["films", "door"];
/// File in the folder with the typed input.
const TYPED: &str = ".typed";
/// Lines that a server and a recorder print when they are ready.
pub(crate) const SERVING: &str = "pagewire ready: ";
pub(crate) const RECORDING: &str = "pagewire receiving: ";
/// The longest command is a measurement of under a minute, here beside other tests.
const LIMIT: Duration = Duration::from_secs(400);
const READY_WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
