// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overwrites passwords in the arguments of this process, which ps(1) shows to every user of the
//! machine.
//!
//! The kernel reads the arguments from the memory of the process each time, so that overwritten
//! bytes are gone. They are overwritten before the command line is parsed; another program may read
//! them in the milliseconds before, and in the arguments of a parent such as sudo(8).
//!
//! Sources: proc(5) (`cmdline`, `mem`, `arg_start` and `arg_end` of `stat`).
//! Does not hide the environment, which only the owner of the process can read.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// Overwrites the passwords of `rtsp:` URLs, if these arguments have any.
///
/// # Errors
/// The memory cannot be written. The arguments are unchanged.
pub(crate) fn conceal_passwords(line: &[OsString]) -> io::Result<()> {
    if !has_passwords(line) {
        return Ok(());
    }
    let odd = || io::Error::other("/proc/self/stat has no place of the arguments");
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the process may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ").ok_or_else(odd)?;
    let mut fields = fields.split(' ').skip(ARG_START - STATE).map(str::parse::<u64>);
    let (Some(Ok(start)), Some(Ok(end))) = (fields.next(), fields.next()) else {
        return Err(odd());
    };
    let mut arguments = vec![0; end.saturating_sub(start) as usize];
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    memory.read_exact_at(&mut arguments, start)?;
    for password in passwords(&arguments) {
        let stars = vec![b'*'; password.len()];
        memory.write_all_at(&stars, start + password.start as u64)?;
    }
    Ok(())
}

/// True if an argument is a URL with a password.
pub(crate) fn has_passwords(line: &[OsString]) -> bool {
    line.iter().any(|argument| !passwords(argument.as_bytes()).is_empty())
}

/// Masks the passwords of URLs in a message, which may repeat an argument.
pub(crate) fn masked(message: &str) -> String {
    let mut masked = message.to_owned();
    for password in passwords(message.as_bytes()).into_iter().rev() {
        // Advice names the place of a password.
        if !["", "PASSWORD"].contains(&&message[password.clone()]) {
            masked.replace_range(password, "…");
        }
    }
    masked
}

/// Places of the passwords in arguments, which end in zeros.
fn passwords(arguments: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(scheme) = arguments.get(at..).and_then(|rest| find(rest, SCHEME)) {
        let start = at + scheme + SCHEME.len();
        let rest = &arguments[start..];
        let url = &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len())];
        let end = url.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(url.len());
        let colon = url[..end].iter().position(|byte| *byte == b':');
        let last_at = |text: &[u8]| text.iter().rposition(|byte| *byte == b'@');
        // A password may contain a slash that ends the host; such a URL is refused later.
        if let Some(colon) = colon
            && let Some(host) = last_at(&url[..end]).or_else(|| last_at(url))
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
        assert_eq!(shown("rtsp://u:12/secret@h/\0"), ["12/secret"], "refused later");
        assert_eq!(
            masked("no rtsp://ü:p@h/ and rtsp://v:q@h"),
            "no rtsp://ü:…@h/ and rtsp://v:…@h"
        );
        let advice = "write rtsp://USER:PASSWORD@HOST or rtsp://USER:@HOST";
        assert_eq!(masked(advice), advice);
        for other in ["rtsp://h/a@b:c\0", "rtsp://u@h/\0", "rtsp://h\0a:b@c\0", "", "rtsp://"] {
            assert!(shown(other).is_empty(), "{other}");
        }
    }
}
