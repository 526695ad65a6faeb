// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line of the journal: a check of 16 hex digits, a space, a JSON object, a line feed.
//!
//! The check is BLAKE3 of the object under the key for [`crate::key::Purpose::Line`], cut to 64
//! bits. Paths are bytes, as in Linux: a byte that is not UTF-8 is written `\xNN`, a backslash
//! `\\`.
//!
//! Costs one hash a line; allocates only in the caller's buffer, except to escape a path. Does no
//! I/O.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

use super::format::{LINE_BYTES_MAX, VERSION};
use super::{ManifestHeader, ManifestRecord, Time};
use crate::key::passphrase::{SALT_BYTES, Stretch};

/// Number of hex digits of the check.
const CHECK_DIGITS: usize = 16;

/// Content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestLine {
    /// The format version, and how the folder was sealed.
    Header(u32, ManifestHeader),
    /// Beginning of a run.
    Run(RunRecord),
    /// Record of a file that is about to be renamed to its final name.
    File(OsString, ManifestRecord),
    /// Path of a file whose rename failed; the file of that name is not this program's.
    Undone(OsString),
    /// All files with lines above have reached the disk.
    Synced,
}

/// Record of one run of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// Boot ID of the machine during the run.
    pub boot: String,
    /// True when each file reached the disk before its line was written.
    pub each: bool,
}

/// JSON object of a line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Object<'a> {
    #[serde(borrow)]
    Header(HeaderObject<'a>),
    RunRecord {
        #[serde(borrow)]
        boot: Cow<'a, str>,
        each: bool,
    },
    #[serde(borrow)]
    File(FileObject<'a>),
    Undone {
        #[serde(borrow)]
        path: Cow<'a, str>,
    },
    Synced {},
}

#[derive(Serialize, Deserialize)]
struct HeaderObject<'a> {
    pagewire_seal: u32,
    #[serde(borrow)]
    form: Cow<'a, str>,
    iv: Option<Cow<'a, str>>,
    argon2id: Option<StretchObject<'a>>,
    #[serde(borrow)]
    salt: Cow<'a, str>,
    #[serde(borrow)]
    key_check: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct StretchObject<'a> {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    #[serde(borrow)]
    salt: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct FileObject<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    bytes: u64,
    modified: (i64, u32),
    sealed_bytes: u64,
    #[serde(borrow)]
    blake3: Cow<'a, str>,
}

/// Appends a file's line to `buffer`.
pub(super) fn push_file(
    buffer: &mut Vec<u8>,
    key: &[u8; 32],
    path: &OsStr,
    record: &ManifestRecord,
) {
    let mut digits = [0; 64];
    let object = Object::File(FileObject {
        path: escaped(path.as_bytes()),
        bytes: record.source_bytes,
        modified: (record.modified.s, record.modified.ns),
        sealed_bytes: record.sealed_bytes,
        blake3: Cow::Borrowed(hex_into(&record.content, &mut digits)),
    });
    push_object(buffer, key, &object);
}

/// Appends any line to `buffer`.
pub(super) fn push(buffer: &mut Vec<u8>, key: &[u8; 32], line: &ManifestLine) {
    let object = match line {
        ManifestLine::File(path, record) => return push_file(buffer, key, path, record),
        ManifestLine::Undone(path) => Object::Undone { path: escaped(path.as_bytes()) },
        ManifestLine::Synced => Object::Synced {},
        ManifestLine::Run(run) => {
            Object::RunRecord { boot: Cow::Borrowed(&run.boot), each: run.each }
        }
        ManifestLine::Header(version, header) => Object::Header(HeaderObject {
            pagewire_seal: *version,
            form: Cow::Borrowed(&header.form),
            iv: header.iv.map(|iv| hex(&iv)),
            argon2id: header.stretch.map(|stretch| StretchObject {
                memory_kib: stretch.memory_kib,
                passes: stretch.passes,
                lanes: stretch.lanes,
                salt: hex(&stretch.salt),
            }),
            salt: hex(&header.salt),
            key_check: hex(&header.key_check),
        }),
    };
    push_object(buffer, key, &object);
}

