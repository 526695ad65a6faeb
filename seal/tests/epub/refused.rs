// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of refusals: each message names the file, the fault and the cure.

use seal::lcp::Algorithm;

use crate::books::{self, ADOBE, CONTAINER, IDPF, Random, package};
use crate::zip::{Entry, archive, deflated, stored};
use crate::{Desk, refusal};

/// Makes a valid book with one more entry.
fn with(entry: Entry) -> Vec<u8> {
    let mut entries = books::front(&[]);
    entries.push(entry);
    archive(&entries, false)
}

fn text(name: &str) -> Entry {
    deflated(name, &Random::new(3).chapter(2000))
}

/// Seals each book and compares the error; asserts that no file is left.
fn all_are_refused(cases: Vec<(Vec<u8>, &str)>) {
    let desk = Desk::new(Algorithm::Ecdsa);
    for (bytes, expected) in cases {
        let source = desk.write("bad.epub", &bytes);
        let message = refusal(desk.book(&source, &desk.path("sealed.epub")));
        assert!(message.starts_with(&source.display().to_string()), "{message}");
        assert!(message.contains(expected), "{message}\nwanted: {expected}");
        assert_eq!(desk.names(), ["bad.epub"], "{expected}");
    }
}

#[test]
fn what_is_no_epub() {
    let without = |name: &str| {
        let mut entries = books::front(&[]);
        entries.retain(|entry| entry.name != name.as_bytes());
        archive(&entries, false)
    };
    let instead = |name: &str, bytes: &[u8]| {
        let mut entries = books::front(&[]);
        entries.retain(|entry| entry.name != name.as_bytes());
        entries.push(deflated(name, bytes));
        archive(&entries, false)
    };
    let no_package = CONTAINER.replace("oebps-package+xml", "x");
    let elsewhere = CONTAINER.replace("OEBPS/content.opf", "OEBPS/other.opf");
    all_are_refused(vec![
        (b"".to_vec(), "is not a zip archive: "),
        (b"PK".to_vec(), "is not a zip archive: "),
        (vec![b'x'; 100_000], "is not a zip archive: "),
        (without("mimetype"), "is not an EPUB: no mimetype; give an EPUB"),
        (without("META-INF/container.xml"), "is not an EPUB: no META-INF/container.xml"),
        (without("OEBPS/content.opf"), "package document \"OEBPS/content.opf\" is not there"),
        (instead("mimetype", b"application/zip"), "mimetype says \"application/zip\""),
        (instead("META-INF/container.xml", b"<container/>"), "names no package document"),
        (instead("META-INF/container.xml", no_package.as_bytes()), "names no package document"),
        (instead("META-INF/container.xml", elsewhere.as_bytes()), "\"OEBPS/other.opf\" is not"),
        (instead("META-INF/container.xml", b"<container>"), "it ends within an element"),
        (instead("OEBPS/content.opf", b"<a></b>"), "OEBPS/content.opf: byte "),
        (instead("OEBPS/content.opf", "<a>".repeat(1000).as_bytes()), "elements over 256 deep"),
        (instead("mimetype", &[b' '; 5000]), "mimetype: 5000 bytes, over the limit of 256"),
    ]);
}

