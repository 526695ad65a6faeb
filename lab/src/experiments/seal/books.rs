// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synthetic EPUB books: deflated chapters and stored pictures, generated from a seed.
//!
//! Chapters and pictures are copied from a stock that is made once, so that a catalogue of
//! gigabytes is made in seconds; the CPU cost of sealing a book does not depend on chapters it
//! shares with another. Word frequencies are as uneven as in a language, and the text deflates to
//! about a third; pictures are noise, as compressed pictures are to a compressor.
//!
//! Sources: PKWARE APPNOTE 6.3.10 §4.3 (archives); EPUB 3.3 §4 (required content); Zipf's law.
//! Does not write other parts of a book (fonts, sounds, scripts), or zip64.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// Chapters and noise that books are made of.
pub(super) struct Stock {
    chapters: Vec<Entry>,
    noise: Vec<u8>,
    state: u64,
}

/// Content of an archive entry.
#[derive(Clone)]
struct Entry {
    method: u16,
    crc: u32,
    bytes: u32,
    data: Vec<u8>,
}

impl Entry {
    fn stored(bytes: &[u8]) -> Entry {
        let (crc, data) = (crc32fast::hash(bytes), bytes.to_vec());
        Entry { method: STORED, crc, bytes: bytes.len() as u32, data }
    }

    fn deflated(bytes: &[u8]) -> Entry {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let data = written.expect("a vector takes all");
        Entry { method: DEFLATED, data, ..Entry::stored(bytes) }
    }
}

impl Stock {
    pub(super) fn new() -> Stock {
        let mut stock = Stock { chapters: Vec::new(), noise: Vec::new(), state: SEED };
        while stock.noise.len() < NOISE_BYTES {
            let word = stock.next();
            stock.noise.extend_from_slice(&word.to_le_bytes());
        }
        let words: Vec<String> = (0..WORDS).map(|_| stock.word()).collect();
        for _ in 0..CHAPTERS {
            let bytes = 20_000 + stock.below(80_000);
            let chapter = stock.chapter(&words, bytes);
            stock.chapters.push(Entry::deflated(chapter.as_bytes()));
        }
        stock
    }

    /// Makes a book of about `bytes` bytes; chapters have the share `text_share` of them.
    pub(super) fn book(&mut self, bytes: u64, text_share: f64) -> Vec<u8> {
        let package = PACKAGE.as_bytes();
        let mut entries = vec![
            ("mimetype".to_owned(), Entry::stored(b"application/epub+zip")),
            ("META-INF/container.xml".to_owned(), Entry::deflated(CONTAINER.as_bytes())),
            ("OEBPS/content.opf".to_owned(), Entry::deflated(package)),
            ("OEBPS/nav.xhtml".to_owned(), Entry::deflated(NAVIGATION.as_bytes())),
        ];
        let (mut text, mut all) = (0.0, 0.0);
        while all < bytes as f64 {
            let number = entries.len();
            let (name, entry) = if text <= all * text_share {
                let index = self.below(CHAPTERS);
                let chapter = self.chapters[index].clone();
                text += chapter.data.len() as f64;
                (format!("OEBPS/text/{number}.xhtml"), chapter)
            } else {
                let length = 40_000 + self.below(400_000);
                let from = self.below(NOISE_BYTES - length);
                let picture = Entry::stored(&self.noise[from..from + length]);
                (format!("OEBPS/images/{number}.jpg"), picture)
            };
            all += entry.data.len() as f64;
            entries.push((name, entry));
        }
        archive(&entries)
    }

