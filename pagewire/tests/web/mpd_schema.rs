// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schema of MPDs, for the elements that pagewire writes: one row per element, with its
//! attributes, their types, and its children in their order.
//!
//! No registry has a package with DASH-MPD.xsd, so the rows are written here after the standard.
//! Rules that a schema cannot state are below the rows.
//!
//! Sources: ISO/IEC 23009-1 annex B (schema), §5.3.1.2 (durations), §5.3.7 (base attributes),
//! §5.3.9.4 (templates), §5.8.4.1 (ContentProtection), §8.4 (live profile); ISO/IEC 23001-7 §11.2
//! (`default_KID`).
//! Has no rows for elements that pagewire does not write.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::clips::{CLIPS, serve, serve_files, serve_with};
use crate::enciphered::secret;
use crate::fragments::at_path;
use crate::harness::await_ok;
use crate::site::{fetch, manifest, resolved};

/// A type of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Text,
    Uri,
    /// A string without white space.
    Token,
    Duration,
    /// A time in UTC.
    Date,
    Boolean,
    U32,
    U64,
    /// An integer, perhaps negative.
    Integer,
    Language,
    /// 0 to 6.
    Sap,
    /// Hexadecimal digits in groups of 8, 4, 4, 4 and 12.
    Uuid,
    OneOf(&'static [&'static str]),
}

/// An element: its attributes, the required ones, its children in order, and the required ones of
/// these.
struct Row {
    name: &'static str,
    attributes: &'static [(&'static str, Type)],
    required: &'static [&'static str],
    children: &'static [&'static str],
    least: &'static [&'static str],
}

/// Base of adaptation sets and representations.
const DESCRIPTOR: &[(&str, Type)] =
    &[("schemeIdUri", Type::Uri), ("value", Type::Text), ("id", Type::Text)];

const ROWS: &[Row] = &[
    Row {
        name: "MPD",
        attributes: &[
            ("xmlns", Type::OneOf(&["urn:mpeg:dash:schema:mpd:2011"])),
            ("xmlns:cenc", Type::OneOf(&["urn:mpeg:cenc:2013"])),
            ("xmlns:dashif", Type::OneOf(&["https://dashif.org/CPS"])),
            ("id", Type::Text),
            ("profiles", Type::Token),
            ("type", Type::OneOf(&["static", "dynamic"])),
            ("availabilityStartTime", Type::Date),
            ("publishTime", Type::Date),
            ("mediaPresentationDuration", Type::Duration),
            ("minimumUpdatePeriod", Type::Duration),
            ("timeShiftBufferDepth", Type::Duration),
            ("suggestedPresentationDelay", Type::Duration),
            ("minBufferTime", Type::Duration),
            ("maxSegmentDuration", Type::Duration),
        ],
        required: &["xmlns", "profiles", "minBufferTime"],
        children: &["ProgramInformation", "BaseURL", "Location", "Period", "UTCTiming"],
        least: &["Period"],
    },
    Row {
        name: "Period",
        attributes: &[("id", Type::Text), ("start", Type::Duration), ("duration", Type::Duration)],
        required: &[],
        children: &["BaseURL", "SegmentTemplate", "AdaptationSet"],
        least: &["AdaptationSet"],
    },
    Row {
        name: "AdaptationSet",
        attributes: &[
            ("id", Type::U32),
            ("lang", Type::Language),
            ("contentType", Type::OneOf(&["video", "audio", "text", "image"])),
            ("mimeType", Type::Text),
            ("codecs", Type::Text),
            ("segmentAlignment", Type::Boolean),
            ("startWithSAP", Type::Sap),
        ],
        required: &[],
        children: &[
            "AudioChannelConfiguration",
            "ContentProtection",
            "Label",
            "Role",
            "SegmentTemplate",
            "Representation",
        ],
        least: &["Representation"],
    },
    Row {
        name: "Representation",
        attributes: &[
            ("id", Type::Token),
            ("bandwidth", Type::U32),
            ("mimeType", Type::Text),
            ("codecs", Type::Text),
            ("width", Type::U32),
            ("height", Type::U32),
            ("frameRate", Type::Text),
            ("audioSamplingRate", Type::U32),
            ("startWithSAP", Type::Sap),
        ],
        required: &["id", "bandwidth"],
        children: &["AudioChannelConfiguration", "ContentProtection", "BaseURL", "SegmentTemplate"],
        least: &[],
    },
    Row {
        name: "ContentProtection",
        attributes: &[
            ("schemeIdUri", Type::Uri),
            ("value", Type::Text),
            ("cenc:default_KID", Type::Uuid),
        ],
        required: &["schemeIdUri"],
        children: &["dashif:Laurl"],
        least: &[],
    },
    Row {
        name: "dashif:Laurl",
        attributes: &[("Lic_type", Type::Text)],
        required: &[],
        children: &[],
        least: &[],
    },
    Row { name: "BaseURL", attributes: &[], required: &[], children: &[], least: &[] },
    Row { name: "Label", attributes: &[], required: &[], children: &[], least: &[] },
    Row { name: "Location", attributes: &[], required: &[], children: &[], least: &[] },
    Row {
        name: "UTCTiming",
        attributes: DESCRIPTOR,
        required: &["schemeIdUri"],
        children: &[],
        least: &[],
    },
    Row {
        name: "AudioChannelConfiguration",
        attributes: DESCRIPTOR,
        required: &["schemeIdUri"],
        children: &[],
        least: &[],
    },
    Row {
        name: "Role",
        attributes: DESCRIPTOR,
        required: &["schemeIdUri"],
        children: &[],
        least: &[],
    },
    Row {
        name: "SegmentTemplate",
        attributes: &[
            ("timescale", Type::U32),
            ("presentationTimeOffset", Type::U64),
            ("startNumber", Type::U32),
            ("initialization", Type::Uri),
            ("media", Type::Uri),
        ],
        required: &["media", "initialization"],
        children: &["SegmentTimeline"],
        least: &["SegmentTimeline"],
    },
    Row {
        name: "SegmentTimeline",
        attributes: &[],
        required: &[],
        children: &["S"],
        least: &["S"],
    },
    Row {
        name: "S",
        attributes: &[("t", Type::U64), ("d", Type::U64), ("r", Type::Integer)],
        required: &["d"],
        children: &[],
        least: &[],
    },
];

