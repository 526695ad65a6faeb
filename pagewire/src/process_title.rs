// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overwrites passwords in the arguments of this process, which ps(1) shows to every user of the
//! machine.
//!
//! The kernel reads the arguments from the memory of the process each time, so that what is
//! overwritten there is gone. They are overwritten before anything else is done; who looks in the
//! milliseconds before may see them.
//!
//! Sources: proc(5) (`cmdline`, `mem`, `arg_start` and `arg_end` of `stat`).
//! Does not hide the environment, which only the owner of the process can read.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

/// Overwrites the passwords of `rtsp:` URLs. Returns true if there were any.
///
/// # Errors
/// The memory cannot be written. The arguments are unchanged.
pub(crate) fn conceal_passwords() -> io::Result<bool> {
    let odd = || io::Error::other("/proc/self/stat has no place of the arguments");
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the process may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ").ok_or_else(odd)?;
    let mut fields = fields.split(' ').skip(ARG_START - STATE).map(str::parse::<u64>);
    let (Some(Ok(start)), Some(Ok(end))) = (fields.next(), fields.next()) else {
        return Err(odd());
    };
    let mut arguments = vec![0; end.saturating_sub(start) as usize];
    let memory = File::options().read(true).open("/proc/self/mem")?;
    memory.read_exact_at(&mut arguments, start)?;
    let passwords = passwords(&arguments);
    if passwords.is_empty() {
        return Ok(false);
    }
    let memory = File::options().write(true).open("/proc/self/mem")?;
    for password in passwords {
        let stars = vec![b'*'; password.len()];
        memory.write_all_at(&stars, start + password.start as u64)?;
    }
    Ok(true)
}

/// Places of the passwords in arguments, which end in zeros.
fn passwords(arguments: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(scheme) = arguments.get(at..).and_then(|rest| find(rest, SCHEME)) {
        let start = at + scheme + SCHEME.len();
        let rest = &arguments[start..];
        let end = rest.iter().position(|byte| b"/?#\0".contains(byte)).unwrap_or(rest.len());
        let authority = &rest[..end];
        let host = authority.iter().rposition(|byte| *byte == b'@');
        let colon = authority.iter().position(|byte| *byte == b':');
        if let (Some(host), Some(colon)) = (host, colon)
            && colon < host
        {
            found.push(start + colon + 1..start + host);
        }
        at = start;
    }
    found
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window.eq_ignore_ascii_case(wanted))
}

const SCHEME: &[u8] = b"rtsp://";
/// Numbers of fields in proc_pid_stat(5).
const STATE: usize = 3;
const ARG_START: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_urls_are_found_and_nothing_else() {
        let shown = |text: &str| {
            let places = passwords(text.as_bytes());
            places.into_iter().map(|place| text[place].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(shown("receive\0rtsp://u:secret@h/a\0--json\0"), ["secret"]);
        assert_eq!(shown("a\0RTSP://u:p@w:x@h\0rtsp://u:q@[::1]:554/\0"), ["p@w:x", "q"]);
        for other in ["rtsp://h:554/a@b:c\0", "rtsp://u@h/\0", "rtsp://h\0a:b@c\0", "", "rtsp://"] {
            assert!(shown(other).is_empty(), "{other}");
        }
    }
}
