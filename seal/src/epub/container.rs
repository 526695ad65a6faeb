// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a publication: entries that must stay readable without a key, and media that deflate
//! cannot shrink.
//!
//! A reading system identifies a book, shows its cover and its contents and asks for the passphrase
//! before it has one. So these stay clear: all below META-INF, `mimetype`, the package documents,
//! navigation documents, NCX, cover images. Costs three small documents in memory, each bounded,
//! while a book is opened.
//!
//! Sources: EPUB 3.3 §4.2 (OCF), §5.6 (manifest, properties `nav` and `cover-image`); EPUB 2.0.1
//! OPF §2.4 (`meta name="cover"` is the custom of its time); Readium LCP 1.0.4 §2.1, §2.2.
//!
//! Does not validate. A book that readers accept is accepted. Elements are matched by their local
//! names, with any prefix.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::Read as _;

use flate2::read::DeflateDecoder;
use percent_encoding::percent_decode_str;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use super::archive::{Archive, Entry, Method};
use super::fault::BookFault;
use crate::error::Error;
use crate::plural::counted;

/// The entry that readers look for first.
pub(super) const MIMETYPE: &str = "mimetype";
/// Its content.
pub(super) const MEDIA_TYPE: &[u8] = b"application/epub+zip";
pub(super) const CONTAINER: &str = "META-INF/container.xml";
pub(super) const ENCRYPTION: &str = "META-INF/encryption.xml";
pub(super) const LICENCE: &str = "META-INF/license.lcpl";
/// Most bytes of a package document or encryption.xml, which are read whole.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 48 << 20;
/// Most renditions of one publication.
const PACKAGES_MAX: usize = 64;

/// Parts of a publication, by how they are sealed.
#[derive(Debug, Default)]
pub(super) struct Parts {
    clear: HashSet<String>,
    media_types: HashMap<String, String>,
}

impl Parts {
    /// Reads container.xml and every package document.
    pub(super) fn read(archive: &Archive) -> Result<Self, Error> {
        let mimetype = archive.find(MIMETYPE).ok_or_else(|| not_epub(archive, "no mimetype"))?;
        let content = document(archive, mimetype, MIMETYPE_BYTES_MAX)?;
        if content.trim_ascii() != MEDIA_TYPE {
            let content = String::from_utf8_lossy(&content).into_owned();
            return Err(not_epub(archive, &format!("mimetype says {content:?}")));
        }
        let container = archive
            .find(CONTAINER)
            .ok_or_else(|| not_epub(archive, "no META-INF/container.xml"))?;
        let mut packages = Vec::new();
        each_element(archive, container, |element, _| {
            if element.local_name().as_ref() == "rootfile" {
                let media_type = attribute(element, "media-type").unwrap_or_default();
                if media_type == "application/oebps-package+xml" {
                    packages.extend(attribute(element, "full-path"));
                }
            }
        })?;
        if packages.is_empty() {
            return Err(not_epub(archive, "META-INF/container.xml names no package document"));
        }
        if packages.len() > PACKAGES_MAX {
            let (found, limit) = (packages.len() as u64, PACKAGES_MAX as u64);
            return Err(archive.fault(BookFault::Limit { what: "packages", found, limit }));
        }
        let mut parts = Self::default();
        for path in packages {
            let Some(package) = archive.find(&path) else {
                return Err(not_epub(archive, &format!("package document {path:?} is not there")));
            };
            parts.read_package(archive, package)?;
            parts.clear.insert(path);
        }
        Ok(parts)
    }

    /// True when this entry stays clear.
    pub(super) fn is_clear(&self, name: &str) -> bool {
        name == MIMETYPE || name.starts_with("META-INF/") || self.clear.contains(name)
    }

    /// True when this entry is a medium with a compression of its own.
    pub(super) fn is_compressed(&self, name: &str) -> bool {
        match self.media_types.get(name) {
            Some(media_type) => is_codec(media_type),
            None => has_extension(name, CODEC_EXTENSIONS),
        }
    }

    /// True when this entry is a font. Books of before EPUB 3 name no media type of fonts.
    pub(super) fn is_font(&self, name: &str) -> bool {
        match self.media_types.get(name).map_or("", String::as_str) {
            "" | "application/octet-stream" => has_extension(name, FONT_EXTENSIONS),
            media_type => media_type.contains("font") || media_type.contains("opentype"),
        }
    }

