// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reader of one HTTP/1.1 response after the other on a connection, received in parts of any size.
//!
//! It compares status and length of every response with the requested ones, so that a wrong answer
//! is never timed as a fast one. It costs one scan of each head; the bytes of a body are only
//! counted, or handed to a closure that compares them.
//!
//! Sources: RFC 9112 §2 (messages), §6.3 (length of a message); RFC 9110 §14.4 (Content-Range).
//! Does not read chunked bodies: a file has a length, and a response without one is an error.

use std::io::Read;

/// The requested response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) status: u16,
    /// Length of the body.
    pub(crate) bytes: u64,
}

impl Wanted {
    /// A whole file.
    pub(crate) fn file(bytes: u64) -> Wanted {
        Wanted { status: 200, bytes }
    }

    /// A part of a file.
    pub(crate) fn part(bytes: u64) -> Wanted {
        Wanted { status: 206, bytes }
    }
}

/// Place in the responses of a connection.
pub(crate) struct ResponseReader {
    /// The part of a head received so far; empty in a body.
    head: Vec<u8>,
    /// Bytes of the body that are still missing; unset in a head.
    left: Option<u64>,
}

impl ResponseReader {
    pub(crate) fn new() -> ResponseReader {
        ResponseReader { head: Vec::new(), left: None }
    }

    /// Begins the next response.
    pub(crate) fn begin(&mut self) {
        self.left = None;
    }

    /// Returns the number of missing bytes of the body; `None` while the head is incomplete.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }

    /// Counts bytes of the body that the caller received without this reader.
    ///
    /// # Errors
    /// There are more than the body has.
    pub(crate) fn skip(&mut self, bytes: u64) -> Result<(), String> {
        let left = self.left.unwrap_or(0);
        let rest = left.checked_sub(bytes);
        self.left = Some(rest.ok_or_else(|| format!("{bytes} bytes where {left} were due"))?);
        Ok(())
    }

    /// Parses received bytes; returns those of the body among them.
    ///
    /// # Errors
    /// The head, the status or the length is not the wanted one.
    pub(crate) fn feed<'a>(
        &mut self,
        received: &'a [u8],
        wanted: Wanted,
    ) -> Result<&'a [u8], String> {
        if self.left.is_some() {
            self.skip(received.len() as u64)?;
            return Ok(received);
        }
        // The end may lie across the seam of two parts.
        let before = self.head.len();
        let end = if before == 0 {
            end_of_head(received)
        } else {
            self.head.extend_from_slice(received);
            end_of_head(&self.head).map(|end| end - before)
        };
        let Some(end) = end else {
            if before == 0 {
                self.head.extend_from_slice(received);
            }
            let is_long = self.head.len() > HEAD_BYTES_MAX;
            return if is_long { Err("a head without an end".to_owned()) } else { Ok(&[]) };
        };
        if before == 0 {
            judge(&received[..end], wanted)?;
        } else {
            judge(&self.head[..before + end], wanted)?;
            self.head.clear();
        }
        self.left = Some(wanted.bytes);
        let body = &received[end..];
        self.skip(body.len() as u64)?;
        Ok(body)
    }
}

/// Reads one response into `buffer`; hands each part of its body with its offset to `is_right`.
///
/// # Errors
/// The connection failed, or the response is not the wanted one.
pub(crate) fn read(
    stream: &mut impl Read,
    wanted: Wanted,
    buffer: &mut [u8],
    mut is_right: impl FnMut(u64, &[u8]) -> bool,
) -> Result<(), String> {
    let (mut reader, mut place) = (ResponseReader::new(), 0);
    while reader.left() != Some(0) {
        let count = stream.read(buffer).map_err(|error| format!("a response: {error}"))?;
        if count == 0 {
            return Err(format!("the connection was closed after {place} bytes"));
        }
        let body = reader.feed(&buffer[..count], wanted)?;
        if !is_right(place, body) {
            return Err(format!("not the file's bytes, from {place} on"));
        }
        place += body.len() as u64;
    }
    Ok(())
}

/// Returns the length of a head with its empty line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|end| end + 4)
}

fn judge(head: &[u8], wanted: Wanted) -> Result<(), String> {
    let text = std::str::from_utf8(head).map_err(|_| "a head that is no text".to_owned())?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let fields = lines.filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = lengths.next().and_then(|(_, value)| value.trim().parse::<u64>().ok());
    if status == Some(wanted.status) && length == Some(wanted.bytes) {
        return Ok(());
    }
    let Wanted { status, bytes } = wanted;
    Err(format!("{first:?} with length {length:?}; {status} with {bytes} was asked for"))
}

const HEAD_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_in_parts_of_any_size() {
        let first = &b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nServer: x\r\n\r\nbytes"[..];
        let second = &b"HTTP/1.1 200 OK\r\nContent-Length:5\r\n\r\nmoreX"[..];
        for step in 1..first.len() {
            let (mut reader, mut bodies) = (ResponseReader::new(), Vec::new());
            for response in [first, second] {
                reader.begin();
                for part in response.chunks(step) {
                    assert_ne!(reader.left(), Some(0));
                    bodies.extend_from_slice(reader.feed(part, Wanted::file(5)).unwrap());
                }
                assert_eq!(reader.left(), Some(0));
            }
            assert_eq!(bodies, b"bytesmoreX", "step {step}");
        }
    }

    #[test]
    fn wrong_status_length_or_surplus_is_an_error() {
        let fault = |received: &[u8], wanted| {
            ResponseReader::new().feed(received, wanted).err().unwrap_or_default()
        };
        let right = b"HTTP/1.1 206 Partial\r\nContent-Length: 5\r\n\r\nbytes";
        assert_eq!(fault(right, Wanted::part(5)), "");
        assert!(fault(right, Wanted::file(5)).contains("206 Partial"));
        assert!(fault(right, Wanted::part(6)).contains("Some(5)"));
        assert!(fault(b"HTTP/1.1 200 OK\r\n\r\n", Wanted::file(5)).contains("None"));
        let surplus = [&right[..], b"!"].concat();
        assert!(fault(&surplus, Wanted::part(5)).contains("6 bytes where 5 were due"));
        assert!(fault(&[b'x'; HEAD_BYTES_MAX + 1], Wanted::file(5)).contains("without an end"));
    }

    #[test]
    fn response_is_the_file_or_an_error() {
        let fault = |mut response: &[u8], file: &[u8]| {
            let is_right = |place: u64, bytes: &[u8]| file[place as usize..].starts_with(bytes);
            read(&mut response, Wanted::file(5), &mut [0; 7], is_right).err().unwrap_or_default()
        };
        let right = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes";
        assert_eq!(fault(right, b"bytes"), "");
        assert!(fault(right, b"bites").contains("not the file's bytes"));
        assert!(fault(&right[..right.len() - 2], b"bytes").contains("closed after 3"));
    }

    #[test]
    fn bytes_that_the_kernel_discarded_are_counted() {
        let mut reader = ResponseReader::new();
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst";
        assert_eq!(reader.feed(head, Wanted::file(100)).unwrap(), b"first");
        reader.skip(90).unwrap();
        assert_eq!(reader.left(), Some(5));
        assert!(reader.skip(6).is_err());
    }
}
