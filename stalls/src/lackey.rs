// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the program in valgrind, whose tool lackey prints every instruction, load and store, and
//! evaluates the trace as it arrives.
//!
//! Lackey misses no access in any function, at some half a million accesses a second. The trace of
//! a second of the program would be hundreds of gigabytes, so it goes through a pipe and is never
//! stored. The program sees the processor that valgrind emulates, which has AVX2 and, as of 3.19,
//! no AVX-512: kernels chosen by CPUID then differ from those of a native run.
//!
//! With `--function`, only accesses from a wanted function's first instruction to its return count.
//! A trace has no registers, but calls store their return address and returns load it, so the stack
//! of calls is followed by those accesses.
//!
//! Sources: Valgrind User Manual, "Lackey: an example tool", `--trace-mem`; fifo(7).
//!
//! Does not distinguish threads: valgrind runs one at a time and changes seldom, so that hardly a
//! pair is of two threads. Does not follow processes that the program starts.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};

use crate::code::{Code, Flow, INSTRUCTION_BYTES_MAX};
use crate::images::Images;
use crate::pairing::Pairing;
use crate::{Seen, StallOptions, Trace, Tracer};
use measure::Error;

pub(crate) static TRACER: Tracer = Tracer {
    name: "lackey",
    summary: "every load and store, by valgrind; no AVX-512",
    sources: &["Valgrind User Manual, Lackey"],
    probe,
    run,
};

fn probe(_: &StallOptions) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("this processor is no x86-64".to_owned());
    }
    let asked = Command::new(VALGRIND).args(["--tool=lackey", "--version"]).output();
    match asked {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("valgrind: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("valgrind: not installed: {error}; apt install valgrind")),
    }
}

fn run(options: &StallOptions) -> Result<Seen, Error> {
    let failed = |what: &'static str| move |error: io::Error| Error::host(what)(error);
    let folder = tempfile::tempdir().map_err(failed("making a folder for a pipe"))?;
    let path = folder.path().join("trace");
    let pipe = fifo(&path).map_err(failed("making a pipe for the trace"))?;
    let mut command = Command::new(VALGRIND);
    command
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        // Neither a file nor the environment adds options, and a fork's child adds no lines.
        .args(["--command-line-only=yes", "--child-silent-after-fork=yes"])
        .arg(format!("--log-file={}", path.display()))
        .args(&options.command);
    if options.aside {
        command.stdout(Stdio::from(io::stderr()));
    }
    let child = command.spawn().map_err(failed("starting valgrind"))?;
    let mut tracing = Tracing::new(options, child.id());
    let mut source = Source { pipe, child: Running(child), begun: false };
    let followed = tracing.follow(&mut source);
    let done = followed.and_then(|()| source.child.0.wait());
    let status = done.map_err(|error| Error::Host {
        what: format!("reading valgrind's trace of {}", options.name()),
        found: error.to_string(),
    })?;
    if tracing.lines == 0 {
        return Err(Error::Host {
            what: format!("tracing {}", options.name()),
            found: format!("valgrind ended with {status} and wrote no trace; it says why above"),
        });
    }
    let exit = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(Seen::Trace(Box::new(tracing.trace(exit))))
}