    fn read_package(&mut self, archive: &Archive, package: &Entry) -> Result<(), Error> {
        let mut cover = None;
        let mut by_id = HashMap::new();
        each_element(archive, package, |element, parent| {
            match (parent, element.local_name().as_ref()) {
                ("metadata", "meta") if attribute(element, "name").as_deref() == Some("cover") => {
                    cover = attribute(element, "content");
                }
                ("manifest", "item") => {
                    let Some(path) =
                        attribute(element, "href").and_then(|href| resolve(&package.name, &href))
                    else {
                        return;
                    };
                    let media_type = attribute(element, "media-type").unwrap_or_default();
                    let properties = attribute(element, "properties").unwrap_or_default();
                    let is_clear = properties
                        .split_ascii_whitespace()
                        .any(|property| property == "nav" || property == "cover-image");
                    if is_clear || media_type.eq_ignore_ascii_case("application/x-dtbncx+xml") {
                        self.clear.insert(path.clone());
                    }
                    if let Some(id) = attribute(element, "id") {
                        by_id.insert(id, path.clone());
                    }
                    self.media_types.insert(path, media_type.to_ascii_lowercase());
                }
                _ => {}
            }
        })?;
        // EPUB 2: the metadata name the cover's item. Only an image stays clear: a cover page is
        // text.
        if let Some(path) = cover.and_then(|id| by_id.remove(&id)) {
            let media_type = self.media_types.get(&path);
            if media_type.is_some_and(|media_type| media_type.starts_with("image/")) {
                self.clear.insert(path);
            }
        }
        Ok(())
    }
}

/// Reads all of a small entry and checks it.
pub(super) fn document(archive: &Archive, entry: &Entry, bytes_max: u64) -> Result<Vec<u8>, Error> {
    if entry.bytes > bytes_max || entry.stored > bytes_max {
        let found = format!("{}, over the limit of {bytes_max}", counted(entry.bytes, "byte"));
        let name = entry.name.to_string();
        return Err(archive.fault(BookFault::Document { name, found }));
    }
    let mut raw = vec![0; entry.stored as usize];
    archive.read(&mut raw, archive.data_start(entry)?)?;
    let bytes = match entry.method {
        Method::Stored => raw,
        Method::Deflated => {
            let mut bytes = Vec::with_capacity(entry.bytes as usize);
            DeflateDecoder::new(&raw[..])
                .take(entry.bytes + 1)
                .read_to_end(&mut bytes)
                .map_err(|_| archive.broken(entry, "no deflate stream"))?;
            bytes
        }
    };
    if bytes.len() as u64 != entry.bytes || crc32fast::hash(&bytes) != entry.crc {
        return Err(archive.broken(entry, "its checksum differs"));
    }
    Ok(bytes)
}

/// Calls `seen` for each element of a document, with the local name of its parent.
pub(super) fn each_element(
    archive: &Archive,
    entry: &Entry,
    mut seen: impl FnMut(&BytesStart<'_>, &str),
) -> Result<(), Error> {
    let bytes = document(archive, entry, DOCUMENT_BYTES_MAX)?;
    let wrong = |found: String| {
        let name = entry.name.to_string();
        archive.fault(BookFault::Document { name, found })
    };
    let text = decoded(&bytes);
    let mut reader = Reader::from_str(&text);
    let mut parents: Vec<String> = Vec::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                seen(&element, parents.last().map_or("", String::as_str));
                if parents.len() == DEPTH_MAX {
                    return Err(wrong(format!("elements over {DEPTH_MAX} deep")));
                }
                parents.push(element.local_name().as_ref().to_owned());
            }
            Ok(Event::Empty(element)) => {
                seen(&element, parents.last().map_or("", String::as_str));
            }
            Ok(Event::End(_)) => drop(parents.pop()),
            Ok(Event::Eof) if parents.is_empty() => return Ok(()),
            Ok(Event::Eof) => return Err(wrong("it ends within an element".into())),
            Ok(_) => {}
            Err(error) => {
                return Err(wrong(format!("byte {}: {error}", reader.error_position())));
            }
        }
    }
}

/// Returns an attribute without its prefix, with its character references resolved.
pub(super) fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    element
        .attributes()
        .flatten()
        .find(|attribute| attribute.key.local_name().as_ref() == name)
        .and_then(|attribute| {
            attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(Cow::into_owned)
        })
}

