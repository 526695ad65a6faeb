// SPDX-License-Identifier: MIT OR Apache-2.0
//! META-INF/encryption.xml: the enciphered entries, their cipher, and their state before.
//!
//! The document is written element by element and never held whole: it grows with the number of
//! entries. Paths are percent-encoded except for characters without a meaning in URLs and XML, so
//! no second escaping is needed.
//!
//! Sources: EPUB 3.3 §4.2.6.3.2 (encryption.xml), §4.2.6.3.2.1 (order of compression and
//! encryption); W3C XML Encryption §5.2; Readium LCP 1.0.4 §2.2 (KeyInfo, OriginalLength).
//!
//! Supports only AES-256-CBC under the licence's content key.

use std::collections::HashMap;

use crc32fast::Hasher;
use flate2::{FlushCompress, Status};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::archive::{Archive, Entry, Method};
use super::container::{attribute, each_element};
use super::fault::BookFault;
use super::payload::Codec;
use crate::error::Error;

/// AES-256 in CBC mode, its IV in front, padded as in W3C XML Encryption.
pub(crate) const AES_256_CBC: &str = "http://www.w3.org/2001/04/xmlenc#aes256-cbc";
/// Location of the key: a JSON pointer into the licence.
const CONTENT_KEY: &str = "license.lcpl#/encryption/content_key";
const CONTENT_KEY_TYPE: &str = "http://readium.org/2014/01/lcp#EncryptedContentKey";

const BEGIN: &str = concat!(
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
    "<encryption xmlns=\"urn:oasis:names:tc:opendocument:xmlns:container\"",
    " xmlns:enc=\"http://www.w3.org/2001/04/xmlenc#\"",
    " xmlns:ds=\"http://www.w3.org/2000/09/xmldsig#\"",
    " xmlns:comp=\"http://www.idpf.org/2016/encryption#compression\">\n",
);
const END: &str = "</encryption>\n";

/// Properties of an enciphered entry once it is deciphered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inside {
    /// Compression of the entry before it was enciphered.
    pub(super) method: Method,
    /// Bytes inflated. Other packagers leave it out for entries that are not compressed.
    pub(super) bytes: Option<u64>,
}

/// Text of encryption.xml in progress.
#[derive(Debug)]
pub(super) struct Text {
    text: Vec<u8>,
    at: usize,
    next: usize,
    crc: Hasher,
    bytes: u64,
}

impl Text {
    pub(super) fn new() -> Self {
        let text = BEGIN.as_bytes().to_vec();
        Self { text, at: 0, next: 0, crc: Hasher::new(), bytes: 0 }
    }

    /// Returns the checksum of the deflated text.
    pub(super) fn crc(&self) -> u32 {
        self.crc.clone().finalize()
    }

    /// Returns the bytes of that text.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Deflates as much of the text as fits. `more` returns an entry's text, `None` after the last.
    pub(super) fn fill(
        &mut self,
        codec: &mut Codec,
        out: &mut [u8],
        more: impl Fn(usize) -> Option<String>,
    ) -> (usize, bool) {
        let mut filled = 0;
        loop {
            while self.text.len() - self.at < TEXT_BYTES_MIN && self.next != usize::MAX {
                self.text.drain(..self.at);
                self.at = 0;
                match more(self.next) {
                    Some(text) => {
                        self.text.extend_from_slice(text.as_bytes());
                        self.next += 1;
                    }
                    None => {
                        self.text.extend_from_slice(END.as_bytes());
                        self.next = usize::MAX;
                    }
                }
            }
            let flush = match self.next {
                usize::MAX => FlushCompress::Finish,
                _ => FlushCompress::None,
            };
            let deflate = codec.deflate();
            let (before_in, before_out) = (deflate.total_in(), deflate.total_out());
            let status = deflate
                .compress(&self.text[self.at..], &mut out[filled..], flush)
                .expect("deflate takes all bytes");
            let consumed = (deflate.total_in() - before_in) as usize;
            filled += (deflate.total_out() - before_out) as usize;
            self.crc.update(&self.text[self.at..self.at + consumed]);
            self.at += consumed;
            self.bytes += consumed as u64;
            if status == Status::StreamEnd {
                return (filled, true);
            }
            if filled == out.len() {
                return (filled, false);
            }
        }
    }
}

