// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits the bytes of an RTSP connection into interleaved frames and replies, without a copy of a
//! frame that arrives whole.
//!
//! Frames are borrowed from the bytes of a read; only a frame that spans two reads is assembled, in
//! one buffer of 64 KiB at most. Replies are rare: their bytes go to the reply reader line by line,
//! so that it never consumes a frame after them. A reader of whole chunks would copy each frame
//! twice and allocate once for each.
//!
//! Some cameras send stray bytes between two frames. They are skipped up to the next reply, or up
//! to the next plausible frame: its channel was named by SETUP, and its first byte is that of RTP
//! or RTCP. Before SETUP nothing is skipped: the peer may speak another protocol.
//!
//! Sources: RFC 2326 §10, §10.12; RFC 2068 §4.1 (blank lines); RFC 3550 §5.1, §6.4.1.
//! Does not interpret frames or match replies to requests.

use wire::rtp::{PLAIN_FIRST_BYTE, VERSION_MASK};
use wire::rtsp::client::{Reply, ReplyReader};
use wire::rtsp::{INTERLEAVED_HEADER_BYTES, Malformed, Received};

/// Part of a connection's bytes.
#[derive(Debug)]
pub(crate) enum StreamPart<'a> {
    /// Data of a channel.
    Frame {
        channel: u8,
        data: &'a [u8],
    },
    Reply(Reply),
    /// This number of bytes of a message: of a reply, which follows once it is complete, or of a
    /// server's request, which is not answered.
    Message(usize),
    /// This number of stray bytes.
    Strays(usize),
}

/// State between two reads.
#[derive(Debug)]
pub(crate) struct StreamDemultiplexer {
    replies: ReplyReader,
    /// Channels that SETUP has named.
    pub(crate) channels: Vec<u8>,
    /// Start of an incomplete frame, or of a part of undetermined kind.
    partial: Vec<u8>,
    /// The last bytes were stray.
    is_astray: bool,
}

/// Kind of part that the bytes begin.
#[derive(Debug, PartialEq, Eq)]
enum Beginning {
    Frame,
    Message,
    Nothing,
    /// More bytes are needed.
    Undetermined,
}

impl StreamDemultiplexer {
    /// Starts with a new connection.
    pub(crate) fn new(replies: ReplyReader) -> StreamDemultiplexer {
        let (channels, partial) = (Vec::new(), Vec::new());
        StreamDemultiplexer { replies, channels, partial, is_astray: false }
    }

    /// Passes the parts completed by these bytes to `take` in order, until `take` fails.
    ///
    /// # Errors
    /// Bytes that are neither a frame nor a reply, or the error of `take`; the connection is then
    /// unusable.
    pub(crate) fn feed<E: From<Malformed>>(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(StreamPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&first) = bytes.first() {
            if !self.replies.is_empty() {
                bytes = self.message(bytes, &mut take)?;
            } else if !self.partial.is_empty() {
                bytes = self.complete(bytes, &mut take)?;
            } else if matches!(first, b'\r' | b'\n') {
                let blank = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
                take(StreamPart::Message(blank))?;
                bytes = &bytes[blank..];
            } else {
                bytes = self.part(bytes, &mut take)?;
            }
        }
        Ok(())
    }