/// Decodes UTF-8 or, by its byte order mark, UTF-16 (EPUB 3.3 §3.2 allows both). Of other text only
/// ASCII is kept, which is enough for element and attribute names.
fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    let wide = |word: fn([u8; 2]) -> u16| {
        let words = bytes[2..].chunks_exact(2).map(|two| word([two[0], two[1]]));
        let letters = char::decode_utf16(words);
        Cow::Owned(letters.map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
    };
    match bytes {
        [0xFE, 0xFF, ..] => wide(u16::from_be_bytes),
        [0xFF, 0xFE, ..] => wide(u16::from_le_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8_lossy(rest),
        _ => String::from_utf8_lossy(bytes),
    }
}

/// Returns the entry that `href` in the document `base` means; `None` if it is outside the book.
fn resolve(base: &str, href: &str) -> Option<String> {
    let path = href.split(['#', '?']).next().unwrap_or_default();
    let scheme = path.split(['/', '?', '#']).next().unwrap_or_default();
    if scheme.contains(':') || path.starts_with("//") {
        return None;
    }
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    let (mut parts, rest): (Vec<&str>, &str) = match decoded.strip_prefix('/') {
        Some(rest) => (Vec::new(), rest),
        None => {
            let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
            (folder.split('/').filter(|part| !part.is_empty()).collect(), &decoded)
        }
    };
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            // A path above the root means the root (OCF 3.3 §4.2.5, URL standard).
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// True when a media type has its own compression (LCP 1.0.4 §2.2, "Codec content types").
fn is_codec(media_type: &str) -> bool {
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    match media_type.split_once('/') {
        Some(("audio" | "video", _)) => true,
        Some(("image", kind)) => !matches!(kind, "svg+xml" | "bmp" | "x-ms-bmp"),
        Some(("font", kind)) => matches!(kind, "woff" | "woff2"),
        Some(("application", kind)) => CODEC_APPLICATIONS.contains(&kind),
        _ => false,
    }
}

fn has_extension(name: &str, extensions: &[&str]) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    extensions.iter().any(|one| one.eq_ignore_ascii_case(extension))
}

fn not_epub(archive: &Archive, found: &str) -> Error {
    archive.fault(BookFault::NotEpub { found: found.into() })
}

const MIMETYPE_BYTES_MAX: u64 = 256;
/// Most nested elements. Package documents are 3 deep, encryption.xml is 6.
const DEPTH_MAX: usize = 256;
const CODEC_APPLICATIONS: &[&str] =
    &["pdf", "zip", "gzip", "epub+zip", "font-woff", "font-woff2", "mp4", "ogg", "x-font-woff"];
const FONT_EXTENSIONS: &[&str] = &["otf", "ttf", "ttc", "woff", "woff2", "eot"];
const CODEC_EXTENSIONS: &[&str] = &[
    "jpg", "jpeg", "png", "gif", "webp", "avif", "jxl", "mp3", "m4a", "m4b", "aac", "mp4", "m4v",
    "ogg", "opus", "oga", "ogv", "webm", "flac", "woff", "woff2", "pdf", "zip", "gz",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_in_a_url() {
        for (base, href, path) in [
            ("OEBPS/content.opf", "text/a%20b.xhtml#c", Some("OEBPS/text/a b.xhtml")),
            ("content.opf", "cover.jpg", Some("cover.jpg")),
            ("a/b/c.opf", "../../x/./y.css", Some("x/y.css")),
            ("a/c.opf", "../../../x", Some("x")),
            ("a/c.opf", "/x", Some("x")),
            ("a/c.opf", "%C3%A9.png", Some("a/é.png")),
            ("a/c.opf", "http://example.org/x.mp3", None),
            ("a/c.opf", "//example.org/x.mp3", None),
            ("a/c.opf", "data:,x", None),
        ] {
            assert_eq!(resolve(base, href).as_deref(), path, "{base} {href}");
        }
    }

    #[test]
    fn media_with_a_codec_are_told_from_those_without() {
        for codec in ["image/jpeg", "audio/mpeg", "video/mp4", "font/woff2", "application/pdf"] {
            assert!(is_codec(codec), "{codec}");
        }
        for plain in
            ["application/xhtml+xml", "text/css", "image/svg+xml", "font/ttf", "font/otf", "", "x"]
        {
            assert!(!is_codec(plain), "{plain}");
        }
        assert!(is_codec("audio/ogg; codecs=opus"));
    }

    #[test]
    fn documents_are_decoded_by_their_mark() {
        let text = "<a b='é'/>";
        let wide = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(bytes).collect()
        };
        assert_eq!(decoded(&wide(u16::to_be_bytes)), text);
        assert_eq!(decoded(&wide(u16::to_le_bytes)), text);
        assert_eq!(decoded(text.as_bytes()), text);
        assert_eq!(decoded(b"\xEF\xBB\xBF<a/>"), "<a/>");
        assert_eq!(decoded(b"<a \xE9/>"), "<a \u{FFFD}/>");
    }
}
