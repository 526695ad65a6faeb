// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits the bytes of an RTSP connection into interleaved frames and replies, without a copy of a
//! frame that arrives whole.
//!
//! Frames are borrowed from the bytes that were read; only a frame that two reads share is
//! gathered, in one buffer of 64 KiB at most. Replies are rare: their bytes go to the reader of
//! replies one by one, so that it never takes a frame behind them. A reader of whole chunks would
//! copy each frame twice and allocate once for each.
//!
//! Sources: RFC 2326 §10.12.
//! Does not interpret frames or match replies to requests.

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
}

/// State between two reads.
#[derive(Debug)]
pub(crate) struct StreamDemultiplexer {
    replies: ReplyReader,
    /// Header and data of a frame that has not arrived whole.
    partial: Vec<u8>,
}

impl StreamDemultiplexer {
    /// Goes on where the reader of replies is.
    pub(crate) fn new(replies: ReplyReader) -> StreamDemultiplexer {
        StreamDemultiplexer { replies, partial: Vec::new() }
    }

    /// Hands up the parts that these bytes complete, in their order.
    ///
    /// # Errors
    /// Bytes that are neither a frame nor a reply; the connection is of no more use.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(StreamPart<'_>),
    ) -> Result<(), Malformed> {
        while let Some(&first) = bytes.first() {
            if !self.partial.is_empty() {
                bytes = self.complete(bytes, &mut take);
            } else if first != b'$' || !self.replies.is_empty() {
                self.replies.feed(&bytes[..1]);
                bytes = &bytes[1..];
                self.take_replies(&mut take)?;
            } else if let Some((channel, data)) = whole_frame(bytes) {
                bytes = &bytes[INTERLEAVED_HEADER_BYTES + data.len()..];
                take(StreamPart::Frame { channel, data });
            } else {
                bytes = self.complete(bytes, &mut take);
            }
        }
        Ok(())
    }

    /// Adds to the partial frame; returns the bytes behind it.
    fn complete<'b>(&mut self, bytes: &'b [u8], take: &mut impl FnMut(StreamPart<'_>)) -> &'b [u8] {
        let frame_bytes = match self.partial[..] {
            [_, _, high, low, ..] => {
                INTERLEAVED_HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]))
            }
            _ => INTERLEAVED_HEADER_BYTES,
        };
        let (more, rest) = bytes.split_at((frame_bytes - self.partial.len()).min(bytes.len()));
        self.partial.extend_from_slice(more);
        if let Some((channel, data)) = whole_frame(&self.partial) {
            take(StreamPart::Frame { channel, data });
            self.partial.clear();
        }
        rest
    }

    fn take_replies(&mut self, take: &mut impl FnMut(StreamPart<'_>)) -> Result<(), Malformed> {
        while let Some(received) = self.replies.next()? {
            match received {
                Received::Message(reply) => take(StreamPart::Reply(reply)),
                Received::Interleaved(frame) => {
                    take(StreamPart::Frame { channel: frame.channel, data: &frame.data });
                }
            }
        }
        Ok(())
    }
}

/// Returns the frame at the start of these bytes, if it is all there.
fn whole_frame(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let &[b'$', channel, high, low, ref rest @ ..] = bytes else { return None };
    let data = rest.get(..usize::from(u16::from_be_bytes([high, low])))?;
    Some((channel, data))
}

#[cfg(test)]
mod tests {
    use wire::rtsp::{Limits, interleaved_header};

    use super::*;

    fn frame(channel: u8, data: &[u8]) -> Vec<u8> {
        [&interleaved_header(channel, data.len() as u16)[..], data].concat()
    }

    fn parts(chunks: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
        let mut demultiplexer = StreamDemultiplexer::new(ReplyReader::new(Limits::default()));
        let mut seen = Vec::new();
        for chunk in chunks {
            demultiplexer
                .feed(&chunk, |part| {
                    seen.push(match part {
                        StreamPart::Frame { channel, data } => format!("{channel}:{data:?}"),
                        StreamPart::Reply(reply) => {
                            format!("{:?} {:?}", reply.cseq(), String::from_utf8_lossy(&reply.body))
                        }
                    });
                })
                .unwrap();
        }
        seen
    }

    #[test]
    fn parts_are_the_same_however_the_bytes_are_cut() {
        let reply = b"RTSP/1.0 200 OK\r\nCSeq: 4\r\nContent-Length: 5\r\n\r\n$\0\0\x01x";
        let plain = b"RTSP/1.0 200 OK\r\nCSeq: 5\r\n\r\n";
        let bytes = [
            frame(0, &[7; 20]),
            frame(1, &[]),
            reply.to_vec(),
            frame(9, b"RTSP/1.0 "),
            plain.to_vec(),
            frame(0, &[b'$'; 9]),
        ]
        .concat();
        let expected = [
            format!("0:{:?}", [7; 20]),
            "1:[]".to_owned(),
            "Some(4) \"$\\0\\0\\u{1}x\"".to_owned(),
            format!("9:{:?}", b"RTSP/1.0 "),
            "Some(5) \"\"".to_owned(),
            format!("0:{:?}", [b'$'; 9]),
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
        let mut frames = 0;
        for chunk in bytes.chunks(1000) {
            demultiplexer.feed(chunk, |_| frames += 1).unwrap();
            assert!(demultiplexer.partial.len() <= INTERLEAVED_HEADER_BYTES + data.len());
        }
        assert_eq!(frames, 3);
    }

    #[test]
    fn bytes_of_another_protocol_are_a_fault() {
        let mut demultiplexer = StreamDemultiplexer::new(ReplyReader::new(Limits::default()));
        assert!(demultiplexer.feed(b"\x16\x03\x01", |_| panic!("a part")).is_err());
    }
}