#[test]
fn what_is_protected_already() {
    let encryption = |elements: &[(&str, &str, &str)]| {
        let mut entries = books::front(&[]);
        entries.push(stored("f.otf", b"font"));
        entries.push(deflated("META-INF/encryption.xml", &books::encryption(elements)));
        archive(&entries, false)
    };
    let aes = "http://www.w3.org/2001/04/xmlenc#aes256-cbc";
    let other = "<e:EncryptionMethod Algorithm='urn:other'/>";
    let with_key = format!("<e:EncryptedKey>{other}</e:EncryptedKey>");
    let protected = "is protected already: it has META-INF/encryption.xml";
    all_are_refused(vec![
        (encryption(&[(aes, "f.otf", "")]), protected),
        (encryption(&[(IDPF, "f.otf", ""), (aes, "a.xhtml", "")]), protected),
        (encryption(&[("", "f.otf", "")]), protected),
        (encryption(&[("&undefined;", "f.otf", "")]), protected),
        (encryption(&[(IDPF, "f.otf", other)]), protected),
        (encryption(&[("urn:other", "f.otf", &other.replace("urn:other", IDPF))]), protected),
        (encryption(&[(IDPF, "f.otf", &with_key)]), protected),
        (with(stored("META-INF/encryption.xml", b"<encryption/>")), protected),
        (with(stored("META-INF/license.lcpl", b"{}")), "it has META-INF/license.lcpl; give the"),
        (with(stored("META-INF/rights.xml", b"<r/>")), "it has META-INF/rights.xml"),
        (with(stored("META-INF/sinf.xml", b"<r/>")), "it has META-INF/sinf.xml"),
    ]);
}

#[test]
fn obfuscation_of_anything_but_a_font_of_the_book_is_refused() {
    let items = [
        ("nav", "nav.otf", "application/vnd.ms-opentype", "nav"),
        ("text", "text.otf", "application/xhtml+xml", ""),
        ("font", "f.otf", "font/otf", ""),
    ];
    let encryption = |elements: &[(&str, &str, &str)]| {
        let mut entries = books::front(&items);
        for name in ["OEBPS/nav.otf", "OEBPS/text.otf", "OEBPS/f.otf", "a.xhtml"] {
            entries.push(text(name));
        }
        entries.push(stored("META-INF/encryption.xml", &books::encryption(elements)));
        archive(&entries, false)
    };
    let compressed = "<e:Compression Method='8' OriginalLength='9'/>";
    let font = (IDPF, "OEBPS/f.otf", "");
    let long = "x".repeat(49 << 20);
    all_are_refused(vec![
        (encryption(&[font, (IDPF, "f.otf", "")]), "names \"f.otf\", which is not there; the"),
        (encryption(&[(IDPF, "../etc/f.otf", "")]), "names \"../etc/f.otf\", which is not there"),
        (encryption(&[(IDPF, "", "")]), "names \"\", which is not there"),
        (encryption(&[font, (IDPF, "a.xhtml", "")]), "obfuscates \"a.xhtml\", which is no font"),
        (encryption(&[(ADOBE, "OEBPS/text.otf", "")]), "obfuscates \"OEBPS/text.otf\", which is"),
        (encryption(&[(IDPF, "OEBPS/nav.otf", "")]), "obfuscates \"OEBPS/nav.otf\", which is"),
        (encryption(&[(IDPF, "mimetype", "")]), "obfuscates \"mimetype\", which is no font"),
        (encryption(&[(IDPF, "META-INF/encryption.xml", "")]), "encryption.xml\", which is no"),
        (encryption(&[font, (ADOBE, "OEBPS/f.otf", "")]), "names \"OEBPS/f.otf\" twice, not"),
        (encryption(&[font, (IDPF, "OEBPS/%66.otf", compressed)]), "\"OEBPS/f.otf\" twice, not"),
        (encryption(&[(IDPF, "OEBPS/f.otf", &long)]), "bytes, over the limit of 50331648"),
    ]);
}

#[test]
fn names_that_lead_out_or_are_not_plain() {
    let named = |name: &[u8]| with(Entry { name: name.to_vec(), ..text("x") });
    let twice = {
        let mut entries = books::front(&[]);
        entries.extend([text("a.xhtml"), text("b.xhtml"), text("a.xhtml")]);
        archive(&entries, false)
    };
    all_are_refused(vec![
        (named(b"../out.xhtml"), "entry \"../out.xhtml\": an empty component, `.` or `..`; give"),
        (named(b"a/../../out.xhtml"), "an empty component, `.` or `..`"),
        (named(b"a/.."), "an empty component, `.` or `..`"),
        (named(b"a//b"), "an empty component"),
        (named(b"./a"), "an empty component"),
        (named(b""), "an empty component"),
        (named(b"/etc/passwd"), "an absolute path"),
        (named(b"C:/x"), "an absolute path"),
        (named(b"a\\b"), "a backslash"),
        (named(b"..\\b"), "a backslash"),
        (named(b"a\0b"), "a control character"),
        (named(b"a\x1b[2J"), "a control character"),
        (named(b"a\xff"), "no UTF-8"),
        (named(&[b'a'; 5000]), "longer than 4096 bytes"),
        (named(b"folder/"), "entry \"folder/\": a folder with 20"),
        (twice, "entry \"a.xhtml\" is there twice; remove one"),
    ]);
}

