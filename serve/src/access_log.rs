// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line for each answer over HTTP and each session of RTSP, in the combined format.
//!
//! A separate thread formats and writes; a bounded queue leads to it. A slow or full disk costs
//! lines, which are counted, and never delays an answer. Text from clients is escaped as Apache
//! escapes it: no request forges a line. Queries are left out, since they may hold tokens.
//!
//! Costs a line's strings and a place in the queue for each answer, and nothing without a log.
//!
//! Sources: Apache HTTP Server 2.4, "Log Files" (combined log format; escapes since 2.0.46),
//! logrotate(8); open(2) (`O_APPEND`).
//! Does not rotate files: it opens its file again on request.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Zoned;

use crate::error::{Error, Setting};

/// Target of an access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Standard output.
    StandardOutput,
    /// A file, to which lines are appended.
    File(PathBuf),
}

/// An answer or a session, for the log.
pub(crate) struct AccessLine {
    pub(crate) address: IpAddr,
    pub(crate) user: Option<String>,
    /// Method, path and protocol.
    pub(crate) request: String,
    pub(crate) status: u16,
    /// Bytes of content that were sent.
    pub(crate) bytes: u64,
    pub(crate) referer: Option<String>,
    pub(crate) user_agent: Option<String>,
}

/// Writer of the log. Dropping it writes what is queued, for a second at most.
pub(crate) struct AccessLog {
    /// Unset while it is dropped.
    queue: Option<SyncSender<Queued>>,
    state: Arc<LogState>,
    thread: Option<JoinHandle<()>>,
}

enum Queued {
    Line(Box<AccessLine>, Zoned),
    /// Looks at [`LogState::is_to_reopen`].
    Wake,
}

#[derive(Default)]
struct LogState {
    dropped: AtomicU64,
    is_to_reopen: AtomicBool,
}

impl AccessLog {
    /// Opens the log and starts its thread.
    ///
    /// # Errors
    /// [`Error::Setting`]: the file cannot be opened; [`Error::Host`]: no thread can be started.
    pub(crate) fn start(target: &AccessLogTarget) -> Result<AccessLog, Error> {
        let output = LogOutput::open(target).map_err(|source| Error::Setting {
            setting: Setting::AccessLog,
            found: format!("{}: {source}", target.name()),
            cure: "name a file that the user of this server may write, or - for standard output"
                .to_owned(),
        })?;
        let (queue, lines) = sync_channel(QUEUED_MAX);
        let state = Arc::<LogState>::default();
        let (target, of_thread) = (target.clone(), state.clone());
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        let started = thread.spawn(move || write_lines(&lines, output, &target, &of_thread));
        let started = started.map_err(|source| Error::Host {
            call: "clone",
            object: "thread access-log".to_owned(),
            source,
        })?;
        Ok(AccessLog { queue: Some(queue), state, thread: Some(started) })
    }

    /// Queues a line; drops and counts it where the queue is full.
    pub(crate) fn write(&self, line: AccessLine) {
        let line = Queued::Line(Box::new(line), Zoned::now());
        if !self.queue(line) {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has the file opened again, which may have been renamed.
    pub(crate) fn reopen(&self) {
        self.state.is_to_reopen.store(true, Ordering::Relaxed);
        // A full queue wakes the thread as well.
        self.queue(Queued::Wake);
    }

    fn queue(&self, queued: Queued) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.try_send(queued).is_ok())
    }