#[test]
fn every_mpd_is_valid() {
    let test = "mpd_schema::every_mpd_is_valid";
    let Some(server) = serve(test) else { return };
    for clip in CLIPS {
        let (text, path) = manifest(&server, clip);
        assert_eq!(faults(&text), [""; 0], "{path}: {text}");
    }
    server.stop();
}

/// Identifiers of keys are those of the initialization sections.
#[test]
fn every_mpd_is_valid_where_samples_are_enciphered() {
    let test = "mpd_schema::every_mpd_is_valid_where_samples_are_enciphered";
    let (_folder, secret) = secret();
    let secret = secret.to_str().expect("a path in UTF-8");
    let options = ["--hls-cipher", "cbcs", "--hls-key-file", secret];
    let Some(server) = serve_with(test, &options) else { return };
    for clip in CLIPS {
        let (text, path) = manifest(&server, clip);
        assert_eq!(faults(&text), [""; 0], "{path}: {text}");
        let root = parse(&text);
        let sets = root.all("AdaptationSet");
        assert!(sets.iter().all(|set| set.key_id().is_some()), "{text}");
        for (set, one) in sets
            .iter()
            .flat_map(|set| set.all("Representation").into_iter().map(move |one| (set, one)))
        {
            let template = one.all("SegmentTemplate")[0];
            let init = resolved(&path, template.attribute("initialization").expect("a section"));
            let key_id = key_id_of(&fetch(&server, &init, None).body);
            assert_eq!(one.key_id().or(set.key_id()), Some(key_id), "{init}: {text}");
        }
    }
    server.stop();
}

