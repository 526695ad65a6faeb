// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads request content to find its end, and discards it.
//!
//! No resource here accepts content, but a keep-alive connection continues after it, so its end
//! must be found exactly as every proxy in between finds it. The grammar is strict: CRLF, never a
//! bare LF; digits only; a doubtful byte ends the connection. Each byte is examined once, nothing
//! is stored, and a chunked body's framing counts towards the limit. Otherwise 1-byte chunks with
//! long extensions would exceed the limit many times.
//!
//! Sources: RFC 9112 §6 (message body), §7.1 (chunked), §11.2 (request smuggling).

use super::malformed::Malformed;

/// Reader of a request's content.
#[derive(Debug)]
pub(super) enum ContentReader {
    /// Bytes not yet received.
    Length(u64),
    /// Chunked; `bytes_left` of the limit remain for data and framing.
    Chunked { state: ChunkState, bytes_left: u64 },
}

/// Element of a chunked body to which the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkState {
    Size { digits: u8, value: u64 },
    Extension { value: u64 },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
}

/// The outcome of [`ContentReader::drain`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DrainResult {
    /// Bytes of the input that belonged to the body.
    pub(super) bytes: usize,
    /// The body has ended.
    pub(super) ended: bool,
}

impl ContentReader {
    /// A chunked body of at most `bytes_max`, framing included.
    pub(super) fn chunked(bytes_max: u64) -> ContentReader {
        ContentReader::Chunked {
            state: ChunkState::Size { digits: 0, value: 0 },
            bytes_left: bytes_max,
        }
    }

    /// Consumes the body's bytes at the front of `input`; offsets in faults count from there.
    pub(super) fn drain(&mut self, input: &[u8]) -> Result<DrainResult, Malformed> {
        match self {
            ContentReader::Length(left) => {
                let bytes = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes as u64;
                Ok(DrainResult { bytes, ended: *left == 0 })
            }
            ContentReader::Chunked { state, bytes_left } => drain_chunked(state, bytes_left, input),
        }
    }
}

fn drain_chunked(
    state: &mut ChunkState,
    bytes_left: &mut u64,
    input: &[u8],
) -> Result<DrainResult, Malformed> {
    let mut at = 0;
    while at < input.len() {
        let bytes = match *state {
            ChunkState::Data { left } => {
                let rest = (input.len() - at) as u64;
                rest.min(left).min((*bytes_left).max(1))
            }
            _ => 1,
        };
        if bytes > *bytes_left {
            return Err(Malformed::new(413, at, "chunked content over the limit", TOO_LARGE));
        }
        *bytes_left -= bytes;
        let next = match *state {
            ChunkState::Data { left } if left == bytes => Some(ChunkState::DataCr),
            ChunkState::Data { left } => Some(ChunkState::Data { left: left - bytes }),
            framing => step(framing, input[at]).map_err(|what| bad_chunk(at, what))?,
        };
        at += bytes as usize;
        match next {
            Some(next) => *state = next,
            None => return Ok(DrainResult { bytes: at, ended: true }),
        }
    }
    Ok(DrainResult { bytes: at, ended: false })
}

/// The state after one byte of framing; none after the last byte of the body.
fn step(state: ChunkState, byte: u8) -> Result<Option<ChunkState>, &'static str> {
    let next = match (state, byte) {
        (ChunkState::Size { digits, value }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
            if digits == SIZE_DIGITS_MAX {
                return Err("chunk size of more than 16 digits");
            }
            // Sixteen digits are 64 bits: the shift drops none.
            let digit = (byte as char).to_digit(16).map_or(0, u64::from);
            ChunkState::Size { digits: digits + 1, value: value << 4 | digit }
        }
        (ChunkState::Size { digits: 0, .. }, _) => return Err("chunk without a size"),
        (ChunkState::Size { value, .. }, b';' | b' ' | b'\t') => ChunkState::Extension { value },
        (ChunkState::Size { value, .. } | ChunkState::Extension { value }, b'\r') => {
            ChunkState::SizeLf { value }
        }
        (ChunkState::Size { .. }, _) => return Err("chunk size that is not hexadecimal"),
        (ChunkState::Extension { value }, byte) if is_field_byte(byte) => {
            ChunkState::Extension { value }
        }
        (ChunkState::Extension { .. }, _) => return Err("control character in a chunk extension"),
        (ChunkState::SizeLf { value: 0 }, b'\n') => ChunkState::TrailerStart,
        (ChunkState::SizeLf { value }, b'\n') => ChunkState::Data { left: value },
        (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
        (ChunkState::DataLf, b'\n') => ChunkState::Size { digits: 0, value: 0 },
        // The caller consumes data by its length; CRLF must follow it.
        (ChunkState::Data { .. } | ChunkState::DataCr | ChunkState::DataLf, _) => {
            return Err("chunk data longer than its size");
        }
        (ChunkState::TrailerStart, b'\r') => ChunkState::EndLf,
        (ChunkState::TrailerStart, b' ' | b'\t') => return Err("trailer line that is folded"),
        (ChunkState::Trailer, b'\r') => ChunkState::TrailerLf,
        (ChunkState::TrailerStart | ChunkState::Trailer, byte) if is_field_byte(byte) => {
            ChunkState::Trailer
        }
        (ChunkState::TrailerStart | ChunkState::Trailer, _) => {
            return Err("control character in a trailer");
        }
        (ChunkState::TrailerLf, b'\n') => ChunkState::TrailerStart,
        (ChunkState::EndLf, b'\n') => return Ok(None),
        (ChunkState::SizeLf { .. } | ChunkState::TrailerLf | ChunkState::EndLf, _) => {
            return Err("CR without LF in chunked content");
        }
    };
    Ok(Some(next))
}

