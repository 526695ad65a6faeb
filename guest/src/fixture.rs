// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixture for the paths: a file of pseudo-random bytes, the headers of its packets, and its wire
//! image.
//!
//! The fixture resembles that of the laboratory's experiment `paths`, in sizes that fit a guest's
//! memory. Headers are made for each batch, as a server makes them, so that a path that reads them
//! from memory includes that cost and a path that sends an image does not.
//!
//! Sources: RFC 3550 §5.1 (the header), Marsaglia 2003 (xorshift); *data-paths* section 3.5
//! (packets of a stream).

use std::fs::File;
use std::io::Write;
use std::ops::Range;

use paths::{Batch, Feed, MappedFile, Piece};
use wire::{mp2t, rtp};

use crate::error::Error;

const HEADER_BYTES: u32 = rtp::HEADER_BYTES as u32;
/// Timestamp units (90 kHz) a packet: a 5 Mb/s stream in packets of 1316 bytes.
const TIMESTAMP_STEP: u32 = 190;
const SSRC: u32 = u32::from_be_bytes(*b"pwag");

/// Size and layout of the fixture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixtureShape {
    pub(crate) packets: u32,
    /// Bytes of each packet, header included.
    pub(crate) datagram_bytes: u32,
    /// Bytes of the last packet, which may be shorter.
    pub(crate) last_bytes: u32,
    /// Bytes of the file and of the image before the first packet.
    pub(crate) start_bytes: u32,
    pub(crate) first_sequence: u16,
}

/// A file and its wire image.
pub(crate) struct Fixture {
    pub(crate) shape: FixtureShape,
    file: MappedFile,
    image: MappedFile,
    /// Bytes of the image from the first packet on.
    wire: Vec<u8>,
}

impl Fixture {
    /// Makes the file and the image in the temporary folder.
    pub(crate) fn make(shape: FixtureShape) -> Result<Fixture, Error> {
        let mut noise = PseudoRandom(0x9e37_79b9_7f4a_7c15);
        let start = noise.bytes(shape.start_bytes);
        let (mut content, mut wire) = (start.clone(), Vec::new());
        for packet in 0..shape.packets {
            let last = packet + 1 == shape.packets;
            let bytes = if last { shape.last_bytes } else { shape.datagram_bytes };
            let payload = noise.bytes(bytes - HEADER_BYTES);
            wire.extend(shape.head(packet));
            wire.extend(&payload);
            content.extend(payload);
        }
        let file = media("file", &[&content])?;
        let image = media("image", &[&start, &wire])?;
        Ok(Fixture { shape, file, image, wire })
    }

    /// Returns a batch of these packets in the form that the path needs; it borrows from `room`.
    pub(crate) fn batch<'a>(
        &'a self,
        feed: Feed,
        packets: Range<u32>,
        room: &'a mut BatchBuffers,
    ) -> Batch<'a> {
        let FixtureShape { start_bytes, datagram_bytes, .. } = self.shape;
        let count = packets.end - packets.start;
        let all_bytes = self.range(packets.clone());
        let all_bytes = (all_bytes.end - all_bytes.start) as u64;
        let first = u64::from(packets.start);
        match feed {
            Feed::Gathered => {
                room.heads.clear();
                room.heads.extend(packets.flat_map(|packet| self.shape.head(packet)));
                let payload_bytes = u64::from(datagram_bytes - HEADER_BYTES);
                room.pieces.clear();
                room.pieces.push(Piece {
                    offset: u64::from(start_bytes) + first * payload_bytes,
                    bytes: all_bytes - u64::from(count * HEADER_BYTES),
                });
                Batch::gathered(&self.file, count, datagram_bytes, &room.heads, &room.pieces)
            }
            Feed::Image => {
                let offset = u64::from(start_bytes) + first * u64::from(datagram_bytes);
                Batch::image(&self.image, count, datagram_bytes, offset, all_bytes)
            }
        }
    }

    /// Returns the expected bytes of a received packet.
    pub(crate) fn datagram(&self, packet: u32) -> &[u8] {
        &self.wire[self.range(packet..packet + 1)]
    }

    /// Returns the image, for paths that send a whole file.
    pub(crate) fn image(&self) -> &MappedFile {
        &self.image
    }

    /// Returns the byte range of the packets in `wire`.
    fn range(&self, packets: Range<u32>) -> Range<usize> {
        let at = |packet: u32| packet as usize * self.shape.datagram_bytes as usize;
        at(packets.start)..at(packets.end).min(self.wire.len())
    }
}

