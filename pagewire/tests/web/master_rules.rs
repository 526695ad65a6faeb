// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of multivariant playlists: groups of renditions, codecs, languages, rates.
//!
//! Sources: RFC 8216 §4.2, §4.3.4 (each row names its section); RFC 6381 (codecs); RFC 5646
//! (languages).
//! Has no rows for session data, session keys and steering, which are not written.

use std::collections::{BTreeMap, BTreeSet};

use crate::playlist_rules::{Must, On};
use crate::segment_list::{attribute, attributes, is_quoted};

pub(crate) const RULES: &[Must] = &[
    Must {
        section: "4.3.4.1",
        rule: "a rendition has the attributes of its TYPE alone: CHANNELS of sound, FORCED of text",
        on: On::Masters,
        holds: |playlist| {
            let known = ["TYPE", "URI", "GROUP-ID", "LANGUAGE", "ASSOC-LANGUAGE", "NAME"];
            let known = known.into_iter().chain(["DEFAULT", "AUTOSELECT", "CHARACTERISTICS"]);
            playlist.values("EXT-X-MEDIA").iter().all(|list| {
                let kind = attribute(list, "TYPE").unwrap_or_default();
                let own = if kind == "AUDIO" { "CHANNELS" } else { "FORCED" };
                let mut all = attributes(list).unwrap_or_default().into_iter();
                all.all(|(name, _)| name == own || known.clone().any(|known| known == name))
            })
        },
        specimen: "#EXTM3U\n#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"a\",CHANNELS=\"2\"\n",
    },
    Must {
        section: "4.3.4.1",
        rule: "CHANNELS begins with a number; CHARACTERISTICS are names with commas between",
        on: On::Masters,
        holds: |playlist| {
            let is_tag = |tag: &str| {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
                tag.contains('.') && tag.chars().all(is_part)
            };
            playlist.values("EXT-X-MEDIA").iter().all(|list| {
                let channels = attribute(list, "CHANNELS").map(|value| value.trim_matches('"'));
                let tags = attribute(list, "CHARACTERISTICS").map(|value| value.trim_matches('"'));
                let count = |value: &str| value.split('/').next().and_then(|n| n.parse().ok());
                channels.is_none_or(|value| count(value).is_some_and(|count: u32| count > 0))
                    && tags.is_none_or(|value| value.split(',').all(is_tag))
            })
        },
        specimen: "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",CHANNELS=\"stereo\"\n",
    },
    Must {
        section: "4.3.4.1",
        rule: "LANGUAGE is a tag of RFC 5646",
        on: On::Masters,
        holds: |playlist| {
            let is_part = |part: &str| {
                (1..=8).contains(&part.len()) && part.chars().all(|c| c.is_ascii_alphanumeric())
            };
            let is_tag = |value: &str| {
                let tag = value.trim_matches('"');
                let primary = tag.split('-').next().unwrap_or_default();
                let is_primary =
                    primary.len() >= 2 && primary.chars().all(|c| c.is_ascii_alphabetic());
                is_quoted(value) && (is_primary || primary == "x") && tag.split('-').all(is_part)
            };
            let lists = playlist.values("EXT-X-MEDIA").into_iter();
            lists.filter_map(|list| attribute(list, "LANGUAGE")).all(is_tag)
        },
        specimen: "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",LANGUAGE=\"de_DE\"\n",
    },
    Must {
        section: "4.3.4.1.1",
        rule: "groups of one type have the same members, alike but for URI and CHANNELS",
        on: On::Masters,
        holds: |playlist| {
            let mut groups: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
            for list in playlist.values("EXT-X-MEDIA") {
                let value = |name| attribute(list, name).unwrap_or_default();
                let free = ["URI", "CHANNELS", "GROUP-ID"];
                let mut member = attributes(list).unwrap_or_default();
                member.retain(|(name, _)| !free.contains(name));
                member.sort_unstable();
                let group = groups.entry((value("TYPE"), value("GROUP-ID"))).or_default();
                group.insert(format!("{member:?}"));
            }
            let all: Vec<_> = groups.iter().collect();
            all.windows(2).all(|pair| pair[0].0.0 != pair[1].0.0 || pair[0].1 == pair[1].1)
        },
        specimen: "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"German\"\n\
                   #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"b\",NAME=\"German 2\"\n",
    },
    Must {
        section: "4.3.4.2",
        rule: "CODECS are formats of RFC 6381 with commas between, each once",
        on: On::Masters,
        holds: |playlist| {
            let lists = ["EXT-X-STREAM-INF", "EXT-X-I-FRAME-STREAM-INF"];
            let lists = lists.into_iter().flat_map(|tag| playlist.values(tag));
            lists.filter_map(|list| attribute(list, "CODECS")).all(|value| {
                let codecs: Vec<&str> = value.trim_matches('"').split(',').collect();
                let distinct: BTreeSet<&str> = codecs.iter().copied().collect();
                is_quoted(value)
                    && distinct.len() == codecs.len()
                    && codecs.into_iter().all(is_codec)
            })
        },
        specimen: "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS=\"avc1.64, mp4a.40.2\"\na.m3u8\n",
    },
    Must {
        section: "4.3.4.2",
        rule: "BANDWIDTH is no less than AVERAGE-BANDWIDTH",
        on: On::Masters,
        holds: |playlist| {
            let rate = |list: &str, name| attribute(list, name).and_then(|n| n.parse::<u64>().ok());
            playlist
                .values("EXT-X-STREAM-INF")
                .iter()
                .all(|list| rate(list, "AVERAGE-BANDWIDTH") <= rate(list, "BANDWIDTH"))
        },
        specimen: "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5,AVERAGE-BANDWIDTH=6\na.m3u8\n",
    },
    Must {
        section: "4.3.4.2",
        rule: "CLOSED-CAPTIONS=NONE stands at all variants or at none; VIDEO names a group",
        on: On::Masters,
        holds: |playlist| {
            let variants = playlist.values("EXT-X-STREAM-INF");
            let captions = |list: &&&str| attribute(list, "CLOSED-CAPTIONS") == Some("NONE");
            let without = variants.iter().filter(captions).count();
            let has_no_video = |list: &&str| attribute(list, "VIDEO").is_none();
            // Groups of pictures are not written.
            (without == 0 || without == variants.len()) && variants.iter().all(has_no_video)
        },
        specimen: "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5,CLOSED-CAPTIONS=NONE\na.m3u8\n\
                   #EXT-X-STREAM-INF:BANDWIDTH=6\nb.m3u8\n",
    },
    Must {
        section: "4.3.4.3",
        rule: "a playlist of key frames is not that of a variant or rendition",
        on: On::Masters,
        holds: |playlist| {
            let uri = |list| attribute(list, "URI").map(|uri| uri.trim_matches('"'));
            let key_frames = playlist.values("EXT-X-I-FRAME-STREAM-INF").into_iter();
            let sounds = playlist.values("EXT-X-MEDIA").into_iter().filter_map(uri);
            let variants = playlist.text.lines().filter(|line| !line.starts_with('#'));
            let others: BTreeSet<&str> = sounds.chain(variants).collect();
            key_frames.filter_map(uri).all(|uri| !others.contains(uri))
        },
        specimen: "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5\na.m3u8\n\
                   #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=5,URI=\"a.m3u8\"\n",
    },
];

/// True of a format: the code of a sample entry, and the additions of its registration.
fn is_codec(text: &str) -> bool {
    let mut parts = text.split('.');
    let code = parts.next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let is_hex = |part: &str| part.len() == 6 && part.bytes().all(|b| b.is_ascii_hexdigit());
    match code {
        "avc1" | "avc3" => matches!(rest[..], [profile] if is_hex(profile)),
        "hvc1" | "hev1" => rest.len() >= 3 && rest[2].starts_with(['L', 'H']),
        "av01" => rest.len() >= 3,
        "mp4a" => {
            matches!(rest[..], ["40", object] if object.parse::<u8>().is_ok())
                || matches!(rest[..], ["69" | "6b" | "6B"])
        }
        "stpp" => rest.len() <= 2,
        "ac-3" | "ec-3" | "opus" | "Opus" | "fLaC" | "wvtt" => rest.is_empty(),
        _ => false,
    }
}