/// Opens the pipe without waiting for a writer, as there may never be one.
fn fifo(path: &Path) -> io::Result<File> {
    let here = rustix::fs::CWD;
    rustix::fs::mknodat(here, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let pipe: OwnedFd = rustix::fs::open(path, flags, Mode::empty())?;
    // The limit on a user's pipes may be reached; the usual 64 KiB are enough, too.
    let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
    Ok(File::from(pipe))
}

/// Valgrind's process, killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when the process has ended already, which is equivalent.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The trace's pipe, and the process that writes it.
struct Source {
    pipe: File,
    child: Running,
    begun: bool,
}

impl Source {
    /// Reads some bytes of the trace; returns 0 at its end.
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.pipe.read(target) {
                Ok(0) if self.begun => return Ok(0),
                // No writer has opened the pipe yet.
                Ok(0) => {}
                Ok(count) => {
                    self.begun = true;
                    // Valgrind writes line by line. Waking for each line would cost both sides most
                    // of their time.
                    if count < target.len() / 4 {
                        std::thread::sleep(GATHER);
                    }
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.begun = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if !self.begun && self.child.0.try_wait()?.is_some() {
                return Ok(0);
            }
            let wait = Timespec { tv_sec: 0, tv_nsec: POLL_NS };
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Turns a trace into pairs.
struct Tracing<'a> {
    options: &'a StallOptions,
    pid: u32,
    memory: Option<File>,
    images: Images,
    code: Code,
    pairing: Pairing,
    /// Names of the wanted functions; part `n` of the pairs is of number `n - 1`.
    functions: Vec<String>,
    /// Numbers of the wanted functions by their first instruction.
    entries: HashMap<u64, u32>,
    calls: Calls,
    /// The instruction that was traced last.
    at: At,
    lines: u64,
}

/// Properties of the instruction that the next accesses belong to.
#[derive(Clone, Copy)]
struct At {
    flow: Flow,
    reads: bool,
    writes: bool,
}

impl<'a> Tracing<'a> {
    fn new(options: &'a StallOptions, pid: u32) -> Self {
        Self {
            options,
            pid,
            memory: None,
            images: Images::default(),
            code: Code::new(),
            pairing: Pairing::new(options.reach()),
            functions: Vec::new(),
            entries: HashMap::new(),
            calls: Calls::default(),
            at: At { flow: Flow::Other, reads: false, writes: false },
            lines: 0,
        }
    }

    fn follow(&mut self, source: &mut Source) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut filled = 0;
        loop {
            let count = source.read(&mut buffer[filled..])?;
            if count == 0 {
                return Ok(());
            }
            filled += count;
            let whole = buffer[..filled].iter().rposition(|byte| *byte == b'\n');
            let Some(end) = whole.map(|at| at + 1) else {
                // Lackey writes no line that fills the buffer.
                filled = if filled == buffer.len() { 0 } else { filled };
                continue;
            };
            for line in buffer[..end].split(|byte| *byte == b'\n') {
                self.line(line);
            }
            buffer.copy_within(end..filled, 0);
            filled -= end;
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Some((kind, address, bytes)) = parsed(line) else { return };
        self.lines += 1;
        match kind {
            b'I' => self.instruction(address),
            b'L' => self.load(address, bytes),
            b'S' => self.store(address, bytes),
            _ => {
                self.load(address, bytes);
                self.store(address, bytes);
            }
        }
    }

    fn instruction(&mut self, address: u64) {
        if !self.images.contains(address) {
            self.discover();
        }
        let memory = &mut self.memory;
        let pid = self.pid;
        let images = &self.images;
        // The program may have ended before its last code is decoded; the file has the bytes then.
        let known = self.code.at(address, |bytes| match read(memory, pid, address, bytes) {
            0 => images.bytes(address, bytes),
            length => length,
        });
        self.at = At { flow: known.flow, reads: known.reads, writes: known.writes };
        if let Some(number) = self.entries.get(&address)
            && self.calls.enter()
        {
            self.pairing.enter(number + 1);
        }
        if self.judged() {
            self.pairing.instruction(address, known.kind);
        }
    }

    /// Counts only accesses that the instruction has: valgrind keeps some of its own on the
    /// program's stack (`bts` of two registers is one).
    fn load(&mut self, address: u64, bytes: u32) {
        if self.judged() && self.at.reads {
            self.pairing.load(address, bytes, true);
        }
        if self.at.flow == Flow::Returns {
            self.calls.returned(address);
        }
    }

    fn store(&mut self, address: u64, bytes: u32) {
        if self.judged() && self.at.writes {
            self.pairing.store(address, bytes, true);
        }
        if self.at.flow == Flow::Calls {
            self.calls.called(address);
        }
    }

    fn judged(&self) -> bool {
        self.options.function.is_none() || self.calls.within.is_some()
    }

    /// Looks up mappings for code at an unknown address. The program is at most a pipe's length
    /// ahead, so the mapping is still there. The memory is opened again, too: after an exec it is
    /// another.
    fn discover(&mut self) {
        let Ok(maps) = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)) else { return };
        self.memory = None;
        for function in self.images.read(&maps, self.options.function.as_deref()) {
            let number = self.functions.len() as u32;
            self.entries.insert(function.address, number);
            self.functions.push(function.name);
        }
    }

    fn trace(self, exit: Option<i32>) -> Trace {
        let note = "threads are not told apart; processes that it started are not looked at";
        Trace {
            pairing: self.pairing,
            code: self.code,
            images: self.images,
            functions: self.functions,
            exit,
            notes: vec![note.to_owned()],
        }
    }
}

/// Reads the program's bytes at an address; returns 0 when the program is gone.
fn read(
    memory: &mut Option<File>,
    pid: u32,
    address: u64,
    bytes: &mut [u8; INSTRUCTION_BYTES_MAX],
) -> usize {
    if memory.is_none() {
        *memory = File::open(format!("/proc/{pid}/mem")).ok();
    }
    let Some(memory) = memory else { return 0 };
    match memory.read_at(bytes, address) {
        Ok(count) => count,
        // The mapping ends within the longest instruction: reads up to the end of the page.
        Err(_) => {
            let left = (PAGE_BYTES - address % PAGE_BYTES) as usize;
            let length = left.min(INSTRUCTION_BYTES_MAX);
            memory.read_at(&mut bytes[..length], address).unwrap_or(0)
        }
    }
}

/// The calls that have not returned, by the addresses of their stored return addresses.
#[derive(Default)]
struct Calls {
    slots: Vec<u64>,
    /// Depth of the stack when the wanted function began.
    within: Option<usize>,
}

impl Calls {
    fn called(&mut self, slot: u64) {
        // A loop that calls and jumps away instead of returning leaves its slot behind.
        while self.slots.last().is_some_and(|last| *last <= slot) && self.depth_is_free() {
            self.slots.pop();
        }
        if self.slots.len() < CALLS_MAX {
            self.slots.push(slot);
        }
    }

    /// True when the topmost call is not the one that a wanted function returns from.
    fn depth_is_free(&self) -> bool {
        self.within.is_none_or(|depth| self.slots.len() > depth)
    }

    /// Enters a wanted function, called or jumped to. Returns false within another wanted function,
    /// whose accesses include these.
    fn enter(&mut self) -> bool {
        let outermost = self.within.is_none();
        if outermost {
            self.within = Some(self.slots.len());
        }
        outermost
    }

    /// Handles a return that reads its address at `slot`.
    fn returned(&mut self, slot: u64) {
        let Some(at) = self.slots.iter().rposition(|known| *known == slot) else { return };
        self.slots.truncate(at);
        if self.within.is_some_and(|depth| self.slots.len() < depth) {
            self.within = None;
        }
    }
}

/// Parses `I  04001ab0,3`, or L, S or M behind a blank: kind, address, bytes.
fn parsed(line: &[u8]) -> Option<(u8, u64, u32)> {
    let (kind, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
        [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*kind, rest),
        _ => return None,
    };
    let text = std::str::from_utf8(rest).ok()?;
    let (address, bytes) = text.split_once(',')?;
    Some((kind, u64::from_str_radix(address, 16).ok()?, bytes.parse().ok()?))
}

const VALGRIND: &str = "valgrind";
/// Ten thousand lines; the program is never farther ahead.
const PIPE_BYTES: usize = 256 << 10;
const BUFFER_BYTES: usize = 64 << 10;
const GATHER: Duration = Duration::from_micros(500);
const POLL_NS: i64 = 50_000_000;
const PAGE_BYTES: u64 = 4096;
/// Deeper than a stack of 8 MB allows.
const CALLS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_trace_are_told_from_what_else_valgrind_says() {
        assert_eq!(parsed(b"I  04001ab0,3"), Some((b'I', 0x400_1ab0, 3)));
        assert_eq!(parsed(b" L 1fff000758,8"), Some((b'L', 0x1f_ff00_0758, 8)));
        assert_eq!(parsed(b" S 00000010,16"), Some((b'S', 0x10, 16)));
        assert_eq!(parsed(b" M ffffffffffffffff,1"), Some((b'M', u64::MAX, 1)));
        for other in [
            &b"==6027== Lackey, an example Valgrind tool"[..],
            b"",
            b"I  04001ab0",
            b" L xyz,8",
            b" L 10,-8",
            b" X 10,8",
            b" L 1ffffffffffffffff,8",
            b"I  \xff,3",
        ] {
            assert_eq!(parsed(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_wanted_function_lasts_until_its_return() {
        let mut calls = Calls::default();
        calls.called(0x1000);
        calls.called(0x0f00);
        assert!(calls.enter(), "called");
        calls.called(0x0e00);
        assert!(!calls.enter(), "itself again, or another within");
        calls.returned(0x0e00);
        assert!(calls.within.is_some());
        calls.returned(0x0f00);
        assert!(calls.within.is_none());
        assert!(calls.enter(), "jumped to, in place of the caller's last call");
        calls.returned(0x1000);
        assert!(calls.within.is_none());
    }

    #[test]
    fn slots_that_never_return_are_left_behind() {
        let mut calls = Calls::default();
        calls.called(0x1000);
        assert!(calls.enter());
        for _ in 0..100 {
            calls.called(0x0f00);
        }
        assert_eq!(calls.slots.len(), 2);
        calls.returned(0x0800);
        assert!(calls.within.is_some(), "of a call that was never seen");
        calls.returned(0x1000);
        assert!(calls.within.is_none());
    }
}
