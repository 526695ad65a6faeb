// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of settings: what is taken, and each refusal with its cure.
//!
//! Does not read files of settings: the command line does.

use super::super::send_target::SendFormat;
use super::*;

fn draft() -> ChannelDraft {
    ChannelDraft { playlist: vec!["intro.ts".to_owned()], ..ChannelDraft::default() }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The draft has one fault alone, with these words.
#[track_caller]
fn refused(draft: ChannelDraft, setting: Setting, item: Option<usize>, words: &str) {
    let faults = draft.check("news").expect_err(words);
    let [fault] = &faults[..] else { panic!("{words}: {faults:#?}") };
    assert_eq!((fault.setting, fault.item), (setting, item), "{fault}");
    for word in words.split('|') {
        assert!(fault.to_string().contains(word), "{fault} lacks {word}");
    }
}

/// Settings and items of all faults of the draft, in the order of the checks.
#[track_caller]
fn refusals(draft: ChannelDraft) -> Vec<(Setting, Option<usize>)> {
    let faults = draft.check("news").expect_err("a fault");
    faults.iter().map(|fault| (fault.setting, fault.item)).collect()
}

#[test]
fn defaults_are_a_loop_that_stays_in_one_network() {
    let config = draft().check("news").unwrap();
    assert_eq!((config.name.as_str(), config.title.as_str()), ("news", "news"));
    assert_eq!((config.order, config.role), (PlayOrder::Loop, ChannelRole::Primary));
    assert_eq!((config.ttl, config.dscp, config.announce), (1, None, false));
    assert_eq!((config.time_shift, config.starts_at), (Duration::ZERO, Duration::ZERO));
    assert_eq!(config.time_zone, TimeZone::UTC);
}

#[test]
fn every_setting_arrives() {
    let draft = ChannelDraft {
        title: Some("News & more".to_owned()),
        playlist: texts(&["intro.ts", "archive/", "./a//b/"]),
        order: Some("shuffle".to_owned()),
        filler: Some("filler.ts".to_owned()),
        program: Some(1),
        constant_rate_kbps: Some(6000),
        send: texts(&[
            "rtp://232.1.1.1:5004",
            "udp://10.0.0.9:1234",
            "rtp://[ff35::8000:1]:5004",
            "rtp://239.1.1.1:5004",
        ]),
        interface: Some("eth1".to_owned()),
        source: texts(&["10.0.0.1", "fd00::1"]),
        ttl: Some(8),
        dscp: Some(34),
        announce: Some(true),
        role: Some("standby".to_owned()),
        rtsp: Some(true),
        time_shift_s: Some(3600),
        starts_at: Some("2026-01-01T01:00:00+01:00".to_owned()),
        time_zone: Some("Europe/Berlin".to_owned()),
        at: vec![ScheduleDraft {
            time: Some("20:00".to_owned()),
            days: Some(texts(&["mon", "Fri"])),
            play: texts(&["evening.ts"]),
        }],
    };
    let config = draft.check("news").unwrap();
    assert_eq!(config.playlist, ["intro.ts", "archive", "a/b"]);
    assert_eq!((config.order, config.role), (PlayOrder::Shuffle, ChannelRole::Standby));
    assert_eq!((config.program, config.constant_rate_kbps), (Some(1), Some(6000)));
    assert_eq!((config.ttl, config.dscp, config.announce), (8, Some(34), true));
    assert_eq!(config.time_shift, Duration::from_secs(3600));
    assert_eq!(config.starts_at, Duration::from_secs(1_767_225_600));
    assert_eq!(config.schedule[0].days, [true, false, false, false, true, false, false]);
    assert!(
        config.schedule[0].is_on(Weekday::Friday) && !config.schedule[0].is_on(Weekday::Sunday)
    );
    let sources: Vec<_> = config.targets.iter().map(|target| config.source_of(target)).collect();
    assert_eq!(sources, [Some(config.sources[0]), None, Some(config.sources[1]), None]);
    assert_eq!(config.targets[1].format, SendFormat::Udp);
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    refused(
        ChannelDraft { ttl: Some(900), ..draft() },
        Setting::Ttl,
        None,
        "ttl = 900: |write 1 to 255",
    );
    refused(ChannelDraft { ttl: Some(0), ..draft() }, Setting::Ttl, None, "ttl = 0: |1 to 255");
    refused(ChannelDraft { dscp: Some(64), ..draft() }, Setting::Dscp, None, "6 bits|0 to 63");
    refused(ChannelDraft { program: Some(0), ..draft() }, Setting::Program, None, "1 to 65535");
    refused(
        ChannelDraft { time_shift_s: Some(-1), ..draft() },
        Setting::TimeShift,
        None,
        "too small",
    );
    let rate = ChannelDraft { constant_rate_kbps: Some(i64::MAX), ..draft() };
    refused(rate, Setting::ConstantRate, None, "too large|write 200 to 200000");
    let rate = ChannelDraft { constant_rate_kbps: Some(199), ..draft() };
    refused(rate, Setting::ConstantRate, None, "too small|write 200 to 200000");
}

#[test]
fn paths_outside_of_the_served_folder_are_refused() {
    for (path, words) in [
        ("/etc/passwd", "absolute"),
        ("../secret.ts", "leave"),
        ("a/../../b.ts", "leave"),
        ("a/..", "leave"),
        (".git/config", "hidden"),
        ("a\nb.ts", "control"),
        ("\u{202e}st.a", "direction"),
        ("", "no path"),
    ] {
        let listed = ChannelDraft { playlist: texts(&["a.ts", path]), ..draft() };
        refused(listed, Setting::Playlist, Some(1), words);
        let filler = ChannelDraft { filler: Some(path.to_owned()), ..draft() };
        refused(filler, Setting::Filler, None, words);
    }
    let long = ChannelDraft { filler: Some("a".repeat(5000)), ..draft() };
    refused(long, Setting::Filler, None, "longer");
    let empty = ChannelDraft::default();
    refused(
        empty,
        Setting::Playlist,
        None,
        "channel.news: playlist: nothing to play; write playlist",
    );
    let whole = ChannelDraft { playlist: texts(&["./"]), ..draft() };
    assert_eq!(whole.check("news").unwrap().playlist, [""], "the served folder itself");
}

#[test]
fn names_and_titles_cannot_forge_lines() {
    for name in ["", "a/b", "ä", "a b", "a\n", &"a".repeat(65)] {
        let faults = draft().check(name).expect_err(name);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].setting, Setting::Name);
    }
    for title in ["a\nm=audio", "\u{202e}x", " ", &"a".repeat(201)] {
        let titled = ChannelDraft { title: Some(title.to_owned()), ..draft() };
        let fault = titled.check("news").expect_err(title)[0].to_string();
        assert!(!fault.contains(['\n', '\u{202e}']) && fault.contains("printable"), "{fault}");
    }
}

