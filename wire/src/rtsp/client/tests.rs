// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the client's requests and of its parsing of replies.

use super::super::frame::Limits;
use super::super::transport::GrantedTransport;
use super::*;

fn reply(text: &str) -> Reply {
    let mut reader = ReplyReader::new(Limits::default());
    reader.feed(text.as_bytes());
    reader.next_reply().unwrap().unwrap()
}

#[test]
fn control_urls_are_resolved() {
    for (base, control, expected) in [
        ("rtsp://h/a.ts/", Some("stream"), "rtsp://h/a.ts/stream"),
        ("rtsp://h/a.ts", Some("stream"), "rtsp://h/a.ts/stream"),
        ("rtsp://h/a.ts", Some("rtsp://i/b"), "rtsp://i/b"),
        ("rtsp://h/a.ts/", Some("*"), "rtsp://h/a.ts/"),
        ("rtsp://h/a.ts/", None, "rtsp://h/a.ts/"),
    ] {
        assert_eq!(resolve(base, control), expected);
    }
}

#[test]
fn urls_give_host_and_port_and_keep_the_password_back() {
    let mut client = Client::new("rtsp://user:secret@[::1]:8554/a%20b.ts").unwrap();
    assert_eq!((client.host(), client.port()), ("::1", 8554));
    let text = String::from_utf8(client.describe()).unwrap();
    assert!(text.starts_with("DESCRIBE rtsp://[::1]:8554/a%20b.ts RTSP/1.0\r\nCSeq: 1\r\n"));
    let port = |url: &str| Client::new(url).map(|client| (client.is_tls(), client.port())).unwrap();
    assert_eq!(port("rtsp://h/a.ts"), (false, 554));
    assert_eq!(port("RTSPS://h/a.ts"), (true, 322));
    assert_eq!(port("rtsps://h:8322/a.ts"), (true, 8322));
    for wrong in ["http://h/a.ts", "rtsp:a.ts", "a.ts", "rtsp:///a.ts", ""] {
        assert_eq!(Client::new(wrong).unwrap_err().fault, Fault::Url, "{wrong}");
    }
}

#[test]
fn rfc_2326_section_10_4_setup_reply() {
    let mut client = Client::new("rtsp://example.com/foo/bar/baz.rm").unwrap();
    let text = "RTSP/1.0 200 OK\r\nCSeq: 302\r\nDate: 23 Jan 1997 15:35:06 GMT\r\n\
        Session: 47112344\r\nTransport: RTP/AVP;unicast;\r\n  \
        client_port=4588-4589;server_port=6256-6257\r\n\r\n";
    let set_up = client.set_up(&reply(text)).unwrap();
    assert_eq!(set_up.server, Some(PortPair { rtp: 6256, rtcp: 6257 }));
    assert_eq!(set_up.timeout, Duration::from_secs(60));
    let pause = String::from_utf8(client.pause()).unwrap();
    assert!(pause.contains("\r\nSession: 47112344\r\n"), "{pause}");
}

#[test]
fn rfc_2326_section_10_12_play_reply_with_interleaved_frames_behind() {
    let client = Client::new("rtsp://foo.com/bar.file").unwrap();
    let text = "RTSP/1.0 200 OK\r\nCSeq: 3\r\nSession: 12345678\r\n\
        Date: 05 Jun 1997 18:59:15 GMT\r\nRTP-Info: url=rtsp://foo.com/bar.file;\r\n  \
        seq=232433;rtptime=972948234\r\n\r\n$\x01\x00\x02ab";
    // The RFC's own sequence number does not fit into 16 bits; values that fit are read.
    let wrong = reply(text);
    assert_eq!(wrong.cseq(), Some(3));
    let started = client.started(&wrong).unwrap();
    assert_eq!((started.sequence, started.timestamp), (None, Some(972_948_234)));
    assert_eq!(started.ignored, ["RTP-Info: seq=232433"]);
    let started = client.started(&reply(&text.replace("232433", "23243"))).unwrap();
    assert_eq!((started.sequence, started.timestamp), (Some(23243), Some(972_948_234)));
}

