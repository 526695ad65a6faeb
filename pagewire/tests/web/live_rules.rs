// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of growing playlists: the tags of Low-Latency HLS, and rules about two copies of a
//! playlist loaded one after the other.
//!
//! Sources: RFC 8216 §4.3.3, §6.2.1, §6.2.2; draft-pantos-hls-rfc8216bis §4.4.3.7, §4.4.3.8,
//! §4.4.4.9, §4.4.5, §6.2.5.1 (each row names its section; those of the draft begin with `bis`).
//! Does not load.

use crate::playlist_rules::{Must, On, target_s, version};
use crate::segment_list::{MediaSegment, attribute, attributes, decimal, is_quoted, segments};
use crate::segment_rules::ms_of_date;
use crate::site::Playlist;

/// Minimum share of the part target duration that a part lasts.
const PART_LEAST: f64 = 0.85;
/// Rounding of sums of durations that are written with microseconds.
const ROUNDING_S: f64 = 0.000_01;
/// Rounding of dates.
const DATE_MS: i64 = 2;

pub(crate) const RULES: &[Must] = &[
    Must {
        section: "bis 4.4.3.7",
        rule: "a playlist with parts has one EXT-X-PART-INF, with a PART-TARGET",
        on: On::Media,
        holds: |playlist| {
            let lists = playlist.values("EXT-X-PART-INF");
            let is_needed = !playlist.values("EXT-X-PART").is_empty();
            lists.len() <= 1
                && (!lists.is_empty() || !is_needed)
                && lists.iter().all(|list| number(list, "PART-TARGET").is_some_and(|s| s > 0.0))
        },
        specimen: "#EXTM3U\n#EXT-X-PART:DURATION=0.4,URI=\"a.0.ts\"\n",
    },
    Must {
        section: "bis 4.4.3.8",
        rule: "one EXT-X-SERVER-CONTROL at most; its attributes are numbers and YES",
        on: On::Media,
        holds: |playlist| {
            let lists = playlist.values("EXT-X-SERVER-CONTROL");
            let is_typed = |(name, value): &(&str, &str)| match *name {
                "CAN-SKIP-UNTIL" | "HOLD-BACK" | "PART-HOLD-BACK" => decimal(value).is_some(),
                "CAN-SKIP-DATERANGES" | "CAN-BLOCK-RELOAD" => *value == "YES",
                _ => false,
            };
            lists.len() <= 1
                && lists.iter().all(|list| {
                    attributes(list).is_some_and(|list| list.iter().all(is_typed))
                        && (attribute(list, "CAN-SKIP-DATERANGES").is_none()
                            || attribute(list, "CAN-SKIP-UNTIL").is_some())
                })
        },
        specimen: "#EXTM3U\n#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=NO\n",
    },
    Must {
        section: "bis 4.4.3.8",
        rule: "CAN-SKIP-UNTIL is six target durations at least",
        on: On::Media,
        holds: |playlist| {
            control(playlist, "CAN-SKIP-UNTIL").is_none_or(|s| s >= 6.0 * target(playlist))
        },
        specimen: "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-SERVER-CONTROL:CAN-SKIP-UNTIL=11.9\n",
    },
    Must {
        section: "bis 4.4.3.8",
        rule: "HOLD-BACK is three target durations at least",
        on: On::Media,
        holds: |playlist| {
            control(playlist, "HOLD-BACK").is_none_or(|s| s >= 3.0 * target(playlist))
        },
        specimen: "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-SERVER-CONTROL:HOLD-BACK=5\n",
    },
    Must {
        section: "bis 4.4.3.8",
        rule: "with EXT-X-PART-INF there is a PART-HOLD-BACK, of two part target durations or more",
        on: On::Media,
        holds: |playlist| {
            let least = 2.0 * part_target(playlist).unwrap_or(0.0);
            let is_there = control(playlist, "PART-HOLD-BACK").map(|seconds| seconds >= least);
            is_there.unwrap_or(part_target(playlist).is_none())
        },
        specimen: "#EXTM3U\n#EXT-X-SERVER-CONTROL:PART-HOLD-BACK=0.7\n\
                   #EXT-X-PART-INF:PART-TARGET=0.4\n",
    },
    Must {
        section: "bis 4.4.4.9",
        rule: "EXT-X-PART has a URI and a DURATION; INDEPENDENT and GAP are YES or not there",
        on: On::Media,
        holds: |playlist| {
            let is_yes = |list, name| attribute(list, name).is_none_or(|value| value == "YES");
            playlist.values("EXT-X-PART").iter().all(|list| {
                attribute(list, "URI").is_some_and(is_quoted)
                    && number(list, "DURATION").is_some_and(|seconds| seconds > 0.0)
                    && is_yes(list, "INDEPENDENT")
                    && is_yes(list, "GAP")
            })
        },
        specimen: "#EXTM3U\n#EXT-X-PART:DURATION=0.4,URI=\"a\",INDEPENDENT=NO\n",
    },
    Must {
        section: "bis 4.4.4.9",
        rule: "a part lasts no longer than the part target duration",
        on: On::Media,
        holds: |playlist| {
            let most = part_target(playlist).unwrap_or(f64::MAX);
            let lists = playlist.values("EXT-X-PART").into_iter();
            lists.filter_map(|list| number(list, "DURATION")).all(|seconds| seconds <= most)
        },
        specimen: "#EXTM3U\n#EXT-X-PART-INF:PART-TARGET=0.4\n#EXT-X-PART:DURATION=0.41,URI=\"a\"\n",
    },
    Must {
        section: "bis 4.4.4.9",
        rule: "a part lasts 85 % of that or more, but an independent one and the last of a segment",
        on: On::Media,
        holds: |playlist| {
            let least = PART_LEAST * part_target(playlist).unwrap_or(0.0);
            segments(playlist).iter().all(|segment| {
                let exempt = usize::from(segment.is_whole());
                let mut parts = segment.parts.iter().rev().skip(exempt);
                parts.all(|list| {
                    attribute(list, "INDEPENDENT").is_some()
                        || number(list, "DURATION").is_some_and(|seconds| seconds >= least)
                })
            })
        },
        specimen: "#EXTM3U\n#EXT-X-PART-INF:PART-TARGET=0.4\n\
                   #EXT-X-PART:DURATION=0.4,URI=\"a.0\",INDEPENDENT=YES\n\
                   #EXT-X-PART:DURATION=0.25,URI=\"a.1\"\n#EXT-X-PART:DURATION=0.25,URI=\"a.2\"\n\
                   #EXTINF:0.9,\na\n",
    },
    Must {
        section: "bis 4.4.4.9",
        rule: "tags of a segment stand before its first part",
        on: On::Media,
        holds: |playlist| {
            let tags = ["#EXT-X-DISCONTINUITY", "#EXT-X-KEY:", "#EXT-X-MAP:"];
            let tags = tags.into_iter().chain(["#EXT-X-PROGRAM-DATE-TIME:"]);
            let mut has_parts = false;
            playlist.text.lines().all(|line| {
                let is_part = line.starts_with("#EXT-X-PART:");
                has_parts = is_part || has_parts && line.starts_with('#');
                is_part || !has_parts || !tags.clone().any(|tag| line.starts_with(tag))
            })
        },
        specimen: "#EXTM3U\n#EXT-X-PART:DURATION=0.4,URI=\"a.0\"\n\
                   #EXT-X-DISCONTINUITY\n#EXTINF:0.4,\na\n",
    },
    Must {
        section: "bis 4.4.4.9",
        rule: "the parts of a whole segment last as long as it",
        on: On::Media,
        holds: |playlist| {
            let all = segments(playlist);
            let mut whole = all.iter().filter(|one| one.is_whole() && !one.parts.is_empty());
            whole.all(|one| {
                let parts = one.parts.iter().filter_map(|list| number(list, "DURATION"));
                let apart = parts.sum::<f64>() - one.seconds();
                // Each is rounded down.
                apart.abs() < ROUNDING_S * (1 + one.parts.len()) as f64
            })
        },
        specimen: "#EXTM3U\n#EXT-X-PART:DURATION=0.4,URI=\"a.0\"\n#EXTINF:2.0,\na\n",
    },
    Must {
        section: "bis 4.4.5.2",
        rule: "one EXT-X-SKIP at most, of segments that a version 9 and CAN-SKIP-UNTIL allow",
        on: On::Media,
        holds: |playlist| {
            let lists = playlist.values("EXT-X-SKIP");
            let is_count = |value: &str| value.parse::<u64>().is_ok_and(|count| count > 0);
            let is_first = || {
                let place = playlist.text.lines().position(|line| line.starts_with("#EXT-X-SKIP:"));
                let media = |line: &str| line.starts_with("#EXTINF:") || !line.starts_with('#');
                let first = playlist.text.lines().position(media);
                first.is_none_or(|first| place < Some(first))
            };
            lists.is_empty()
                || lists.len() == 1
                    && version(playlist) >= 9
                    && control(playlist, "CAN-SKIP-UNTIL").is_some()
                    && attribute(lists[0], "SKIPPED-SEGMENTS").is_some_and(is_count)
                    && is_first()
        },
        specimen: "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-SERVER-CONTROL:CAN-SKIP-UNTIL=12\n\
                   #EXT-X-SKIP:SKIPPED-SEGMENTS=3\n#EXTINF:2,\na\n",
    },
    Must {
        section: "bis 6.2.5.1",
        rule: "what an update leaves out lies before the last CAN-SKIP-UNTIL seconds",
        on: On::Media,
        holds: |playlist| {
            let until = control(playlist, "CAN-SKIP-UNTIL").unwrap_or(0.0);
            let listed = segments(playlist).iter().map(seconds_of).sum::<f64>();
            playlist.values("EXT-X-SKIP").is_empty() || listed + ROUNDING_S >= until
        },
        specimen: "#EXTM3U\n#EXT-X-SERVER-CONTROL:CAN-SKIP-UNTIL=12\n\
                   #EXT-X-SKIP:SKIPPED-SEGMENTS=3\n#EXTINF:2,\na\n#EXTINF:2,\nb\n",
    },
    Must {
        section: "bis 4.4.5.3",
        rule: "EXT-X-PRELOAD-HINT has a TYPE of its own and the URI of nothing that is listed",
        on: On::Media,
        holds: |playlist| {
            let hints = playlist.values("EXT-X-PRELOAD-HINT");
            let parts = playlist.values("EXT-X-PART");
            let uri = |list| attribute(list, "URI").filter(|uri| is_quoted(uri));
            let kinds: Vec<_> = hints.iter().filter_map(|list| attribute(list, "TYPE")).collect();
            let is_known = |kind: &&str| ["PART", "MAP"].contains(kind);
            kinds.len() == hints.len()
                && kinds.iter().all(is_known)
                && (kinds.len() < 2 || kinds.len() == 2 && kinds[0] != kinds[1])
                && hints.iter().all(|hint| {
                    uri(hint).is_some() && !parts.iter().any(|part| uri(part) == uri(hint))
                })
        },
        specimen: "#EXTM3U\n#EXT-X-PART:DURATION=0.4,URI=\"a.0\"\n\
                   #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"a.0\"\n",
    },
    Must {
        section: "bis 4.4.5.3",
        rule: "a playlist that has ended has no hint",
        on: On::Media,
        holds: |playlist| {
            let is_over = !playlist.values("EXT-X-ENDLIST").is_empty();
            !is_over || playlist.values("EXT-X-PRELOAD-HINT").is_empty()
        },
        specimen: "#EXTM3U\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"a.0\"\n#EXT-X-ENDLIST\n",
    },
    Must {
        section: "bis 4.4.5.4",
        rule: "EXT-X-RENDITION-REPORT has a relative URI, LAST-MSN, and LAST-PART where are parts",
        on: On::Media,
        holds: |playlist| {
            let has_parts = part_target(playlist).is_some();
            let is_whole = |value: &str| value.parse::<u64>().is_ok();
            playlist.values("EXT-X-RENDITION-REPORT").iter().all(|list| {
                let last = attribute(list, "LAST-PART").map(is_whole);
                attribute(list, "URI").is_some_and(|uri| is_quoted(uri) && !uri.contains("://"))
                    && attribute(list, "LAST-MSN").is_some_and(is_whole)
                    && last.unwrap_or(!has_parts)
            })
        },
        specimen: "#EXTM3U\n#EXT-X-PART-INF:PART-TARGET=0.4\n\
                   #EXT-X-RENDITION-REPORT:URI=\"b.m3u8\",LAST-MSN=4\n",
    },
];