#[test]
fn targets_that_share_ports_are_refused() {
    let twice = texts(&["rtp://239.1.1.1:5004", "udp://239.1.1.1:5005"]);
    let twice = ChannelDraft { send: twice, ..draft() };
    refused(twice, Setting::Send, Some(1), "udp://239.1.1.1:5005|RTCP|another");
    let odd = ChannelDraft { send: texts(&["rtp://239.1.1.1:5005"]), ..draft() };
    refused(odd, Setting::Send, Some(0), "odd port|write 5004");
    let sends = |text: &str| ChannelDraft { send: texts(&[text]), ..draft() };
    let one = sends("rtp://239.1.1.1:5004").check("one").unwrap();
    let two = sends("udp://239.1.1.1:5004").check("two").unwrap();
    let fault = check_channels(&[one.clone(), two.clone()]).unwrap_err().remove(0);
    assert_eq!((fault.channel.as_str(), fault.item), ("two", Some(0)));
    assert!(fault.to_string().contains("channel.one sends to the same ports"), "{fault}");
    let other = sends("rtp://239.1.1.1:5006").check("ONE").unwrap();
    let faults = check_channels(&[one.clone(), two, other]).unwrap_err();
    let settings: Vec<_> = faults.iter().map(|fault| fault.setting).collect();
    assert_eq!(settings, [Setting::Send, Setting::Name], "{faults:?}");
    assert!(faults[1].to_string().contains("another channel has this name"), "{faults:?}");
    let apart = sends("rtp://239.1.1.1:5006").check("two").unwrap();
    assert_eq!(check_channels(&[one, apart]), Ok(()));
}

#[test]
fn source_and_group_of_source_specific_multicast_belong_together() {
    let sends = |send: &[&str], source: &[&str]| ChannelDraft {
        send: texts(send),
        source: texts(source),
        ..draft()
    };
    let plain = "rtp://239.1.1.1:5004";
    let specific = "rtp://232.1.1.1:5004";
    refused(sends(&[plain], &["10.0.0.1"]), Setting::Source, Some(0), "RFC 4607|232.0.0.0/8");
    refused(sends(&[specific], &[]), Setting::Send, Some(0), "must know the source|write source");
    refused(sends(&[specific], &["fd00::1"]), Setting::Source, Some(0), "ff35::8000:1");
    refused(sends(&[specific], &["server"]), Setting::Source, Some(0), "numeric");
    refused(sends(&[specific], &["0.0.0.0"]), Setting::Source, Some(0), "no address");
    let two = sends(&[specific], &["10.0.0.1", "10.0.0.2"]);
    refused(two, Setting::Source, Some(1), "second source");
    let lone = sends(&[specific, "rtp://[ff35::8000:1]:5004"], &["10.0.0.1"]);
    refused(lone, Setting::Send, Some(1), "must know the source");
}