/// VCHAR, obs-text, SP or HTAB.
fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

fn bad_chunk(at: usize, what: &'static str) -> Malformed {
    Malformed::new(400, at, what, "RFC 9112 §7.1")
}

pub(super) const TOO_LARGE: &str = "RFC 9110 §15.5.14";
const SIZE_DIGITS_MAX: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Drains `input` in pieces of `step` bytes; returns the number of bytes consumed when the body
    /// ended.
    fn drained(input: &[u8], step: usize, bytes_max: u64) -> Result<Option<usize>, Malformed> {
        let mut body = ContentReader::chunked(bytes_max);
        let mut at = 0;
        for piece in input.chunks(step) {
            let drained = body.drain(piece).map_err(|fault| fault.shifted(at as u64))?;
            at += drained.bytes;
            if drained.ended {
                return Ok(Some(at));
            }
            assert_eq!(drained.bytes, piece.len());
        }
        Ok(None)
    }

    #[test]
    fn end_is_found_however_it_is_cut() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"000\r\n\r\n",
            b"5\r\nhello\r\n0\r\n\r\n",
            b"4;name=\"value\"\r\n\r\n\r\n\r\n0;x\r\nTrailer: 1\r\nOther: 2\r\n\r\n",
            b"A \r\n0123456789\r\na\r\n0\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",
        ] {
            let mut input = body.to_vec();
            input.extend_from_slice(b"GET / HTTP/1.1\r\n");
            for step in 1..=input.len() {
                assert_eq!(drained(&input, step, 1000), Ok(Some(body.len())), "{step}");
            }
            for cut in 0..body.len() {
                assert_eq!(drained(&body[..cut], 1000, 1000), Ok(None), "{cut}");
            }
        }
    }

    #[test]
    fn doubtful_framing_is_refused_at_its_byte() {
        for (body, offset) in [
            (&b"5\nhello\r\n"[..], 1),
            (b"\r\n", 0),
            (b"-1\r\n", 0),
            (b"+5\r\n", 0),
            (b"0x5\r\n", 1),
            (b"5g\r\n", 1),
            (b"5\r\nhelloo\r\n", 8),
            (b"5\r\nhello\n", 8),
            (b"5\r\nhello\rx", 9),
            (b"5;a\nb\r\n", 3),
            (b"5;a\rb\r\n", 4),
            (b"0\r\nTrailer: a\nb", 13),
            (b"0\r\n folded\r\n\r\n", 3),
            (b"0\r\n\rx", 4),
            (b"00000000000000005\r\n", 16),
            (b"fffffffffffffffff\r\n", 16),
        ] {
            for step in 1..=body.len() {
                let fault = drained(body, step, 1000).expect_err("refused");
                assert_eq!((fault.status, fault.offset), (400, offset), "{body:?}");
            }
        }
    }

    #[test]
    fn limit_counts_data_and_framing() {
        let body = b"5;extension\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n";
        let whole = body.len() as u64;
        for step in 1..=body.len() {
            assert_eq!(drained(body, step, whole), Ok(Some(body.len())));
            for limit in 0..whole {
                let fault = drained(body, step, limit).expect_err("over the limit");
                assert_eq!((fault.status, fault.offset), (413, limit));
            }
            let huge = b"ffffffffffffffff\r\ndata";
            let fault = drained(huge, step, 20).expect_err("over the limit");
            assert_eq!((fault.status, fault.offset), (413, 20));
        }
    }
}
