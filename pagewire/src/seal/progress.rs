// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a run: a bar on a terminal, or with `--json` one object per line for scripts.
//!
//! A thread beside the workers reads the counters that they keep anyway ([`SealProgress`]); a run
//! without an audience costs nothing more. Rate and remaining time are those of the last seconds: a
//! library has large files first, so that a mean over the run would be too optimistic. The known
//! total can grow while folders are still being read.
//!
//! Does not distinguish forms; it counts bytes and files only.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use seal::counted;
use seal::engine::SealProgress;
use serde::Serialize;

use crate::escape::EscapedLines;

/// Bytes and files of the whole run known so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

/// Receiver of the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A bar on standard error.
    Terminal,
    /// One object per line on standard output.
    Script,
    /// Progress is not shown.
    Nobody,
}

impl Audience {
    /// Returns `Script` when `json` is set, otherwise `Terminal` when standard error is one.
    pub(crate) fn here(json: bool) -> Self {
        match json {
            true => Self::Script,
            false if std::io::stderr().is_terminal() => Self::Terminal,
            false => Self::Nobody,
        }
    }
}

/// Runs `work` and shows the progress in `seen` to `audience`. Calls `total` for each sample.
pub(crate) fn watched<T>(
    audience: Audience,
    seen: &SealProgress,
    total: impl Fn() -> Total + Sync,
    work: impl FnOnce() -> T,
) -> T {
    let between = match audience {
        Audience::Terminal => BAR_EVERY,
        Audience::Script => LINE_EVERY,
        Audience::Nobody => return work(),
    };
    // This channel closes when the work ends, also by a panic, so the thread always ends.
    let (working, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ended = ended;
            let mut show = shower(audience);
            let mut window = RateWindow::default();
            let began = Instant::now();
            let mut look = || show(&window.look(began.elapsed(), seen, total()));
            while ended.recv_timeout(between) == Err(RecvTimeoutError::Timeout) {
                look();
            }
            // Writes a last line for scripts, so that a short run has one, too.
            if audience == Audience::Script {
                look();
            }
        });
        let working = working;
        let done = work();
        drop(working);
        done
    })
}

fn shower(audience: Audience) -> impl FnMut(&Sight) {
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {msg}");
    let bar = match audience {
        Audience::Terminal => ProgressBar::new(0),
        _ => ProgressBar::hidden(),
    };
    let shown = Shown(bar.with_style(style.expect("the template is a constant")));
    move |sight| match audience {
        Audience::Script => line(&Line { event: "progress", sight }),
        _ => {
            shown.0.set_length(sight.total_bytes);
            shown.0.set_position(sight.done_bytes);
            shown.0.set_message(sight.to_string());
        }
    }
}

/// Bar that is cleared from the terminal when it is dropped.
struct Shown(ProgressBar);

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    #[serde(flatten)]
    sight: &'a Sight,
}

/// Writes an object as one line of JSON to standard output.
pub(crate) fn line(object: &impl Serialize) {
    let text = serde_json::to_string(object).expect("plain data");
    let text = format!("{}\n", EscapedLines(text));
    let mut out = std::io::stdout().lock();
    // Ignores a closed standard output.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Progress at one sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Sight {
    done_bytes: u64,
    total_bytes: u64,
    done_files: u64,
    failed_files: u64,
    total_files: u64,
    /// Rate over the last seconds.
    bytes_per_second: u64,
    /// Estimated seconds to the end; `None` while no bytes move.
    seconds_left: Option<u64>,
}

impl std::fmt::Display for Sight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (done, total) = (size(self.done_bytes), size(self.total_bytes));
        let files = counted(self.total_files, "file");
        write!(f, "{done} of {total}, {} of {files}", self.done_files)?;
        if self.failed_files > 0 {
            write!(f, ", {} failed", self.failed_files)?;
        }
        write!(f, ", {}/s", size(self.bytes_per_second))?;
        match self.seconds_left {
            None => Ok(()),
            Some(seconds @ ..60) => write!(f, ", {seconds} s left"),
            Some(seconds) if seconds < 3600 => {
                write!(f, ", {}:{:02} left", seconds / 60, seconds % 60)
            }
            Some(seconds) => write!(f, ", {}:{:02} h left", seconds / 3600, seconds / 60 % 60),
        }
    }
}