/// Buffers that a batch borrows.
#[derive(Default)]
pub(crate) struct BatchBuffers {
    heads: Vec<u8>,
    pieces: Vec<Piece>,
}

impl FixtureShape {
    /// Returns the RTP header of a packet: sequence number and timestamp grow with the packet.
    fn head(&self, packet: u32) -> [u8; rtp::HEADER_BYTES] {
        let header = rtp::Header {
            marker: false,
            payload_type: mp2t::PAYLOAD_TYPE,
            sequence: self.first_sequence.wrapping_add(packet as u16),
            timestamp: packet.wrapping_mul(TIMESTAMP_STEP),
            ssrc: SSRC,
        };
        header.write()
    }
}

/// Pseudo-random bytes, the same in every run, without a period that could hide a wrong offset.
struct PseudoRandom(u64);

impl PseudoRandom {
    fn bytes(&mut self, bytes: u32) -> Vec<u8> {
        let mut made = Vec::with_capacity(bytes as usize + 8);
        while made.len() < bytes as usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            made.extend(self.0.to_le_bytes());
        }
        made.truncate(bytes as usize);
        made
    }
}

/// Makes a file of these bytes without a name: it exists as long as it is open.
fn media(name: &str, parts: &[&[u8]]) -> Result<MappedFile, Error> {
    let path = std::env::temp_dir().join(format!("pagewire-{}-{name}", std::process::id()));
    let object = || path.display().to_string();
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(&path);
    let mut file = file.map_err(Error::host("open", object()))?;
    for part in parts {
        file.write_all(part).map_err(Error::host("write", object()))?;
    }
    std::fs::remove_file(&path).map_err(Error::host("unlink", object()))?;
    MappedFile::open(file, name)
        .map_err(|error| Error::host("open", name)(std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use paths::BatchForm;
    use std::os::unix::fs::FileExt;

    const SHAPE: FixtureShape = FixtureShape {
        packets: 9,
        datagram_bytes: 1000,
        last_bytes: 300,
        start_bytes: 77,
        first_sequence: 65_533,
    };

    #[test]
    fn both_forms_have_the_same_packets() {
        let fixture = Fixture::make(SHAPE).expect("two files");
        let mut room = BatchBuffers::default();
        for range in [0..9, 0..1, 8..9, 3..8] {
            let batch = fixture.batch(Feed::Gathered, range.clone(), &mut room);
            let BatchForm::Gathered { source: media, heads, pieces: [piece] } = batch.form else {
                panic!()
            };
            let mut payload = vec![0; piece.bytes as usize];
            media.file().read_exact_at(&mut payload, piece.offset).expect("payload");
            let sent: Vec<u8> = heads
                .chunks(12)
                .zip(payload.chunks(988))
                .flat_map(|(head, payload)| [head, payload].concat())
                .collect();
            let wanted: Vec<u8> =
                range.clone().flat_map(|packet| fixture.datagram(packet).to_vec()).collect();
            assert_eq!(sent, wanted, "{range:?}");
            let batch = fixture.batch(Feed::Image, range.clone(), &mut room);
            let BatchForm::Image { source: media, offset } = batch.form else { panic!() };
            let mut sent = vec![0; batch.bytes as usize];
            media.file().read_exact_at(&mut sent, offset).expect("packets");
            assert_eq!(sent, wanted, "{range:?}");
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        let heads = [0, 2, 3].map(|packet| SHAPE.head(packet)[2..4].to_vec());
        assert_eq!(heads, [[0xff, 0xfd], [0xff, 0xff], [0, 0]]);
    }
}
