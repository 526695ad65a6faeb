// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealed books are opened by an independent reader, by OpenSSL, and by this crate.

use std::path::{Path, PathBuf};
use std::process::Command;

use seal::epub::verify;
use seal::lcp::{Algorithm, Rights, User};

use crate::books::{self, ADOBE, IDPF, Random};
use crate::zip::{Entry, archive, deflated, stored};
use crate::{Desk, PASSPHRASE, refusal, user_key, well};

/// Opens the book with `reader.py`. False when that cannot run here.
fn read_by_python(desk: &Desk, sealed: &Path, source: &Path) -> bool {
    for needed in [["python3", "--version"], ["openssl", "version"]] {
        if Command::new(needed[0]).arg(needed[1]).output().is_err() {
            eprintln!("skip: {}: not installed; reads the sealed book", needed[0]);
            return false;
        }
    }
    let reader = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/epub/reader.py");
    let output = Command::new("python3")
        .args([Path::new(reader), sealed, source])
        .arg(PASSPHRASE)
        .arg(desk.path("root.pem"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}{}", String::from_utf8_lossy(&output.stdout));
    true
}

#[test]
fn another_reader_opens_a_book_of_every_kind_of_entry() {
    for algorithm in [Algorithm::Rsa, Algorithm::Ecdsa] {
        let desk = Desk::new(algorithm);
        let source = desk.write("book.epub", &archive(&books::varied(1), false));
        let sealed = desk.path("sealed.epub");
        well(vec![desk.book(&source, &sealed)]);
        assert_eq!(desk.names(), ["book.epub", "sealed.epub"]);
        read_by_python(&desk, &sealed, &source);
        let verified =
            verify(&sealed, Some(&source), &desk.user_key, Some(&desk.roots()), None).unwrap();
        let bytes: u64 = books::varied(1).iter().map(|entry| entry.bytes).sum();
        assert_eq!(verified.sealed + verified.clear, books::varied(1).len() as u64 - 1 + 2);
        assert!(verified.bytes > bytes, "{verified:?}, the source has {bytes}");
        assert_eq!(verify(&sealed, None, &desk.user_key, None, None).unwrap(), verified);
    }
}

#[test]
fn a_catalogue_is_sealed_and_unsealed_in_one_run() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let sources: Vec<_> = (0..12)
        .map(|seed| {
            let name = format!("{seed}.epub");
            desk.write(&name, &books::ordinary(seed, 20_000 + 90_000 * seed as usize))
        })
        .collect();
    let with = |path: &Path, suffix: &str| path.with_extension(suffix);
    well(sources.iter().map(|source| desk.book(source, &with(source, "sealed"))).collect());
    well(
        sources
            .iter()
            .map(|source| desk.sealed_book(&with(source, "sealed"), &with(source, "again")))
            .collect(),
    );
    for source in &sources {
        let sealed = with(source, "sealed");
        verify(&sealed, Some(source), &desk.user_key, Some(&desk.roots()), None).unwrap();
    }
    let pairs = sources.iter().map(|source| (with(source, "again"), source.clone()));
    assert_same_resources(&pairs.collect::<Vec<_>>());
    read_by_python(&desk, &with(&sources[7], "sealed"), &sources[7]);
}

#[test]
fn unsealed_every_resource_is_as_before() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let source = desk.write("book.epub", &archive(&books::varied(2), true));
    let (sealed, again) = (desk.path("sealed.epub"), desk.path("again.epub"));
    well(vec![desk.book(&source, &sealed)]);
    well(vec![desk.sealed_book(&sealed, &again)]);
    assert_same_resources(&[(again.clone(), source)]);
    // The book can be sealed again: nothing of the protection is left.
    well(vec![desk.book(&again, &desk.path("sealed again.epub"))]);
}

