// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of rules of playlists, and the functions that check them. Rows about the tags of
//! segments, of groups and of growing playlists are in files of their own.
//!
//! Sources: RFC 8216 §4 (each row names its section), §7 (versions).
//! Does not fetch: [`crate::rfc8216`] does.

use std::collections::BTreeSet;

use crate::segment_list::{attribute, attributes, is_quoted};
use crate::site::Playlist;
use crate::{live_rules, master_rules, segment_rules};

/// The playlists that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    All,
    Masters,
    Media,
}

impl On {
    pub(crate) fn is_of_masters(self) -> bool {
        self == On::Masters
    }
}

/// A rule, and a playlist that breaks it.
pub(crate) struct Must {
    pub(crate) section: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) on: On,
    pub(crate) holds: fn(&Playlist) -> bool,
    pub(crate) specimen: &'static str,
}

impl Must {
    pub(crate) fn concerns(&self, playlist: &Playlist) -> bool {
        match self.on {
            On::All => true,
            On::Masters => playlist.is_master(),
            On::Media => !playlist.is_master(),
        }
    }
}

/// Returns all rules.
pub(crate) fn musts() -> impl Iterator<Item = &'static Must> {
    let tables = [RULES, segment_rules::RULES, master_rules::RULES, live_rules::RULES];
    tables.into_iter().flatten()
}

/// Returns the rules that a playlist breaks.
pub(crate) fn broken(playlist: &Playlist) -> Vec<String> {
    let broken = musts().filter(|must| must.concerns(playlist) && !(must.holds)(playlist));
    broken.map(|must| format!("{}: {}", must.section, must.rule)).collect()
}

