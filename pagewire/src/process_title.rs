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
use std::sync::OnceLock;

/// Overwrites the passwords of `rtsp:` and `rtsps:` URLs, if these arguments have any, and
/// remembers all passwords for [`masked`].
///
/// # Errors
/// The memory cannot be written. The arguments are unchanged.
pub(crate) fn conceal_passwords(line: &[OsString]) -> io::Result<()> {
    let secrets = line.iter().filter_map(|argument| secret(argument.to_str()?)).collect();
    let _ = SECRETS.set(secrets);
    if line.iter().all(|argument| passwords(argument.as_bytes()).is_empty()) {
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

/// Masks the passwords of the arguments in a message, which may repeat an argument.
pub(crate) fn masked(message: &str) -> String {
    let secrets = SECRETS.get().map_or(&[][..], Vec::as_slice);
    masked_of(message, secrets)
}

fn masked_of(message: &str, secrets: &[String]) -> String {
    let mask = |message: String, secret: &String| message.replace(secret, ":…@");
    secrets.iter().fold(message.to_owned(), mask)
}

/// The password of an argument that names a user, with the marks around it; any scheme and none.
fn secret(argument: &str) -> Option<String> {
    let (before, _) = argument.rsplit_once('@')?;
    let (scheme, user) = before.rsplit_once("//").unwrap_or(("", before));
    // Senders of a group are no secrets.
    let is_sender = ["udp:", "rtp:"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let (_, password) = user.split_once(':').filter(|_| !is_sender)?;
    (!password.is_empty()).then(|| format!(":{password}@"))
}

/// Places of the passwords in arguments, which end in zeros.
fn passwords(arguments: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = arguments.get(at..).and_then(behind_scheme).map(|start| at + start) {
        let rest = &arguments[start..];
        let url = &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len())];
        let end = url.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(url.len());
        let colon = url[..end].iter().position(|byte| *byte == b':');
        let last_at = |text: &[u8]| text.iter().rposition(|byte| *byte == b'@');
        // A password may contain a slash that ends the host; such a URL is refused later.
        if let Some(colon) = colon
            && let Some(host) = last_at(url)
            && last_at(&url[..end]).is_none_or(|before| colon < before)
        {
            found.push(start + colon + 1..start + host);
        }
        at = start;
    }
    found
}

/// Place behind the next scheme.
fn behind_scheme(bytes: &[u8]) -> Option<usize> {
    SCHEMES.iter().filter_map(|scheme| Some(find(bytes, scheme)? + scheme.len())).min()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window.eq_ignore_ascii_case(wanted))
}

/// Passwords of the command line.
static SECRETS: OnceLock<Vec<String>> = OnceLock::new();
const SCHEMES: [&[u8]; 2] = [b"rtsp://", b"rtsps://"];
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
        assert_eq!(shown("RTSPS://u:p@h\0rtsp://u:q@h\0rtsps://u:r@h\0"), ["p", "q", "r"]);
        assert_eq!(shown("rtsp://u:12/secret@h/\0"), ["12/secret"], "refused later");
        assert_eq!(shown("rtsp://u:a@b/c@h/\0"), ["a@b/c"], "refused later");
        for other in ["rtsp://h/a@b:c\0", "rtsp://u@h/\0", "rtsp://h\0a:b@c\0", "", "rtsp://"] {
            assert!(shown(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn passwords_of_arguments_are_masked_in_messages() {
        let secrets: Vec<String> = ["rtsp://ü:p w@h/", "anna:q@h", "udp://fd00::7@[ff3e::1]:5004"]
            .into_iter()
            .filter_map(secret)
            .collect();
        let message = "no rtsp://ü:p w@h/, --x anna:q@h; write rtsp://USER:PASSWORD@HOST";
        let masked = "no rtsp://ü:…@h/, --x anna:…@h; write rtsp://USER:PASSWORD@HOST";
        assert_eq!(masked_of(message, &secrets), masked);
        assert_eq!(secrets.len(), 2, "{secrets:?}");
    }
}
