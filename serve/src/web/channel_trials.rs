// SPDX-License-Identifier: MIT OR Apache-2.0
//! DASH of a channel that plays the clip again and again, requested as a player does: periods,
//! fragments, and addresses that are gone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use media::plan::RtpIdentity;
use media::{GrowingFragments, GrowingSegments, PartLimit, RecordedStreams, Scanner};
use wire::http::{Part, http2_request};

use super::address::parse;
use super::{AskedChannel, ChannelMedia, WebAssets, channel_answer};
use crate::channel::window::tests::Scene;
use crate::http::open_files::FileContent;

static CLIP: &[u8] = include_bytes!("../../../pagewire/assets/clip.ts");

const MANIFEST: &str = "/channel/news/manifest.mpd";
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Status and content of the answer to a request.
async fn ask(scene: &Scene, web: &WebAssets, path: &str) -> (u16, Vec<u8>) {
    let request = http2_request("GET", path, Some("h"), std::iter::empty()).expect("a request");
    let address = parse(path).expect("an address");
    let window = Some(scene.window.clone());
    let channel = AskedChannel { name: "news".to_owned(), window, stands_by: false };
    let now = SystemTime::now();
    let (response, media) = channel_answer(&request, &address, channel, (web, PEER), now).await;
    let mut content = Vec::new();
    for part in response.parts {
        match (part, &media) {
            (Part::Bytes(bytes), _) => content.extend(bytes),
            (Part::File { offset, bytes }, ChannelMedia::File(file)) => {
                let FileContent::Open(media) = &file.content else { panic!("it is open") };
                let mut read = vec![0; bytes as usize];
                media.file().read_exact_at(&mut read, offset).expect("it is there");
                content.extend(read);
            }
            (part, _) => panic!("{path}: {part:?}"),
        }
    }
    (response.status, content)
}

/// The description and, by the addresses of their media, the times of the fragments that it lists.
async fn described(scene: &Scene, web: &WebAssets) -> (String, Vec<String>) {
    let (status, text) = ask(scene, web, MANIFEST).await;
    let text = String::from_utf8(text).expect("UTF-8");
    assert_eq!(status, 200, "{text}");
    let mut addresses = Vec::new();
    for template in text.split("<SegmentTemplate ").skip(1) {
        let value = |name: &str, text: &str| {
            let found = text.split(&format!("{name}=\"")).nth(1);
            found.and_then(|rest| rest.split('"').next().map(str::to_owned))
        };
        let media = value("media", template).expect("a template");
        let mut time = 0;
        let timeline = template.split("</SegmentTimeline>").next().expect("a timeline");
        for entry in timeline.split("<S ").skip(1) {
            let number = |name: &str| {
                value(&format!(" {name}"), &format!(" {entry}")).map(|n| n.parse::<u64>().unwrap())
            };
            time = number("t").unwrap_or(time);
            for _ in 0..=number("r").unwrap_or(0) {
                let name = media.replace("$Time$", &time.to_string());
                addresses.push(format!("/channel/news/{name}"));
                time += number("d").expect("a duration");
            }
        }
    }
    (text, addresses)
}

/// The media of a fragment: the content of its last box.
fn media_of(fragment: &[u8]) -> &[u8] {
    let at = fragment.windows(4).position(|kind| kind == b"mdat").expect("media");
    &fragment[at + 4..]
}

/// The media of a stream in all fragments of the clip as a recording.
fn recorded(stream: usize) -> Vec<u8> {
    let mut scanner = Scanner::new();
    scanner.feed(CLIP);
    let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
    let (plan, starts) = scanner.recorded_so_far(identity).expect("a stream");
    let mut segments = GrowingSegments::of(&plan, true).expect("a place to start");
    segments.extend(&plan, &starts, true);
    let streams = RecordedStreams::find(&plan, CLIP).expect("read").expect("streams");
    let mut fragments = GrowingFragments::new(streams.len(), 0);
    for segment in segments.list() {
        let pids = fragments.pids(&streams);
        let limit = PartLimit::Packet(plan.ts_packets());
        let part = streams.part(&plan, (segment, &pids), limit, CLIP).expect("read");
        fragments.push(&streams, part, segment, 0);
    }
    let made = fragments.in_period(stream, 0, 0..usize::MAX).iter().map(|one| {
        let source = fragments.find(stream, 0, one.start).expect("it is there");
        let segment = segments.segment(one.segment).expect("it is there");
        source.make(&streams, &plan, segment, CLIP).expect("made").media
    });
    made.collect::<Vec<_>>().concat()
}

