// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests usual side-car files, malicious ones, and samples of tracks.

use std::ops::Range;

use proptest::prelude::*;

use super::track_samples::{Joined, SampleText, tx3g, webm_vtt, wvtt};
use super::*;

fn shown(bytes: &[u8], format: TextFormat) -> Vec<(u64, u64, String)> {
    let list = parse(bytes, format).unwrap();
    list.cues().iter().map(|cue| (cue.start_ms, cue.end_ms, cue.text.clone())).collect()
}

fn srt(text: &str) -> Vec<(u64, u64, String)> {
    shown(text.as_bytes(), TextFormat::SubRip)
}

fn cue(start_ms: u64, end_ms: u64, text: &str) -> (u64, u64, String) {
    (start_ms, end_ms, text.to_owned())
}

#[test]
fn subrip_is_read_however_it_is_written() {
    let expected = [cue(1500, 3000, "one\ntwo"), cue(3_723_004, 3_724_000, "three")];
    for text in [
        "1\n00:00:01,500 --> 00:00:03,000\none\ntwo\n\n2\n01:02:03,004 --> 01:02:04,000\nthree\n",
        "\u{feff}1\r\n00:00:01,500 --> 00:00:03,000\r\none\r\ntwo\r\n\r\n2\r\n01:02:03,004 --> \
         01:02:04,000\r\nthree",
        "1\r00:00:01,500 --> 00:00:03,000\rone\rtwo\r\r2\r01:02:03,004 --> 01:02:04,000\rthree",
        // Points, no numbers, no hours, places, empty lines in a text and none between cues.
        "00:01.500-->00:00:03 X1:100 X2:200\none\n\n  \ntwo\n1:2:3.004 --> 1:2:4\n\nthree\n\n\n",
        "junk\n\n7\n00:00:01,500 --> 00:00:03,000\none\ntwo\n9\n01:02:03,0049 --> 01:02:04,000\n\
         three",
        // Not in order.
        "1\n01:02:03,004 --> 01:02:04,000\nthree\n\n2\n00:00:01,500 --> 00:00:03,000\none\ntwo\n",
    ] {
        assert_eq!(srt(text), expected, "{text:?}");
    }
}

#[test]
fn subrip_cues_whose_times_cannot_be_read_are_left_out_and_counted() {
    let text = "1\n00:00:01,000 --> 00:00:60,000\nlost\n\n\
        2\n00:00:02,000 --> 00:00:03,000\nkept\n\n\
        3\n00:00:04,000 --> 00:00:0x,000\nlost, too\n\n\
        4\n00:00:05,000 --> 00:00:06,000\n2 --> 3 is no time\n";
    let list = parse(text.as_bytes(), TextFormat::SubRip).unwrap();
    assert_eq!(list.left_out(), 2);
    let empty = "1\n00:00:02,000 --> 00:00:02,000\n\n2\n00:00:03,000 --> 00:00:04,000\nkept\n";
    let list = parse(empty.as_bytes(), TextFormat::SubRip).unwrap();
    assert_eq!((list.cues().len(), list.left_out()), (1, 0), "no text, so nothing is lost");
    assert_eq!(srt(text), [cue(2000, 3000, "kept"), cue(5000, 6000, "2 --&gt; 3 is no time")]);
}

#[test]
fn subrip_keeps_italics_and_escapes_what_webvtt_would_read() {
    let text = |text: &str| srt(&format!("00:01,000 --> 00:02,000\n{text}\n")).remove(0).2;
    for (written, read) in [
        ("<i>a</i> <B>b</B> <u>c</u>", "<i>a</i> <b>b</b> <u>c</u>"),
        ("<font color=\"#ff0000\">a</font>", "a"),
        ("{\\an8}up", "up"),
        ("{not an override} {\\", "{not an override} {\\"),
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ("<i>open", "<i>open</i>"),
        ("<i><b>a</i>b</b>", "<i><b>a</b></i>b"),
        ("</i>a<", "a&lt;"),
        ("& <i>x</i>", "&amp; <i>x</i>"),
        ("say --&gt; x", "say --&amp;gt; x"),
        ("tschüß 日本 \u{202e}", "tschüß 日本 \u{202e}"),
    ] {
        assert_eq!(text(written), read, "{written:?}");
    }
}