    /// Consumes one part from the front; returns the remaining bytes.
    fn part<'b, E: From<Malformed>>(
        &mut self,
        bytes: &'b [u8],
        take: &mut impl FnMut(StreamPart<'_>) -> Result<(), E>,
    ) -> Result<&'b [u8], E> {
        match self.beginning(bytes) {
            Beginning::Message => return self.message(bytes, take),
            Beginning::Nothing => {
                self.is_astray = true;
                let next = bytes[1..].iter().position(|byte| matches!(byte, b'$' | b'R'));
                let strays = next.map_or(bytes.len(), |at| 1 + at);
                take(StreamPart::Strays(strays))?;
                return Ok(&bytes[strays..]);
            }
            Beginning::Frame | Beginning::Undetermined => {}
        }
        let Some((channel, data)) = whole_frame(bytes) else {
            self.partial.extend_from_slice(bytes);
            return Ok(&[]);
        };
        self.is_astray = false;
        take(StreamPart::Frame { channel, data })?;
        Ok(&bytes[INTERLEAVED_HEADER_BYTES + data.len()..])
    }

    /// Adds to the partial frame or undetermined part; returns the remaining bytes.
    fn complete<'b, E: From<Malformed>>(
        &mut self,
        bytes: &'b [u8],
        take: &mut impl FnMut(StreamPart<'_>) -> Result<(), E>,
    ) -> Result<&'b [u8], E> {
        let more = match self.partial[..] {
            [b'$', _, high, low, ..] if self.beginning(&self.partial) == Beginning::Frame => {
                let data_bytes = usize::from(u16::from_be_bytes([high, low]));
                INTERLEAVED_HEADER_BYTES + data_bytes - self.partial.len()
            }
            // At most as many bytes as the start of a message has.
            _ => 1,
        };
        let (more, rest) = bytes.split_at(more.min(bytes.len()));
        self.partial.extend_from_slice(more);
        let is_partial = match self.beginning(&self.partial) {
            Beginning::Frame => whole_frame(&self.partial).is_none(),
            found => found == Beginning::Undetermined,
        };
        if is_partial {
            return Ok(rest);
        }
        let mut partial = std::mem::take(&mut self.partial);
        let mut left = &partial[..];
        while !left.is_empty() {
            left = match self.replies.is_empty() {
                true => self.part(left, take)?,
                false => self.message(left, take)?,
            };
        }
        if self.partial.is_empty() {
            // The memory is reused.
            partial.clear();
            self.partial = partial;
        }
        Ok(rest)
    }

    /// Feeds the reply reader; returns the bytes that it did not consume.
    fn message<'b, E: From<Malformed>>(
        &mut self,
        bytes: &'b [u8],
        take: &mut impl FnMut(StreamPart<'_>) -> Result<(), E>,
    ) -> Result<&'b [u8], E> {
        let (share, rest) = bytes.split_at(self.replies.share(bytes));
        take(StreamPart::Message(share.len()))?;
        self.replies.feed(share);
        while let Some(received) = self.replies.next()? {
            if let Received::Message(reply) = received {
                take(StreamPart::Reply(reply))?;
            }
        }
        self.is_astray &= !self.replies.is_empty();
        Ok(rest)
    }

    fn beginning(&self, bytes: &[u8]) -> Beginning {
        let is_set_up = !self.channels.is_empty();
        match bytes {
            &[b'$', channel, high, low, ref data @ ..] => {
                let is_named = self.channels.contains(&channel);
                let is_media = data.first().map(|first| first & VERSION_MASK == PLAIN_FIRST_BYTE);
                match (u16::from_be_bytes([high, low]), is_media) {
                    _ if !self.is_astray && (is_named || !is_set_up) => Beginning::Frame,
                    (0, _) if !self.is_astray => Beginning::Frame,
                    _ if self.is_astray && !is_named => Beginning::Nothing,
                    (0..DATA_BYTES_MIN, _) | (_, Some(false)) => Beginning::Nothing,
                    (_, None) => Beginning::Undetermined,
                    (_, Some(true)) => Beginning::Frame,
                }
            }
            [b'$', ..] => Beginning::Undetermined,
            _ if !is_set_up => Beginning::Message,
            _ => {
                let known = if self.is_astray { &MESSAGES[..1] } else { &MESSAGES[..] };
                let is_it = |name: &&&[u8]| name.starts_with(bytes) || bytes.starts_with(name);
                match known.iter().find(is_it) {
                    Some(name) if bytes.len() < name.len() => Beginning::Undetermined,
                    Some(_) => Beginning::Message,
                    None => Beginning::Nothing,
                }
            }
        }
    }
}

/// Returns the frame at the start of these bytes, if it is complete.
fn whole_frame(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let &[b'$', channel, high, low, ref rest @ ..] = bytes else { return None };
    let data = rest.get(..usize::from(u16::from_be_bytes([high, low])))?;
    Some((channel, data))
}

/// First bytes of messages: a reply first (RFC 2326 §7.1), and the requests that a server may send
/// (§10).
const MESSAGES: [&[u8]; 9] = [
    b"RTSP/1.0 ",
    b"OPTIONS ",
    b"ANNOUNCE ",
    b"REDIRECT ",
    b"GET_PARAMETER ",
    b"SET_PARAMETER ",
    b"TEARDOWN ",
    b"PAUSE ",
    b"PLAY ",
];
/// The shortest RTCP packet, of a header and an SSRC.
const DATA_BYTES_MIN: u16 = 8;

#[cfg(test)]
mod tests {
    use wire::rtsp::Limits;

    use super::*;
    use crate::frame_reader::NoReply;
    use crate::scripted_server::frame;