/// Formats bytes in powers of 1000, as disks are sold, with three digits.
pub(crate) fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"].iter();
    let mut unit = units.next().expect("a list");
    while value >= 999.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1000.0, next);
    }
    let digits = match value {
        _ if *unit == "B" => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// Samples of the last seconds: time since the start and bytes done.
#[derive(Debug, Default)]
struct RateWindow(VecDeque<(Duration, u64)>);

impl RateWindow {
    fn look(&mut self, at: Duration, seen: &SealProgress, total: Total) -> Sight {
        let done_bytes = seen.bytes.load(Ordering::Relaxed);
        let bytes_per_second = self.rate(at, done_bytes);
        let total_bytes = total.bytes.max(done_bytes);
        let left = (total_bytes - done_bytes) as f64 / bytes_per_second;
        Sight {
            done_bytes,
            total_bytes,
            done_files: seen.done.load(Ordering::Relaxed),
            failed_files: seen.failed.load(Ordering::Relaxed),
            total_files: total.files,
            bytes_per_second: bytes_per_second as u64,
            seconds_left: left.is_finite().then(|| left.ceil() as u64),
        }
    }

    /// Returns the bytes per second since the oldest kept sample.
    fn rate(&mut self, at: Duration, bytes: u64) -> f64 {
        if self.0.is_empty() {
            self.0.push_back((Duration::ZERO, 0));
        }
        // Keeps one sample older than the window, so that the samples span the whole window.
        while self.0.get(1).is_some_and(|(then, _)| at.saturating_sub(*then) > WINDOW) {
            self.0.pop_front();
        }
        let (then, before) = self.0[0];
        self.0.push_back((at, bytes));
        let seconds = at.saturating_sub(then).as_secs_f64();
        if seconds > 0.0 { bytes.saturating_sub(before) as f64 / seconds } else { 0.0 }
    }
}

const BAR_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    #[test]
    fn the_rate_is_of_the_last_seconds_and_so_is_what_is_left() {
        let (seen, total) = (SealProgress::default(), Total { bytes: 3000 * MB, files: 9 });
        let mut window = RateWindow::default();
        let mut look = |second: u64, megabytes: u64| {
            seen.bytes.store(megabytes * MB, Ordering::Relaxed);
            window.look(Duration::from_secs(second), &seen, total)
        };
        // The rate is 100 MB a second at first, 10 later.
        let first = look(1, 100);
        assert_eq!((first.bytes_per_second, first.seconds_left), (100 * MB, Some(29)));
        for second in 2..=10 {
            look(second, second * 100);
        }
        for second in 11..20 {
            look(second, 1000 + (second - 10) * 10);
        }
        let late = look(20, 1100);
        assert_eq!((late.bytes_per_second, late.seconds_left), (10 * MB, Some(190)));
        assert_eq!(late.to_string(), "1.10 GB of 3.00 GB, 0 of 9 files, 10.0 MB/s, 3:10 left");
    }

    #[test]
    fn what_stands_still_has_no_end() {
        let seen = SealProgress::default();
        seen.failed.store(2, Ordering::Relaxed);
        let total = Total { bytes: 5, files: 3 };
        let sight = RateWindow::default().look(Duration::from_secs(1), &seen, total);
        assert_eq!((sight.bytes_per_second, sight.seconds_left), (0, None));
        assert_eq!(sight.to_string(), "0 B of 5 B, 0 of 3 files, 2 failed, 0 B/s");
    }

    #[test]
    fn more_than_was_known_is_no_total() {
        let seen = SealProgress::default();
        seen.bytes.store(7, Ordering::Relaxed);
        let sight = RateWindow::default().look(Duration::ZERO, &seen, Total::default());
        assert_eq!((sight.done_bytes, sight.total_bytes), (7, 7));
    }

    #[test]
    fn work_that_panics_ends_its_watcher() {
        let seen = SealProgress::default();
        let work = || -> () { std::panic::resume_unwind(Box::new("gone")) };
        let watch = || watched(Audience::Script, &seen, Total::default, work);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(watch)).is_err());
    }

    #[test]
    fn sizes_have_three_digits() {
        let shown = [0, 999, 1000, 9_994, 99_940, 999_499, 999_500, u64::MAX].map(size);
        let expected =
            ["0 B", "999 B", "1.00 kB", "9.99 kB", "99.9 kB", "999 kB", "1.00 MB", "18.4 EB"];
        assert_eq!(shown, expected);
    }
}
