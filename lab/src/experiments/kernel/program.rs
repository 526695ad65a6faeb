// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running script of kernel/ or guest/: read line by line, within a time limit, always ended.
//!
//! A build takes minutes, a guest may hang or die midway, and the user may stop the run. So threads
//! read both outputs and keep a bounded part, a wait for a line checks the clock and the user five
//! times a second, and a program that is dropped before its end is ended with all its descendants.
//! Its standard error is its progress, and its reason when it fails: the scripts name the missing
//! thing and the line that installs it.
//!
//! Sources: kernel/uml/build.sh and the other scripts, for their output.
//! Does not interpret lines (`console` does).

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::load::Family;
use measure::Error;

/// Observer that receives the program's output during a wait, and may stop it.
pub(super) trait Watch {
    /// Returns true when the user has stopped the run.
    fn stopped(&self) -> bool;
    /// Receives the last line of its standard error.
    fn progress(&self, line: &str);
}

/// A program that has been started.
pub(super) struct Program {
    what: String,
    child: Child,
    lines: Receiver<String>,
    /// Last lines of both outputs.
    output: VecDeque<String>,
    errors: Arc<Mutex<VecDeque<String>>>,
    /// Thread that reads its standard error.
    reader: JoinHandle<()>,
    began: Instant,
    limit: Duration,
    ended: bool,
}