/// A rule of a playlist and of a later copy of it, with two that break it.
pub(crate) struct ReloadMust {
    pub(crate) section: &'static str,
    pub(crate) rule: &'static str,
    pub(crate) holds: fn(&Playlist, &Playlist) -> bool,
    pub(crate) specimen: (&'static str, &'static str),
}

pub(crate) const RELOADS: &[ReloadMust] = &[
    ReloadMust {
        section: "4.3.3.1",
        rule: "the target duration does not change",
        holds: |before, after| target_s(before) == target_s(after),
        specimen: ("#EXTM3U\n#EXT-X-TARGETDURATION:6\n", "#EXTM3U\n#EXT-X-TARGETDURATION:7\n"),
    },
    ReloadMust {
        section: "bis 4.4.3.7",
        rule: "nor does the part target duration, as long as there is one",
        holds: |before, after| {
            let (before, after) = (part_target(before), part_target(after));
            before.is_none() || after.is_none() || before == after
        },
        specimen: (
            "#EXTM3U\n#EXT-X-PART-INF:PART-TARGET=0.4\n",
            "#EXTM3U\n#EXT-X-PART-INF:PART-TARGET=0.5\n",
        ),
    },
    ReloadMust {
        section: "6.2.1",
        rule: "a segment keeps URI, duration, range, keys and map",
        holds: |before, after| {
            let same = |(one, other): (&MediaSegment<'_>, &MediaSegment<'_>)| {
                (one.uri, one.duration, one.range, &one.keys, one.map)
                    == (other.uri, other.duration, other.range, &other.keys, other.map)
            };
            both(before, after, same)
        },
        specimen: ("#EXTM3U\n#EXTINF:2.0,\na\n", "#EXTM3U\n#EXTINF:2.1,\na\n#EXTINF:2.1,\nb\n"),
    },
    ReloadMust {
        section: "4.3.3.2",
        rule: "media sequence numbers do not go back, and no listed segment is left out",
        holds: |before, after| {
            let (before, after) = (segments(before), segments(after));
            let first = |all: &[MediaSegment<'_>]| all.first().map(|one| one.number);
            let last = |all: &[MediaSegment<'_>]| {
                all.iter().rfind(|one| one.is_whole()).map(|one| one.number)
            };
            first(&after) >= first(&before) && last(&after) >= last(&before)
        },
        specimen: (
            "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:4\n#EXTINF:2,\na\n#EXTINF:2,\nb\n",
            "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:3\n#EXTINF:2,\nz\n#EXTINF:2,\na\n#EXTINF:2,\nb\n",
        ),
    },
    ReloadMust {
        section: "4.3.3.3",
        rule: "a segment keeps its discontinuity sequence number",
        holds: |before, after| {
            both(before, after, |(one, other)| one.discontinuity == other.discontinuity)
        },
        specimen: (
            "#EXTM3U\n#EXTINF:2,\na\n#EXT-X-DISCONTINUITY\n#EXTINF:2,\nb\n#EXTINF:2,\nc\n",
            "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:2\n#EXTINF:2,\nc\n#EXTINF:2,\nd\n",
        ),
    },
    ReloadMust {
        section: "4.3.3.5",
        rule: "the type stays; one of type EVENT loses no segment, one of VOD stays as it is",
        holds: |before, after| {
            let kind = |playlist: &Playlist| {
                playlist.values("EXT-X-PLAYLIST-TYPE").first().map(|kind| (*kind).to_owned())
            };
            let first = |playlist: &Playlist| segments(playlist).first().map(|one| one.number);
            kind(before) == kind(after)
                && match kind(before).as_deref() {
                    Some("VOD") => before.text == after.text,
                    Some(_) => first(before) == first(after),
                    None => true,
                }
        },
        specimen: (
            "#EXTM3U\n#EXT-X-PLAYLIST-TYPE:EVENT\n#EXTINF:2,\na\n#EXTINF:2,\nb\n",
            "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:1\n#EXTINF:2,\nb\n#EXTINF:2,\nc\n",
        ),
    },
    ReloadMust {
        section: "4.3.3.4",
        rule: "nothing is added behind EXT-X-ENDLIST, which stays",
        holds: |before, after| {
            before.values("EXT-X-ENDLIST").is_empty() || before.text == after.text
        },
        specimen: (
            "#EXTM3U\n#EXTINF:2,\na\n#EXT-X-ENDLIST\n",
            "#EXTM3U\n#EXTINF:2,\na\n#EXTINF:2,\nb\n#EXT-X-ENDLIST\n",
        ),
    },
    ReloadMust {
        section: "6.2.2",
        rule: "segments that are removed leave three target durations at least",
        holds: |before, after| {
            let first = |playlist: &Playlist| segments(playlist).first().map(|one| one.number);
            let left = segments(after).iter().map(seconds_of).sum::<f64>();
            let is_over = !after.values("EXT-X-ENDLIST").is_empty();
            first(before) == first(after) || is_over || left >= 3.0 * target(after)
        },
        specimen: (
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\na\n#EXTINF:2,\nb\n#EXTINF:2,\nc\n",
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:1\n#EXTINF:2,\nb\n\
             #EXTINF:2,\nc\n",
        ),
    },
    ReloadMust {
        section: "4.3.2.6",
        rule: "a segment keeps its date, told or counted from the one before",
        holds: |before, after| {
            let (before, after) = (dates(before), dates(after));
            before.iter().all(|(number, date)| {
                let other = after.iter().find(|(other, _)| other == number);
                other.is_none_or(|(_, other)| (date - other).abs() <= DATE_MS)
            })
        },
        specimen: (
            "#EXTM3U\n#EXT-X-PROGRAM-DATE-TIME:2026-02-03T10:00:00.000Z\n#EXTINF:2,\na\n\
             #EXTINF:2,\nb\n",
            "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:1\n\
             #EXT-X-PROGRAM-DATE-TIME:2026-02-03T10:00:02.100Z\n#EXTINF:2,\nb\n",
        ),
    },
    ReloadMust {
        section: "bis 4.4.4.9",
        rule: "a part that is listed stays as it is as long as parts of its segment are listed",
        holds: |before, after| {
            let (before, after) = (segments(before), segments(after));
            before.iter().all(|one| {
                let other = after.iter().find(|other| other.number == one.number);
                let other = other.filter(|other| !other.parts.is_empty());
                other.is_none_or(|other| other.parts.starts_with(&one.parts))
            })
        },
        specimen: (
            "#EXTM3U\n#EXT-X-PART:DURATION=0.4,URI=\"a.0\"\n",
            "#EXTM3U\n#EXT-X-PART:DURATION=0.3,URI=\"a.0\"\n#EXTINF:0.3,\na\n",
        ),
    },
    ReloadMust {
        section: "bis 4.4.5.3",
        rule: "the part that is listed next is the one that was announced",
        holds: |before, after| {
            let hint = before.values("EXT-X-PRELOAD-HINT").first().copied();
            let Some(hint) = hint.and_then(|list| attribute(list, "URI")) else { return true };
            let all = segments(before);
            let known = all.last().filter(|last| !last.is_whole());
            let next = known.map(|last| (last.number, last.parts.len()));
            let Some((number, part)) = next else { return true };
            let after = segments(after);
            let found = after.iter().find(|one| one.number == number);
            let found = found.and_then(|one| one.parts.get(part));
            found.is_none_or(|list| attribute(list, "URI") == Some(hint))
        },
        specimen: (
            "#EXTM3U\n#EXT-X-PART:DURATION=0.4,URI=\"a.0\"\n\
             #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"x\"\n",
            "#EXTM3U\n#EXT-X-PART:DURATION=0.4,URI=\"a.0\"\n\
             #EXT-X-PART:DURATION=0.4,URI=\"a.1\"\n",
        ),
    },
];

/// Returns the rules that two copies of a playlist break, the second loaded after the first.
pub(crate) fn broken_by_reload(before: &Playlist, after: &Playlist) -> Vec<String> {
    let broken = RELOADS.iter().filter(|must| !(must.holds)(before, after));
    broken.map(|must| format!("{}: {}", must.section, must.rule)).collect()
}

/// True where an update is the playlist without its first segments and lists the same otherwise.
pub(crate) fn is_update_of(update: &Playlist, whole: &Playlist) -> bool {
    let (update, whole) = (segments(update), segments(whole));
    let known = whole.iter().position(|one| Some(one.number) == update.first().map(|u| u.number));
    known.is_some_and(|known| {
        let same = |(one, other): (&MediaSegment<'_>, &MediaSegment<'_>)| {
            (one.number, one.uri, one.duration, &one.parts)
                == (other.number, other.uri, other.duration, &other.parts)
        };
        update.len() == whole.len() - known && update.iter().zip(&whole[known..]).all(same)
    })
}

/// True where a claim holds for every segment that is complete in both.
fn both(
    before: &Playlist,
    after: &Playlist,
    holds: impl Fn((&MediaSegment<'_>, &MediaSegment<'_>)) -> bool,
) -> bool {
    let (before, after) = (segments(before), segments(after));
    before.iter().filter(|one| one.is_whole()).all(|one| {
        let other = after.iter().find(|other| other.number == one.number);
        other.is_none_or(|other| holds((one, other)))
    })
}

/// Returns numbers of segments and their dates in milliseconds, from the first date on.
fn dates(playlist: &Playlist) -> Vec<(u64, i64)> {
    let mut at: Option<f64> = None;
    let mut found = Vec::new();
    for segment in segments(playlist) {
        let stated = segment.date.and_then(ms_of_date).map(|ms| ms as f64);
        at = stated.or(at);
        found.extend(at.map(|at| (segment.number, at.round() as i64)));
        at = at.map(|at| at + seconds_of(&segment) * 1000.0);
    }
    found
}

/// Returns the duration of a segment, or of the parts of an incomplete one.
fn seconds_of(segment: &MediaSegment<'_>) -> f64 {
    if segment.is_whole() {
        return segment.seconds();
    }
    segment.parts.iter().filter_map(|list| number(list, "DURATION")).sum()
}

fn number(list: &str, name: &str) -> Option<f64> {
    attribute(list, name).and_then(decimal)
}

fn control(playlist: &Playlist, name: &str) -> Option<f64> {
    playlist.values("EXT-X-SERVER-CONTROL").first().and_then(|list| number(list, name))
}

fn part_target(playlist: &Playlist) -> Option<f64> {
    playlist.values("EXT-X-PART-INF").first().and_then(|list| number(list, "PART-TARGET"))
}

fn target(playlist: &Playlist) -> f64 {
    target_s(playlist).unwrap_or(0) as f64
}
