// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the configuration file: its settings are applied, and each fault has its line and cure.
//!
//! Does not repeat the rules of settings, which the server's own tests cover.

use std::io::Write;
use std::time::Duration;

use serve::channel::{ChannelRole, PlayOrder};

use super::*;

const NEWS: &str = r#"# All of it.
[channel.news]
title = "News"
playlist = ["intro.ts", "archive/"]
order = "loop"
filler = "filler.ts"
program = 1
constant_rate_kbps = 6_000
send = ["rtp://232.1.1.1:5004", "udp://239.1.1.1:1234"]
interface = "eth1"
source = "10.0.0.1"
ttl = 0x08
dscp = 34
announce = true
role = "standby"
time_shift_s = 3600
starts_at = 2026-01-01T00:00:00Z
time_zone = "Europe/Berlin"

[[channel.news.at]]
time = "20:00"
days = ["mon", "fri"]
play = ["evening.ts"]

[[channel.news.at]]
time = 06:30:15
play = "morning.ts"

[channel.music]
playlist = "music/"
order = "shuffle"
"#;

#[track_caller]
fn faults(text: &str) -> Vec<String> {
    parse("pagewire.toml", text, Path::new("/etc")).expect_err("a fault")
}

#[test]
fn all_settings_of_a_file_arrive() {
    let config = parse("pagewire.toml", NEWS, Path::new("/etc")).unwrap();
    let [news, music] = &config.channels[..] else { panic!("two channels") };
    assert_eq!((music.name.as_str(), music.order), ("music", PlayOrder::Shuffle));
    assert_eq!(music.playlist, ["music"]);
    assert_eq!((news.title.as_str(), news.ttl, news.dscp), ("News", 8, Some(34)));
    assert_eq!((news.role, news.announce), (ChannelRole::Standby, true));
    assert_eq!(news.constant_rate_kbps, Some(6000));
    assert_eq!(news.starts_at, Duration::from_secs(1_767_225_600));
    assert_eq!(news.time_shift, Duration::from_secs(3600));
    assert_eq!(news.sources, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(news.targets.len(), 2);
    let times: Vec<String> = news.schedule.iter().map(|slot| slot.time.to_string()).collect();
    assert_eq!(times, ["20:00:00", "06:30:15"]);
    assert_eq!(news.schedule[1].play, ["morning.ts"]);
    assert!(parse("pagewire.toml", "", Path::new("/etc")).unwrap().channels.is_empty());
}

#[test]
fn unusable_values_are_reported_with_their_line() {
    let text = NEWS.replace("ttl = 0x08", "ttl = 900");
    let expected = "pagewire.toml:12: channel.news: ttl = 900: a packet's time to live is 8 bits, \
                    and 0 leaves no machine; write 1 to 255";
    assert_eq!(faults(&text), [expected]);
    let text = NEWS.replace("\"udp://239.1.1.1:1234\"", "\n \"udp://239.1.1.1:0\"");
    let found = faults(&text);
    assert!(found[0].starts_with("pagewire.toml:10: channel.news: send = "), "{found:?}");
    let text = NEWS.replace("06:30:15", "\"25:00\"");
    let found = faults(&text);
    assert!(found[0].starts_with("pagewire.toml:26: channel.news: time = \"25:00\""), "{found:?}");
    let text = NEWS.replace("time = 06:30:15\n", "");
    let found = faults(&text);
    assert!(found[0].starts_with("pagewire.toml:25: channel.news: time: no time"), "{found:?}");
    let text = NEWS.replace("playlist = \"music/\"\n", "");
    let found = faults(&text);
    assert!(
        found[0].starts_with("pagewire.toml:29: channel.music: playlist: nothing"),
        "{found:?}"
    );
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    let text = NEWS.replace("title =", "titel =").replace("0x08", "0");
    let found = faults(&text);
    assert!(found[1].starts_with("pagewire.toml:12: channel.news: ttl = 0"), "{found:?}");
    let found = faults("[channel.a]\nplaylst = \"a\"\n");
    assert_eq!(found, ["pagewire.toml:2: channel.a: playlst: no such setting; write playlist"]);
    let text = NEWS.replace("title =", "titel =").replace("days =", "day =");
    let text = format!("{text}\n[chanel.x]\n[server]\n");
    let expected = [
        "pagewire.toml:3: channel.news: titel: no such setting; write title",
        "pagewire.toml:22: channel.news: day: no such setting; write days",
        "pagewire.toml:33: chanel: no such setting; write channel",
        "pagewire.toml:34: server: no such setting; see pagewire config example for all there are",
    ];
    assert_eq!(faults(&text), expected);
}

#[test]
fn values_of_another_type_are_refused_with_the_right_one() {
    for (old, new, expected) in [
        (
            "ttl = 0x08",
            "ttl = \"8\"",
            "12: channel.news: ttl = \"8\": a string; write a whole number",
        ),
        ("ttl = 0x08", "ttl = 1.5", "12: channel.news: ttl = 1.5: a float; write a whole number"),
        (
            "announce = true",
            "announce = 1",
            "14: channel.news: announce = 1: an integer; write true",
        ),
        ("\"News\"", "[\"News\"]", "3: channel.news: title = [\"News\"]: an array; write text"),
        ("\"10.0.0.1\"", "{ a = 1 }", "11: channel.news: source: a table; write texts in quotes"),
        ("[\"mon\", \"fri\"]", "[\"mon\", 5]", "22: channel.news: at: days = 5: an integer; write"),
        ("[\"evening.ts\"]", "true", "23: channel.news: at: play = true: a boolean; write texts"),
        ("2026-01-01T00:00:00Z", "2026", "17: channel.news: starts_at = 2026: an integer; write"),
        ("ttl = 0x08", "ttl = 99999999999999999999", "12: channel.news: ttl = 9223"),
    ] {
        let found = faults(&NEWS.replacen(old, new, 1));
        assert!(found[0].contains(&format!("pagewire.toml:{expected}")), "{found:?}: {expected}");
    }
    let found = faults("[camera.door]\n");
    let words =
        "pagewire.toml:1: camera: of a recorder; check its file by pagewire receive --config";
    assert!(found[0].starts_with(words), "{found:?}");
    let found = faults("channel = 5\n");
    assert_eq!(found, ["pagewire.toml:1: channel = 5: an integer; write tables [channel.NAME]"]);
    let found = faults("[channel]\nnews = 5\n");
    let expected = "pagewire.toml:2: channel.news = 5: an integer; write tables [channel.NAME]";
    assert_eq!(found, [expected]);
    let found = faults("[channel.x]\nplaylist = \"a\"\nat = [5]\n");
    assert!(found[0].contains(":3: channel.x: at = 5: an integer; write tables [["), "{found:?}");
}

#[test]
fn all_faults_of_a_channel_are_reported_in_the_order_of_the_file() {
    let text = "[channel.a]\nttl = 0\norder = \"random\"\nplaylist = [\"a.ts\",\n\"../b.ts\",\n\
                \"/c.ts\"]\nsend = [\"rtp://239.1.1.1:5005\"]\nannounce = true\n\
                [[channel.a.at]]\ntime = \"25:00\"\nplay = [\"a.ts\"]\n\
                [[channel.a.at]]\nplay = [\"/a.ts\"]\n[channel.b]\ndscp = 64\nplaylist = \"b\"\n";
    let found = faults(text);
    let starts = [
        "2: channel.a: ttl = 0: ",
        "3: channel.a: order = \"random\": ",
        "5: channel.a: playlist = \"../b.ts\": ",
        "6: channel.a: playlist = \"/c.ts\": ",
        "7: channel.a: send = \"rtp://239.1.1.1:5005\": ",
        "10: channel.a: time = \"25:00\": ",
        "12: channel.a: time: no time",
        "13: channel.a: play = \"/a.ts\": ",
        "15: channel.b: dscp = 64: ",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (fault, start) in found.iter().zip(starts) {
        assert!(fault.starts_with(&format!("pagewire.toml:{start}")), "{fault}: {start}");
    }
}

#[test]
fn values_beside_one_of_another_type_are_checked() {
    let text = "[channel.a]\nplaylist = 7\nttl = 0\nsend = [5]\nannounce = true\nrtsp = false\n\
                [[channel.a.at]]\ntime = 5\nplay = \"/a.ts\"\n\
                [[channel.a.at]]\ntime = \"20:00\"\nplay = \"a.ts\"\n\
                [[channel.a.at]]\ntime = \"20:00\"\nplay = \"a.ts\"\ndays = 5\n";
    let found = faults(text);
    let starts = [
        "2: channel.a: playlist = 7: an integer",
        "3: channel.a: ttl = 0: ",
        "4: channel.a: send = 5: an integer",
        "8: channel.a: at: time = 5: an integer",
        "9: channel.a: play = \"/a.ts\": ",
        "16: channel.a: at: days = 5: an integer",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (fault, start) in found.iter().zip(starts) {
        assert!(fault.starts_with(&format!("pagewire.toml:{start}")), "{fault}: {start}");
    }
    // `announce` needs `send`: only the misspelt key is reported, not also the absence of `send`.
    let text = "[channel.a]\nplaylist = \"a\"\nsned = \"udp://239.1.1.1:1\"\nannounce = true\n";
    let found = faults(text);
    assert_eq!(found, ["pagewire.toml:3: channel.a: sned: no such setting; write send"]);
}

#[test]
fn channels_that_share_a_target_are_refused_at_the_second() {
    let text = "[channel.z]\nplaylist = \"a\"\nsend = \"udp://239.1.1.1:1\"\n\
                [channel.b]\nplaylist = \"b\"\nsend = \"udp://239.1.1.1:1\"\n";
    let found = faults(text);
    assert!(found[0].starts_with("pagewire.toml:6: channel.b: send = "), "{found:?}");
    assert!(found[0].contains("channel.z sends to the same ports"), "{found:?}");
}

#[test]
fn faults_of_grammar_are_reported_with_their_line() {
    let found = faults("[channel.a]\nplaylist = [\"a\"]\nttl = = 1\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("pagewire.toml:3: "), "{found:?}");
    assert!(found[0].ends_with("; write TOML 1.0"), "{found:?}");
    let many = (0..100).map(|n| format!("k{n} = 1\n")).collect::<String>();
    let found = faults(&many);
    assert_eq!(found.len(), faults::FAULTS_MAX + 1);
    assert_eq!(found[20], "pagewire.toml: 80 faults more; correct these first");
    let wild = "= ".repeat(FILE_BYTES_MAX / 2);
    let begun = std::time::Instant::now();
    assert_eq!(faults(&wild).len(), 1, "one fault a line");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    for line in ["0\n", "[0]\n", "a = 0\n"] {
        let open = format!("a = [\n{}", line.repeat(FILE_BYTES_MAX / 16));
        assert!(!faults(&open).is_empty(), "{line}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let deep = format!("a = {}", "[".repeat(100_000));
    assert!(!faults(&deep).is_empty(), "nesting has a limit");
}

#[test]
fn tables_and_keys_that_stand_twice_are_named() {
    let at = "[[channel.a.at]]\ntime = \"20:00\"\nplay = \"b\"\n";
    for (text, expected) in [
        (
            "[channel.a]\n[channel.b]\n[channel.a] # again\n".to_owned(),
            "3: [channel.a] stands twice; give each channel its own name",
        ),
        (
            "[channel.a]\nttl = 1\n\"ttl\" = 2\n".to_owned(),
            "3: \"ttl\" stands twice; leave one out",
        ),
        ("channel.a.ttl = 1\nchannel.a.ttl = 2\n".to_owned(), "2: ttl stands twice; leave one out"),
        ("channel.a = { ttl = 1, ttl = 2 }\n".to_owned(), "1: ttl stands twice; leave one out"),
        (
            format!("{at}[ channel.a.at ]\n"),
            "4: [channel.a.at] stands twice; leave one out, or write [[channel.a.at]] for each \
             item of a list",
        ),
        (
            format!("[channel.a.at]\n{at}"),
            "2: [[channel.a.at]] stands twice; write it [[channel.a.at]] each time",
        ),
    ] {
        assert_eq!(faults(&text), [format!("pagewire.toml:{expected}")], "{text}");
    }
}

#[test]
fn list_that_is_not_closed_is_reported_once() {
    let text = "[channel.a]\nplaylist = [\"a\",\n\"b\"\n\nttl = 1\ntitle = \"A\"\n[channel.b]\n";
    let expected = "pagewire.toml:5: missing comma between array elements; close the list with ], \
                    line 3 or before";
    assert_eq!(faults(text), [expected]);
    let text = "[channel.a]\nplaylist = [\"a\"\n[channel.b]\nttl = 1\n";
    let expected = "pagewire.toml:3: missing comma between array elements; close the list with ], \
                    line 2 or before";
    assert_eq!(faults(text), [expected]);
    let text = "[channel.a]\nplaylist = [\"a\"\n\"b\" \"c\"]\nttl = 0 0\n";
    let found = faults(text);
    assert_eq!(found.len(), 2, "{found:?}");
    let start = "pagewire.toml:3: missing comma between array elements, expected `,`";
    assert_eq!(found[0], format!("{start}; write TOML 1.0"));
}

#[test]
fn files_that_are_no_text_are_refused() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"[channel.a]\nplaylist = \"\xff\"\n").unwrap();
    let found = read(file.path()).unwrap_err();
    assert!(found[0].ends_with(":2: text that is not UTF-8; save it as UTF-8"), "{found:?}");
    file.as_file().set_len(FILE_BYTES_MAX as u64 + 1).unwrap();
    let found = read(file.path()).unwrap_err();
    assert!(found[0].contains("larger than 1048576 bytes"), "{found:?}");
    let found = read(Path::new("/nonexistent/pagewire.toml")).unwrap_err();
    assert!(found[0].starts_with("--config ") && found[0].contains("No such file"), "{found:?}");
}

/// The document for operators has every setting, and its examples are complete.
#[test]
fn document_of_channels_is_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/channels.md");
    let document = std::fs::read_to_string(path).expect("it lies in docs");
    for setting in serve::channel::ChannelSetting::OF_CHANNEL {
        let row = format!("\n| `{}` |", setting.key());
        assert!(document.contains(&row), "no row of {}", setting.key());
    }
    let examples: Vec<_> = document.split("```toml\n").skip(1).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let (text, _) = example.split_once("```").expect("it ends");
        assert!(
            !parse("pagewire.toml", text, Path::new("/etc")).expect("no fault").channels.is_empty()
        );
    }
}