#[test]
fn bombs_are_bounded_by_what_is_declared() {
    let zeros = deflated("zeros.xhtml", &vec![0; 8 << 20]);
    let grown = format!("entry \"zeros.xhtml\" would grow from {} to 8388608", zeros.data.len());
    // The entry declares a small size and inflates to more: inflating ends at the declared size.
    let more = Entry { bytes: 1000, ..deflated("more.xhtml", &vec![0; 100_000]) };
    let more_medium = Entry { bytes: 1000, ..deflated("more.png", &vec![0; 100_000]) };
    let huge = Entry { bytes: 1 << 40, zip64: true, ..text("huge.xhtml") };
    let many: Vec<Entry> = (0..9)
        .map(|at| {
            let mut entry = stored(&format!("{at}.mp3"), &[]);
            entry = Entry { bytes: 8 << 30, zip64: true, method: 8, ..entry };
            entry.data = vec![0; 40 << 20];
            entry
        })
        .collect();
    let mut together = books::front(&[]);
    together.extend(many);
    // One body for many names: each of them inflates, and the archive stays small.
    let mut shared = books::front(&[]);
    shared.push(text("a.xhtml"));
    for at in 0..20 {
        let name = format!("{at:07}");
        shared.push(Entry { header_of: Some(3), ..text(&name) });
    }
    let mut crowd = books::front(&[]);
    crowd.extend((0..65_600).map(|at| stored(&at.to_string(), b"")));
    all_are_refused(vec![
        (with(zeros), &grown),
        (with(more), "entry \"more.xhtml\": inflates to more than declared"),
        (with(more_medium), "entry \"more.png\": inflates to more than declared"),
        (with(huge), "taken for a zip bomb"),
        (archive(&together, false), "bytes of all entries 687194"),
        (archive(&shared, false), "overlaps what follows it"),
        (archive(&crowd, false), "entries 65603, over the limit of 65536"),
    ]);
}