fn push_object(buffer: &mut Vec<u8>, key: &[u8; 32], object: &Object<'_>) {
    let start = buffer.len();
    buffer.extend_from_slice(&[b' '; CHECK_DIGITS + 1]);
    serde_json::to_writer(&mut *buffer, object).expect("a vector takes what is no map");
    let check = check(&buffer[start + CHECK_DIGITS + 1..], key);
    buffer[start..start + CHECK_DIGITS].copy_from_slice(&check);
    buffer.push(b'\n');
}

fn check(object: &[u8], key: &[u8; 32]) -> [u8; CHECK_DIGITS] {
    let mut digits = [0; CHECK_DIGITS];
    hex_into(&blake3::keyed_hash(key, object).as_bytes()[..CHECK_DIGITS / 2], &mut digits);
    digits
}

/// Returns a whole line with the JSON text `object` and its check.
pub fn checked_line(object: &[u8], key: &[u8; 32]) -> Vec<u8> {
    [&check(object, key)[..], b" ", object, b"\n"].concat()
}

/// Returns the content of a line when its check is right.
pub(super) fn checked(line: &[u8], key: &[u8; 32]) -> Option<ManifestLine> {
    let (digits, object) = split(line)?;
    // The comparison is not in constant time: a process that can measure it can read the journal,
    // and the check with it.
    (check(object, key) == *digits).then(|| parse(object))?
}

/// Returns the content of a line without testing its check.
pub(super) fn unchecked(line: &[u8]) -> Option<ManifestLine> {
    parse(split(line)?.1)
}

/// Returns true when `line` can be the beginning of a header whose write was cut short, is empty,
/// or holds the zeros that a power loss leaves. Any other line belongs to a user's file, which
/// must not be overwritten.
pub(super) fn is_torn_header(line: &[u8]) -> bool {
    if line.iter().all(|&byte| byte == 0) {
        return true;
    }
    let (digits, object) = line.split_at(line.len().min(CHECK_DIGITS));
    let begins = b" {\"header\":{\"pagewire_seal\":";
    let shared = begins.len().min(object.len());
    digits.iter().all(u8::is_ascii_hexdigit)
        && object[..shared] == begins[..shared]
        && line.len() < LINE_BYTES_MAX
}

fn split(line: &[u8]) -> Option<(&[u8; CHECK_DIGITS], &[u8])> {
    if line.len() >= LINE_BYTES_MAX {
        return None;
    }
    let (digits, object) = line.split_first_chunk()?;
    Some((digits, object.strip_prefix(b" ")?))
}

fn parse(object: &[u8]) -> Option<ManifestLine> {
    Some(match serde_json::from_slice(object).ok()? {
        Object::Synced {} => ManifestLine::Synced,
        Object::Undone { path } => ManifestLine::Undone(unescaped(&path)?),
        Object::RunRecord { boot, each } => {
            ManifestLine::Run(RunRecord { boot: boot.into_owned(), each })
        }
        Object::File(file) => {
            let (s, ns) = file.modified;
            let record = ManifestRecord {
                source_bytes: file.bytes,
                modified: Time { s, ns: (ns < 1_000_000_000).then_some(ns)? },
                sealed_bytes: file.sealed_bytes,
                content: unhex(&file.blake3)?,
            };
            ManifestLine::File(unescaped(&file.path)?, record)
        }
        // The other fields of another version's header are not interpreted.
        Object::Header(object) if object.pagewire_seal != VERSION => {
            let nothing = ManifestHeader {
                form: String::new(),
                iv: None,
                stretch: None,
                salt: [0; 16],
                key_check: [0; 32],
            };
            ManifestLine::Header(object.pagewire_seal, nothing)
        }
        Object::Header(object) => ManifestLine::Header(VERSION, parse_header(&object)?),
    })
}

fn parse_header(object: &HeaderObject<'_>) -> Option<ManifestHeader> {
    let iv = match &object.iv {
        Some(digits) => Some(unhex(digits)?),
        None => None,
    };
    let stretch = match &object.argon2id {
        Some(stretch) => Some(Stretch {
            memory_kib: stretch.memory_kib,
            passes: stretch.passes,
            lanes: stretch.lanes,
            salt: unhex::<SALT_BYTES>(&stretch.salt)?,
        }),
        None => None,
    };
    Some(ManifestHeader {
        form: object.form.clone().into_owned(),
        iv,
        stretch,
        salt: unhex(&object.salt)?,
        key_check: unhex(&object.key_check)?,
    })
}