#[tokio::test]
async fn programmes_are_periods_and_what_left_the_window_is_gone() {
    let web = WebAssets::new(None, None);
    let mut scene = Scene::new(Duration::from_secs(20));
    assert_eq!(ask(&scene, &web, MANIFEST).await.0, 503, "nothing is sent yet");
    let length = media_ticks();
    // By period and stream.
    let mut media: BTreeMap<(usize, usize), Vec<u8>> = BTreeMap::new();
    let (mut known, mut listed, mut text) = (Vec::new(), Vec::new(), String::new());
    for round in 0..5 {
        scene.send(round * length);
        (text, listed) = described(&scene, &web).await;
        for path in &listed {
            if known.contains(path) {
                continue;
            }
            let (status, fragment) = ask(&scene, &web, path).await;
            assert_eq!(status, 200, "{path}");
            let name = path.rsplit('/').next().and_then(|name| name.strip_suffix(".m4s"));
            let numbers: Vec<usize> =
                name.expect("a fragment").split('-').map(|n| n.parse().unwrap()).collect();
            media.entry((numbers[1], numbers[0])).or_default().extend(media_of(&fragment));
            known.push(path.clone());
        }
    }
    // 20 s of a clip of 14 s.
    let periods = text.matches("<Period ").count();
    assert!((2..=3).contains(&periods), "{text}");
    assert!(text.contains("type=\"dynamic\"") && text.contains("<Location>~"), "{text}");
    let firsts: Vec<usize> = media.keys().filter(|key| key.1 == 1).map(|key| key.0).collect();
    assert_eq!(firsts.len(), 5, "a period a programme: {firsts:?}");
    for stream in [1, 2] {
        let expected = recorded(stream - 1);
        for period in &firsts[..4] {
            let found = &media[&(*period, stream)];
            assert!(
                *found == expected,
                "period {period}, stream {stream}: {} of {} bytes",
                found.len(),
                expected.len()
            );
        }
        assert!(expected.starts_with(&media[&(firsts[4], stream)]), "the last is not over");
    }
    // Listed fragments exist; those of the first programme are gone.
    let first = |path: &&String| path.contains("/live/1-0-");
    for path in known.iter().filter(first) {
        assert!(!listed.contains(path));
        assert_eq!(ask(&scene, &web, path).await.0, 410, "{path}");
    }
    let folder = listed[0].rsplit_once('/').expect("a folder").0.to_owned();
    let newest = firsts[4];
    for (name, status) in [
        ("1-0.mp4".to_owned(), 410),
        (format!("1-{newest}.mp4"), 200),
        (format!("9-{newest}.mp4"), 404),
        (format!("1-{newest}-1.m4s"), 404),
        (format!("1-{}.mp4", newest + 1), 404),
    ] {
        assert_eq!(ask(&scene, &web, &format!("{folder}/{name}")).await.0, status, "{name}");
    }
    // Fragments that left the list remain for a while.
    let left = known.iter().rfind(|path| !listed.contains(path)).expect("some left it");
    assert_eq!(ask(&scene, &web, left).await.0, 200, "{left}");

    // Nobody asks until all of it has left the window; then the description continues, later than
    // before.
    for round in 5..9 {
        scene.send(round * length);
    }
    let (later, addresses) = described(&scene, &web).await;
    let start = |text: &str| -> f64 {
        let start = text.split("start=\"PT").nth(1).and_then(|rest| rest.split('S').next());
        start.expect("a period").parse().expect("a number")
    };
    assert!(start(&later) > start(&text), "{later}");
    for path in listed.iter().take(1) {
        assert_eq!(ask(&scene, &web, path).await.0, 410, "{path}");
    }
    assert_eq!(ask(&scene, &web, &addresses[0]).await.0, 200);
    // Begun anew, all addresses are gone.
    scene.window.clear();
    assert_eq!(ask(&scene, &web, &addresses[0]).await.0, 410);
    assert_eq!(ask(&scene, &web, MANIFEST).await.0, 503);
}

/// Duration of the clip.
fn media_ticks() -> u64 {
    let mut scanner = Scanner::new();
    scanner.feed(CLIP);
    let identity = RtpIdentity { ssrc: 1, first_sequence: 2, first_timestamp: 3 };
    scanner.finish(CLIP.len() as u64, identity).expect("a stream").duration_ticks()
}