    /// Returns the number of lines that were not written.
    pub(crate) fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for AccessLog {
    /// Waits for the lines that are queued, but not for a disk that hangs.
    fn drop(&mut self) {
        drop(self.queue.take());
        let until = Instant::now() + LAST_LINES_WAIT;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl AccessLogTarget {
    fn name(&self) -> String {
        match self {
            AccessLogTarget::StandardOutput => "standard output".to_owned(),
            AccessLogTarget::File(path) => path.display().to_string(),
        }
    }
}

/// Open target.
enum LogOutput {
    Standard,
    File(File),
}

impl LogOutput {
    fn open(target: &AccessLogTarget) -> io::Result<LogOutput> {
        match target {
            AccessLogTarget::StandardOutput => Ok(LogOutput::Standard),
            AccessLogTarget::File(path) => Ok(LogOutput::File(open_file(path)?)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            LogOutput::Standard => {
                let mut output = io::stdout().lock();
                output.write_all(bytes)?;
                output.flush()
            }
            LogOutput::File(file) => file.write_all(bytes),
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // The names of users and films are private. A pipe without a reader is an error, not a wait.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    options.append(true).create(true).mode(0o640).custom_flags(flags).open(path)
}

/// Writes lines until the log is dropped.
fn write_lines(
    lines: &Receiver<Queued>,
    mut output: LogOutput,
    target: &AccessLogTarget,
    state: &LogState,
) {
    let mut warned: Option<Instant> = None;
    let mut warn = move |what: &str, error: &io::Error| {
        if warned.is_none_or(|at| at.elapsed() > WARN_EVERY) {
            warned = Some(Instant::now());
            let (name, dropped) = (target.name(), state.dropped.load(Ordering::Relaxed));
            tracing::warn!(
                "access log {name}: {what}: {error}; serving goes on, {dropped} lines are lost so \
                 far"
            );
        }
    };
    let mut text = String::new();
    while let Ok(queued) = lines.recv() {
        text.clear();
        let mut count = 0;
        let mut next = Some(queued);
        // One write sends all lines gathered so far.
        while let Some(queued) = next {
            if let Queued::Line(line, time) = queued {
                format_line(&mut text, &line, &time);
                count += 1;
            }
            next = (text.len() < WRITE_BYTES).then(|| lines.try_recv().ok()).flatten();
        }
        if state.is_to_reopen.swap(false, Ordering::Relaxed) {
            match LogOutput::open(target) {
                Ok(opened) => output = opened,
                Err(error) => warn("opening it again", &error),
            }
        }
        if let Err(error) = output.write(text.as_bytes()) {
            state.dropped.fetch_add(count, Ordering::Relaxed);
            warn("writing", &error);
        }
    }
}

/// Adds a line in the combined format.
fn format_line(text: &mut String, line: &AccessLine, time: &Zoned) {
    let AccessLine { address, user, request, status, bytes, referer, user_agent } = line;
    let user = user.as_deref().map_or_else(|| "-".to_owned(), escaped_word);
    let time = time.strftime("%d/%b/%Y:%H:%M:%S %z");
    let field = |value: &Option<String>| value.as_deref().map_or_else(|| "-".to_owned(), escaped);
    let (referer, agent) = (field(referer), field(user_agent));
    let request = escaped(request);
    // Writing to a string has no error.
    let _ = writeln!(
        text,
        "{address} - {user} [{time}] \"{request}\" {status} {bytes} \"{referer}\" \"{agent}\""
    );
}

/// Escapes quotes, backslashes and all that is no printable ASCII, by bytes as Apache does.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes().take(FIELD_BYTES_MAX) {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}

/// The same for a field without quotes around it.
fn escaped_word(value: &str) -> String {
    match value {
        "" => "\"\"".to_owned(),
        value => escaped(value).replace(' ', "\\x20"),
    }
}

/// Lines that wait: half a second of 16,000 answers a second.
const QUEUED_MAX: usize = 8192;
/// Bytes of one write at most, a long line aside.
const WRITE_BYTES: usize = 64 << 10;
/// Longest field; heads of requests are 16 KiB.
const FIELD_BYTES_MAX: usize = 4096;
const WARN_EVERY: Duration = Duration::from_secs(60);
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &str) -> AccessLine {
        AccessLine {
            address: [192, 0, 2, 7].into(),
            user: None,
            request: format!("GET {path} HTTP/1.1"),
            status: 200,
            bytes: 12,
            referer: None,
            user_agent: Some("a \"b\"\\\n\u{1b}[2J\u{e9}".to_owned()),
        }
    }

    #[test]
    fn lines_are_in_the_combined_format_and_nothing_breaks_them() {
        let time: Zoned = "2026-02-03T04:05:06+01:00[Europe/Berlin]".parse().unwrap();
        let mut text = String::new();
        let user = Some("o'b rian".to_owned());
        format_line(&mut text, &AccessLine { user, ..line("/a") }, &time);
        let expected = "192.0.2.7 - o'b\\x20rian [03/Feb/2026:04:05:06 +0100] \
                        \"GET /a HTTP/1.1\" 200 12 \"-\" \
                        \"a \\\"b\\\"\\\\\\n\\x1b[2J\\xc3\\xa9\"\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn file_is_opened_again_and_a_full_disk_costs_lines_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = AccessLog::start(&AccessLogTarget::File(path.clone())).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let await_line = |path: &Path, words: &str| {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !read(path).contains(words) {
                assert!(Instant::now() < deadline, "{words} is not in {}", read(path));
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        log.write(line("/first"));
        await_line(&path, "GET /first");
        let moved = folder.path().join("log.1");
        std::fs::rename(&path, &moved).unwrap();
        log.reopen();
        log.write(line("/second"));
        assert_eq!(log.dropped(), 0);
        drop(log);
        assert!(read(&path).contains("GET /second"), "queued lines are written at the end");
        assert_eq!(read(&moved).lines().count(), 1);

        let full = AccessLog::start(&AccessLogTarget::File("/dev/full".into())).unwrap();
        full.write(line("/lost"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while full.dropped() == 0 {
            assert!(Instant::now() < deadline, "the line counts as lost");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn log_that_cannot_be_opened_is_refused_with_its_name() {
        let target = AccessLogTarget::File("/dev/null/log".into());
        let error = AccessLog::start(&target).err().unwrap().to_string();
        assert!(error.contains("/dev/null/log") && error.contains("name a file"), "{error}");
    }
}