/// Returns a path as text.
fn escaped(path: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(path) {
        Ok(text) if !path.contains(&b'\\') => return Cow::Borrowed(text),
        _ => {}
    }
    let mut bytes = Vec::with_capacity(path.len() + 16);
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().split_inclusive('\\') {
            bytes.extend_from_slice(character.as_bytes());
            if character.ends_with('\\') {
                bytes.push(b'\\');
            }
        }
        for byte in chunk.invalid() {
            write!(bytes, "\\x{byte:02x}").expect("a vector takes all");
        }
    }
    Cow::Owned(String::from_utf8(bytes).expect("what was not UTF-8 is escaped"))
}

/// Returns the path that `text` encodes when it is a valid path below a folder: relative, no `..`,
/// no empty component, no NUL.
fn unescaped(text: &str) -> Option<OsString> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, rest) {
            (b'\\', [b'\\', after @ ..]) => {
                path.push(b'\\');
                rest = after;
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                path.push(nibble(*high)? << 4 | nibble(*low)?);
                rest = after;
            }
            (b'\\', _) => return None,
            _ => path.push(byte),
        }
    }
    let is_below = path.split(|&byte| byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
    (is_below && !path.contains(&0)).then(|| OsString::from_vec(path))
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn hex_into<'a>(bytes: &[u8], digits: &'a mut [u8]) -> &'a str {
    for (two, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        two[0] = DIGITS[usize::from(byte >> 4)];
        two[1] = DIGITS[usize::from(byte & 15)];
    }
    std::str::from_utf8(digits).expect("hex digits, and zeros where there are fewer")
}

fn hex(bytes: &[u8]) -> Cow<'static, str> {
    let mut digits = vec![0; bytes.len() * 2];
    Cow::Owned(hex_into(bytes, &mut digits).to_owned())
}

fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, two) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(two[0])? << 4 | nibble(two[1])?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [3; 32];

    fn written(line: &ManifestLine) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes, &KEY, line);
        assert_eq!(bytes.pop(), Some(b'\n'));
        bytes
    }

    fn file(path: &[u8]) -> ManifestLine {
        let record = ManifestRecord {
            source_bytes: u64::MAX,
            modified: Time { s: -1, ns: 999_999_999 },
            sealed_bytes: 16,
            content: [0xA5; 32],
        };
        ManifestLine::File(OsString::from_vec(path.to_vec()), record)
    }

    #[test]
    fn a_line_comes_back_as_it_was() {
        let stretch = Stretch { memory_kib: 65536, passes: 3, lanes: 4, salt: [9; SALT_BYTES] };
        let header = |iv, stretch| {
            let form = "aes-256-cbc".to_owned();
            ManifestLine::Header(
                VERSION,
                ManifestHeader { form, iv, stretch, salt: [1; 16], key_check: [2; 32] },
            )
        };
        let lines = [
            header(None, None),
            header(Some([7; 16]), Some(stretch)),
            ManifestLine::Run(RunRecord { boot: "a boot".to_owned(), each: true }),
            ManifestLine::Synced,
            ManifestLine::Undone("a".into()),
            file(b"a"),
            file(b"folder/\xff\xfe\\x41\\ \"\xc3\xa4\n\t\x01"),
        ];
        for line in lines {
            let bytes = written(&line);
            assert!(!bytes.contains(&b'\n'));
            assert_eq!(checked(&bytes, &KEY), Some(line));
        }
    }

    #[test]
    fn a_changed_or_torn_line_is_noticed() {
        let bytes = written(&file(b"folder/book"));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(checked(&changed, &KEY), None, "byte {at}");
            assert_eq!(checked(&bytes[..at], &KEY), None, "{at} bytes");
        }
        assert_eq!(checked(&bytes, &[4; 32]), None);
    }

    #[test]
    fn a_path_that_leads_out_of_the_folder_is_none() {
        for path in [&b"/etc/passwd"[..], b"../a", b"a/../b", b"a//b", b"a/", b"", b".", b"a\0b"] {
            assert_eq!(checked(&written(&file(path)), &KEY), None, "{path:?}");
        }
    }
}
