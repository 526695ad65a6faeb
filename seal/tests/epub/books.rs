// SPDX-License-Identifier: MIT OR Apache-2.0
//! Books for the tests; the same seed gives the same book.

use crate::zip::{Entry, archive, deflated, stored};

/// xorshift64*: its bytes are neither text nor compressible.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length);
        bytes
    }

    /// Makes a chapter of about `length` bytes, with word frequencies as uneven as in a language.
    pub(crate) fn chapter(&mut self, length: usize) -> Vec<u8> {
        let mut text = String::from("<html xmlns='http://www.w3.org/1999/xhtml'><body><p>");
        while text.len() < length {
            let rank = 1 + self.below(60) * self.below(60);
            for letter in 0..2 + rank % 7 {
                text.push(char::from(b'a' + ((rank * 7 + letter * 5 + rank / 9) % 26) as u8));
            }
            text.push_str(if rank.is_multiple_of(11) { ".</p>\n<p>" } else { " " });
        }
        text.push_str("</p></body></html>");
        text.into_bytes()
    }
}

pub(crate) const CONTAINER: &str = r#"<?xml version="1.0"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/>
</rootfiles></container>"#;

/// Makes a package document with these items, `id href media-type properties` each.
pub(crate) fn package(items: &[(&str, &str, &str, &str)]) -> String {
    let mut text = String::from(
        r#"<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A &amp; B</dc:title>
<meta name="cover" content="old-cover"/></metadata><manifest>"#,
    );
    for (id, href, media_type, properties) in items {
        text += &format!(
            "<item id='{id}' href='{href}' media-type='{media_type}' properties='{properties}'/>"
        );
    }
    text + "</manifest><spine toc='ncx'/></package>"
}

/// Makes the entries that every book begins with.
pub(crate) fn front(items: &[(&str, &str, &str, &str)]) -> Vec<Entry> {
    vec![
        stored("mimetype", b"application/epub+zip"),
        deflated("META-INF/container.xml", CONTAINER.as_bytes()),
        deflated("OEBPS/content.opf", package(items).as_bytes()),
    ]
}

/// Makes entries of every kind, in sizes around the edges of blocks and slices.
pub(crate) fn varied(seed: u64) -> Vec<Entry> {
    let mut random = Random::new(seed);
    let items = [
        ("nav", "nav.xhtml", "application/xhtml+xml", "nav"),
        ("ncx", "toc.ncx", "application/x-dtbncx+xml", ""),
        ("cover", "images/cover%20page.jpg", "image/jpeg", "cover-image"),
        ("old-cover", "images/old.png", "image/png", ""),
        ("c1", "text/ch%C3%A9 1.xhtml", "application/xhtml+xml", "scripted"),
        ("css", "../style.css", "text/css", ""),
        ("photo", "images/photo.jpg", "image/jpeg", ""),
        ("pressed", "images/pressed.png", "image/png", ""),
        ("svg", "images/a&amp;b.svg", "image/svg+xml", ""),
        ("font", "fonts/f.otf", "font/otf", ""),
    ];
    let mut entries = front(&items);
    entries.extend([
        stored("OEBPS/", b""),
        deflated("OEBPS/nav.xhtml", &random.chapter(3000)),
        stored("OEBPS/toc.ncx", &random.chapter(2000)),
        stored("OEBPS/images/cover page.jpg", &random.bytes(70_001)),
        stored("OEBPS/images/old.png", &random.bytes(100)),
        deflated("OEBPS/text/ché 1.xhtml", &random.chapter(300_000)),
        stored("style.css", &random.chapter(200_000)),
        stored("OEBPS/images/photo.jpg", &random.bytes(1_000_003)),
        deflated("OEBPS/images/pressed.png", &random.bytes(150_007)),
        deflated("OEBPS/images/a&b.svg", &random.chapter(50_000)),
        Entry { zip64: true, ..deflated("OEBPS/fonts/f.otf", &random.bytes(40_000)) },
        stored("OEBPS/empty.txt", b""),
        deflated("OEBPS/empty.xhtml", b""),
        stored("OEBPS/empty.mp3", b""),
        stored("META-INF/empty", b""),
        deflated("OEBPS/zeros.bin", &vec![0; 3_000_000]),
        stored("not in the manifest.mp3", &random.bytes(5000)),
    ]);
    for length in (0..=33).chain([32_735, 32_736, 32_751, 32_752, 32_753, 32_767, 32_768, 65_536]) {
        entries.push(stored(&format!("OEBPS/audio/{length}.mp3"), &random.bytes(length)));
        entries.push(deflated(&format!("OEBPS/text/{length}.xhtml"), &random.bytes(length)));
    }
    entries
}

/// Makes an encryption.xml: algorithm, path, and what follows `CipherData` of each element.
pub(crate) fn encryption(elements: &[(&str, &str, &str)]) -> Vec<u8> {
    let mut text = String::from(
        "<?xml version='1.0'?><encryption xmlns='urn:oasis:names:tc:opendocument:xmlns:container' \
         xmlns:e='http://www.w3.org/2001/04/xmlenc#'>",
    );
    for (algorithm, path, rest) in elements {
        text += &format!(
            "<e:EncryptedData><e:EncryptionMethod Algorithm='{algorithm}'/><e:CipherData>\
             <e:CipherReference URI='{path}'/></e:CipherData>{rest}</e:EncryptedData>"
        );
    }
    (text + "</encryption>").into_bytes()
}

/// The obfuscation of EPUB 3.3 §4.4.
pub(crate) const IDPF: &str = "http://www.idpf.org/2008/embedding";
/// The obfuscation of Adobe's programs.
pub(crate) const ADOBE: &str = "http://ns.adobe.com/pdf/enc#RC";

/// Makes a book of about `bytes` bytes as publishers do: deflated chapters and style, stored
/// pictures, in one of four also sounds.
pub(crate) fn ordinary(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut entries = front(&[("nav", "nav.xhtml", "application/xhtml+xml", "nav")]);
    entries.push(deflated("OEBPS/nav.xhtml", &random.chapter(4000)));
    entries.push(deflated("OEBPS/style.css", &random.chapter(20_000)));
    let mut total = 0;
    while total < bytes {
        let number = entries.len();
        let chapter_bytes = 10_000 + random.below(80_000);
        let chapter = random.chapter(chapter_bytes);
        entries.push(deflated(&format!("OEBPS/text/{number}.xhtml"), &chapter));
        total += entries.last().unwrap().data.len();
        let (extension, length) = match seed % 4 {
            0 => ("mp3", 500_000 + random.below(2_000_000)),
            _ => ("jpg", 40_000 + random.below(400_000)),
        };
        let picture = random.bytes(length.min(bytes));
        entries.push(stored(&format!("OEBPS/media/{number}.{extension}"), &picture));
        total += picture.len();
    }
    archive(&entries, false)
}
