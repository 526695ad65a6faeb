// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the program natively up to the wanted functions and steps through them, one instruction at
//! a time.
//!
//! The program uses the processor's own instructions, AVX-512 included, and nothing has to be
//! installed. The price is two switches between processes for each instruction, some 3 µs, so the
//! rest of the program runs at full speed: each wanted function has a breakpoint, and its
//! instructions and those of its callees are stepped until it returns. Tracer and program share one
//! core, where a switch is cheapest.
//!
//! All threads run; one is stepped at a time. Another thread that reaches a wanted function
//! meanwhile passes the breakpoint and is counted, unless it waits until the first is done.
//! Processes that the program starts run without breakpoints.
//!
//! Sources: ptrace(2), `PTRACE_SEIZE`, `PTRACE_SINGLESTEP` and the events; waitpid(2), `__WALL`.
//!
//! Does not watch functions of objects that the program loads while no thread is stepped, nor more
//! than one process. Does not read addresses that a vector register holds. A masked access
//! counts with its whole width, and its pair is reported as uncertain.

mod registers;
mod tracee;

use std::ffi::OsString;
use std::io;

use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace::{self, Event, Options as Events};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::tracee::{Purpose, Tracee};
use super::code::{Access, Code, Known};
use super::images::Images;
use super::launch::{self, Started, waited};
use super::pairing::Pairing;
use super::{Seen, StallOptions, Trace, Tracer};
use measure::Error;

pub(super) static TRACER: Tracer = Tracer {
    name: "steps",
    summary: "single steps through a function by ptrace; the processor's own instructions",
    sources: &["ptrace(2)"],
    probe: |_| allowed(),
    run,
};

/// Returns `Ok` when a program may be traced here: tries it on one that does nothing.
fn allowed() -> Result<(), String> {
    let nothing = ["/bin/sh", "-c", ":"].map(OsString::from);
    let program = launch::stopped(&nothing, true).map_err(|error| error.to_string())?;
    ptrace::seize(program.pid, Events::empty()).map_err(|error| {
        let scope = std::fs::read_to_string(YAMA).unwrap_or_default();
        let scope = if scope.is_empty() { String::new() } else { format!(" ({YAMA}: {scope})") };
        format!("ptrace: {}{}; a container may forbid it", error.desc(), scope.trim_end())
    })
}

fn run(options: &StallOptions) -> Result<Seen, Error> {
    let pinned = Pinned::here();
    let program = launch::stopped(&options.command, options.aside)?;
    let pid = program.pid;
    let mut stepper = Stepper {
        options,
        program,
        tracee: None,
        images: Images::default(),
        code: Code::new(),
        pairing: Pairing::new(options.reach()),
        functions: Vec::new(),
        accesses: Vec::new(),
        left: options.steps,
        passed: 0,
        exit: None,
    };
    let done = stepper.follow();
    drop(pinned);
    done.map_err(|error| Error::Host {
        what: format!("stepping through {} (process {pid})", options.name()),
        found: error.to_string(),
    })?;
    if stepper.tracee.is_none() {
        return Err(Error::Host {
            what: format!("starting {}", options.name()),
            found: "it could not be executed; the shell says why above".to_owned(),
        });
    }
    Ok(Seen::Trace(Box::new(stepper.trace())))
}

struct Stepper<'a> {
    options: &'a StallOptions,
    program: Started,
    /// None until the shell has become the program.
    tracee: Option<Tracee>,
    images: Images,
    code: Code,
    pairing: Pairing,
    /// Names of the wanted functions; part `n` of the pairs is of number `n - 1`.
    functions: Vec<String>,
    accesses: Vec<Access>,
    left: u64,
    passed: u64,
    exit: Option<i32>,
}

/// State of a thread after a stop.
enum Next {
    /// The thread runs again, or is gone.
    Runs,
    /// The thread is stopped at a breakpoint, before its instruction.
    Hit(Pid, Purpose, Box<user_regs_struct>),
    /// The program ended.
    Ended,
}

