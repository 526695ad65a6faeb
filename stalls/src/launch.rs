// SPDX-License-Identifier: MIT OR Apache-2.0
//! Launch: finds the program under test, starts it, and holds it before its first instruction.
//!
//! To be traced from its first instruction, a program has to wait for the tracer. A shell does
//! that: it stops itself and, once continued, becomes the program. It costs a millisecond. The
//! alternative is code between fork and exec, which safe Rust does not allow.
//!
//! Sources: ptrace(2), "Attaching and detaching"; execve(2); sh(1p), `exec`.
//!
//! Does not find the interpreter in a script's first line.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use measure::Error;

/// A started program, killed when this is dropped.
pub(crate) struct Started {
    pub(crate) pid: Pid,
    /// True when it has ended and has been waited for.
    pub(crate) gone: bool,
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.gone {
            // Either call fails only when the process is gone already.
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = waitpid(self.pid, Some(WaitPidFlag::__WALL));
        }
    }
}

/// Checks a command; returns it with the path of a program that can run here as its first word.
pub(crate) fn checked(command: &[OsString]) -> Result<Vec<OsString>, Error> {
    let Some((name, arguments)) = command.split_first() else {
        return Err(Error::Caller {
            what: "lab stalls".to_owned(),
            found: "no command; write it behind --, as in: lab stalls -- ./program".to_owned(),
        });
    };
    let path = found(name)?;
    let mut words = vec![path.into_os_string()];
    words.extend_from_slice(arguments);
    Ok(words)
}

/// Finds a program as the shell would.
fn found(name: &OsStr) -> Result<PathBuf, Error> {
    let caller = |found: String| Error::Caller { what: name.to_string_lossy().into_owned(), found };
    let direct = name.as_encoded_bytes().contains(&b'/');
    let path = match direct {
        true => Some(PathBuf::from(name)),
        false => std::env::var_os("PATH").and_then(|folders| {
            std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| {
                path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
            })
        }),
    };
    let path = path.ok_or_else(|| caller("no such command in PATH; write its path".to_owned()))?;
    let about = path.metadata().map_err(|error| caller(error.to_string()))?;
    if !about.is_file() || about.permissions().mode() & 0o111 == 0 {
        return Err(caller("not a file that can be executed".to_owned()));
    }
    let mut head = Vec::new();
    // A program that may be run but not read is accepted.
    if let Ok(file) = File::open(&path) {
        let _ = file.take(ELF_HEAD_BYTES).read_to_end(&mut head);
    }
    if let Some(wrong) = wrong_machine(&head) {
        return Err(caller(wrong));
    }
    Ok(path)
}

/// Returns the mismatch of an ELF file with this header; none for other files.
fn wrong_machine(head: &[u8]) -> Option<String> {
    let machine = u16::from_le_bytes(head.get(18..20)?.try_into().ok()?);
    if !head.starts_with(b"\x7fELF") || head[4..6] == [2, 1] && machine == EM_X86_64 {
        return None;
    }
    let bits = if head[4] == 2 { 64 } else { 32 };
    Some(format!("an ELF file for machine {machine} of {bits} bits; this reads x86-64 only"))
}

/// Starts `command`, which has been [`checked`], as a shell that stops before its exec of the
/// program. Its standard output is ours, or our standard error when `aside`.
pub(crate) fn stopped(command: &[OsString], aside: bool) -> Result<Started, Error> {
    let what = || format!("starting {}", command[0].to_string_lossy());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "kill -STOP $$; exec \"$@\"", "sh"]).args(command);
    if aside {
        shell.stdout(Stdio::from(std::io::stderr()));
    }
    let child = shell.spawn().map_err(Error::host(what()))?;
    let pid = Pid::from_raw(child.id() as i32);
    let mut started = Started { pid, gone: false };
    match waited(pid, WaitPidFlag::WUNTRACED) {
        Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => Ok(started),
        Ok(status) => {
            started.gone = matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
            Err(Error::Host { what: what(), found: format!("the shell did not stop: {status:?}") })
        }
        Err(error) => Err(Error::Host { what: what(), found: error.desc().to_owned() }),
    }
}

/// Calls waitpid(2), again after EINTR.
pub(crate) fn waited(pid: Pid, flags: WaitPidFlag) -> nix::Result<WaitStatus> {
    loop {
        match waitpid(pid, Some(flags)) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// System V ABI, AMD64 supplement.
const EM_X86_64: u16 = 62;
const ELF_HEAD_BYTES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        match checked(&words) {
            Ok(words) => words[0].to_string_lossy().into_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_command_is_found_as_the_shell_finds_it() {
        assert!(outcome(&["sh", "-c", "true"]).ends_with("/sh"));
        assert_eq!(outcome(&["/bin/sh"]), "/bin/sh");
        assert!(outcome(&[]).contains("write it behind --"));
        assert_eq!(
            outcome(&["no-such-program-here"]),
            "no-such-program-here: no such command in PATH; write its path"
        );
        assert!(outcome(&["./no-such-program"]).contains("No such file"));
        assert!(outcome(&["/etc/passwd"]).contains("not a file that can be executed"));
        assert!(outcome(&["/"]).contains("not a file that can be executed"));
    }

    #[test]
    fn programs_for_other_machines_are_refused() {
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(64, 0);
        head[18] = 62;
        assert_eq!(wrong_machine(&head), None);
        head[18] = 183;
        let wrong = wrong_machine(&head).unwrap();
        assert!(wrong.contains("machine 183 of 64 bits"), "{wrong}");
        (head[18], head[4]) = (3, 1);
        assert!(wrong_machine(&head).unwrap().contains("machine 3 of 32 bits"));
        assert_eq!(wrong_machine(b"#!/bin/sh -and some more words"), None);
        assert_eq!(wrong_machine(b"\x7fELF"), None);
    }

    #[test]
    fn a_program_waits_to_be_let_go() {
        let command = ["/bin/sh", "-c", "exit 7"].map(OsString::from);
        let mut started = stopped(&command, true).unwrap();
        kill(started.pid, Signal::SIGCONT).unwrap();
        let status = waited(started.pid, WaitPidFlag::empty()).unwrap();
        started.gone = true;
        assert_eq!(status, WaitStatus::Exited(started.pid, 7));
        let left = stopped(&command, true).unwrap();
        let pid = left.pid;
        drop(left);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH), "ended and waited for");
    }
}