/// Rules of all playlists, and of the tags that have no table of their own.
const RULES: &[Must] = &[
    Must {
        section: "4.1",
        rule: "no byte order mark, no control characters but line ends",
        on: On::All,
        holds: |playlist| {
            let is_wrong = |c: char| c == '\u{feff}' || c.is_control() && c != '\n';
            !playlist.text.contains(is_wrong) && playlist.text.ends_with('\n')
        },
        specimen: "\u{feff}#EXTM3U\n",
    },
    Must {
        section: "4.1",
        rule: "every line is a URI, blank or begins with #; no line begins with white space",
        on: On::All,
        holds: |playlist| {
            let is_uri = |line: &str| !line.contains(|c: char| !c.is_ascii_graphic());
            playlist.text.lines().all(|line| line.starts_with('#') || is_uri(line))
        },
        specimen: "#EXTM3U\n a.ts\n",
    },
    Must {
        section: "4.1",
        rule: "no tags of media playlists in a multivariant playlist",
        on: On::Masters,
        holds: |playlist| !has_tag(playlist, &MEDIA_TAGS),
        specimen: "#EXTM3U\n#EXT-X-TARGETDURATION:6\n",
    },
    Must {
        section: "4.1",
        rule: "no tags of multivariant playlists in a media playlist",
        on: On::Media,
        holds: |playlist| !has_tag(playlist, &MASTER_TAGS),
        specimen: "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\na.m3u8\n",
    },
    Must {
        section: "4.2",
        rule: "attribute lists: names of A-Z, 0-9 and -, each once; no white space; quotes closed",
        on: On::All,
        holds: |playlist| {
            let lists = ATTRIBUTE_TAGS.iter().flat_map(|tag| playlist.values(tag));
            lists.map(attributes).all(|list| {
                list.is_some_and(|list| {
                    let names: BTreeSet<&str> = list.iter().map(|(name, _)| *name).collect();
                    names.len() == list.len()
                })
            })
        },
        specimen: "#EXTM3U\n#EXT-X-MAP:URI=\"a\",URI=\"b\"\n",
    },
    Must {
        section: "4.3.1.1",
        rule: "EXTM3U is the first line",
        on: On::All,
        holds: |playlist| {
            playlist.text.starts_with("#EXTM3U\n") && playlist.values("EXTM3U").len() == 1
        },
        specimen: "#EXT-X-VERSION:3\n#EXTM3U\n",
    },
    Must {
        section: "4.3.1.2",
        rule: "one EXT-X-VERSION at most",
        on: On::All,
        holds: |playlist| playlist.values("EXT-X-VERSION").len() <= 1,
        specimen: "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-VERSION:3\n",
    },
    Must {
        section: "7",
        rule: "the version has what is used: 2 vectors, 3 fractions, 4 ranges and key frames, 5 \
               formats of keys, 5 and 6 maps, 9 updates",
        on: On::Media,
        holds: |playlist| version(playlist) >= needed_version(playlist),
        specimen: "#EXTM3U\n#EXT-X-VERSION:5\n#EXT-X-MAP:URI=\"a\"\n",
    },
    Must {
        section: "4.3.2.1",
        rule: "EXTINF before every segment, with a duration and a comma",
        on: On::Media,
        holds: |playlist| {
            let uris = playlist.text.lines().filter(|line| !line.starts_with('#')).count();
            let durations = durations(playlist);
            uris > 0 && durations.is_some_and(|all| all.len() == uris) && !has_bare_uri(playlist)
        },
        specimen: "#EXTM3U\n#EXTINF:6,\na.ts\nb.ts\n#EXTINF:6,\n",
    },
    Must {
        section: "4.3.2.2",
        rule: "a byte range has an offset, or follows a range of the same file; one a segment",
        on: On::Media,
        holds: |playlist| {
            let ranges = playlist.values("EXT-X-BYTERANGE");
            let uris = playlist.text.lines().filter(|line| !line.starts_with('#')).count();
            let is_range = |range: &str| {
                let (bytes, offset) = range.split_once('@')?;
                Some((bytes.parse::<u64>().ok()?, offset.parse::<u64>().ok()?))
            };
            (ranges.is_empty() || ranges.len() == uris)
                && ranges.iter().all(|range| is_range(range).is_some_and(|(bytes, _)| bytes > 0))
        },
        specimen: "#EXTM3U\n#EXTINF:6,\n#EXT-X-BYTERANGE:7\na.ts\n",
    },
    Must {
        section: "4.3.2.5",
        rule: "EXT-X-MAP has a URI, and stands before the segments it is for",
        on: On::Media,
        holds: |playlist| {
            let has_uri = |list: &str| attribute(list, "URI").is_some_and(is_quoted);
            let needs = playlist.text.lines().any(|line| line.ends_with(".m4s"));
            playlist.values("EXT-X-MAP").into_iter().all(has_uri)
                && (!needs || is_before(playlist, "#EXT-X-MAP:", "#EXTINF:"))
        },
        specimen: "#EXTM3U\n#EXTINF:6,\na.m4s\n#EXT-X-MAP:URI=\"a\"\n",
    },
    Must {
        section: "4.3.3.1",
        rule: "one EXT-X-TARGETDURATION, and no duration beyond it when rounded",
        on: On::Media,
        holds: |playlist| {
            let [target] = playlist.values("EXT-X-TARGETDURATION")[..] else { return false };
            let Ok(target) = target.parse::<u64>() else { return false };
            let durations = durations(playlist).unwrap_or_default();
            durations.iter().all(|seconds| seconds.round() as u64 <= target)
        },
        specimen: "#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6.5,\na.ts\n",
    },
    Must {
        section: "4.3.3.2",
        rule: "one EXT-X-MEDIA-SEQUENCE at most, before the first segment",
        on: On::Media,
        holds: |playlist| {
            let values = playlist.values("EXT-X-MEDIA-SEQUENCE");
            values.len() <= 1
                && values.iter().all(|value| value.parse::<u64>().is_ok())
                && (values.is_empty() || is_before(playlist, "#EXT-X-MEDIA-SEQUENCE:", "#EXTINF:"))
        },
        specimen: "#EXTM3U\n#EXTINF:6,\na.ts\n#EXT-X-MEDIA-SEQUENCE:0\n",
    },
    Must {
        section: "4.3.3.4",
        rule: "one EXT-X-ENDLIST at most; a playlist of type VOD has it",
        on: On::Media,
        holds: |playlist| {
            let is_vod = playlist.values("EXT-X-PLAYLIST-TYPE") == ["VOD"];
            let ends = playlist.values("EXT-X-ENDLIST").len();
            ends == 1 || ends == 0 && !is_vod
        },
        specimen: "#EXTM3U\n#EXT-X-PLAYLIST-TYPE:VOD\n",
    },
    Must {
        section: "4.3.3.5",
        rule: "one EXT-X-PLAYLIST-TYPE at most, EVENT or VOD",
        on: On::Media,
        holds: |playlist| {
            matches!(playlist.values("EXT-X-PLAYLIST-TYPE")[..], [] | ["EVENT" | "VOD"])
        },
        specimen: "#EXTM3U\n#EXT-X-PLAYLIST-TYPE:LIVE\n",
    },
    Must {
        section: "4.3.3.6",
        rule: "key frames have a map in front, but for whole transport streams",
        on: On::Media,
        holds: |playlist| {
            let is_of_frames = !playlist.values("EXT-X-I-FRAMES-ONLY").is_empty();
            let mut uris = playlist.text.lines().filter(|line| !line.starts_with('#'));
            let are_streams = playlist.values("EXT-X-BYTERANGE").is_empty()
                && uris.all(|uri| uri.ends_with(".ts"));
            !is_of_frames || are_streams || is_before(playlist, "#EXT-X-MAP:", "#EXTINF:")
        },
        specimen: "#EXTM3U\n#EXT-X-I-FRAMES-ONLY\n#EXTINF:2,\nkey/0.m4s\n",
    },
    Must {
        section: "4.3.4.1",
        rule: "EXT-X-MEDIA has TYPE, GROUP-ID and NAME, subtitles URI; YES and NO are enumerated",
        on: On::Masters,
        holds: |playlist| {
            playlist.values("EXT-X-MEDIA").iter().all(|list| {
                let is_switch =
                    |name| attribute(list, name).is_none_or(|value| matches!(value, "YES" | "NO"));
                let is_typed = match attribute(list, "TYPE") {
                    Some("AUDIO") => attribute(list, "FORCED").is_none(),
                    Some("SUBTITLES") => attribute(list, "URI").is_some_and(is_quoted),
                    _ => false,
                };
                is_typed
                    && attribute(list, "GROUP-ID").is_some_and(is_quoted)
                    && attribute(list, "NAME").is_some_and(is_quoted)
                    && attribute(list, "LANGUAGE").is_none_or(is_quoted)
                    && attribute(list, "CHANNELS").is_none_or(is_quoted)
                    && is_switch("DEFAULT")
                    && is_switch("AUTOSELECT")
                    && is_switch("FORCED")
            })
        },
        specimen: "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",URI=\"b.m3u8\"\n",
    },
    Must {
        section: "4.3.4.1",
        rule: "a default rendition is selected by itself, if AUTOSELECT is there",
        on: On::Masters,
        holds: |playlist| {
            playlist.values("EXT-X-MEDIA").iter().all(|list| {
                attribute(list, "DEFAULT") != Some("YES")
                    || attribute(list, "AUTOSELECT") != Some("NO")
            })
        },
        specimen: "#EXTM3U\n#EXT-X-MEDIA:DEFAULT=YES,AUTOSELECT=NO\n",
    },
    Must {
        section: "4.3.4.1.1",
        rule: "in a group names differ and one rendition at most is the default",
        on: On::Masters,
        holds: |playlist| {
            let lists = playlist.values("EXT-X-MEDIA");
            let group = |list| attribute(list, "GROUP-ID").unwrap_or_default();
            let named: BTreeSet<_> =
                lists.iter().map(|list| (group(list), attribute(list, "NAME"))).collect();
            let defaults = lists.iter().filter(|list| attribute(list, "DEFAULT") == Some("YES"));
            let groups: Vec<&str> = defaults.map(|list| group(list)).collect();
            let distinct: BTreeSet<&str> = groups.iter().copied().collect();
            named.len() == lists.len() && distinct.len() == groups.len()
        },
        specimen: "#EXTM3U\n#EXT-X-MEDIA:GROUP-ID=\"a\",NAME=\"b\"\n\
                   #EXT-X-MEDIA:GROUP-ID=\"a\",NAME=\"b\"\n",
    },
    Must {
        section: "4.3.4.2",
        rule: "EXT-X-STREAM-INF has BANDWIDTH and is followed by a URI; types of its attributes",
        on: On::Masters,
        holds: |playlist| {
            let mut lines = playlist.text.lines();
            while let Some(line) = lines.next() {
                let Some(list) = line.strip_prefix("#EXT-X-STREAM-INF:") else { continue };
                if !has_rates(list) || lines.next().is_none_or(|next| next.starts_with('#')) {
                    return false;
                }
            }
            !playlist.values("EXT-X-STREAM-INF").is_empty()
        },
        specimen: "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5\n#EXT-X-VERSION:4\n",
    },
    Must {
        section: "4.3.4.2",
        rule: "AUDIO and SUBTITLES of a variant are groups of an EXT-X-MEDIA of this type",
        on: On::Masters,
        holds: |playlist| {
            let lists = playlist.values("EXT-X-MEDIA");
            let groups: BTreeSet<_> = lists
                .iter()
                .filter_map(|list| Some((attribute(list, "TYPE")?, attribute(list, "GROUP-ID")?)))
                .collect();
            let variants = playlist.values("EXT-X-STREAM-INF");
            let is_there = |list, kind| {
                attribute(list, kind).is_none_or(|group| groups.contains(&(kind, group)))
            };
            variants.iter().all(|list| is_there(list, "AUDIO") && is_there(list, "SUBTITLES"))
        },
        specimen: "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5,AUDIO=\"a\"\nb.m3u8\n",
    },
    Must {
        section: "4.3.4.3",
        rule: "EXT-X-I-FRAME-STREAM-INF has BANDWIDTH and URI; no FRAME-RATE, no groups but VIDEO",
        on: On::Masters,
        holds: |playlist| {
            let forbidden = ["FRAME-RATE", "AUDIO", "SUBTITLES", "CLOSED-CAPTIONS"];
            playlist.values("EXT-X-I-FRAME-STREAM-INF").iter().all(|list| {
                has_rates(list)
                    && attribute(list, "URI").is_some_and(is_quoted)
                    && forbidden.iter().all(|name| attribute(list, name).is_none())
            })
        },
        specimen: "#EXTM3U\n\
                   #EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=5,FRAME-RATE=25.000,URI=\"k.m3u8\"\n",
    },
    Must {
        section: "4.3.5.1",
        rule: "one EXT-X-INDEPENDENT-SEGMENTS at most",
        on: On::All,
        holds: |playlist| playlist.values("EXT-X-INDEPENDENT-SEGMENTS").len() <= 1,
        specimen: "#EXTM3U\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-INDEPENDENT-SEGMENTS\n",
    },
    Must {
        section: "4.3.5.2",
        rule: "one EXT-X-START at most, with a TIME-OFFSET in seconds and PRECISE as YES or NO",
        on: On::All,
        holds: |playlist| {
            let all = playlist.values("EXT-X-START");
            all.len() <= 1
                && all.iter().all(|list| {
                    let offset = attribute(list, "TIME-OFFSET").map(str::parse::<f64>);
                    let precise = attribute(list, "PRECISE");
                    matches!(offset, Some(Ok(_)))
                        && precise.is_none_or(|value| ["YES", "NO"].contains(&value))
                })
        },
        specimen: "#EXTM3U\n#EXT-X-START:PRECISE=YES\n",
    },
    Must {
        section: "6.3.1",
        rule: "no tag that neither the RFC nor its successor has",
        on: On::All,
        holds: |playlist| {
            let names = playlist.text.lines().filter_map(|line| line.strip_prefix("#EXT"));
            let names = names.map(|line| line.split(':').next().unwrap_or(line));
            let known = |name: &str| {
                let name = format!("EXT{name}");
                let all = [&MEDIA_TAGS[..], &MASTER_TAGS, &SHARED_TAGS];
                all.into_iter().flatten().any(|tag| *tag == name)
            };
            names.into_iter().all(known)
        },
        specimen: "#EXTM3U\n#EXT-X-BITRATES:7\n",
    },
];