impl Stepper<'_> {
    /// Follows the process from the shell that becomes the program to the program's end.
    fn follow(&mut self) -> io::Result<()> {
        let pid = self.program.pid;
        let events = Events::PTRACE_O_EXITKILL
            | Events::PTRACE_O_TRACECLONE
            | Events::PTRACE_O_TRACEFORK
            | Events::PTRACE_O_TRACEVFORK
            | Events::PTRACE_O_TRACEVFORKDONE
            | Events::PTRACE_O_TRACEEXEC;
        ptrace::seize(pid, events)?;
        kill(pid, Signal::SIGCONT)?;
        loop {
            let status = any()?;
            match self.handle(status)? {
                Next::Runs => {}
                Next::Ended => return Ok(()),
                Next::Hit(thread, Purpose::Start, registers) => {
                    self.tracee().remove(registers.rip)?;
                    self.discover()?;
                    match self.options.function {
                        None => self.step(thread, *registers, None)?,
                        Some(_) => resume(thread, None)?,
                    }
                }
                Next::Hit(thread, Purpose::Function(number), registers) => {
                    self.step(thread, *registers, Some(number))?;
                }
            }
            if self.program.gone {
                return Ok(());
            }
        }
    }

    /// Returns the tracee, which exists once breakpoints are set.
    fn tracee(&mut self) -> &mut Tracee {
        self.tracee.as_mut().expect("a program with breakpoints has been opened")
    }

    fn handle(&mut self, status: WaitStatus) -> io::Result<Next> {
        let leader = self.program.pid;
        match status {
            WaitStatus::PtraceEvent(pid, _, event) => {
                self.event(pid, event)?;
                Ok(Next::Runs)
            }
            WaitStatus::Stopped(pid, Signal::SIGTRAP) => {
                let mut registers = ptrace::getregs(pid)?;
                let address = registers.rip.wrapping_sub(1);
                let purpose = self.tracee.as_ref().and_then(|tracee| tracee.purpose(address));
                let Some(purpose) = purpose else {
                    resume(pid, Some(Signal::SIGTRAP))?;
                    return Ok(Next::Runs);
                };
                registers.rip = address;
                ptrace::setregs(pid, registers)?;
                Ok(Next::Hit(pid, purpose, Box::new(registers)))
            }
            WaitStatus::Stopped(pid, signal) => {
                resume(pid, Some(signal))?;
                Ok(Next::Runs)
            }
            WaitStatus::Exited(pid, status) if pid == leader => Ok(self.ended(status)),
            WaitStatus::Signaled(pid, signal, _) if pid == leader => {
                Ok(self.ended(SIGNALLED + signal as i32))
            }
            _ => Ok(Next::Runs),
        }
    }

    fn ended(&mut self, exit: i32) -> Next {
        self.program.gone = true;
        self.exit = Some(exit);
        Next::Ended
    }

    /// Handles a ptrace event of a thread; the thread, or its child, runs on.
    fn event(&mut self, pid: Pid, event: i32) -> io::Result<()> {
        let leader = self.program.pid;
        if event == EXEC && pid == leader {
            self.begin()?;
        } else if event == VFORK_DONE {
            // The child had the same memory, and its breakpoints were removed.
            if let Some(tracee) = &self.tracee {
                tracee.lift_all(false)?;
            }
        } else if event == STOP && pid != leader && !tracee::is_thread_of(pid, leader) {
            if let Some(tracee) = &self.tracee {
                tracee.clear_copy(pid)?;
            }
            return gone_is_fine(ptrace::detach(pid, None));
        }
        resume(pid, None)
    }

    /// Sets up the tracee after the exec, before the program's first instruction.
    fn begin(&mut self) -> io::Result<()> {
        let pid = self.program.pid;
        let mut tracee = Tracee::open(pid)?;
        if self.left > 0 {
            tracee.set(tracee::entry(pid)?, Purpose::Start)?;
        }
        self.tracee = Some(tracee);
        Ok(())
    }

    /// Searches the loaded objects, and sets a breakpoint at each wanted function in them.
    fn discover(&mut self) -> io::Result<()> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.program.pid))?;
        for function in self.images.read(&maps, self.options.function.as_deref()) {
            let number = self.functions.len() as u32;
            self.tracee().set(function.address, Purpose::Function(number))?;
            self.functions.push(function.name);
        }
        Ok(())
    }

    /// Steps a thread until the function it is stopped at returns; without one, to the thread's
    /// end.
    fn step(
        &mut self,
        thread: Pid,
        mut registers: user_regs_struct,
        number: Option<u32>,
    ) -> io::Result<()> {
        let frame = number.map_or(u64::MAX, |_| registers.rsp);
        self.pairing.enter(number.map_or(0, |number| number + 1));
        let (mut signal, mut silent) = (None, false);
        while self.left > 0 && registers.rsp <= frame {
            self.left -= 1;
            let known = self.known(registers.rip)?;
            self.code.accesses(
                &known,
                |name| registers::value(&registers, name),
                &mut self.accesses,
            );
            match self.one(thread, registers.rip, signal.take())? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {
                    if !std::mem::take(&mut silent) {
                        self.tell(registers.rip, &known);
                    }
                }
                // Not executed yet. The next step delivers the signal, and ends before the
                // handler's first instruction, or after this one when there is no handler.
                WaitStatus::Stopped(_, other) => (signal, silent) = (Some(other), true),
                WaitStatus::PtraceEvent(_, _, event) if event != EXEC => {
                    if event == VFORK_DONE {
                        self.tracee().lift_all(false)?;
                    }
                    // The next step ends where the system call does.
                    silent = event != STOP;
                }
                other => {
                    self.handle(other)?;
                    return Ok(());
                }
            }
            registers = ptrace::getregs(thread)?;
        }
        if self.left == 0 {
            // The rest of the program runs natively.
            let tracee = self.tracee();
            tracee.lift_all(true)?;
            tracee.forget();
        }
        resume(thread, signal)
    }

    /// Returns the instruction at an address; searches code that was loaded since.
    fn known(&mut self, address: u64) -> io::Result<Known> {
        if !self.images.contains(address) {
            self.discover()?;
        }
        let tracee = self.tracee.as_ref().expect("a program that is stepped has been opened");
        Ok(self.code.at(address, |bytes| tracee.read(address, bytes)))
    }

    /// Steps one instruction of `thread`; handles the stops of other threads meanwhile.
    fn one(&mut self, thread: Pid, at: u64, signal: Option<Signal>) -> io::Result<WaitStatus> {
        self.tracee().lift(at, true)?;
        ptrace::step(thread, signal)?;
        let status = loop {
            let status = any()?;
            if status.pid() == Some(thread) {
                break status;
            }
            if let Next::Hit(other, _, registers) = self.handle(status)? {
                self.pass(other, registers.rip)?;
            }
            if self.program.gone {
                return Ok(status);
            }
        };
        // After an exec or an exit this memory is gone.
        if matches!(status, WaitStatus::Stopped(..)) {
            self.tracee().lift(at, false)?;
        }
        Ok(status)
    }

    /// Lets a thread pass the breakpoint it is stopped at.
    fn pass(&mut self, thread: Pid, at: u64) -> io::Result<()> {
        self.passed += 1;
        self.tracee().lift(at, true)?;
        ptrace::step(thread, None)?;
        let status = waited(thread, WaitPidFlag::__WALL)?;
        self.tracee().lift(at, false)?;
        match status {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => resume(thread, None),
            other => self.handle(other).map(|_| ()),
        }
    }

    fn tell(&mut self, address: u64, known: &Known) {
        self.pairing.instruction(address, known.kind);
        for access in &self.accesses {
            match *access {
                Access::Load(address, bytes, certain) => self.pairing.load(address, bytes, certain),
                Access::Store(address, bytes, certain) => {
                    self.pairing.store(address, bytes, certain);
                }
                Access::Gather => self.pairing.unjudged(),
            }
        }
    }

    fn trace(self) -> Trace {
        let mut notes = Vec::new();
        if self.left == 0 {
            let steps = self.options.steps;
            notes.push(format!("stopped after {steps} steps, the most that was allowed"));
        }
        if self.passed > 0 {
            let passed = self.passed;
            notes.push(format!("{passed} calls of other threads were let through unstepped"));
        }
        notes.push("ran on one core; processes that it started are not looked at".to_owned());
        Trace {
            pairing: self.pairing,
            code: self.code,
            images: self.images,
            functions: self.functions,
            exit: self.exit,
            notes,
        }
    }
}