/// Returns the element of one entry.
pub(super) fn element(name: &str, method: Method, bytes: u64) -> String {
    let (path, method) = (utf8_percent_encode(name, ESCAPED), method.number());
    format!(
        "<enc:EncryptedData><enc:EncryptionMethod Algorithm=\"{AES_256_CBC}\"/>\
         <ds:KeyInfo><ds:RetrievalMethod URI=\"{CONTENT_KEY}\" Type=\"{CONTENT_KEY_TYPE}\"/>\
         </ds:KeyInfo><enc:CipherData><enc:CipherReference URI=\"{path}\"/></enc:CipherData>\
         <enc:EncryptionProperties><enc:EncryptionProperty>\
         <comp:Compression Method=\"{method}\" OriginalLength=\"{bytes}\"/>\
         </enc:EncryptionProperty></enc:EncryptionProperties></enc:EncryptedData>\n"
    )
}

/// Reads the enciphered entries, by name. Each must be for the licence's content key.
pub(super) fn read(archive: &Archive, entry: &Entry) -> Result<HashMap<String, Inside>, Error> {
    let mut inside = HashMap::new();
    let mut now: Option<Reading> = None;
    let mut wrong = None;
    // An element is complete when the next one begins; the last at the end of the document.
    let mut end = |now: &mut Option<Reading>| match now.take().map(Reading::end) {
        Some(Ok((name, one))) => drop(inside.insert(name, one)),
        Some(Err(found)) => drop(wrong.get_or_insert(found)),
        None => {}
    };
    each_element(archive, entry, |element, _| match element.local_name().as_ref() {
        "EncryptedData" => {
            end(&mut now);
            now = Some(Reading::default());
        }
        "EncryptedKey" => {
            end(&mut now);
            now = Some(Reading { algorithm: "an EncryptedKey".into(), ..Reading::default() });
        }
        local => {
            let Some(reading) = &mut now else { return };
            match local {
                "EncryptionMethod" => {
                    reading.algorithm = attribute(element, "Algorithm").unwrap_or_default();
                }
                "RetrievalMethod" => {
                    reading.key = attribute(element, "URI").unwrap_or_default();
                }
                "CipherReference" => {
                    reading.path = attribute(element, "URI").unwrap_or_default();
                }
                "Compression" => {
                    reading.method = attribute(element, "Method").unwrap_or_default();
                    reading.bytes = attribute(element, "OriginalLength");
                }
                _ => {}
            }
        }
    })?;
    end(&mut now);
    match wrong {
        None => Ok(inside),
        Some(found) => {
            Err(archive.fault(BookFault::Foreign { name: entry.name.to_string(), found }))
        }
    }
}

/// True when the document has only obfuscated fonts, which is no protection.
pub(super) fn is_obfuscation_alone(archive: &Archive, entry: &Entry) -> Result<bool, Error> {
    let mut all = true;
    let mut any = false;
    each_element(archive, entry, |element, _| {
        if element.local_name().as_ref() == "EncryptionMethod" {
            any = true;
            let algorithm = attribute(element, "Algorithm").unwrap_or_default();
            all &= OBFUSCATIONS.contains(&algorithm.as_str());
        }
    })?;
    Ok(any && all)
}

#[derive(Debug, Default)]
struct Reading {
    algorithm: String,
    key: String,
    path: String,
    method: String,
    bytes: Option<String>,
}

impl Reading {
    fn end(self) -> Result<(String, Inside), String> {
        if self.algorithm != AES_256_CBC {
            return Err(format!("enciphered by {:?}", self.algorithm));
        }
        if self.key != CONTENT_KEY {
            return Err(format!("a key at {:?}", self.key));
        }
        let method = match self.method.as_str() {
            "" | "0" => Method::Stored,
            "8" => Method::Deflated,
            other => return Err(format!("compressed by method {other:?}")),
        };
        let bytes = match self.bytes.map(|bytes| bytes.parse()) {
            None => None,
            Some(Ok(bytes)) => Some(bytes),
            Some(Err(_)) => return Err("an OriginalLength that is no number".into()),
        };
        let name = percent_decode_str(&self.path).decode_utf8();
        match name {
            Ok(name) => Ok((name.into_owned(), Inside { method, bytes })),
            Err(_) => Err("a path that is no UTF-8".into()),
        }
    }
}

/// Bytes of text that are gathered before deflate is called.
const TEXT_BYTES_MIN: usize = 8 * 1024;
/// Escapes all but the slash and the unreserved characters of RFC 3986 §2.3.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// Algorithms of EPUB 3.3 §4.4 (IDPF), and of Adobe before it.
const OBFUSCATIONS: [&str; 2] =
    ["http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"];