const SHARED_TAGS: [&str; 4] =
    ["EXTM3U", "EXT-X-VERSION", "EXT-X-INDEPENDENT-SEGMENTS", "EXT-X-START"];
const MASTER_TAGS: [&str; 3] = ["EXT-X-MEDIA", "EXT-X-STREAM-INF", "EXT-X-I-FRAME-STREAM-INF"];
const MEDIA_TAGS: [&str; 18] = [
    "EXTINF",
    "EXT-X-BYTERANGE",
    "EXT-X-DISCONTINUITY",
    "EXT-X-MAP",
    "EXT-X-TARGETDURATION",
    "EXT-X-MEDIA-SEQUENCE",
    "EXT-X-ENDLIST",
    "EXT-X-PLAYLIST-TYPE",
    "EXT-X-I-FRAMES-ONLY",
    "EXT-X-KEY",
    "EXT-X-PROGRAM-DATE-TIME",
    "EXT-X-DISCONTINUITY-SEQUENCE",
    "EXT-X-PART",
    "EXT-X-PART-INF",
    "EXT-X-SERVER-CONTROL",
    "EXT-X-SKIP",
    "EXT-X-PRELOAD-HINT",
    "EXT-X-RENDITION-REPORT",
];
const ATTRIBUTE_TAGS: [&str; 11] = [
    "EXT-X-MAP",
    "EXT-X-KEY",
    "EXT-X-PART",
    "EXT-X-PART-INF",
    "EXT-X-SERVER-CONTROL",
    "EXT-X-SKIP",
    "EXT-X-PRELOAD-HINT",
    "EXT-X-RENDITION-REPORT",
    "EXT-X-MEDIA",
    "EXT-X-STREAM-INF",
    "EXT-X-I-FRAME-STREAM-INF",
];