#[test]
fn archives_that_are_broken() {
    let well = with(text("a.xhtml"));
    let cut = |bytes: usize| well[..well.len() - bytes].to_vec();
    let mut stream = text("a.xhtml");
    stream.data.truncate(stream.data.len() / 2);
    let mut behind = text("a.xhtml");
    behind.data.extend_from_slice(b"more");
    let mut garbage = text("a.xhtml");
    garbage.data.fill(0xFF);
    let mut medium = deflated("a.png", &Random::new(1).bytes(100_000));
    medium.data.truncate(50_000);
    let crc = |entry: Entry| with(Entry { crc: entry.crc ^ 1, ..entry });
    let bytes = |entry: Entry| with(Entry { bytes: entry.bytes + 1, ..entry });
    let other = Entry { local_name: Some(b"b.xhtml".to_vec()), ..text("a.xhtml") };
    let mut beyond = well.clone();
    let at = beyond.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    beyond[at + 42..at + 46].copy_from_slice(&0x7FFF_FFFF_u32.to_le_bytes());
    let mut count = well.clone();
    let end = count.len() - 22;
    count[end + 10] += 1;
    count[end + 8] += 1;
    all_are_refused(vec![
        (cut(1), "is not a zip archive: "),
        (cut(30), "is not a zip archive: "),
        (cut(200), "is not a zip archive: "),
        (count, "entries where the end says"),
        (beyond, "lies outside the archive"),
        (with(stream), "entry \"a.xhtml\": its deflate stream has no end"),
        (with(behind), "entry \"a.xhtml\": bytes behind the end of its deflate stream"),
        (with(garbage), "entry \"a.xhtml\": no deflate stream"),
        (with(medium), "entry \"a.png\": its deflate stream has no end"),
        (crc(text("a.xhtml")), "entry \"a.xhtml\": its checksum differs; the archive is damaged"),
        (crc(stored("a.mp3", b"abc")), "entry \"a.mp3\": its checksum differs"),
        (crc(stored("a.css", b"abc")), "entry \"a.css\": its checksum differs"),
        (crc(deflated("a.png", b"abc")), "entry \"a.png\": its checksum differs"),
        (crc(deflated("META-INF/x", b"abc")), "entry \"META-INF/x\": its checksum differs"),
        (bytes(text("a.xhtml")), "bytes, declared"),
        (bytes(deflated("a.png", b"abc")), "entry \"a.png\": 3 bytes, declared 4"),
        (bytes(stored("a.mp3", b"abc")), "entry \"a.mp3\": stored, but 3 bytes of 4"),
        (with(other), "entry \"a.xhtml\": its local header has another name"),
        (with(Entry { flags: 1, ..text("a.xhtml") }), "encrypted by zip itself"),
        (with(Entry { method: 12, ..text("a.xhtml") }), "compressed by method 12"),
    ]);
}

#[test]
fn the_words_of_a_package_are_no_paths_of_ours() {
    // Items that lead out of the book match no entry in it, and no file outside is touched.
    let items = [("a", "../../../etc/passwd", "image/jpeg", "cover-image")];
    let desk = Desk::new(Algorithm::Ecdsa);
    let mut entries = books::front(&items);
    entries.push(stored("etc/passwd", b"not the real one"));
    assert!(package(&items).contains("../../../etc/passwd"));
    let source = desk.write("book.epub", &archive(&entries, false));
    let sealed = desk.path("sealed.epub");
    crate::well(vec![desk.book(&source, &sealed)]);
    // By RFC 3986's rules this entry is the cover, so it is clear.
    let bytes = std::fs::read(sealed).unwrap();
    assert!(bytes.windows(16).any(|window| window == b"not the real one"));
}

#[test]
fn sources_that_are_no_files() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let real = desk.write("real.epub", &books::ordinary(1, 10_000));
    let link = desk.path("link.epub");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let message = refusal(desk.book(&link, &desk.path("sealed.epub")));
    assert!(message.starts_with("open ") && message.contains("link.epub"), "{message}");
    let folder = desk.path("folder.epub");
    std::fs::create_dir(&folder).unwrap();
    let message = refusal(desk.book(&folder, &desk.path("sealed.epub")));
    assert!(message.contains("is not a zip archive: no regular file"), "{message}");
}

#[test]
fn what_is_not_sealed_is_not_unsealed() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let source = desk.write("book.epub", &books::ordinary(1, 10_000));
    let message = refusal(desk.sealed_book(&source, &desk.path("again.epub")));
    assert!(message.contains("is not protected: it has no META-INF/license.lcpl"), "{message}");
    let licence = |text: &str| with(stored("META-INF/license.lcpl", text.as_bytes()));
    let other = r#"{"id":"a","encryption":{"profile":"http://readium.org/lcp/profile-2.3"}}"#;
    for (bytes, expected) in [
        (licence("{"), "its licence: no JSON"),
        (licence("{}"), "its licence: no text at /encryption/profile"),
        (licence(other), "/encryption/profile is \"http://readium.org/lcp/profile-2.3\"; only"),
    ] {
        let bad = desk.write("bad.epub", &bytes);
        let message = refusal(desk.sealed_book(&bad, &desk.path("again.epub")));
        assert!(message.contains(expected), "{message}");
    }
}
