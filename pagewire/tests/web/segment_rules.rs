// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of the tags that apply to segments: keys, maps, dates, discontinuities.
//!
//! Sources: RFC 8216 §4.2, §4.3.2, §4.3.3 (each row names its section).
//! Has no rows for ranges of dates, which are not written.

use crate::playlist_rules::{Must, On};
use crate::segment_list::{attribute, attributes, decimal, is_quoted};
use crate::site::Playlist;

pub(crate) const RULES: &[Must] = &[
    Must {
        section: "4.2",
        rule: "durations are decimal numbers without sign and exponent",
        on: On::Media,
        holds: |playlist| {
            let numbers = playlist.values("EXTINF").into_iter();
            numbers.map(|value| value.split(',').next().unwrap_or("")).all(|n| decimal(n).is_some())
        },
        specimen: "#EXTM3U\n#EXTINF:6e0,\na.ts\n",
    },
    Must {
        section: "4.3.2.3",
        rule: "EXT-X-DISCONTINUITY has no value, and stands before a segment or its first part",
        on: On::Media,
        holds: |playlist| {
            let has_value = playlist.text.contains("#EXT-X-DISCONTINUITY:");
            !has_value && applies(playlist, "#EXT-X-DISCONTINUITY")
        },
        specimen: "#EXTM3U\n#EXTINF:6,\na.ts\n#EXT-X-DISCONTINUITY\n#EXT-X-ENDLIST\n",
    },
    Must {
        section: "4.3.2.4",
        rule: "EXT-X-KEY has a METHOD; NONE has nothing else, and the others have a URI",
        on: On::Media,
        holds: |playlist| {
            playlist.values("EXT-X-KEY").iter().all(|list| match attribute(list, "METHOD") {
                Some("NONE") => attributes(list).is_some_and(|list| list.len() == 1),
                Some("AES-128" | "SAMPLE-AES") => attribute(list, "URI").is_some_and(is_quoted),
                _ => false,
            })
        },
        specimen: "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,IV=0x0\n",
    },
    Must {
        section: "4.2",
        rule: "hexadecimal sequences are 0x and digits of 0-9 and A-F; an IV has at most 32",
        on: On::All,
        holds: |playlist| {
            let lists = playlist.values("EXT-X-KEY").into_iter();
            let numbers = lists.flat_map(|list| {
                ["IV", "KEYID"].into_iter().filter_map(move |name| attribute(list, name))
            });
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
            numbers.into_iter().all(|number| {
                let digits = number.strip_prefix("0x").or_else(|| number.strip_prefix("0X"));
                digits.is_some_and(|digits| {
                    (1..=32).contains(&digits.len()) && digits.bytes().all(is_digit)
                })
            })
        },
        specimen: "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0xab\n",
    },
    Must {
        section: "4.3.2.4",
        rule: "KEYFORMAT is quoted; KEYFORMATVERSIONS is whole numbers with / between, quoted",
        on: On::Media,
        holds: |playlist| {
            let is_number = |text: &str| text.parse::<u32>().is_ok_and(|number| number > 0);
            playlist.values("EXT-X-KEY").iter().all(|list| {
                let versions = attribute(list, "KEYFORMATVERSIONS");
                attribute(list, "KEYFORMAT").is_none_or(is_quoted)
                    && versions.is_none_or(|value| {
                        is_quoted(value) && value.trim_matches('"').split('/').all(is_number)
                    })
            })
        },
        specimen: "#EXTM3U\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"k\",KEYFORMATVERSIONS=\"1,2\"\n",
    },
    Must {
        section: "4.3.2.4",
        rule: "before a segment there is one key of each format",
        on: On::Media,
        holds: |playlist| {
            let mut formats = Vec::new();
            playlist.text.lines().all(|line| {
                if let Some(list) = line.strip_prefix("#EXT-X-KEY:") {
                    let format = attribute(list, "KEYFORMAT").unwrap_or("\"identity\"");
                    formats.push(format);
                    return formats.iter().filter(|known| **known == format).count() == 1;
                }
                if !line.starts_with('#') {
                    formats.clear();
                }
                true
            })
        },
        specimen: "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n\
                   #EXT-X-KEY:METHOD=AES-128,URI=\"l\",KEYFORMAT=\"identity\"\n#EXTINF:1,\na\n",
    },
    Must {
        section: "4.3.2.5",
        rule: "a map behind a key of AES-128 is enciphered, so that the key has an IV",
        on: On::Media,
        holds: |playlist| {
            let mut key = None;
            playlist.text.lines().all(|line| {
                if let Some(list) = line.strip_prefix("#EXT-X-KEY:") {
                    key = Some(list);
                }
                let is_open = key.is_some_and(|list| {
                    attribute(list, "METHOD") == Some("AES-128") && attribute(list, "IV").is_none()
                });
                !(line.starts_with("#EXT-X-MAP:") && is_open)
            })
        },
        specimen: "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXT-X-MAP:URI=\"i.mp4\"\n",
    },
    Must {
        section: "4.3.2.5",
        rule: "EXT-X-MAP has no attributes but URI and BYTERANGE, a range with its offset",
        on: On::Media,
        holds: |playlist| {
            let is_range = |value: &str| {
                let range = value.trim_matches('"').split_once('@');
                let numbers = range.map(|(bytes, offset)| (decimal(bytes), decimal(offset)));
                value.starts_with('"') && matches!(numbers, Some((Some(_), Some(_))))
            };
            playlist.values("EXT-X-MAP").iter().all(|list| {
                let all = attributes(list).unwrap_or_default();
                all.iter().all(|(name, value)| match *name {
                    "URI" => is_quoted(value),
                    "BYTERANGE" => is_range(value),
                    _ => false,
                })
            })
        },
        specimen: "#EXTM3U\n#EXT-X-MAP:URI=\"a\",BYTERANGE=\"700\"\n",
    },
    Must {
        section: "4.3.2.6",
        rule: "a date is one of ISO 8601, with milliseconds and a time zone",
        on: On::Media,
        holds: |playlist| {
            playlist.values("EXT-X-PROGRAM-DATE-TIME").iter().all(|date| ms_of_date(date).is_some())
        },
        specimen: "#EXTM3U\n#EXT-X-PROGRAM-DATE-TIME:2026-02-30 10:00:00\n#EXTINF:6,\na.ts\n",
    },
    Must {
        section: "4.3.2.6",
        rule: "a date stands before a segment or its first part, one a segment",
        on: On::Media,
        holds: |playlist| {
            let tag = "#EXT-X-PROGRAM-DATE-TIME:";
            let mut dates = 0;
            let mut lines = playlist.text.lines();
            lines.all(|line| {
                dates = if line.starts_with('#') { dates } else { 0 };
                dates += usize::from(line.starts_with(tag));
                dates <= 1
            }) && applies(playlist, tag)
        },
        specimen: "#EXTM3U\n#EXT-X-PROGRAM-DATE-TIME:2026-02-03T10:00:00.000Z\n\
                   #EXT-X-PROGRAM-DATE-TIME:2026-02-03T10:00:06.000Z\n#EXTINF:6,\na.ts\n",
    },
    Must {
        section: "4.3.3.3",
        rule: "one EXT-X-DISCONTINUITY-SEQUENCE at most, a number, before segments and the other",
        on: On::Media,
        holds: |playlist| {
            let tag = "#EXT-X-DISCONTINUITY-SEQUENCE:";
            let place = playlist.text.lines().position(|line| line.starts_with(tag));
            let values = playlist.values("EXT-X-DISCONTINUITY-SEQUENCE");
            let follows = |line: &str| !line.starts_with('#') || line == "#EXT-X-DISCONTINUITY";
            let first = playlist.text.lines().position(follows);
            values.len() <= 1
                && values.iter().all(|value| value.parse::<u64>().is_ok())
                && place.is_none_or(|place| first.is_none_or(|first| place < first))
        },
        specimen: "#EXTM3U\n#EXT-X-DISCONTINUITY\n#EXT-X-DISCONTINUITY-SEQUENCE:4\n#EXTINF:6,\na\n",
    },
    Must {
        section: "4.3.3.6",
        rule: "a playlist of key frames has no parts, and is of version 4 at least",
        on: On::Media,
        holds: |playlist| {
            let is_of_frames = !playlist.values("EXT-X-I-FRAMES-ONLY").is_empty();
            let version = playlist.values("EXT-X-VERSION").first().and_then(|v| v.parse().ok());
            !is_of_frames
                || version.is_some_and(|version: u32| version >= 4)
                    && playlist.values("EXT-X-PART").is_empty()
        },
        specimen: "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-I-FRAMES-ONLY\n",
    },
];