fn has_tag(playlist: &Playlist, tags: &[&str]) -> bool {
    tags.iter().any(|tag| !playlist.values(tag).is_empty())
}

/// True where the attributes of a variant that are numbers, sizes or strings are valid.
fn has_rates(list: &str) -> bool {
    let is_whole = |value: &str| value.parse::<u64>().is_ok_and(|number| number > 0);
    let is_size = |value: &str| {
        value.split_once('x').is_some_and(|(width, height)| is_whole(width) && is_whole(height))
    };
    // Rounded to three places (§4.3.4.2).
    let is_rate = |value: &str| {
        value.parse::<f64>().is_ok() && value.split_once('.').is_some_and(|(_, f)| f.len() == 3)
    };
    attribute(list, "BANDWIDTH").is_some_and(is_whole)
        && attribute(list, "AVERAGE-BANDWIDTH").is_none_or(is_whole)
        && attribute(list, "CODECS").is_none_or(is_quoted)
        && attribute(list, "RESOLUTION").is_none_or(is_size)
        && attribute(list, "FRAME-RATE").is_none_or(is_rate)
}

/// Returns durations of the segments; `None` where one is not a number with a comma.
fn durations(playlist: &Playlist) -> Option<Vec<f64>> {
    let values = playlist.values("EXTINF").into_iter();
    values.map(|value| value.split_once(',')?.0.parse().ok()).collect()
}