#[test]
fn parts_of_a_reply_to_play_that_cannot_be_believed_are_ignored_and_named() {
    let client = Client::new("rtsp://h/a").unwrap();
    let urls = ["rtsp://h/a/1", "rtsp://h/a/2"].map(str::to_owned);
    let started = |headers: &str| {
        let reply = reply(&format!("RTSP/1.0 200 OK\r\nSession: 1\r\n{headers}\r\n\r\n"));
        let (started, starts) = client.streams_started(&reply, &urls).unwrap();
        assert_eq!(client.started(&reply).unwrap(), started);
        (started, starts)
    };
    for range in ["npt=0-0", "npt=5-5", "npt=20-10", "npt=-", "npt=", "bytes=0-9", "npt=x-"] {
        let (found, _) = started(&format!("Range: {range}"));
        assert_eq!((found.range, found.ignored), (None, vec![format!("Range: {range}")]));
    }
    let (found, _) = started("Range: clock=19961108T142300Z-19961108T143520Z");
    assert_eq!(found, PlayReply::default(), "a time of day is well-formed");
    // Each parameter for itself.
    let (found, starts) = started(
        "RTP-Info: url=rtsp://h/a/1;seq=99999999;rtptime=7,url=rtsp://h/a/2;seq=5;rtptime=-1",
    );
    assert_eq!(found.ignored, ["RTP-Info: seq=99999999", "RTP-Info: rtptime=-1"]);
    let start = |sequence, timestamp| StreamStart { sequence, timestamp };
    assert_eq!(starts, [start(None, Some(7)), start(Some(5), None)]);
}

#[test]
fn parts_of_a_reply_to_setup_that_only_inform_are_ignored_and_named() {
    let mut client = Client::new("rtsp://h/a").unwrap();
    let mut set_up = |session: &str, transport: &str| {
        let text =
            format!("RTSP/1.0 200 OK\r\nSession: {session}\r\nTransport: {transport}\r\n\r\n");
        client.set_up(&reply(&text)).unwrap()
    };
    for part in ["ssrc=123456789A", "ssrc=-1", "server_port=0-1", "server_port=70000-70001"] {
        let found = set_up("1", &format!("RTP/AVP;unicast;{part}"));
        assert_eq!((found.ssrc, found.server), (None, None));
        assert_eq!(found.ignored, [format!("Transport: {part}")]);
    }
    let found = set_up("1", "RTP/AVP/TCP;interleaved=300-301;ssrc=0000FEED");
    assert_eq!((found.channels, found.ssrc), (None, Some(0xFEED)));
    assert_eq!(found.ignored, ["Transport: interleaved=300-301"]);
    // A keep-alive is due at a time that clocks can represent.
    let found = set_up(&format!("1;timeout={}", u64::MAX), "RTP/AVP/TCP");
    assert_eq!(found.timeout, Duration::from_secs(3600));
}

#[test]
fn what_a_reply_must_have_is_asked_for() {
    let mut client = Client::new("rtsp://h/a.ts").unwrap();
    let fault = |client: &mut Client, text: &str| client.set_up(&reply(text)).unwrap_err().fault;
    assert_eq!(
        fault(&mut client, "RTSP/1.0 454 Session Not Found\r\nCSeq: 1\r\n\r\n"),
        Fault::Status { code: 454 }
    );
    assert_eq!(
        fault(&mut client, "RTSP/1.0 200\r\nCSeq: 1\r\n\r\n"),
        Fault::ReplyHeader { name: "Session" }
    );
    assert_eq!(
        fault(&mut client, "RTSP/1.0 200 OK\r\nSession: 1;timeout=30\r\n\r\n"),
        Fault::ReplyHeader { name: "Transport" }
    );
    for transport in [
        "RTP/AVP;multicast;destination=239.1.1.1",
        "RTP/AVP;multicast;port=5004-5005",
        "RTP/SAVP;unicast;server_port=5004-5005",
    ] {
        let text = format!("RTSP/1.0 200 OK\r\nSession: 1\r\nTransport: {transport}\r\n\r\n");
        assert_eq!(fault(&mut client, &text), Fault::ReplyHeader { name: "Transport" });
    }
}

#[test]
fn channels_that_a_reply_does_not_name_are_those_of_the_request() {
    let mut client = Client::new("rtsp://h/a.ts").unwrap();
    let pair = |rtp| Some(ChannelPair { rtp, rtcp: rtp + 1 });
    for (transport, expected) in [
        ("RTP/AVP/TCP;unicast", (true, None)),
        ("RTP/AVP/TCP;unicast;interleaved=", (true, None)),
        ("RTP/AVP/TCP;interleaved=0-0", (true, None)),
        ("RTP/AVP/TCP;unicast;interleaved=4", (true, pair(4))),
        ("RTP/AVP;unicast;interleaved=2-3", (true, pair(2))),
        ("RTP/AVP;unicast;server_port=5004-5005", (false, None)),
    ] {
        let text = format!("RTSP/1.0 200 OK\r\nSession: 1\r\nTransport: {transport}\r\n\r\n");
        let found = client.set_up(&reply(&text)).unwrap();
        assert_eq!((found.is_interleaved, found.channels), expected, "{transport}");
    }
}

