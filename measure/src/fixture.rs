// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data for sending: a file of random bytes, the RTP headers, and the wire image of both.
//!
//! The file is larger than the last-level cache, as a library is, and lies in the page cache. Its
//! bytes have no period, so a wrong offset shows. One wire image is made for each packet size.
//! Costs a quarter of a second and disk space of twice the file.
//!
//! Sources: RFC 3550 §5.1 (the header), Marsaglia 2003 (xorshift).
//! Contains no media; a path does not interpret the payload.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use paths::MappedFile;
use wire::rtsp::interleaved_header;
use wire::{mp2t, rtp};

use crate::error::Error;

/// RTP's fixed header (RFC 3550 §5.1).
pub const HEADER_BYTES: u32 = rtp::HEADER_BYTES as u32;

/// Size of the whole file.
pub const FILE_BYTES: u64 = 128 << 20;

/// The file; its wire images are made on request.
pub struct Fixture {
    /// The file, mapped.
    pub file: MappedFile,
    folder: tempfile::TempDir,
}

/// The file as RTP packets one after the other.
pub struct Image {
    /// The image, mapped.
    pub media: MappedFile,
}

impl Fixture {
    /// Makes the file, larger than a core's share of the last-level cache.
    pub fn make() -> Result<Fixture, Error> {
        Self::of(FILE_BYTES)
    }

    /// Makes a quarter of the file, for a short calibration; still as large as most caches.
    pub fn small() -> Result<Fixture, Error> {
        Self::of(FILE_BYTES / 4)
    }

    fn of(bytes: u64) -> Result<Fixture, Error> {
        let folder = tempfile::tempdir().map_err(Error::host("a temporary folder"))?;
        let path = folder.path().join("file");
        let failed = || Error::host("writing the file of 128 MiB (is the temporary folder full?)");
        let mut target = BufWriter::with_capacity(1 << 20, create(&path)?);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..bytes / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            target.write_all(&state.to_le_bytes()).map_err(failed())?;
        }
        let file = target.into_inner().map_err(|e| e.into_error()).map_err(failed())?;
        Ok(Fixture { file: open(file, "file")?, folder })
    }

    /// Returns the number of packets of `datagram_bytes`, header included, that the file fills.
    pub fn packets(&self, datagram_bytes: u32) -> u64 {
        self.file.bytes() / u64::from(datagram_bytes - HEADER_BYTES)
    }

    /// Makes the wire image in packets of that size.
    pub fn image(&self, datagram_bytes: u32) -> Result<Image, Error> {
        self.image_of(datagram_bytes, "image", |packet| header(packet).to_vec())
    }

    /// Makes the framed image of packets of that size: four bytes of a frame before each.
    pub fn framed_image(&self, packet_bytes: u32) -> Result<Image, Error> {
        self.image_of(packet_bytes, "framed", |packet| framed_header(packet, packet_bytes).to_vec())
    }

    fn image_of(
        &self,
        datagram_bytes: u32,
        kind: &str,
        header: impl Fn(u64) -> Vec<u8>,
    ) -> Result<Image, Error> {
        let name = format!("{kind}-{datagram_bytes}");
        let path = self.folder.path().join(&name);
        let failed = || Error::host("writing a wire image (is the temporary folder full?)");
        let mut target = BufWriter::with_capacity(1 << 20, create(&path)?);
        let mut payload = vec![0; (datagram_bytes - HEADER_BYTES) as usize];
        for packet in 0..self.packets(datagram_bytes) {
            let offset = packet * payload.len() as u64;
            let read = self.file.file().read_exact_at(&mut payload, offset);
            read.map_err(Error::host("reading the file"))?;
            target.write_all(&header(packet)).map_err(failed())?;
            target.write_all(&payload).map_err(failed())?;
        }
        let file = target.into_inner().map_err(|e| e.into_error()).map_err(failed())?;
        // The name is removed; the bytes stay until the last user closes the file.
        std::fs::remove_file(&path).map_err(Error::host(name.clone()))?;
        Ok(Image { media: open(file, &name)? })
    }

    /// Returns the share of the file that is in the page cache, in steps of a mebibyte.
    pub fn resident_share(media: &MappedFile) -> f64 {
        let parts = media.bytes().div_ceil(PART_BYTES).max(1);
        let range = |part: u64| part * PART_BYTES..((part + 1) * PART_BYTES).min(media.bytes());
        let resident = (0..parts).filter(|&part| media.is_in_cache(range(part))).count();
        resident as f64 / parts as f64
    }
}

/// Returns the RTP header of a packet: sequence number and timestamp differ from packet to packet,
/// as a server must make them.
pub fn header(packet: u64) -> [u8; HEADER_BYTES as usize] {
    let header = rtp::Header {
        marker: false,
        payload_type: mp2t::PAYLOAD_TYPE,
        sequence: packet as u16,
        timestamp: packet.wrapping_mul(190) as u32,
        ssrc: u32::from_be_bytes(*b"pwag"),
    };
    header.write()
}

/// Returns the frame header of a packet of `packet_bytes`, and its RTP header.
pub fn framed_header(
    packet: u64,
    packet_bytes: u32,
) -> [u8; (FRAME_BYTES + HEADER_BYTES) as usize] {
    let mut both = [0; (FRAME_BYTES + HEADER_BYTES) as usize];
    let (frame, rtp) = both.split_at_mut(FRAME_BYTES as usize);
    let bytes = u16::try_from(packet_bytes).expect("a frame has at most 65,535 bytes");
    frame.copy_from_slice(&interleaved_header(CHANNEL, bytes));
    rtp.copy_from_slice(&header(packet));
    both
}

fn create(path: &Path) -> Result<File, Error> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    options.open(path).map_err(Error::host(format!("creating {}", path.display())))
}

fn open(file: File, name: &str) -> Result<MappedFile, Error> {
    MappedFile::open(file, name)
        .map_err(|error| Error::Host { what: "opening".to_owned(), found: error.to_string() })
}

/// 12 bytes of RTP header and 7 packets of transport stream.
pub const USUAL_BYTES: u32 = mp2t::PACKET_BYTES as u32;
/// Frame header of an interleaved packet (RFC 2326 §10.12).
pub const FRAME_BYTES: u32 = 4;
const CHANNEL: u8 = 0;
const PART_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_headers_and_the_files_bytes() {
        let fixture = Fixture::make().unwrap();
        let image = fixture.image(9000).unwrap();
        assert_eq!(image.media.bytes(), fixture.packets(9000) * 9000);
        let (mut packet, mut payload) = ([0; 9000], [0; 9000 - 12]);
        for number in [0, 1, 70_000 % fixture.packets(9000), fixture.packets(9000) - 1] {
            image.media.file().read_exact_at(&mut packet, number * 9000).unwrap();
            fixture.file.file().read_exact_at(&mut payload, number * 8988).unwrap();
            assert_eq!(packet[..12], header(number));
            assert_eq!(packet[12..], payload);
        }
        assert!(Fixture::resident_share(&fixture.file) > 0.0);
    }
}