/// True where a URI has no EXTINF since the URI before.
fn has_bare_uri(playlist: &Playlist) -> bool {
    let mut is_announced = false;
    for line in playlist.text.lines() {
        if line.starts_with("#EXTINF:") {
            is_announced = true;
        } else if !line.starts_with('#') {
            if !is_announced {
                return true;
            }
            is_announced = false;
        }
    }
    false
}

/// True where no line that begins with `second` precedes a line that begins with `first`.
fn is_before(playlist: &Playlist, first: &str, second: &str) -> bool {
    let position = |start: &str| playlist.text.lines().position(|line| line.starts_with(start));
    match (position(first), position(second)) {
        (Some(first), Some(second)) => first < second,
        (first, None) => first.is_some(),
        (None, Some(_)) => false,
    }
}

pub(crate) fn target_s(playlist: &Playlist) -> Option<u64> {
    playlist.values("EXT-X-TARGETDURATION").first().and_then(|value| value.parse().ok())
}

pub(crate) fn version(playlist: &Playlist) -> u32 {
    playlist.values("EXT-X-VERSION").first().and_then(|value| value.parse().ok()).unwrap_or(1)
}

fn needed_version(playlist: &Playlist) -> u32 {
    let has = |tag: &str| !playlist.values(tag).is_empty();
    let of_maps = if has("EXT-X-I-FRAMES-ONLY") { 5 } else { 6 };
    let has_fractions = playlist.values("EXTINF").iter().any(|value| value.contains('.'));
    let keys = playlist.values("EXT-X-KEY");
    let has_key = |name: &str| keys.iter().any(|list| attribute(list, name).is_some());
    [
        (has_key("IV"), 2),
        (has_fractions, 3),
        (has_key("KEYFORMAT") || has_key("KEYFORMATVERSIONS"), 5),
        (has("EXT-X-SKIP"), 9),
        (has("EXT-X-BYTERANGE") || has("EXT-X-I-FRAMES-ONLY"), 4),
        (has("EXT-X-MAP"), of_maps),
    ]
    .into_iter()
    .filter_map(|(is_used, version)| is_used.then_some(version))
    .max()
    .unwrap_or(1)
}