#[test]
fn settings_of_multicast_need_a_group() {
    let unicast = ChannelDraft { send: texts(&["udp://10.0.0.9:1234"]), ..draft() };
    let announced = ChannelDraft { announce: Some(true), ..unicast.clone() };
    refused(announced, Setting::Announce, None, "announce = true|multicast group");
    let nobody = ChannelDraft { rtsp: Some(false), ..draft() };
    refused(nobody, Setting::Rtsp, None, "rtsp = false without send reaches nobody");
    let shifted = ChannelDraft { rtsp: Some(false), time_shift_s: Some(60), ..unicast.clone() };
    refused(shifted, Setting::TimeShift, None, "only viewers over RTSP go back");
    let by = ChannelDraft { interface: Some("eth1".to_owned()), ..unicast };
    refused(by, Setting::Interface, None, "leave it out");
    let group = ChannelDraft { send: texts(&["udp://[ff12::1]:1234"]), ..draft() };
    refused(group.clone(), Setting::Send, Some(0), "link-local|interface");
    for name in ["", "eth/1", "longer-than-15-b", "a b", "eth\n"] {
        let by = ChannelDraft { interface: Some(name.to_owned()), ..group.clone() };
        refused(by, Setting::Interface, None, "ip link");
    }
}

#[test]
fn standby_needs_a_group_in_which_it_hears_the_primary() {
    let standby = |send: &[&str], source: &[&str]| ChannelDraft {
        role: Some("standby".to_owned()),
        send: texts(send),
        source: texts(source),
        ..draft()
    };
    let words = "role = \"standby\": send has no multicast group without a source|\
                 add one, such as rtp://239.1.1.1:5004";
    refused(standby(&[], &[]), Setting::Role, None, words);
    refused(standby(&["udp://10.0.0.9:1234"], &[]), Setting::Role, None, words);
    let specific = standby(&["rtp://232.1.1.1:5004"], &["10.0.0.1"]);
    refused(specific, Setting::Role, None, words);
    refused(standby(&["udp://239.1.1.1:0"], &[]), Setting::Send, Some(0), "port 0");
    let with = standby(&["rtp://232.1.1.1:5004", "udp://[ff15::1]:1234"], &["10.0.0.1"]);
    assert_eq!(with.check("news").unwrap().role, ChannelRole::Standby);
}

#[test]
fn items_of_the_schedule_are_checked() {
    let at = |time: &str, days: &[&str], play: &[&str]| ScheduleDraft {
        time: Some(time.to_owned()),
        days: Some(texts(days)),
        play: texts(play),
    };
    let with = |at: Vec<ScheduleDraft>| ChannelDraft { at, ..draft() };
    let good = at("20:00", &["mon"], &["a.ts"]);
    for time in ["24:00", "20:60", "8pm", "20", "+8:00", "20:00:60", "1:2:3:4", ""] {
        let bad = ScheduleDraft { time: Some(time.to_owned()), ..good.clone() };
        refused(with(vec![good.clone(), bad]), Setting::AtTime, Some(1), "time of a day|20:00");
    }
    let timeless = ScheduleDraft { time: None, ..good.clone() };
    refused(with(vec![timeless]), Setting::AtTime, Some(0), "time: no time");
    refused(with(vec![at("20:00", &["day"], &["a.ts"])]), Setting::AtDays, Some(0), "\"day\"|mon");
    refused(with(vec![at("20:00", &[], &["a.ts"])]), Setting::AtDays, Some(0), "no day");
    refused(with(vec![at("20:00", &["mon"], &[])]), Setting::AtPlay, Some(0), "nothing to play");
    refused(with(vec![at("20:00", &["mon"], &["../a"])]), Setting::AtPlay, Some(0), "leave");
    let again = at("20:00:00", &["sun", "mon"], &["b.ts"]);
    refused(with(vec![good.clone(), again]), Setting::AtTime, Some(1), "another item");
    let apart = at("20:00", &["sun"], &["b.ts"]);
    assert_eq!(with(vec![good.clone(), apart]).check("news").unwrap().schedule.len(), 2);
    let many = with(vec![good; 257]);
    refused(many, Setting::At, None, "257 items|256 at most");
}