#[test]
fn obfuscated_fonts_stay_as_they_are_and_keep_their_elements() {
    let items = [
        ("a", "a%20b.otf", "application/vnd.ms-opentype", ""),
        ("b", "fonts/b.ttf", "application/x-font-ttf", ""),
    ];
    let mut random = Random::new(11);
    let mut entries = books::front(&items);
    entries.extend([
        deflated("OEBPS/a.xhtml", &random.chapter(9000)),
        stored("OEBPS/a b.otf", &random.bytes(5000)),
        deflated("OEBPS/fonts/b.ttf", &random.bytes(6000)),
        stored("old.otf", &random.bytes(3000)),
        stored("plain.otf", &random.bytes(3000)),
    ]);
    let compressed = "<e:EncryptionProperties><e:EncryptionProperty><c:Compression Method='8' \
         OriginalLength='7000' xmlns:c='http://www.idpf.org/2016/encryption#compression'/>\
         </e:EncryptionProperty></e:EncryptionProperties>";
    let elements = [
        (IDPF, "OEBPS/a%20b.otf", ""),
        (ADOBE, "OEBPS/fonts/b.ttf", compressed),
        (IDPF, "old.otf", ""),
        (IDPF, "old.otf", ""),
    ];
    let fonts = deflated("META-INF/encryption.xml", &books::encryption(&elements));
    // The element's position in the archive is not the format's concern.
    for at in [1, entries.len()] {
        let mut entries = entries.clone();
        entries.insert(at, fonts.clone());
        let desk = Desk::new(Algorithm::Ecdsa);
        let source = desk.write("book.epub", &archive(&entries, false));
        let (sealed, again) = (desk.path("sealed.epub"), desk.path("again.epub"));
        well(vec![desk.book(&source, &sealed)]);
        read_by_python(&desk, &sealed, &source);
        let verified =
            verify(&sealed, Some(&source), &desk.user_key, Some(&desk.roots()), None).unwrap();
        assert_eq!((verified.sealed, verified.clear), (2, 8));
        well(vec![desk.sealed_book(&sealed, &again)]);
        // Sealed and unsealed once more, the document has the form that this crate gives it.
        let (sealed_again, third) = (desk.path("sealed again.epub"), desk.path("third.epub"));
        well(vec![desk.book(&again, &sealed_again)]);
        for source in [&source, &again] {
            verify(&sealed_again, Some(source), &desk.user_key, None, None).unwrap();
        }
        well(vec![desk.sealed_book(&sealed_again, &third)]);
        assert_same_resources(&[(third, again)]);
        // Verification notices an element that is missing, and one that is not the source's.
        for other in [vec![(IDPF, "old.otf", "")], vec![(ADOBE, "OEBPS/a%20b.otf", "")], vec![]] {
            let mut entries = entries.clone();
            entries.retain(|entry| entry.name != fonts.name);
            if !other.is_empty() {
                entries.push(deflated("META-INF/encryption.xml", &books::encryption(&other)));
            }
            let source = desk.write("other.epub", &archive(&entries, false));
            let error = verify(&sealed, Some(&source), &desk.user_key, None, None).unwrap_err();
            assert!(error.to_string().contains("its obfuscation is another"), "{error}");
        }
    }
}

#[test]
fn a_book_may_end_with_an_empty_entry() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let last = [
        stored("a.mp3", b""),
        stored("a.txt", b""),
        deflated("a.xhtml", b""),
        deflated("a.png", b""),
        stored("META-INF/a", b""),
        deflated("META-INF/a", b""),
    ];
    let mut pairs = Vec::new();
    for (number, entry) in last.into_iter().enumerate() {
        let mut entries = books::front(&[]);
        entries.push(entry);
        let source = desk.write(&format!("{number}.epub"), &archive(&entries, false));
        let (sealed, again) = (source.with_extension("sealed"), source.with_extension("again"));
        well(vec![desk.book(&source, &sealed)]);
        verify(&sealed, Some(&source), &desk.user_key, None, None).unwrap();
        well(vec![desk.sealed_book(&sealed, &again)]);
        pairs.push((again, source));
    }
    assert_same_resources(&pairs);
}

#[test]
fn two_sealings_have_nothing_in_common_but_the_clear() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let source = desk.write("book.epub", &books::ordinary(5, 400_000));
    let [one, two] = ["1", "2"].map(|name| {
        let sealed = desk.path(name);
        well(vec![desk.book(&source, &sealed)]);
        std::fs::read(sealed).unwrap()
    });
    let blocks = |bytes: &[u8]| -> std::collections::HashSet<Vec<u8>> {
        bytes[1000..bytes.len() - 8000].chunks_exact(16).map(<[u8]>::to_vec).collect()
    };
    let common = blocks(&one).intersection(&blocks(&two)).count();
    // Common are local headers and the clear documents, which have the same offsets in both.
    assert!(common * 16 < 8000, "{common} blocks of {} bytes", one.len());
}

#[test]
fn many_entries_need_the_larger_end_record() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let mut entries = books::front(&[]);
    while entries.len() < 65_534 {
        entries.push(stored(&format!("{}.mp3", entries.len()), b"x"));
    }
    let source = desk.write("book.epub", &archive(&entries, false));
    let sealed = desk.path("sealed.epub");
    well(vec![desk.book(&source, &sealed)]);
    verify(&sealed, Some(&source), &desk.user_key, None, None).unwrap();
}