#[test]
fn webvtt_keeps_cues_and_styles_and_drops_notes() {
    let text = "\u{feff}WEBVTT - title\nX-TIMESTAMP-MAP=LOCAL:0,MPEGTS:9\n\nSTYLE\n::cue { color: \
                red }\n\nREGION\nid:a\n\nNOTE a\nnote\n\nfirst\n00:01.000 --> 00:02.000 \
                line:0 align:start\n<v Bob>&amp; hi\nyou\n\n00:00:03.000 --> 00:00:04.000\ntwo\n\
                00:05.000 --> 00:06.000\nthree\n\nSTYLE\nlate\n\nx --> y\nno times\n";
    let list = parse(text.as_bytes(), TextFormat::WebVtt).unwrap();
    let whole = "WEBVTT\n\nSTYLE\n::cue { color: red }\n\nREGION\nid:a\n\nfirst\n00:00:01.000 --> \
                 00:00:02.000 line:0 align:start\n<v Bob>&amp; hi\nyou\n\n00:00:03.000 --> \
                 00:00:04.000\ntwo\n\n00:00:05.000 --> 00:00:06.000\nthree\n\n";
    assert_eq!(list.whole(), whole);
    assert_eq!(list.left_out(), 1);
    assert_eq!(parse(whole.as_bytes(), TextFormat::WebVtt).unwrap().whole(), whole);
    for head in ["WEBVTTX\n", "webvtt\n", "\nWEBVTT\n", "1\n"] {
        let text = format!("{head}\n00:01.000 --> 00:02.000\na\n");
        let refused = parse(text.as_bytes(), TextFormat::WebVtt);
        assert_eq!(refused, Err(TextFault::NoSignature), "{head:?}");
    }
    let short = "WEBVTT\n00:01.000 --> 00:02.000\na";
    assert_eq!(shown(short.as_bytes(), TextFormat::WebVtt), [cue(1000, 2000, "a")]);
}

#[test]
fn encodings_are_told_apart() {
    let text = "1\n00:00:01,000 --> 00:00:02,000\nÄ “é” €\n";
    let expected = [cue(1000, 2000, "Ä “é” €")];
    let wide: Vec<u16> = text.encode_utf16().collect();
    let wide = |bytes: fn(u16) -> [u8; 2]| {
        [0xfeff].iter().chain(&wide).flat_map(|&unit| bytes(unit)).collect::<Vec<u8>>()
    };
    let (windows, _, _) = WINDOWS_1252.encode(text);
    for bytes in [text.as_bytes(), &windows, &wide(u16::to_le_bytes), &wide(u16::to_be_bytes)] {
        assert_eq!(shown(bytes, TextFormat::SubRip), expected);
    }
}

#[test]
fn files_that_are_no_subtitles_are_refused_with_the_reason() {
    let refused = |bytes: &[u8]| parse(bytes, TextFormat::SubRip).unwrap_err();
    assert_eq!(refused(b""), TextFault::Empty);
    assert_eq!(refused(b"\xef\xbb\xbf"), TextFault::NoCue);
    assert_eq!(refused(b"\x7fELF\0\0"), TextFault::Binary { offset: 4 });
    assert_eq!(refused(&vec![b'a'; TEXT_BYTES_MAX]), TextFault::NoCue);
    let (bytes, limit) = (TEXT_BYTES_MAX as u64 + 1, TEXT_BYTES_MAX as u64);
    assert_eq!(refused(&vec![b'a'; bytes as usize]), TextFault::TooLarge { bytes, limit });
    let many = "0:1-->0:2\na\n".repeat(CUES_MAX + 1);
    assert_eq!(refused(many.as_bytes()), TextFault::TooMany { limit: CUES_MAX });
    for times in [
        "00:00:02,000 --> 00:00:01,000",
        "00:00:01,000 --> 00:00:01,000",
        "99999999:00:00,000 --> 999999999:00:01,000",
        "9999999999:00:00,000 --> 1:0:0",
        "00:60:00,000 --> 01:00:60,000",
        "-00:01,000 --> 00:02,000",
        "--> 00:02,000",
        "-->",
        "1:1:1:1 --> 1:1:1:2",
        "00:01,é --> 00:02,éé",
    ] {
        assert_eq!(refused(format!("{times}\na\n").as_bytes()), TextFault::NoCue, "{times}");
    }
}

/// An endless line is not a cue, and brackets without an end are searched once.
#[test]
fn long_texts_are_left_out_in_little_time() {
    for piece in ["<", "{\\", "<i>", "&", "<<i", "</u>"] {
        let text = piece.repeat(TEXT_BYTES_MAX / piece.len() - 64);
        let text = format!("0:1-->0:2\n{text}\n0:3-->0:4\nb");
        let list = parse(text.as_bytes(), TextFormat::SubRip).unwrap();
        assert_eq!((list.cues().len(), list.left_out()), (1, 1), "{piece}");
    }
    let list = srt(&format!("0:1-->0:2\n{}\n", "<".repeat(4000)));
    assert_eq!(list[0].2.len(), 16_000, "escapes");
}

#[test]
fn a_segment_has_the_cues_that_are_shown_in_it() {
    let text = "0:1-->0:3\na\n0:5-->0:7\nb\n0:6-->0:8\nc\n1:0-->1:1\nd\n";
    let list = parse(text.as_bytes(), TextFormat::SubRip).unwrap();
    let map = TimestampMap { mpegts: 900_000, local_ms: 0 };
    let segment = |range: Range<u64>| {
        let text = list.segment(range, map);
        let head = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000\n\n";
        let cues = text.strip_prefix(head).expect("the map comes first").to_owned();
        cues.lines().filter(|line| line.len() == 1).collect::<Vec<_>>().concat()
    };
    assert_eq!(segment(0..6000), "ab");
    assert_eq!(segment(6000..12_000), "bc");
    assert_eq!(segment(7000..7001), "c");
    assert_eq!(segment(8000..60_000), "");
    assert_eq!(segment(60_000..u64::MAX), "d");
    let later = TimestampMap { mpegts: 1, local_ms: 3_600_001 };
    assert!(list.segment(0..1, later).contains("MPEGTS:1,LOCAL:01:00:00.001\n"));
}