/// True where a segment or part follows each of these tags before the playlist ends.
fn applies(playlist: &Playlist, tag: &str) -> bool {
    let lines: Vec<&str> = playlist.text.lines().collect();
    let is_it = |line: &str| {
        if tag.ends_with(':') { line.starts_with(tag) } else { line == tag }
    };
    let is_media = |line: &&str| {
        !line.starts_with('#') && !line.is_empty() || line.starts_with("#EXT-X-PART:")
    };
    let is_hint = |line: &&str| line.starts_with("#EXT-X-PRELOAD-HINT:");
    (0..lines.len())
        .filter(|&at| is_it(lines[at]))
        .all(|at| lines[at..].iter().any(|line| is_media(line) || is_hint(line)))
}

/// Returns milliseconds from 1970 to a date of this form; `None` for another form.
pub(crate) fn ms_of_date(text: &str) -> Option<i64> {
    let (day, time) = text.split_once('T')?;
    let (time, zone) = match time.strip_suffix('Z') {
        Some(time) => (time, "+00:00"),
        None => time.split_at_checked(time.len().checked_sub(6)?)?,
    };
    let shape = |text: &str| {
        let shape = text.bytes().map(|byte| if byte.is_ascii_digit() { '0' } else { byte.into() });
        shape.collect::<String>()
    };
    let (second, fraction) = time.split_once('.')?;
    let is_shaped = shape(day) == "0000-00-00"
        && shape(second) == "00:00:00"
        && matches!(&shape(zone)[..], "+00:00" | "-00:00")
        && fraction.len() >= 3
        && decimal(fraction).is_some();
    if !is_shaped {
        return None;
    }
    let number = |text: &str| text.parse::<i64>().ok();
    let (year, month, day) = (number(&day[..4])?, number(&day[5..7])?, number(&day[8..])?);
    let (hour, minute, of_minute) =
        (number(&second[..2])?, number(&second[3..5])?, number(&second[6..])?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let is_date = (1..=days).contains(&day) && hour < 24 && minute < 60 && of_minute < 60;
    // Years begin with March, so that a leap day is the last of its year.
    let year = year - i64::from(month < 3);
    let in_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + in_year - 719_468;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let east = sign * (number(&zone[1..3])? * 60 + number(&zone[4..])?);
    let seconds = days * 86_400 + hour * 3600 + (minute - east) * 60 + of_minute;
    is_date.then_some(seconds * 1000 + number(&fraction[..3])?)
}

#[test]
fn dates_are_read() {
    for (text, ms) in [
        ("1970-01-01T00:00:00.000Z", Some(0)),
        ("2000-02-29T12:00:00.250Z", Some(951_825_600_250)),
        ("2010-02-19T14:54:23.031+08:00", Some(1_266_562_463_031)),
        ("2026-02-30T10:00:00.000Z", None),
        ("2026-02-03T24:00:00.000Z", None),
        ("2026-02-03T10:00:00Z", None),
        ("2026-02-03T10:00:00.000", None),
    ] {
        assert_eq!(ms_of_date(text), ms, "{text}");
    }
}
