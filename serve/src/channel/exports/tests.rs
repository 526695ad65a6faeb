// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of exports: golden texts, hostile titles, bounds.
//!
//! Does not test players.

use quick_xml::Reader;
use quick_xml::escape::unescape;

use super::super::settings::{ChannelDraft, ScheduleDraft};
use super::super::timeline::{Lineup, TimelineEntry};
use super::*;

fn news() -> ChannelConfig {
    let draft = ChannelDraft {
        title: Some("News & \"more\"".to_owned()),
        playlist: vec!["archive".to_owned()],
        send: ["rtp://232.1.1.1:5004", "udp://10.0.0.9:1234", "udp://[ff35::8000:1]:1234"]
            .map(str::to_owned)
            .to_vec(),
        source: vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()],
        time_zone: Some("Europe/Berlin".to_owned()),
        constant_rate_kbps: Some(6000),
        ttl: Some(8),
        at: vec![ScheduleDraft {
            time: Some("20:00".to_owned()),
            play: vec!["evening.ts".to_owned()],
            ..ScheduleDraft::default()
        }],
        ..ChannelDraft::default()
    };
    draft.check("news").unwrap()
}

fn entry(name: &str, seconds: u64) -> TimelineEntry {
    TimelineEntry { name: name.into(), duration: Some(Duration::from_secs(seconds)) }
}

fn timeline(entries: &[(&str, u64)]) -> Timeline {
    let lineup = Lineup {
        entries: entries.iter().map(|(name, seconds)| entry(name, *seconds)).collect(),
        filler: Some(entry("filler.ts", 10)),
        schedule: vec![vec![entry("shows/evening.ts", 1800)]],
    };
    Timeline::new(&news(), &lineup)
}

