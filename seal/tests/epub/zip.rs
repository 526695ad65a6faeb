// SPDX-License-Identifier: MIT OR Apache-2.0
//! Archives for the tests, written independently of the crate; every field can be set.
//!
//! Source: PKWARE APPNOTE 6.3.10 §4.3.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// An entry; its fields in the directory and the local header can be made false.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) local_name: Option<Vec<u8>>,
    pub(crate) data: Vec<u8>,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    pub(crate) crc: u32,
    pub(crate) bytes: u64,
    /// True: sizes are in an extra field although they are small.
    pub(crate) zip64: bool,
    /// Index of the entry whose offset the directory gives for this one.
    pub(crate) header_of: Option<usize>,
}

/// Makes an entry that is not compressed.
pub(crate) fn stored(name: &str, bytes: &[u8]) -> Entry {
    Entry {
        name: name.into(),
        local_name: None,
        data: bytes.to_vec(),
        method: 0,
        flags: if name.is_ascii() { 0 } else { 1 << 11 },
        crc: crc32fast::hash(bytes),
        bytes: bytes.len() as u64,
        zip64: false,
        header_of: None,
    }
}

/// Makes an entry compressed by deflate.
pub(crate) fn deflated(name: &str, bytes: &[u8]) -> Entry {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    Entry { data: encoder.finish().unwrap(), method: 8, ..stored(name, bytes) }
}

/// Writes an archive, with a zip64 end record when `zip64` or when the entries need it.
pub(crate) fn archive(entries: &[Entry], zip64: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut offsets = Vec::new();
    for entry in entries {
        offsets.push(out.len());
        out.extend_from_slice(b"PK\x03\x04\x14\0");
        let name = entry.local_name.as_ref().unwrap_or(&entry.name);
        header(&mut out, entry, name);
        // End of the local header: length of the extra field, name, extra field.
        let extra = if entry.zip64 { sizes(entry) } else { Vec::new() };
        out.extend_from_slice(&(extra.len() as u16).to_le_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(&extra);
        out.extend_from_slice(&entry.data);
    }
    let directory = out.len();
    for (entry, offset) in entries.iter().zip(&offsets) {
        out.extend_from_slice(b"PK\x01\x02\x14\0\x14\0");
        header(&mut out, entry, &entry.name);
        let extra = if entry.zip64 { sizes(entry) } else { Vec::new() };
        out.extend_from_slice(&(extra.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0; 10]);
        let offset = entry.header_of.map_or(*offset, |at| offsets[at]);
        out.extend_from_slice(&(offset as u32).to_le_bytes());
        out.extend_from_slice(&entry.name);
        out.extend_from_slice(&extra);
    }
    let bytes = out.len() - directory;
    let count = entries.len();
    if zip64 || count >= 0xFFFF {
        let end = out.len() as u64;
        out.extend_from_slice(b"PK\x06\x06");
        out.extend_from_slice(&44_u64.to_le_bytes());
        out.extend_from_slice(&[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for word in [count, count, bytes, directory] {
            out.extend_from_slice(&(word as u64).to_le_bytes());
        }
        out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
        out.extend_from_slice(&end.to_le_bytes());
        out.extend_from_slice(&1_u32.to_le_bytes());
    }
    let (count, bytes, directory) = if zip64 {
        (0xFFFF, u32::MAX, u32::MAX)
    } else {
        (count.min(0xFFFF) as u16, bytes as u32, directory as u32)
    };
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(&directory.to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out
}

fn header(out: &mut Vec<u8>, entry: &Entry, name: &[u8]) {
    out.extend_from_slice(&entry.flags.to_le_bytes());
    out.extend_from_slice(&entry.method.to_le_bytes());
    out.extend_from_slice(&[0x21, 0x4A, 0x75, 0x5B]);
    out.extend_from_slice(&entry.crc.to_le_bytes());
    let small = |size: u64| if entry.zip64 { u32::MAX } else { size as u32 };
    out.extend_from_slice(&small(entry.data.len() as u64).to_le_bytes());
    out.extend_from_slice(&small(entry.bytes).to_le_bytes());
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
}

fn sizes(entry: &Entry) -> Vec<u8> {
    let mut extra = vec![1, 0, 16, 0];
    extra.extend_from_slice(&entry.bytes.to_le_bytes());
    extra.extend_from_slice(&(entry.data.len() as u64).to_le_bytes());
    extra
}