#[test]
fn samples_of_timed_text_keep_faces() {
    let sample = |text: &[u8], rest: &[u8]| {
        let bytes = (text.len() as u16).to_be_bytes();
        tx3g(&[&bytes, text, rest].concat()).text
    };
    assert_eq!(sample(b"", b""), "");
    assert_eq!(sample(b"a < b", b""), "a &lt; b");
    let record = |from: u16, to: u16, face: u8| {
        [&from.to_be_bytes()[..], &to.to_be_bytes(), &[0, 1, face, 18, 255, 255, 255, 255]].concat()
    };
    let styl = |records: &[Vec<u8>]| {
        let bytes = (10 + 12 * records.len()) as u32;
        let count = (records.len() as u16).to_be_bytes();
        [&bytes.to_be_bytes()[..], b"styl", &count, &records.concat()].concat()
    };
    let styles = styl(&[record(1, 3, 2), record(3, 4, 7), record(9, 9, 1)]);
    assert_eq!(sample("aéçd e".as_bytes(), &styles), "a<i>éç</i><b><i><u>d</u></i></b> e");
    assert_eq!(sample(b"\xfe\xff\0a\x20\xac", b""), "a€");
    for broken in [&[][..], &[0], &[0, 9, b'a'], &[0, 1, b'a', 0, 0, 0, 1, b's', b't', b'y', b'l']]
    {
        assert!(tx3g(broken).text.len() <= 1, "{broken:?}");
    }
}

#[test]
fn samples_of_webvtt_are_joined_over_borders() {
    let boxed = |code: &[u8; 4], body: &[u8]| {
        [&(8 + body.len() as u32).to_be_bytes()[..], code, body].concat()
    };
    let cue = |text: &str| {
        let body = [boxed(b"sttg", b"line:0"), boxed(b"payl", text.as_bytes())].concat();
        boxed(b"vttc", &body)
    };
    let mut joined = Joined::default();
    for (times, sample) in [
        ((0, 1000), cue("a")),
        ((1000, 2000), [cue("a"), cue("b")].concat()),
        ((2000, 3000), boxed(b"vtte", b"")),
        ((3000, 4000), cue("a")),
        ((4000, 5000), vec![0, 0, 0, 9, b'v']),
    ] {
        joined.push(times, wvtt(&sample)).unwrap();
    }
    let list = joined.finish().unwrap();
    let cues: Vec<_> =
        list.cues().iter().map(|cue| (cue.start_ms, cue.end_ms, cue.text.as_str())).collect();
    assert_eq!(cues, [(0, 2000, "a"), (1000, 2000, "b"), (3000, 4000, "a")]);
    assert_eq!(list.cues()[0].settings, "line:0");
    let expected = SampleText {
        identifier: "id".to_owned(),
        settings: "line:1".to_owned(),
        text: "a\nb".to_owned(),
    };
    assert_eq!(webm_vtt(b"id\nline:1\na\nb"), expected);
}

#[test]
fn languages_are_told_from_other_words() {
    for tag in ["en", "de", "pt-BR", "zh-Hant-TW", "eng", "sr-Latn-RS", "EN"] {
        assert!(is_language(tag), "{tag}");
    }
    for word in ["", "e", "2", "part2", "final", "en-", "en_US", "en.sdh", "en-\"x", "de-aaaaaaaaa"]
    {
        assert!(!is_language(word), "{word}");
    }
}

proptest! {
    /// Cues that are read and written again give the same cues.
    #[test]
    fn anything_written_is_read_as_the_same(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        words in proptest::collection::vec(0..WORDS.len(), 0..60),
    ) {
        let text: String = words.iter().map(|&word| WORDS[word]).collect();
        let vtt = format!("WEBVTT\n{text}");
        for (bytes, format) in [
            (&bytes[..], TextFormat::SubRip),
            (text.as_bytes(), TextFormat::SubRip),
            (vtt.as_bytes(), TextFormat::WebVtt),
        ] {
            let Ok(list) = parse(bytes, format) else { continue };
            let whole = list.whole();
            let again = parse(whole.as_bytes(), TextFormat::WebVtt).expect("what was written");
            prop_assert_eq!(again.cues(), list.cues());
        }
        let _ = (tx3g(&bytes), wvtt(&bytes), webm_vtt(&bytes));
    }
}

const WORDS: [&str; 20] = [
    "\n",
    "\n\n",
    "\r\n",
    "00:01.000 --> 00:02.000",
    "00:00:02,5 --> 1:00:03,000 line:0",
    "-->",
    "--",
    ">",
    "<i>",
    "</i>",
    "<b",
    "&",
    "{\\an8}",
    "}",
    "12",
    "NOTE",
    "STYLE",
    "a b",
    "é日",
    " ",
];
