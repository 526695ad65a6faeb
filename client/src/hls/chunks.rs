// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes chunked bodies of HTTP/1.1, from pieces of any size.
//!
//! Sources: RFC 9112 §7.1.
//! Does not interpret trailer fields; it skips them.

/// Reader of one body.
#[derive(Debug, Default)]
pub(super) struct ChunkReader {
    state: ChunkState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Data {
        left: u64,
    },
    /// The line end after the data.
    DataEnd,
    Trailer,
    Done,
}

impl ChunkReader {
    /// Passes the data in these bytes to `sink`; returns the number of bytes consumed. The caller
    /// must prepend the rest to the next bytes.
    pub(super) fn read(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(&[u8]),
    ) -> Result<usize, String> {
        let mut used = 0;
        while self.state != ChunkState::Done {
            let rest = &bytes[used..];
            if let ChunkState::Data { left } = self.state {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                if count == 0 {
                    break;
                }
                sink(&rest[..count]);
                used += count;
                let left = left - count as u64;
                self.state = if left > 0 { ChunkState::Data { left } } else { ChunkState::DataEnd };
                continue;
            }
            let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
                if rest.len() > LINE_BYTES_MAX {
                    return Err("a line between chunks has no end (RFC 9112 §7.1)".to_owned());
                }
                break;
            };
            self.line(&rest[..end])?;
            used += end + 2;
        }
        Ok(used)
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        self.state = match self.state {
            ChunkState::Size => {
                let text = str::from_utf8(line).unwrap_or_default();
                let digits = text.split(';').next().unwrap_or_default().trim();
                let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                match u64::from_str_radix(digits, 16) {
                    Ok(0) if is_plain => ChunkState::Trailer,
                    Ok(left) if is_plain => ChunkState::Data { left },
                    _ => return Err(format!("chunk of size {digits:.20} (RFC 9112 §7.1)")),
                }
            }
            ChunkState::DataEnd if line.is_empty() => ChunkState::Size,
            ChunkState::DataEnd => {
                return Err("a chunk longer than its size (RFC 9112 §7.1)".to_owned());
            }
            ChunkState::Trailer if line.is_empty() => ChunkState::Done,
            ChunkState::Trailer => ChunkState::Trailer,
            ChunkState::Data { .. } | ChunkState::Done => unreachable!("no line stands there"),
        };
        Ok(())
    }
}

const LINE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a body in pieces of this size; returns the data and the unconsumed bytes.
    fn read(body: &[u8], piece: usize) -> Result<(Vec<u8>, bool, usize), String> {
        let (mut reader, mut data) = (ChunkReader::default(), Vec::new());
        let (mut pending, mut used_in_all) = (Vec::new(), 0);
        for piece in body.chunks(piece) {
            pending.extend_from_slice(piece);
            let used = reader.read(&pending, |part| data.extend_from_slice(part))?;
            pending.drain(..used);
            used_in_all += used;
        }
        Ok((data, reader.is_done(), used_in_all))
    }

    #[test]
    fn chunks_are_joined_however_they_are_cut() {
        let body = b"5\r\nhello\r\n1;x=y\r\n,\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nHTTP";
        for piece in 1..=body.len() {
            let seen = read(body, piece).unwrap();
            assert_eq!(seen, (b"hello,0123456789".to_vec(), true, body.len() - 4), "{piece}");
        }
        assert!(!read(b"5\r\nhel", 3).unwrap().1);
    }

    #[test]
    fn wrong_chunks_are_refused() {
        for wrong in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"+1\r\na\r\n",
            b"fffffffffffffffff\r\n",
            b"1\r\nab\r\n",
            &[b'1'; LINE_BYTES_MAX + 1],
        ] {
            assert!(read(wrong, wrong.len()).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }
}