/// Returns the key identifier in the `tenc` of an initialization section (ISO/IEC 23001-7 §8.2).
fn key_id_of(init: &[u8]) -> String {
    let table = at_path(init, "moov/trak/mdia/minf/stbl/stsd")[0];
    let at = table.windows(4).position(|four| four == b"tenc").expect("it is enciphered");
    let hex: String = table[at + 12..at + 28].iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

/// Subtitles are sets of one file, beside films of each kind.
#[test]
fn every_mpd_with_subtitles_is_valid() {
    let test = "mpd_schema::every_mpd_with_subtitles_is_valid";
    let cues = "1\n00:00:01,000 --> 00:00:02,000\nHello\n";
    let texts = ["film.en.srt", "film.de.forced.srt", "title/en.sdh.srt"].map(|name| (name, cues));
    let films = ["film.mp4", "film.ts", "codecs.mp4", "title/large.mp4", "title/small.mp4"];
    let Some(server) = serve_files(test, &films, &texts, &[]) else { return };
    for (name, sets, subtitles) in
        [("film.mp4", 4, 2), ("film.ts", 4, 2), ("title", 3, 1), ("codecs.mp4", 4, 0)]
    {
        let text = await_ok(|| {
            let text = fetch(&server, &format!("/{name}/manifest.mpd"), None).text();
            let found = text.matches("mimeType=\"text/vtt\"").count();
            if found == subtitles { Ok(text) } else { Err(text) }
        });
        assert_eq!(faults(&text), [""; 0], "{name}: {text}");
        assert_eq!(parse(&text).all("AdaptationSet").len(), sets, "{text}");
    }
    server.stop();
}

#[test]
fn every_fault_is_found() {
    assert_eq!(faults(VALID), [""; 0]);
    for (from, to, fault) in [
        ("minBufferTime", "minBuffer", "MPD: no minBufferTime"),
        ("minBufferTime", "minBuffer", "MPD@minBuffer: unknown"),
        ("PT6S", "6", "MPD@minBufferTime=6: no Duration"),
        ("static", "vod", "MPD@type=vod: no OneOf"),
        ("<Period id=\"0\">", "<Period id=\"0\"><S d=\"1\"/>", "Period/S: unknown"),
        ("bandwidth=\"7\"", "", "Representation: no bandwidth"),
        ("bandwidth=\"7\"", "bandwidth=\"-7\"", "Representation@bandwidth=-7: no U32"),
        ("<S t=\"0\" d=\"9\"/><S d=\"3\" r=\"1\"/>", "", "SegmentTimeline: no S"),
        ("r=\"1\"", "d=\"1\"", "S@d: twice"),
        ("mimeType=\"audio/mp4\"", "", "AdaptationSet: no mimeType"),
        ("mediaPresentationDuration=\"PT16.5S\"", "", "MPD: static without a duration"),
        ("static", "dynamic", "MPD: dynamic without availabilityStartTime"),
        ("type", "publishTime=\"2026\" type", "MPD@publishTime=2026: no Date"),
        ("$Number$", "$Numbers$", "SegmentTemplate@media=$Numbers$.m4s: identifier"),
        ("id=\"r\" b", "id=\"a b\" b", "Representation@id=a b: no Token"),
        ("<S t=\"0\" d=\"9\"/>", "<S t=\"0\" d=\"9\"/><S t=\"8\" d=\"1\"/>", "S: times overlap"),
        ("d=\"9\"", "d=\"10\"", "S: 10 longer than maxSegmentDuration"),
        ("i.mp4", "$Number$.mp4", "SegmentTemplate@initialization=$Number$.mp4: identifier"),
        ("SegmentTemplate", "SegmentBase", "Representation: no SegmentTemplate or BaseURL"),
        ("cenc:default_KID", "KID", "ContentProtection@KID: unknown"),
        ("cenc:default_KID", "KID", "ContentProtection: no cenc:default_KID"),
        ("-d000", "d000", "ContentProtection@cenc:default_KID=00000000-b000-c000d000"),
        ("cbcs", "aes", "ContentProtection@value=aes: scheme"),
        ("urn:uuid:e2719d58-", "urn:uuid:", "ContentProtection@schemeIdUri=urn:uuid:a985"),
        ("type=", "minimumUpdatePeriod=\"PT1S\" type=", "MPD: static with minimumUpdatePeriod"),
        ("</AdaptationSet>", SAME_AGAIN, "Representation@id=r: twice in a period"),
    ] {
        let found = faults(&VALID.replace(from, to));
        assert!(found.iter().any(|one| one.starts_with(fault)), "{fault}: {found:?}");
    }
    let swapped = VALID.replace(CHANNELS, "").replace("</SegmentTemplate>", SWAPPED);
    let fault = "Representation/AudioChannelConfiguration: out of order";
    assert!(faults(&swapped).iter().any(|one| one == fault), "{:?}", faults(&swapped));
}

/// Returns the faults of a description.
pub(crate) fn faults(text: &str) -> Vec<String> {
    let root = parse(text);
    let mut faults = Vec::new();
    if root.name != "MPD" {
        faults.push(format!("{}: no MPD", root.name));
    }
    root.check(&mut faults);
    let is_static = root.attribute("type").is_none_or(|kind| kind == "static");
    if is_static && root.attribute("mediaPresentationDuration").is_none() {
        faults.push("MPD: static without a duration".to_owned());
    }
    for forbidden in ["minimumUpdatePeriod", "timeShiftBufferDepth"] {
        if is_static && root.attribute(forbidden).is_some() {
            faults.push(format!("MPD: static with {forbidden}"));
        }
    }
    root.check_ids(&mut faults);
    let longest = root.attribute("maxSegmentDuration").and_then(seconds).unwrap_or(f64::MAX);
    for template in root.all("SegmentTemplate") {
        let scale = template.attribute("timescale").and_then(|text| text.parse().ok());
        for entry in template.all("S") {
            let units = entry.attribute("d").and_then(|text| text.parse::<f64>().ok());
            if units.is_some_and(|units| units / scale.unwrap_or(1.0) > longest + 1e-9) {
                let stated = entry.attribute("d").unwrap_or_default();
                faults.push(format!("S: {stated} longer than maxSegmentDuration"));
            }
        }
    }
    for demanded in ["availabilityStartTime", "publishTime"] {
        if !is_static && root.attribute(demanded).is_none() {
            faults.push(format!("MPD: dynamic without {demanded}"));
        }
    }
    faults
}

/// A parsed element.
struct Node {
    name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Node>,
}

impl Node {
    fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns elements of this name below it, at any depth.
    fn all(&self, name: &str) -> Vec<&Node> {
        let own = self.children.iter().filter(|child| child.name == name);
        own.chain(self.children.iter().flat_map(|child| child.all(name))).collect()
    }

    /// Returns the identifier of the key of an adaptation set or representation.
    fn key_id(&self) -> Option<String> {
        let own = self.children.iter().filter(|child| child.name == "ContentProtection");
        let id = own.into_iter().find_map(|child| child.attribute("cenc:default_KID"));
        id.map(str::to_owned)
    }

    /// Checks that identifiers differ: of periods, and in a period of sets and of representations.
    fn check_ids(&self, faults: &mut Vec<String>) {
        let mut check = |all: Vec<&Node>| {
            let ids: Vec<&str> = all.iter().filter_map(|one| one.attribute("id")).collect();
            for (at, id) in ids.iter().enumerate().filter(|(at, id)| ids[..*at].contains(id)) {
                faults.push(format!("{}@id={id}: twice in a period", all[at].name));
            }
        };
        check(self.all("Period"));
        for period in self.all("Period") {
            check(period.all("AdaptationSet"));
            check(period.all("Representation"));
        }
    }

    fn check(&self, faults: &mut Vec<String>) {
        let name = &self.name;
        // The check of the parent reports it as unknown.
        let Some(row) = ROWS.iter().find(|row| row.name == name) else { return };
        for (at, (attribute, value)) in self.attributes.iter().enumerate() {
            let kind = row.attributes.iter().find(|(known, _)| known == attribute);
            match kind {
                None => faults.push(format!("{name}@{attribute}: unknown")),
                Some((_, kind)) if !is_of(*kind, value) => {
                    faults.push(format!("{name}@{attribute}={value}: no {kind:?}"));
                }
                Some(_) => {}
            }
            if self.attributes[..at].iter().any(|(before, _)| before == attribute) {
                faults.push(format!("{name}@{attribute}: twice"));
            }
        }
        for required in row.required.iter().filter(|name| self.attribute(name).is_none()) {
            faults.push(format!("{name}: no {required}"));
        }
        for least in row.least {
            if self.children.iter().all(|child| child.name != *least) {
                faults.push(format!("{name}: no {least}"));
            }
        }
        let mut reached = 0;
        for child in &self.children {
            match row.children.iter().position(|known| *known == child.name) {
                None => faults.push(format!("{name}/{}: unknown", child.name)),
                Some(place) if place < reached => {
                    faults.push(format!("{name}/{}: out of order", child.name));
                }
                Some(place) => reached = place,
            }
            child.check(faults);
        }
        self.check_meaning(faults);
    }

    /// Checks rules that a schema cannot state.
    fn check_meaning(&self, faults: &mut Vec<String>) {
        match self.name.as_str() {
            "AdaptationSet" => {
                let has = |node: &Node| node.attribute("mimeType").is_some();
                if !has(self) && !self.children.iter().filter(|c| c.is_representation()).all(has) {
                    faults.push("AdaptationSet: no mimeType".to_owned());
                }
            }
            "SegmentTemplate" => {
                let init = self.attribute("initialization").unwrap_or_default();
                if init.contains('$') {
                    faults.push(format!("SegmentTemplate@initialization={init}: identifier"));
                }
                let media = self.attribute("media").unwrap_or_default();
                let identifiers: Vec<&str> = media.split('$').skip(1).step_by(2).collect();
                if !matches!(identifiers[..], ["Number" | "Time"]) {
                    faults.push(format!("SegmentTemplate@media={media}: identifier"));
                }
            }
            "Representation" => {
                let is_source =
                    |child: &Node| ["SegmentTemplate", "BaseURL"].contains(&&*child.name);
                if !self.children.iter().any(is_source) {
                    faults.push("Representation: no SegmentTemplate or BaseURL".to_owned());
                }
            }
            "ContentProtection" => self.check_protection(faults),
            "SegmentTimeline" => self.check_timeline(faults),
            _ => {}
        }
    }

    fn check_protection(&self, faults: &mut Vec<String>) {
        let scheme = self.attribute("schemeIdUri").unwrap_or_default();
        let value = self.attribute("value").unwrap_or_default();
        if scheme == "urn:mpeg:dash:mp4protection:2011" {
            if !["cenc", "cbc1", "cens", "cbcs"].contains(&value) {
                faults.push(format!("ContentProtection@value={value}: scheme"));
            }
            if self.attribute("cenc:default_KID").is_none() {
                faults.push("ContentProtection: no cenc:default_KID".to_owned());
            }
        } else if !scheme.strip_prefix("urn:uuid:").is_some_and(is_uuid) {
            faults.push(format!("ContentProtection@schemeIdUri={scheme}: no system"));
        }
    }

    fn is_representation(&self) -> bool {
        self.name == "Representation"
    }

    fn check_timeline(&self, faults: &mut Vec<String>) {
        let mut end = 0;
        for entry in &self.children {
            let number = |name| entry.attribute(name).and_then(|text| text.parse::<u64>().ok());
            let start = number("t").unwrap_or(end);
            if start < end {
                faults.push("S: times overlap".to_owned());
            }
            end = start + number("d").unwrap_or(0) * (number("r").unwrap_or(0) + 1);
        }
    }
}

fn is_of(kind: Type, value: &str) -> bool {
    match kind {
        Type::Text => true,
        Type::Uri => value.chars().all(|c| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c)),
        Type::Token => !value.is_empty() && !value.contains(char::is_whitespace),
        Type::Duration => value.strip_prefix("PT").is_some_and(is_time),
        Type::Date => is_date(value),
        Type::Boolean => matches!(value, "true" | "false" | "0" | "1"),
        Type::U32 => value.parse::<u32>().is_ok(),
        Type::U64 => value.parse::<u64>().is_ok(),
        Type::Integer => value.parse::<i64>().is_ok(),
        Type::Language => {
            let is_part = |part: &str| {
                (1..=8).contains(&part.len()) && part.chars().all(|c| c.is_ascii_alphanumeric())
            };
            value.split('-').all(is_part)
        }
        Type::Sap => value.parse::<u8>().is_ok_and(|sap| sap <= 6),
        Type::Uuid => is_uuid(value),
        Type::OneOf(all) => all.contains(&value),
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Returns the seconds of a duration that is written in seconds alone.
fn seconds(text: &str) -> Option<f64> {
    text.strip_prefix("PT")?.strip_suffix('S')?.parse().ok()
}

/// True for a time in UTC, with seconds or fractions of them.
fn is_date(text: &str) -> bool {
    let form = text.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
    let form = String::from_utf8(form.collect()).unwrap_or_default();
    let Some(parts) = form.strip_prefix("0000-00-00T00:00:00") else { return false };
    let Some(parts) = parts.strip_suffix('Z') else { return false };
    parts.is_empty() || parts.strip_prefix('.').is_some_and(|rest| rest.replace('0', "").is_empty())
}

/// True for hours, minutes and seconds of a duration of XML Schema, at least one of them present.
fn is_time(text: &str) -> bool {
    let mut rest = text;
    for unit in ['H', 'M', 'S'] {
        if let Some((number, behind)) = rest.split_once(unit) {
            let is_number = match unit {
                'S' => number.parse::<f64>().is_ok() && !number.ends_with('.'),
                _ => number.parse::<u64>().is_ok(),
            };
            if !is_number || number.starts_with(['-', '+']) {
                return false;
            }
            rest = behind;
        }
    }
    rest.is_empty() && !text.is_empty()
}

fn parse(text: &str) -> Node {
    let mut reader = Reader::from_str(text);
    let mut open = vec![Node { name: String::new(), attributes: Vec::new(), children: Vec::new() }];
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Start(start) => open.push(node(&start)),
            Event::Empty(start) => {
                let child = node(&start);
                open.last_mut().expect("a document").children.push(child);
            }
            Event::End(_) => {
                let child = open.pop().expect("it was opened");
                open.last_mut().expect("a document").children.push(child);
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let mut document = open.pop().expect("a document");
    document.children.pop().expect("an element")
}

fn node(start: &BytesStart<'_>) -> Node {
    let mut attributes = start.attributes();
    let attributes = attributes.with_checks(false).map(|attribute| {
        let attribute = attribute.expect("well-formed XML");
        (attribute.key.as_ref().to_owned(), attribute.value.into_owned())
    });
    let attributes = attributes.collect();
    Node { name: start.name().as_ref().to_owned(), attributes, children: Vec::new() }
}

const CHANNELS: &str = "<AudioChannelConfiguration schemeIdUri=\"urn:a\" value=\"2\"/>";
const SWAPPED: &str =
    "</SegmentTemplate><AudioChannelConfiguration schemeIdUri=\"urn:a\" value=\"2\"/>";
const SAME_AGAIN: &str = "</AdaptationSet><AdaptationSet><Representation id=\"r\" bandwidth=\"7\" \
                          mimeType=\"a/b\"><BaseURL>a</BaseURL></Representation></AdaptationSet>";
const VALID: &str = "<?xml version=\"1.0\"?>
<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" xmlns:cenc=\"urn:mpeg:cenc:2013\"
  xmlns:dashif=\"https://dashif.org/CPS\" profiles=\"urn:p\" type=\"static\"
  mediaPresentationDuration=\"PT16.5S\" minBufferTime=\"PT6S\" maxSegmentDuration=\"PT9S\">
 <Period id=\"0\"><AdaptationSet mimeType=\"audio/mp4\" lang=\"de\">
  <ContentProtection schemeIdUri=\"urn:mpeg:dash:mp4protection:2011\" value=\"cbcs\"
    cenc:default_KID=\"00000000-b000-c000-d000-e00000000000\"/>
  <ContentProtection schemeIdUri=\"urn:uuid:e2719d58-a985-b3c9-781a-b030af78d30e\">
   <dashif:Laurl Lic_type=\"EME-1.0\">/keys/0.jwk</dashif:Laurl></ContentProtection>
  <Representation id=\"r\" bandwidth=\"7\">
   <AudioChannelConfiguration schemeIdUri=\"urn:a\" value=\"2\"/>
   <SegmentTemplate timescale=\"1\" initialization=\"i.mp4\" media=\"$Number$.m4s\">
    <SegmentTimeline><S t=\"0\" d=\"9\"/><S d=\"3\" r=\"1\"/></SegmentTimeline>
   </SegmentTemplate>
  </Representation></AdaptationSet></Period></MPD>";