impl Program {
    /// Starts the program; errors name it `what`. It is ended when it runs longer than `limit`.
    pub(super) fn start(
        what: &str,
        command: &mut Command,
        limit: Duration,
    ) -> Result<Program, Error> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::host(what))?;
        let (sender, lines) = sync_channel(LINES_AHEAD);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let errors = Arc::new(Mutex::new(VecDeque::new()));
        let kept = errors.clone();
        std::thread::spawn(move || each_line(stdout, |line| pass(&sender, line)));
        let reader = std::thread::spawn(move || {
            each_line(stderr, |line| {
                keep(&mut kept.lock().unwrap_or_else(|error| error.into_inner()), line);
                true
            });
        });
        Ok(Program {
            what: what.to_owned(),
            child,
            lines,
            output: VecDeque::new(),
            errors,
            reader,
            began: Instant::now(),
            limit,
            ended: false,
        })
    }

    /// Returns the id of the started process.
    pub(super) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Returns the next line of its output; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Host`] when the time is up or the user has stopped the run; the program is ended
    /// then.
    pub(super) fn line(&mut self, watch: &dyn Watch) -> Result<Option<String>, Error> {
        loop {
            if watch.stopped() {
                self.end();
                return Err(self.failed("stopped".to_owned()));
            }
            if self.began.elapsed() >= self.limit {
                self.end();
                let limit = self.limit.as_secs_f64();
                return Err(self.failed(format!("no end after {limit} s; ended{}", self.last())));
            }
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => {
                    keep(&mut self.output, line.clone());
                    return Ok(Some(line));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(line) = self.errors().back() {
                        watch.progress(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Waits for the program's end.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with its last lines when it exits with [`UNFIT_HOST`],
    /// [`Error::Host`] when it fails otherwise, and as [`Program::line`].
    pub(super) fn finish(mut self, watch: &dyn Watch) -> Result<(), Error> {
        while self.line(watch)?.is_some() {}
        loop {
            let status = self.child.try_wait();
            match status.map_err(Error::host(self.what.as_str()))? {
                Some(status) if status.success() => {
                    self.ended = true;
                    return Ok(());
                }
                Some(status) if status.code() == Some(UNFIT_HOST) => {
                    self.ended = true;
                    let found = format!("{}{}", self.what, self.last());
                    return Err(Error::Unavailable { need: NEED, found });
                }
                Some(status) => {
                    self.ended = true;
                    return Err(self.failed(format!("{status}{}", self.last())));
                }
                // The program has closed its output and is still running.
                None if watch.stopped() || self.began.elapsed() >= self.limit => {
                    self.end();
                    return Err(self.failed("ended".to_owned()));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }

    fn failed(&self, found: String) -> Error {
        Error::Host { what: self.what.clone(), found }
    }

    fn errors(&self) -> VecDeque<String> {
        self.errors.lock().unwrap_or_else(|error| error.into_inner()).clone()
    }

    /// Returns its last lines for an error: those of its standard error, or otherwise of its
    /// output. A descendant may hold its standard error open: the wait for it is short.
    fn last(&self) -> String {
        let began = Instant::now();
        while !self.reader.is_finished() && began.elapsed() < LAST_WORDS {
            std::thread::sleep(LAST_WORDS / 100);
        }
        let errors = self.errors();
        let output = if errors.is_empty() { &self.output } else { &errors };
        let last: Vec<&str> = output.iter().rev().take(LINES_SHOWN).map(String::as_str).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        if last.is_empty() {
            "; it printed nothing".to_owned()
        } else {
            format!("; {}", last.join("; "))
        }
    }

    fn end(&mut self) {
        if !self.ended {
            Family::end(self.pid(), GRACE);
            // It has ended, or is about to end.
            let _ = self.child.wait();
            self.ended = true;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a script to its end; returns the `name=PATH` lines that it prints.
///
/// # Errors
/// As [`Program::line`] and [`Program::finish`]; also when a wanted name is missing.
pub(super) fn paths_of(
    script: &mut Command,
    wanted: &[&str],
    limit: Duration,
    watch: &dyn Watch,
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let what = named(Path::new(script.get_program()));
    let mut program = Program::start(&what, script, limit)?;
    let mut found = BTreeMap::new();
    while let Some(line) = program.line(watch)? {
        if let Some((name, path)) = line.split_once('=') {
            found.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    program.finish(watch)?;
    match wanted.iter().find(|name| !found.contains_key(**name)) {
        None => Ok(found),
        Some(name) => {
            let found = format!("it ended well and printed no line {name}=PATH");
            Err(Error::Host { what, found })
        }
    }
}

/// Returns the last two names of a script's path.
fn named(script: &Path) -> String {
    let names: Vec<_> = script.iter().rev().take(2).map(|name| name.to_string_lossy()).collect();
    names.into_iter().rev().collect::<Vec<_>>().join("/")
}

/// Passes a line on; returns false when there is no reader any more.
fn pass(lines: &SyncSender<String>, line: String) -> bool {
    lines.send(line).is_ok()
}

fn keep(lines: &mut VecDeque<String>, line: String) {
    if line.trim().is_empty() {
        return;
    }
    if lines.len() == LINES_KEPT {
        lines.pop_front();
    }
    lines.push_back(line);
}

/// Calls `take` for each line of at most [`LINE_BYTES_MAX`], until it returns false.
fn each_line(source: Option<impl Read>, mut take: impl FnMut(String) -> bool) {
    let Some(source) = source else { return };
    let mut source = BufReader::new(source);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
        if !read.is_ok_and(|count| count > 0) {
            return;
        }
        let line = String::from_utf8_lossy(&bytes);
        if !take(line.trim_end_matches(['\r', '\n']).to_owned()) {
            return;
        }
    }
}

/// Exit status of a script when this host lacks something: the reason and the cure are its last
/// lines. Automake's tests use the same number for a skip.
const UNFIT_HOST: i32 = 77;
const NEED: &str = "something that this host lacks";
/// Interval of checking the clock and the user.
const LOOK: Duration = Duration::from_millis(200);
/// Time for a script to remove its files.
const GRACE: Duration = Duration::from_secs(3);
/// Time for the last output of an ended program to arrive.
const LAST_WORDS: Duration = Duration::from_millis(500);
const LINE_BYTES_MAX: u64 = 16 << 10;
const LINES_AHEAD: usize = 1024;
const LINES_KEPT: usize = 20;
const LINES_SHOWN: usize = 3;

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Records the lines, and stops when `stop` is set.
    #[derive(Default)]
    pub(in super::super) struct Heard {
        pub(in super::super) stop: AtomicBool,
        lines: Mutex<Vec<String>>,
    }

    impl Watch for Heard {
        fn stopped(&self) -> bool {
            self.stop.load(Ordering::Relaxed)
        }

        fn progress(&self, line: &str) {
            self.lines.lock().unwrap().push(line.to_owned());
        }
    }

    /// Makes a script of this text.
    pub(in super::super) fn script(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Another process writes it: a process started by this test may inherit a file that is open
        // for writing here, and then the script cannot be run.
        let mut command = Command::new("/bin/sh");
        let status = command.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(path);
        let mut writer = status.stdin(Stdio::piped()).spawn().unwrap();
        let text = format!("#!/bin/sh\n{text}");
        std::io::Write::write_all(&mut writer.stdin.take().unwrap(), text.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o111, 0o111);
    }

    fn paths(text: &str, limit: Duration) -> Result<BTreeMap<String, PathBuf>, String> {
        let folder = tempfile::tempdir().unwrap();
        let build = folder.path().join("uml/build.sh");
        script(&build, text);
        paths_of(Command::new(&build).arg("plain"), &["linux"], limit, &Heard::default())
            .map_err(|error| error.to_string())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn paths_are_those_that_a_script_prints() {
        let found = paths("echo building >&2; echo linux=/a b/$1; echo build=/c", LONG).unwrap();
        assert_eq!(found["linux"], Path::new("/a b/plain"));
        assert_eq!(found["build"], Path::new("/c"));
        let error = paths("echo build=/c", LONG).unwrap_err();
        assert_eq!(error, "uml/build.sh: it ended well and printed no line linux=PATH");
    }

    #[test]
    fn what_a_script_misses_is_what_it_says_last() {
        let error = paths("echo 'flex: not found; apt-get install flex' >&2; exit 3", LONG);
        let expected = "uml/build.sh: exit status: 3; flex: not found; apt-get install flex";
        assert_eq!(error.unwrap_err(), expected);
        assert_eq!(
            paths("exit 1", LONG).unwrap_err(),
            "uml/build.sh: exit status: 1; it printed nothing"
        );
        let error = paths("echo 'ptrace(2) is not permitted; add it' >&2; exit 77", LONG);
        let expected = "this needs something that this host lacks; \
                        uml/build.sh; ptrace(2) is not permitted; add it";
        assert_eq!(error.unwrap_err(), expected);
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("qemu/fetch.sh");
        let error = paths_of(&mut Command::new(&missing), &[], LONG, &Heard::default());
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("qemu/fetch.sh: No such file"), "{error}");
    }

    #[test]
    fn one_that_hangs_is_ended_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let (boot, pids) = (folder.path().join("uml/boot.sh"), folder.path().join("pids"));
        script(&boot, "echo booting; sleep 600 & echo $! > $1; echo $$ >> $1; sleep 600");
        let mut command = Command::new(&boot);
        let limit = Duration::from_millis(700);
        let mut program = Program::start("booting", command.arg(&pids), limit).unwrap();
        let heard = Heard::default();
        assert_eq!(program.line(&heard).unwrap().as_deref(), Some("booting"));
        let error = program.line(&heard).unwrap_err().to_string();
        assert_eq!(error, "booting: no end after 0.7 s; ended; booting");
        drop(program);
        for pid in fs::read_to_string(&pids).unwrap().lines() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{pid} is left: {stat}");
        }
    }

    #[test]
    fn the_user_is_heard_and_progress_is_said_while_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let boot = folder.path().join("uml/boot.sh");
        script(&boot, "echo 'unpacking' >&2; sleep 600");
        let heard = Heard::default();
        let mut program = Program::start("boot", &mut Command::new(&boot), LONG).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_printed = || heard.lines.lock().unwrap().contains(&"unpacking".to_owned());
                while !is_printed() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                heard.stop.store(true, Ordering::Relaxed);
            });
            assert_eq!(program.line(&heard).unwrap_err().to_string(), "boot: stopped");
        });
    }

    #[test]
    fn lines_without_end_are_cut() {
        let mut lines = Vec::new();
        let long = vec![b'x'; LINE_BYTES_MAX as usize * 2 + 1];
        each_line(Some(long.as_slice()), |line| {
            lines.push(line.len());
            true
        });
        assert_eq!(lines, [LINE_BYTES_MAX as usize, LINE_BYTES_MAX as usize, 1]);
        let mut kept = VecDeque::new();
        (0..100).for_each(|number| keep(&mut kept, number.to_string()));
        assert_eq!((kept.len(), kept.back().unwrap().as_str()), (LINES_KEPT, "99"));
    }
}