#[test]
fn parameters_of_a_session_are_read_however_they_are_spaced() {
    for (session, id, timeout_s) in [
        ("1;timeout=30", "1", 30),
        ("  1 ; timeout = 30 ", "1", 30),
        ("1;Timeout=\"30\"", "1", 30),
        ("1;x=y;timeout=30s", "1", 30),
        ("1;timeout=30.5", "1", 30),
        ("1;timeout=0", "1", 60),
        ("1;timeout=", "1", 60),
        ("1;", "1", 60),
    ] {
        let mut client = Client::new("rtsp://h/a.ts").unwrap();
        let text =
            format!("RTSP/1.0 200 OK\r\nSession: {session}\r\nTransport: RTP/AVP/TCP\r\n\r\n");
        let set_up = client.set_up(&reply(&text)).unwrap();
        assert_eq!(set_up.timeout, Duration::from_secs(timeout_s), "{session}");
        let request = String::from_utf8(client.pause()).unwrap();
        assert!(request.contains(&format!("\r\nSession: {id}\r\n")), "{request}");
    }
}

#[test]
fn a_base_that_is_empty_or_relative_is_completed_by_the_url_of_the_request() {
    let sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=a\r\nt=0 0\r\nm=video 0 RTP/AVP 33\r\n\
        a=control:trackID=1\r\n";
    for (header, expected) in [
        ("", "rtsp://h:8554/cam/trackID=1"),
        ("Content-Base: \r\n", "rtsp://h:8554/cam/trackID=1"),
        ("Content-Base: /live/\r\n", "rtsp://h:8554/live/trackID=1"),
        ("Content-Base: cam/\r\n", "rtsp://h:8554/cam/trackID=1"),
        ("Content-Base: \r\nContent-Location: /x\r\n", "rtsp://h:8554/x/trackID=1"),
        ("Content-Base: rtsp://10.0.0.1/cam/\r\n", "rtsp://10.0.0.1/cam/trackID=1"),
    ] {
        let length = sdp.len();
        let text = format!("RTSP/1.0 200 OK\r\n{header}Content-Length: {length}\r\n\r\n{sdp}");
        let mut client = Client::new("rtsp://h:8554/cam").unwrap();
        let described = client.described_session(&reply(&text)).unwrap();
        assert_eq!(described.stream_urls, [expected], "{header}");
        assert_eq!(client.described(&reply(&text)).unwrap().stream_url, expected, "{header}");
    }
}

#[test]
fn a_reply_of_3xx_names_where_to_go() {
    let client = Client::new("rtsp://h:8554/cam").unwrap();
    for (status, location, expected) in [
        (302, "rtsp://other/b", Some("rtsp://other/b")),
        (301, "rtsp://me:secret@other/b", Some("rtsp://other/b")),
        (302, "/b?c", Some("rtsp://h:8554/b?c")),
        (304, "rtsp://other/b", None),
        (200, "rtsp://other/b", None),
        (302, "http://other/b", None),
        (302, "//other/b", None),
        (302, "", None),
    ] {
        let text = format!("RTSP/1.0 {status} x\r\nLocation: {location}\r\n\r\n");
        assert_eq!(client.moved(&reply(&text)).as_deref(), expected, "{location}");
    }
}

#[test]
fn channels_and_groups_of_a_reply_are_read() {
    let mut client = Client::new("rtsp://h/a.ts").unwrap();
    let mut set_up = |granted: GrantedTransport| {
        let text = format!("RTSP/1.0 200 OK\r\nSession: 1\r\nTransport: {granted}\r\n\r\n");
        client.set_up(&reply(&text)).unwrap()
    };
    let channels = ChannelPair { rtp: 0, rtcp: 1 };
    let found = set_up(GrantedTransport::Interleaved { channels, ssrc: 0xFEED });
    assert_eq!((found.channels, found.ssrc), (Some(channels), Some(0xFEED)));
    assert_eq!((found.server, found.multicast), (None, None));
    let ports = PortPair { rtp: 5004, rtcp: 5005 };
    let group = std::net::IpAddr::from([239, 1, 1, 1]);
    let granted = GrantedTransport::Multicast { group, ports, ttl: 8, source: None, ssrc: 7 };
    let found = set_up(granted);
    let expected = MulticastGroup { destination: "239.1.1.1".to_owned(), ports };
    assert_eq!((found.channels, found.multicast), (None, Some(expected)));
}

#[test]
fn requests_of_the_server_are_dropped_and_bodies_kept() {
    let mut reader = ReplyReader::new(Limits::default());
    reader.feed(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\nRTSP/1.0 200 OK\r\nCSeq: 9\r\n");
    assert_eq!(reader.next_reply(), Ok(None));
    reader.feed(b"Content-Length: 4\r\n\r\nv=");
    assert_eq!(reader.next_reply(), Ok(None));
    assert!(!reader.is_empty());
    reader.feed(b"0\n");
    let reply = reader.next_reply().unwrap().unwrap();
    assert_eq!((reply.cseq(), &reply.body[..]), (Some(9), &b"v=0\n"[..]));
    assert!(reader.is_empty());
}