    /// Parts of these chunks, after SETUP has named channels.
    fn parts(chunks: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
        let mut demultiplexer = StreamDemultiplexer::new(ReplyReader::new(Limits::default()));
        demultiplexer.channels = vec![0, 1];
        let mut seen = Vec::new();
        let mut strays = 0;
        for chunk in chunks {
            let fed = demultiplexer.feed(&chunk, |part| {
                if let StreamPart::Strays(bytes) = part {
                    strays += bytes;
                    return Ok(());
                }
                if strays > 0 && !matches!(part, StreamPart::Message(_)) {
                    seen.push(format!("{} strays", std::mem::take(&mut strays)));
                }
                match part {
                    StreamPart::Frame { channel, data } => seen.push(format!("{channel}:{data:?}")),
                    StreamPart::Reply(reply) => {
                        let body = String::from_utf8_lossy(&reply.body);
                        seen.push(format!("{:?} {body:?}", reply.cseq()));
                    }
                    StreamPart::Message(_) | StreamPart::Strays(_) => {}
                }
                Ok::<_, Malformed>(())
            });
            fed.unwrap();
        }
        seen
    }

    #[test]
    fn parts_are_the_same_however_the_bytes_are_cut() {
        let reply = b"RTSP/1.0 200 OK\r\nCSeq: 4\r\nContent-Length: 5\r\n\r\n$\0\0\x01x";
        let request = b"SET_PARAMETER * RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 2\r\n\r\n$\0";
        let plain = b"RTSP/1.0 200 OK\r\nCSeq: 5\r\n\r\n";
        let media = |fill| [&[0x80][..], &[fill; 19]].concat();
        let bytes = [
            frame(0, &[7; 20]),
            frame(1, &[]),
            reply.to_vec(),
            request.to_vec(),
            frame(9, &media(b'R')),
            plain.to_vec(),
            frame(0, &[b'$'; 9]),
            // None of these bytes begins a part: no known channel, no length, no RTP.
            b"\0\x9b\x41\xe0garbage RTSP/1.1$\0\0\0$\x09\0\x14\x80$\0\0\x14\x41$R".to_vec(),
            frame(0, &media(3)),
            b"PLAYER".to_vec(),
            plain.to_vec(),
            frame(9, b"SETUP has not named it"),
            frame(1, &media(4)),
        ]
        .concat();
        let expected = [
            format!("0:{:?}", [7; 20]),
            "1:[]".to_owned(),
            "Some(4) \"$\\0\\0\\u{1}x\"".to_owned(),
            format!("9:{:?}", media(b'R')),
            "Some(5) \"\"".to_owned(),
            format!("0:{:?}", [b'$'; 9]),
            "36 strays".to_owned(),
            format!("0:{:?}", media(3)),
            "6 strays".to_owned(),
            "Some(5) \"\"".to_owned(),
            "26 strays".to_owned(),
            format!("1:{:?}", media(4)),
        ];
        for size in 1..=bytes.len() {
            let found = parts(bytes.chunks(size).map(<[u8]>::to_vec));
            assert_eq!(found, expected, "chunks of {size}");
        }
    }

    #[test]
    fn the_largest_frame_is_held_and_no_more() {
        let data = vec![1; usize::from(u16::MAX)];
        let bytes = frame(0, &data).repeat(3);
        let mut demultiplexer = StreamDemultiplexer::new(ReplyReader::new(Limits::default()));
        demultiplexer.channels = vec![0];
        let mut frames = 0;
        for chunk in bytes.chunks(1000) {
            let count = |part: StreamPart<'_>| {
                frames += u32::from(matches!(part, StreamPart::Frame { .. }));
                Ok::<_, Malformed>(())
            };
            demultiplexer.feed(chunk, count).unwrap();
            assert!(demultiplexer.partial.len() <= INTERLEAVED_HEADER_BYTES + data.len());
        }
        assert_eq!(frames, 3);
    }

    #[test]
    fn bytes_of_another_protocol_are_a_fault() {
        let mut demultiplexer = StreamDemultiplexer::new(ReplyReader::new(Limits::default()));
        let fed = demultiplexer.feed(b"\x16\x03\x01", |_| Ok::<_, Malformed>(()));
        assert!(fed.is_err());
    }

    /// A reader whose consumer fails reads nothing more.
    #[test]
    fn an_error_of_the_taker_ends_the_feed() {
        let mut demultiplexer = StreamDemultiplexer::new(ReplyReader::new(Limits::default()));
        let mut consumed = 0;
        let fed = demultiplexer.feed(&frame(0, &[]).repeat(50), |_| {
            consumed += 1;
            if consumed == 9 { Err(NoReply::Lost(String::new())) } else { Ok(()) }
        });
        assert_eq!((fed.is_err(), consumed), (true, 9));
    }
}