/// Writes 9 GB; run `cargo test -p seal --test epub -- --ignored` where there is room.
#[test]
#[ignore = "writes 9 GB"]
fn an_entry_of_more_than_4_gib_goes_through() {
    use std::io::{Seek, SeekFrom, Write};
    let desk = Desk::new(Algorithm::Ecdsa);
    let bytes = (4_u64 << 30) + 12_345;
    let mut crc = crc32fast::Hasher::new();
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let more = left.min(zeros.len() as u64);
        crc.update(&zeros[..more as usize]);
        left -= more;
    }
    // The archive is made with an empty entry; its data, a hole, are inserted afterwards.
    let mut entries = books::front(&[]);
    let large = Entry { zip64: true, ..stored("large.mp4", b"") };
    entries.push(large);
    let mut book = archive(&entries, true);
    let directory = book.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
    let tail = book.split_off(directory);
    let patch = |bytes_of: &mut Vec<u8>, from: usize| {
        let at = from + bytes_of[from..].windows(9).position(|nine| nine == b"large.mp4").unwrap();
        bytes_of[at + 13..at + 21].copy_from_slice(&bytes.to_le_bytes());
        bytes_of[at + 21..at + 29].copy_from_slice(&bytes.to_le_bytes());
        at
    };
    let at = patch(&mut book, 0);
    book[at - 16..at - 12].copy_from_slice(&crc.clone().finalize().to_le_bytes());
    let mut tail = tail;
    let at = patch(&mut tail, 0);
    tail[at - 30..at - 26].copy_from_slice(&crc.finalize().to_le_bytes());
    // The directory offset in the zip64 end record and the locator's offset move behind the data.
    let end = tail.windows(4).position(|four| four == b"PK\x06\x06").unwrap();
    let moved = |tail: &mut Vec<u8>, at: usize| {
        let was = u64::from_le_bytes(tail[at..at + 8].try_into().unwrap());
        tail[at..at + 8].copy_from_slice(&(was + bytes).to_le_bytes());
    };
    moved(&mut tail, end + 48);
    moved(&mut tail, end + 56 + 8);
    let source = desk.path("book.epub");
    let mut file = std::fs::File::create(&source).unwrap();
    file.write_all(&book).unwrap();
    file.seek(SeekFrom::Current(bytes as i64)).unwrap();
    file.write_all(&tail).unwrap();
    drop(file);
    let sealed = desk.path("sealed.epub");
    well(vec![desk.book(&source, &sealed)]);
    verify(&sealed, Some(&source), &desk.user_key, None, None).unwrap();
    let again = desk.path("again.epub");
    well(vec![desk.sealed_book(&sealed, &again)]);
    assert!(std::fs::metadata(&again).unwrap().len() > bytes);
}

#[test]
fn the_licence_says_what_the_terms_say() {
    let mut desk = Desk::new(Algorithm::Rsa);
    let terms = std::sync::Arc::get_mut(&mut desk.terms).unwrap();
    terms.rights = Some(Rights {
        print_pages: Some(10),
        copy_characters: Some(2000),
        start: Some("2026-11-21T10:00:00Z".into()),
        end: None,
    });
    terms.user = Some(User {
        id: Some("reader-7".into()),
        email: Some("reader@example.org".into()),
        name: None,
    });
    terms.check(|_| "--option").unwrap();
    let source = desk.write("a b.epub", &books::ordinary(1, 10_000));
    let target = desk.path("a c.epub");
    let mut book = desk.book(&source, &target);
    book.licence_beside = true;
    well(vec![book]);
    assert_eq!(desk.names(), ["a b.epub", "a c.epub", "a c.lcpl"]);
    read_by_python(&desk, &target, &source);
    let licence: serde_json::Value =
        serde_json::from_slice(&std::fs::read(desk.path("a c.lcpl")).unwrap()).unwrap();
    assert_eq!(licence["rights"]["print"], 10);
    assert_eq!(licence["rights"]["copy"], 2000);
    assert_eq!(licence["rights"].as_object().unwrap().len(), 3);
    assert_eq!(licence["user"]["id"], "reader-7");
    assert_eq!(licence["user"]["encrypted"], serde_json::json!(["email"]));
    assert!(!licence.to_string().contains("reader@example.org"));
    assert_eq!(licence["links"][1]["href"], "https://example.org/books/a%20c%2Eepub");
    assert!(licence.to_string().len() > 500 && !licence.to_string().contains(PASSPHRASE));
}