    /// Returns the next number of xorshift64.
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn word(&mut self) -> String {
        let letters = 2 + self.below(9);
        (0..letters).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    fn chapter(&mut self, words: &[String], bytes: usize) -> String {
        let mut text = String::from("<html xmlns=\"http://www.w3.org/1999/xhtml\"><body>\n<p>");
        while text.len() < bytes {
            // The frequency of a rank is proportional to its inverse.
            let part = self.below(1 << 20) as f64 / f64::from(1 << 20);
            let rank = (words.len() as f64).powf(part) as usize - 1;
            text.push_str(&words[rank.min(words.len() - 1)]);
            text.push_str(if self.below(60) == 0 { ".</p>\n<p>" } else { " " });
        }
        text.push_str("</p></body></html>\n");
        text
    }
}

/// Makes an archive of named entries.
fn archive(entries: &[(String, Entry)]) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    for (name, entry) in entries {
        let offset = archive.len() as u32;
        archive.extend_from_slice(b"PK\x03\x04\x14\0");
        header(&mut archive, name, entry);
        archive.extend_from_slice(&[0; 2]);
        archive.extend_from_slice(name.as_bytes());
        archive.extend_from_slice(&entry.data);
        directory.extend_from_slice(b"PK\x01\x02\x14\0\x14\0");
        header(&mut directory, name, entry);
        // No extra field, no comment, first disk, no attributes.
        directory.extend_from_slice(&[0; 12]);
        directory.extend_from_slice(&offset.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
    }
    let (count, offset) = (entries.len() as u16, archive.len() as u32);
    archive.extend_from_slice(&directory);
    archive.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    archive.extend_from_slice(&count.to_le_bytes());
    archive.extend_from_slice(&count.to_le_bytes());
    archive.extend_from_slice(&(directory.len() as u32).to_le_bytes());
    archive.extend_from_slice(&offset.to_le_bytes());
    archive.extend_from_slice(&[0; 2]);
    archive
}

/// Writes the fields that local header and directory share: flags to the length of the name.
fn header(out: &mut Vec<u8>, name: &str, entry: &Entry) {
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&entry.method.to_le_bytes());
    out.extend_from_slice(&TIME_AND_DATE);
    out.extend_from_slice(&entry.crc.to_le_bytes());
    out.extend_from_slice(&(entry.data.len() as u32).to_le_bytes());
    out.extend_from_slice(&entry.bytes.to_le_bytes());
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
}

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Midnight of 1980-01-01, the first day of the format.
const TIME_AND_DATE: [u8; 4] = [0, 0, 0x21, 0];
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const WORDS: usize = 8000;
const CHAPTERS: usize = 48;
const NOISE_BYTES: usize = 4 << 20;
const CONTAINER: &str = "<?xml version=\"1.0\"?>\n<container version=\"1.0\" \
    xmlns=\"urn:oasis:names:tc:opendocument:xmlns:container\"><rootfiles><rootfile \
    full-path=\"OEBPS/content.opf\" media-type=\"application/oebps-package+xml\"/></rootfiles>\
    </container>\n";
const PACKAGE: &str = "<?xml version=\"1.0\"?>\n<package version=\"3.0\" \
    xmlns=\"http://www.idpf.org/2007/opf\"><manifest><item id=\"nav\" href=\"nav.xhtml\" \
    media-type=\"application/xhtml+xml\" properties=\"nav\"/></manifest><spine/></package>\n";
const NAVIGATION: &str = "<html xmlns=\"http://www.w3.org/1999/xhtml\"><body/></html>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chapters_deflate_as_text_does() {
        let stock = Stock::new();
        let sizes = |of: fn(&Entry) -> usize| stock.chapters.iter().map(of).sum::<usize>() as f64;
        let share = sizes(|entry| entry.data.len()) / sizes(|entry| entry.bytes as usize);
        assert!((0.25..0.5).contains(&share), "{share}");
    }

    #[test]
    fn books_have_their_size_and_their_share_of_text() {
        let mut stock = Stock::new();
        for (bytes, share) in [(1_000_000, 0.1), (3_000_000, 0.8)] {
            let book = stock.book(bytes, share);
            assert!((bytes..bytes + 600_000).contains(&(book.len() as u64)), "{}", book.len());
            assert!(book.starts_with(b"PK\x03\x04") && book[30..].starts_with(b"mimetype"));
        }
        assert_ne!(stock.book(1_000_000, 0.5), stock.book(1_000_000, 0.5));
    }
}