/// Waits for the next stop or end of a thread that this thread started or traces.
fn any() -> io::Result<WaitStatus> {
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    Ok(waited(Pid::from_raw(-1), flags)?)
}

fn resume(thread: Pid, signal: Option<Signal>) -> io::Result<()> {
    gone_is_fine(ptrace::cont(thread, signal))
}

/// Accepts the error of a stopped thread that was killed meanwhile: waitpid reports its end next.
fn gone_is_fine(done: nix::Result<()>) -> io::Result<()> {
    match done {
        Err(Errno::ESRCH) => Ok(()),
        other => Ok(other?),
    }
}

/// Pins this thread, and the processes that it starts, to one core until dropped.
struct Pinned(Option<CpuSet>);

impl Pinned {
    fn here() -> Self {
        let before = sched_getaffinity(None).ok();
        let first = before.and_then(|set| (0..CpuSet::MAX_CPU).find(|core| set.is_set(*core)));
        let Some(core) = first else { return Self(None) };
        let mut one = CpuSet::new();
        one.set(core);
        match sched_setaffinity(None, &one) {
            Ok(()) => Self(before),
            // Tracing is slower without it, and equally correct.
            Err(_) => Self(None),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}

const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
const EXEC: i32 = Event::PTRACE_EVENT_EXEC as i32;
const STOP: i32 = Event::PTRACE_EVENT_STOP as i32;
const VFORK_DONE: i32 = Event::PTRACE_EVENT_VFORK_DONE as i32;
/// Added to the signal's number in a shell's exit status.
const SIGNALLED: i32 = 128;