#[test]
fn words_times_and_zones_that_mean_nothing_are_refused() {
    let some = |text: &str| Some(text.to_owned());
    let order = ChannelDraft { order: some("random"), ..draft() };
    refused(order, Setting::Order, None, "order = \"random\"|write loop or shuffle or once");
    refused(ChannelDraft { role: some("backup"), ..draft() }, Setting::Role, None, "standby");
    for time in ["2026-01-01", "2026-01-01T00:00:00", "now"] {
        let starts = ChannelDraft { starts_at: some(time), ..draft() };
        refused(starts, Setting::StartsAt, None, "RFC 3339|2026-01-01T00:00:00Z");
    }
    let early = ChannelDraft { starts_at: some("1969-12-31T23:59:59Z"), ..draft() };
    refused(early, Setting::StartsAt, None, "before 1970");
    for zone in ["Mars/Olympus", "../../etc/passwd", "", "Europe/Berlin\n"] {
        let zoned = ChannelDraft { time_zone: some(zone), ..draft() };
        refused(zoned, Setting::TimeZone, None, "Europe/Berlin");
    }
}

#[test]
fn all_faults_of_a_channel_are_found_at_once() {
    let some = |text: &str| Some(text.to_owned());
    let at = |time: &str, days: &[&str], play: &[&str]| ScheduleDraft {
        time: some(time),
        days: Some(texts(days)),
        play: texts(play),
    };
    let all = ChannelDraft {
        title: some(" "),
        playlist: texts(&["/a.ts", "b.ts", "../c.ts"]),
        order: some("random"),
        filler: some(""),
        program: Some(0),
        constant_rate_kbps: Some(1),
        send: texts(&["rtp://239.1.1.1:5005", "udp://239.1.1.1:1", "udp://239.1.1.1:1"]),
        interface: some("eth/1"),
        source: texts(&["server", "0.0.0.0"]),
        ttl: Some(0),
        dscp: Some(64),
        announce: Some(true),
        role: some("backup"),
        rtsp: Some(true),
        time_shift_s: Some(-1),
        starts_at: some("now"),
        time_zone: some("Mars/Olympus"),
        at: vec![
            at("24:00", &["day", "mon", "night"], &[]),
            at("20:00", &["mon"], &["a.ts", "/b.ts"]),
            at("20:00", &["mon"], &["a.ts"]),
            at("20:00", &["mon"], &["a.ts"]),
        ],
    };
    let expected = [
        (Setting::Name, None),
        (Setting::Title, None),
        (Setting::Playlist, Some(0)),
        (Setting::Playlist, Some(2)),
        (Setting::Filler, None),
        (Setting::AtTime, Some(0)),
        (Setting::AtDays, Some(0)),
        (Setting::AtDays, Some(0)),
        (Setting::AtPlay, Some(0)),
        (Setting::AtPlay, Some(1)),
        (Setting::AtTime, Some(3)),
        (Setting::Send, Some(0)),
        (Setting::Send, Some(2)),
        (Setting::Source, Some(0)),
        (Setting::Source, Some(1)),
        (Setting::Interface, None),
        (Setting::Program, None),
        (Setting::ConstantRate, None),
        (Setting::Ttl, None),
        (Setting::Dscp, None),
        (Setting::TimeShift, None),
        (Setting::Order, None),
        (Setting::Role, None),
        (Setting::StartsAt, None),
        (Setting::TimeZone, None),
    ];
    let faults = all.check("a b").unwrap_err();
    let found: Vec<_> = faults.iter().map(|fault| (fault.setting, fault.item)).collect();
    assert_eq!(found, expected, "{faults:#?}");
}

#[test]
fn faults_that_follow_from_another_one_are_left_out() {
    let some = |text: &str| Some(text.to_owned());
    let send = |text: &str| ChannelDraft { send: texts(&[text]), ..draft() };
    let odd = ChannelDraft {
        interface: some("eth1"),
        source: texts(&["10.0.0.1"]),
        announce: Some(true),
        rtsp: Some(false),
        ..send("rtp://232.1.1.1:5005")
    };
    refused(odd, Setting::Send, Some(0), "odd port");
    let nameless = ChannelDraft { source: texts(&["server"]), ..send("rtp://232.1.1.1:5004") };
    refused(nameless, Setting::Source, Some(0), "numeric");
    let nobody = ChannelDraft { rtsp: Some(false), time_shift_s: Some(60), ..draft() };
    refused(nobody, Setting::Rtsp, None, "reaches nobody");
    // A value that is wrong by itself is reported all the same.
    let both = ChannelDraft { interface: some("eth/1"), ..send("rtp://239.1.1.1:5005") };
    assert_eq!(refusals(both), [(Setting::Send, Some(0)), (Setting::Interface, None)]);
    let sourceless =
        texts(&["rtp://232.1.1.1:5004", "rtp://232.1.1.2:5004", "udp://[ff35::8000:1]:1"]);
    let sourceless = ChannelDraft { send: sourceless, ..draft() };
    assert_eq!(refusals(sourceless), [(Setting::Send, Some(0)), (Setting::Send, Some(2))]);
}