fn at(text: &str) -> Duration {
    Duration::try_from(text.parse::<Timestamp>().unwrap().as_duration()).unwrap()
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

fn guide_of_one(entries: &[(&str, u64)], from: &str, length: Duration) -> String {
    let (config, timeline) = (news(), timeline(entries));
    String::from_utf8(xmltv(&[(&config, &timeline)], at(from), length)).unwrap()
}

/// Titles of a guide, unescaped; fails where the text is not well formed.
fn titles(guide: &str) -> Vec<String> {
    let mut reader = Reader::from_str(guide);
    reader.config_mut().check_end_names = true;
    while reader.read_event().expect("well-formed XML") != Event::Eof {}
    let after = guide.split("<title>").skip(1);
    let raw = after.map(|rest| rest.split("</title>").next().unwrap());
    raw.map(|title| unescape(title).unwrap().into_owned()).collect()
}

#[test]
fn lists_name_each_channel_with_its_url() {
    let channels = [
        news(),
        ChannelDraft { playlist: vec!["a".to_owned()], ..ChannelDraft::default() }
            .check("music")
            .unwrap(),
    ];
    let (links, authority) = (M3uLinks::Rtsp, "10.0.0.1:8554");
    let expected = "#EXTM3U url-tvg=\"http://10.0.0.1:8080/guide.xml\" \
        x-tvg-url=\"http://10.0.0.1:8080/guide.xml\"\n\
        #EXTINF:-1 tvg-id=\"news\" tvg-name=\"News & 'more'\",News & \"more\"\n\
        rtsp://10.0.0.1:8554/channel/news\n\
        #EXTINF:-1 tvg-id=\"music\" tvg-name=\"music\",music\n\
        rtsp://10.0.0.1:8554/channel/music\n";
    let list = m3u(&channels, links, authority, Some("http://10.0.0.1:8080/guide.xml"));
    assert_eq!(list.as_deref(), Some(expected));
    let expected = "#EXTM3U\n\
        #EXTINF:-1 tvg-id=\"news\" tvg-name=\"News & 'more'\",News & \"more\"\n\
        rtp://10.0.0.1@232.1.1.1:5004\n\
        #EXTINF:-1 tvg-id=\"news\" tvg-name=\"News & 'more'\",News & \"more\"\n\
        udp://[fd00::1]@[ff35::8000:1]:1234\n\
        #EXTINF:-1 tvg-id=\"music\" tvg-name=\"music\",music\n\
        rtsp://10.0.0.1:8554/channel/music\n";
    assert_eq!(
        m3u(&channels, M3uLinks::Multicast, "10.0.0.1:8554", None).as_deref(),
        Some(expected)
    );
    let mut plain = news();
    (plain.targets, plain.sources) = (
        vec![SendTarget { format: SendFormat::Rtp, address: "239.1.1.1:5004".parse().unwrap() }],
        Vec::new(),
    );
    let list = m3u(&[plain], M3uLinks::Multicast, "10.0.0.1:8554", None).unwrap();
    assert!(list.ends_with("\nrtp://@239.1.1.1:5004\n"), "{list}");
}

#[test]
fn authorities_and_urls_cannot_add_a_line() {
    for authority in ["", "a\nb", "a b", "user@host", "a/b", "a\"b", "höst"] {
        assert_eq!(m3u(&[news()], M3uLinks::Rtsp, authority, None), None, "{authority}");
    }
    for guide in ["http://a/\"", "http://a/\nb", "http://a b"] {
        assert_eq!(m3u(&[news()], M3uLinks::Multicast, "a:1", Some(guide)), None, "{guide}");
    }
    let mut hostile = news();
    hostile.title = "a\r\n#EXTINF:-1,b\u{202e}\n\"c".to_owned();
    let list = m3u(&[hostile], M3uLinks::Rtsp, "[::1]:8554", None).unwrap();
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(!list.contains(['\r', '\u{202e}']) && list.contains("tvg-name=\"a  #EXTINF"), "{list}");
}

#[test]
fn guides_have_local_times_and_titles_of_files() {
    let guide = guide_of_one(&[("archive/One & two.ts", 7200)], "2026-03-02T18:30:00Z", hours(2));
    let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
        <!DOCTYPE tv SYSTEM \"xmltv.dtd\">\n\
        <tv generator-info-name=\"pagewire\">\n \
        <channel id=\"news\">\n  \
        <display-name>News &amp; &quot;more&quot;</display-name>\n \
        </channel>\n \
        <programme start=\"20260302190000 +0100\" stop=\"20260302200000 +0100\" channel=\"news\">\n\
        \x20 <title>One &amp; two</title>\n \
        </programme>\n \
        <programme start=\"20260302200000 +0100\" stop=\"20260302203000 +0100\" channel=\"news\">\n\
        \x20 <title>evening</title>\n \
        </programme>\n \
        <programme start=\"20260302203000 +0100\" stop=\"20260302210000 +0100\" channel=\"news\">\n\
        \x20 <title>One &amp; two</title>\n \
        </programme>\n \
        <programme start=\"20260302210000 +0100\" stop=\"20260302230000 +0100\" channel=\"news\">\n\
        \x20 <title>One &amp; two</title>\n \
        </programme>\n\
        </tv>\n";
    assert_eq!(guide, expected);
    assert_eq!(titles(&guide), ["One & two", "evening", "One & two", "One & two"]);
}

#[test]
fn offsets_change_with_daylight_saving() {
    let guide = guide_of_one(&[("a.ts", 3600)], "2026-03-29T00:00:00Z", hours(2));
    let starts: Vec<&str> = guide.split("start=\"").skip(1).map(|rest| &rest[..20]).collect();
    assert_eq!(starts, ["20260329010000 +0100", "20260329030000 +0200"]);
    let odd = TimeZone::get("Africa/Monrovia").unwrap();
    let shown = xmltv_time(at("1971-01-01T00:00:00Z"), &odd);
    assert_eq!(shown.as_deref(), Some("19710101000000 +0000"), "an offset of -00:44:30");
    assert_eq!(xmltv_time(Duration::MAX, &TimeZone::UTC), None);
    let nepal = TimeZone::get("Asia/Kathmandu").unwrap();
    let shown = xmltv_time(at("2026-01-01T00:00:00Z"), &nepal);
    assert_eq!(shown.as_deref(), Some("20260101054500 +0545"));
}

#[test]
fn hostile_file_names_stay_titles() {
    let names = [
        ("a/]]><script>&amp;\"'.ts", 600),
        ("line\nbreak\u{0}\u{1b}[2J\u{202e}.ts", 600),
        ("\u{fffe}\u{7}.ts", 600),
        (".ts", 600),
        ("no extension", 600),
    ];
    let guide = guide_of_one(&names, "2026-03-02T00:00:00Z", hours(1));
    let expected = ["]]><script>&amp;\"'", "line break  [2J", "-", ".ts", "no extension"];
    let mut found = titles(&guide);
    found.sort();
    found.dedup();
    let mut wanted = expected.map(str::to_owned).to_vec();
    wanted.sort();
    assert_eq!(found, wanted, "{guide}");
    assert!(!guide.contains(['\u{0}', '\u{1b}', '\u{202e}', '\u{fffe}']));
    let long = guide_of_one(&[(&"é".repeat(5000), 60)], "2026-03-02T00:00:00Z", hours(1));
    assert!(titles(&long).iter().all(|title| title.chars().count() == 200));
}

#[test]
fn guides_are_bounded() {
    let short = guide_of_one(&[("a.ts", 1)], "2026-03-02T00:00:00Z", hours(24 * 365));
    assert_eq!(titles(&short).len(), 2000);
    let (config, timeline) = (news(), timeline(&[("a.ts", 1)]));
    let many = vec![(&config, &timeline); 100];
    let guide = xmltv(&many, at("2026-03-02T00:00:00Z"), hours(24));
    let guide = String::from_utf8(guide).unwrap();
    assert_eq!(titles(&guide).len(), GUIDE_PROGRAMMES_MAX);
    assert!(guide.len() < 4 << 20, "{} bytes", guide.len());
    let titled = Lineup { entries: vec![entry(&"&".repeat(250), 60)], ..Lineup::default() };
    let titled = Timeline::new(&config, &titled);
    let guide = xmltv(&vec![(&config, &titled); 100], at("2026-03-02T00:00:00Z"), hours(24));
    assert!(guide.len() < 5 << 20, "{} bytes of long titles", guide.len());
    let instants = Lineup {
        entries: vec![TimelineEntry {
            name: "a.ts".into(),
            duration: Some(Duration::from_nanos(1)),
        }],
        ..Lineup::default()
    };
    let instants = Timeline::new(&config, &instants);
    let guide = xmltv(&[(&config, &instants)], at("2026-03-02T00:00:00Z"), hours(24));
    assert_eq!(titles(std::str::from_utf8(&guide).unwrap()).len(), 0);
    let long = Timeline::new(
        &config,
        &Lineup { entries: vec![entry("a.ts", 86_400)], ..Lineup::default() },
    );
    let guide = xmltv(&[(&config, &long)], Duration::ZERO, Duration::MAX);
    assert_eq!(titles(std::str::from_utf8(&guide).unwrap()).len(), 14, "two weeks at most");
}

#[test]
fn filler_and_silence_are_gaps_of_the_guide() {
    let mut config = news();
    config.schedule.clear();
    let lineup = Lineup {
        entries: vec![entry("a.ts", 60), TimelineEntry { name: "gone.ts".into(), duration: None }],
        filler: Some(entry("filler.ts", 60)),
        ..Lineup::default()
    };
    let timeline = Timeline::new(&config, &lineup);
    let guide = xmltv(&[(&config, &timeline)], Duration::ZERO, hours(1));
    let titles = titles(std::str::from_utf8(&guide).unwrap());
    assert_eq!(titles, vec!["a"; 30]);
}

#[test]
fn descriptions_name_target_source_and_rate() {
    let channel = news();
    let origin: IpAddr = "10.0.0.1".parse().unwrap();
    let text = |target: usize| {
        let target = &channel.targets[target];
        String::from_utf8(session_description(&channel, target, origin, 3)).unwrap()
    };
    for line in [
        "s=News & \"more\"\r\n",
        "c=IN IP4 232.1.1.1/8\r\n",
        "a=source-filter: incl IN IP4 232.1.1.1 10.0.0.1\r\n",
        "m=video 5004 RTP/AVP 33\r\n",
        "b=AS:6183\r\n",
    ] {
        assert!(text(0).contains(line), "{line} in {}", text(0));
    }
    assert!(text(1).contains("m=video 1234 udp MP2T\r\n") && !text(1).contains("source-filter"));
    assert!(text(2).contains("c=IN IP6 ff35::8000:1\r\n"));
    let id = |text: &str| text.split(' ').nth(1).unwrap().parse::<i64>().unwrap();
    assert_ne!(id(&text(0)), id(&text(1)), "each target is a session of its own");
}