#[test]
fn another_passphrase_or_another_root_opens_nothing() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let source = desk.write("book.epub", &books::ordinary(1, 10_000));
    let sealed = desk.path("sealed.epub");
    well(vec![desk.book(&source, &sealed)]);
    let other = user_key("Frère Jacques, dormez-vous");
    let mut book = desk.sealed_book(&sealed, &desk.path("again.epub"));
    book.user_key = other.clone().into();
    let message = refusal(book);
    assert!(message.contains("the passphrase does not open its licence; the hint is"), "{message}");
    let message = verify(&sealed, None, &other, None, None).unwrap_err().to_string();
    assert!(message.contains("the passphrase does not open its licence"), "{message}");

    let stranger = Desk::new(Algorithm::Ecdsa);
    let mut book = desk.sealed_book(&sealed, &desk.path("again.epub"));
    book.roots = Some(stranger.roots().into());
    let message = refusal(book);
    assert!(message.contains("not signed by the given root; not trusted"), "{message}");
    assert_eq!(desk.names(), ["book.epub", "sealed.epub"]);
}

#[test]
fn a_target_that_is_there_stays_unless_told() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let source = desk.write("book.epub", &books::ordinary(1, 10_000));
    let target = desk.write("there.epub", b"mine");
    let message = refusal(desk.book(&source, &target));
    assert!(message.ends_with("is there already; replace it by force"), "{message}");
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
    well(vec![seal::epub::Book { replace: true, ..desk.book(&source, &target) }]);
    verify(&target, Some(&source), &desk.user_key, None, None).unwrap();
}

#[test]
fn a_ciphertext_that_was_changed_anywhere_opens_nothing() {
    let desk = Desk::new(Algorithm::Ecdsa);
    let mut random = Random::new(9);
    let mut entries = books::front(&[]);
    entries.push(deflated("text.xhtml", &random.chapter(3000)));
    entries.push(stored("sound.mp3", &random.bytes(3000)));
    let source = desk.write("book.epub", &archive(&entries, false));
    let sealed = desk.path("sealed.epub");
    well(vec![desk.book(&source, &sealed)]);
    let good = std::fs::read(&sealed).unwrap();
    for name in ["text.xhtml", "sound.mp3"] {
        let at = good.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
        let (crc_at, data) = (at - 16, at + name.len());
        let bytes = u32::from_le_bytes(good[crc_at + 4..crc_at + 8].try_into().unwrap()) as usize;
        let central = good.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
        let listed = central
            + good[central..].windows(name.len()).position(|w| w == name.as_bytes()).unwrap();
        for _ in 0..40 {
            let mut bad = good.clone();
            bad[data + random.below(bytes)] ^= 1 << random.below(8);
            // In half of the cases the checksum is made to fit, as an attacker would.
            if random.below(2) == 0 {
                let crc = crc32fast::hash(&bad[data..data + bytes]).to_le_bytes();
                bad[crc_at..crc_at + 4].copy_from_slice(&crc);
                bad[listed - 30..listed - 26].copy_from_slice(&crc);
                // CBC has no authentication: a bit of the IV changes a bit of the first block, and
                // changed deflated text may have the same length. Only a comparison always detects
                // that.
                let bad = desk.write("bad.epub", &bad);
                verify(&bad, Some(&source), &desk.user_key, None, None).unwrap_err();
                continue;
            }
            let bad = desk.write("bad.epub", &bad);
            let message = refusal(desk.sealed_book(&bad, &desk.path("again.epub")));
            let expected = format!("entry {name:?} cannot be decrypted; damaged, or sealed");
            assert!(message.contains(&expected), "{message}");
        }
    }
}

/// Asserts that the books of each pair have the same entries, as Python inflates them: names, times
/// and SHA-256. Asserts nothing, with the reason printed, where Python is missing.
#[track_caller]
fn assert_same_resources(pairs: &[(PathBuf, PathBuf)]) {
    let script = "import sys,zipfile,hashlib\n\
        for book in sys.argv[1:]:\n\
        \x20   z=zipfile.ZipFile(book)\n\
        \x20   assert z.testzip() is None and z.namelist()[0]=='mimetype', book\n\
        \x20   print(sorted((i.filename,i.date_time,hashlib.sha256(z.read(i)).hexdigest())\
        for i in z.infolist() if not i.is_dir()))";
    let books = pairs.iter().flat_map(|(one, other)| [one, other]);
    let output = match Command::new("python3").args(["-c", script]).args(books).output() {
        Ok(output) => output,
        Err(_) => {
            eprintln!("skip: python3: not installed; compares the resources of books");
            return;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    let lists: Vec<_> = listed.lines().collect();
    assert_eq!(lists.len(), 2 * pairs.len());
    for ((one, _), lists) in pairs.iter().zip(lists.chunks_exact(2)) {
        assert_eq!(lists[0], lists[1], "{}", one.display());
    }
}
