// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests requests of real clients and of RFC 2326, and the server's interpretation of them.
//!
//! The forms of the requests (headers and their order, not captures of a session) are those of
//! ffmpeg, live555 (VLC) and GStreamer's rtspsrc; the rest are the examples of RFC 2326, named by
//! section.

use std::net::Ipv4Addr;
use std::time::Duration;

use wire::rtsp::client::{Client, Reply, ReplyReader};
use wire::rtsp::{
    ChannelPair, Command, GrantedTransport, Limits, NptRange, NptStart, PlayRequest, PortPair,
    Request, RequestReader, Response, RtpInfo, TransportOffer, asset_path, content_base,
};
use wire::sdp;

fn request(text: &str) -> Request {
    let mut reader = RequestReader::new(Limits::default());
    reader.feed(text.as_bytes());
    let request = reader.next_request().unwrap().unwrap();
    assert!(reader.is_empty());
    request
}

fn command(text: &str) -> Command {
    request(text).command.unwrap()
}

/// The status of the refusal, and the value of a header in it.
fn refusal(text: &str, header: &str) -> (u16, Option<String>) {
    let response = request(text).command.unwrap_err();
    (response.status().code(), response.value(header).map(str::to_owned))
}

const PATH: &str = "/its/path.ts";

#[test]
fn ffmpeg() {
    let options = request(
        "OPTIONS rtsp://127.0.0.1:8554/its/path.ts RTSP/1.0\r\nCSeq: 1\r\n\
         User-Agent: Lavf60.16.100\r\n\r\n",
    );
    assert_eq!(options.command, Ok(Command::Options));
    assert_eq!(options.user_agent.as_deref(), Some("Lavf60.16.100"));
    assert_eq!(options.authority.as_deref(), Some("127.0.0.1:8554"));
    let setup = request(
        "SETUP rtsp://127.0.0.1:8554/its/path.ts/stream RTSP/1.0\r\n\
         Transport: RTP/AVP/UDP;unicast;client_port=5000-5001\r\nCSeq: 3\r\n\
         User-Agent: Lavf60.16.100\r\n\r\n",
    );
    assert_eq!(asset_path(&setup.path), PATH);
    let ports = PortPair { rtp: 5000, rtcp: 5001 };
    assert_eq!(
        setup.command,
        Ok(Command::Setup(vec![TransportOffer::Udp { ports, destination: None }]))
    );
    let play = request(
        "PLAY rtsp://127.0.0.1:8554/its/path.ts/ RTSP/1.0\r\nRange: npt=0.000-\r\nCSeq: 4\r\n\
         User-Agent: Lavf60.16.100\r\nSession: 0123456789abcdef\r\n\r\n",
    );
    let range = Some(NptRange { start: NptStart::At(Duration::ZERO), end: None });
    assert_eq!(play.command, Ok(Command::Play(PlayRequest { range, ..PlayRequest::default() })));
    assert_eq!(play.session.as_deref(), Some("0123456789abcdef"));
    assert_eq!(asset_path(&play.path), PATH);
}

#[test]
fn vlc() {
    let describe = request(
        "DESCRIBE rtsp://127.0.0.1:8554/its/path.ts RTSP/1.0\r\nCSeq: 3\r\n\
         User-Agent: LibVLC/3.0.20 (LIVE555 Streaming Media v2016.11.28)\r\n\
         Accept: application/sdp\r\n\r\n",
    );
    assert_eq!(describe.command, Ok(Command::Describe));
    let play = command(
        "PLAY rtsp://127.0.0.1:8554/its/path.ts/ RTSP/1.0\r\nCSeq: 5\r\n\
         User-Agent: LibVLC/3.0.20 (LIVE555 Streaming Media v2016.11.28)\r\n\
         Session: 0123456789abcdef\r\nScale: 2.0\r\nRange: npt=30.125-\r\nx-playNow: \r\n\r\n",
    );
    let range = Some(NptRange { start: NptStart::At(Duration::from_millis(30_125)), end: None });
    assert_eq!(
        play,
        Command::Play(PlayRequest { range, scale: Some(2.0), ..PlayRequest::default() })
    );
    let alive = "GET_PARAMETER rtsp://127.0.0.1:8554/its/path.ts/ RTSP/1.0\r\nCSeq: 6\r\n\
         User-Agent: LibVLC/3.0.20\r\nSession: 0123456789abcdef\r\n\r\n";
    assert_eq!(command(alive), Command::KeepAlive);
}

#[test]
fn gstreamer() {
    let setup = command(
        "SETUP rtsp://127.0.0.1:8554/its/path.ts/stream RTSP/1.0\r\nCSeq: 4\r\n\
         User-Agent: GStreamer/1.24.2\r\n\
         Transport: RTP/AVPF;unicast;client_port=51000-51001,RTP/AVP;unicast;\
         client_port=51000-51001,RTP/AVP;multicast,RTP/AVP/TCP;unicast;interleaved=0-1\r\n\
         Date: Sat, 21 Nov 2026 12:00:00 GMT\r\n\r\n",
    );
    let ports = PortPair { rtp: 51000, rtcp: 51001 };
    let udp = TransportOffer::Udp { ports, destination: None };
    let channels = Some(ChannelPair { rtp: 0, rtcp: 1 });
    let interleaved = TransportOffer::Interleaved { channels };
    assert_eq!(setup, Command::Setup(vec![udp, TransportOffer::Multicast, interleaved]));
    let resume = command(
        "PLAY rtsp://127.0.0.1:8554/its/path.ts/ RTSP/1.0\r\nCSeq: 6\r\n\
         User-Agent: GStreamer/1.24.2\r\nRange: npt=now-\r\nSpeed: 1.0\r\n\
         Session: 0123456789abcdef;timeout=60\r\n\r\n",
    );
    let range = Some(NptRange { start: NptStart::Now, end: None });
    assert_eq!(
        resume,
        Command::Play(PlayRequest { range, speed: Some(1.0), ..PlayRequest::default() })
    );
}

#[test]
fn rfc_2326_examples_that_are_served() {
    let setup = command(
        "SETUP rtsp://example.com/foo/bar/baz.rm RTSP/1.0\r\nCSeq: 302\r\n\
         Transport: RTP/AVP;unicast;client_port=4588-4589\r\n\r\n", // §10.4
    );
    let ports = PortPair { rtp: 4588, rtcp: 4589 };
    assert_eq!(setup, Command::Setup(vec![TransportOffer::Udp { ports, destination: None }]));
    let setup = command(
        "SETUP rtsp://foo.com/bar.file RTSP/1.0\r\nCSeq: 2\r\n\
         Transport: RTP/AVP/TCP;interleaved=0-1\r\n\r\n", // §10.12
    );
    let channels = Some(ChannelPair { rtp: 0, rtcp: 1 });
    assert_eq!(setup, Command::Setup(vec![TransportOffer::Interleaved { channels }]));
    let describe = "DESCRIBE rtsp://server.example.com/fizzle/foo RTSP/1.0\r\nCSeq: 312\r\n\
         Accept: application/sdp, application/rtsl, application/mheg\r\n\r\n"; // §10.2
    assert_eq!(command(describe), Command::Describe);
    let play = command(
        "PLAY rtsp://audio.example.com/audio RTSP/1.0\r\nCSeq: 835\r\nSession: 12345678\r\n\
         Range: npt=10-15\r\n\r\n", // §10.5
    );
    let (start, end) = (Duration::from_secs(10), Duration::from_secs(15));
    let range = Some(NptRange { start: NptStart::At(start), end: Some(end) });
    assert_eq!(play, Command::Play(PlayRequest { range, ..PlayRequest::default() }));
    let in_session = |method: &str| {
        let url = "rtsp://example.com/fizzle/foo";
        command(&format!("{method} {url} RTSP/1.0\r\nCSeq: 834\r\nSession: 12345678\r\n\r\n"))
    };
    assert_eq!(in_session("PAUSE"), Command::Pause); // §10.6
    assert_eq!(in_session("TEARDOWN"), Command::Teardown); // §10.7
}

#[test]
fn rfc_2326_examples_that_are_refused() {
    let (code, unsupported) = refusal(
        "OPTIONS * RTSP/1.0\r\nCSeq: 1\r\nRequire: implicit-play\r\n\
         Proxy-Require: gzipped-messages\r\n\r\n", // §10.1, by the rule of §12.32
        "Unsupported",
    );
    assert_eq!((code, unsupported.as_deref()), (551, Some("implicit-play, gzipped-messages")));
    let (code, unsupported) = refusal(
        "SETUP rtsp://server.com/foo/bar/baz.rm RTSP/1.0\r\nCSeq: 302\r\n\
         Require: funky-feature\r\nFunky-Parameter: funkystuff\r\n\r\n", // §12.32
        "Unsupported",
    );
    assert_eq!((code, unsupported.as_deref()), (551, Some("funky-feature")));
    let set = "SET_PARAMETER rtsp://example.com/fizzle/foo RTSP/1.0\r\nCSeq: 421\r\n\
         Content-length: 20\r\nContent-type: text/parameters\r\n\r\n\
         barparam: barstuff\r\n"; // §10.9
    assert_eq!(refusal(set, "Allow"), (451, None));
    let get = "GET_PARAMETER rtsp://example.com/fizzle/foo RTSP/1.0\r\nCSeq: 431\r\n\
         Content-Type: text/parameters\r\nSession: 12345678\r\nContent-Length: 26\r\n\r\n\
         packets_received\r\njitter\r\n"; // §10.8
    assert_eq!(refusal(get, "Allow"), (451, None));
    let bytes = "PLAY rtsp://audio.example.com/twister.en RTSP/1.0\r\nCSeq: 833\r\n\
         Session: 12345678\r\nRange: bytes=0-\r\n\r\n"; // §12.29
    assert_eq!(refusal(bytes, "Allow"), (501, None));
    let (code, allow) = refusal(
        "RECORD rtsp://example.com/meeting/audio.en RTSP/1.0\r\nCSeq: 954\r\n\
         Session: 12345678\r\nConference: 128.16.64.19/32492374\r\n\r\n", // §10.11
        "Allow",
    );
    assert!(code == 405 && allow.is_some());
}

#[test]
fn requests_wrong_in_themselves_are_refused_and_the_connection_goes_on() {
    let in_session = |line: &str| {
        let head = "rtsp://h/a.ts RTSP/1.0\r\nCSeq: 1\r\nSession: 12345678\r\n";
        let (method, header) = line.split_once(' ').unwrap_or((line, "X: y"));
        refusal(&format!("{method} {head}{header}\r\n\r\n"), "Allow").0
    };
    assert_eq!(in_session("PLAY Range: npt=-10"), 457);
    assert_eq!(in_session("PLAY Range: npt=x-"), 400);
    assert_eq!(in_session("PLAY Scale: fast"), 400);
    assert_eq!(in_session("PLAY Scale: inf"), 400);
    assert_eq!(in_session("PLAY Speed: 0.0"), 400);
    assert_eq!(in_session("PLAY Speed: -1"), 400);
    assert_eq!(in_session("PAUSE Range: npt=30-"), 456);
    assert_eq!(in_session("DESCRIBE Accept: application/rtsl"), 406);
    assert_eq!(in_session("SETUP"), 400);
    assert_eq!(in_session("SETUP Transport: RTP/AVP;unicast"), 461);
    assert_eq!(in_session("FLY"), 501);
    assert_eq!(in_session("options"), 501); // §10: case-sensitive
    for method in ["PLAY", "PAUSE", "TEARDOWN"] {
        let text = format!("{method} rtsp://h/a.ts RTSP/1.0\r\nCSeq: 1\r\n\r\n");
        assert_eq!(refusal(&text, "Allow").0, 454);
    }
    for cseq in ["", "CSeq:\r\n", "CSeq: x\r\n", "CSeq: -1\r\n", "CSeq: 1\r\nCSeq: 2\r\n"] {
        let request = request(&format!("OPTIONS * RTSP/1.0\r\n{cseq}\r\n"));
        let response = request.command.unwrap_err().encode();
        assert_eq!(response, b"RTSP/1.0 400 Bad Request\r\n\r\n", "{cseq:?}");
    }
}

#[test]
fn paths_are_decoded_and_cannot_climb() {
    for (url, path) in [
        ("rtsp://h/a%20b/%C3%BC.ts", "/a b/ü.ts"),
        ("rtsp://h/a.ts?x=/../y", "/a.ts"),
        ("rtsp://user:secret@h:8554/a.ts", "/a.ts"),
        ("rtsp://h", "/"),
        ("rtsp://h/../../etc/passwd", "/etc/passwd"),
        ("rtsp://h/a/%2e%2e/%2E%2e/b.ts", "/b.ts"),
        ("*", "*"),
    ] {
        let request = request(&format!("DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\n\r\n"));
        assert_eq!(request.path, path, "{url}");
        assert!(!request.url.contains("secret"));
    }
}

#[test]
fn timestamp_and_connection_are_minded() {
    let request =
        request("OPTIONS * RTSP/1.0\r\nCSeq: 4\r\nTimestamp: 3.25\r\nConnection: Close\r\n\r\n");
    assert!(request.close);
    let response = String::from_utf8(Response::options(&request).encode()).unwrap();
    assert!(response.starts_with("RTSP/1.0 200 OK\r\nCSeq: 4\r\nTimestamp: 3.25\r\nPublic: "));
}

/// The client's request as the server reads it, and the server's answer as the client reads it.
fn exchange(bytes: &[u8], answer: impl FnOnce(&Request) -> Response) -> Reply {
    let request = request(std::str::from_utf8(bytes).unwrap());
    let mut replies = ReplyReader::new(Limits::default());
    replies.feed(&answer(&request).encode());
    let reply = replies.next_reply().unwrap().unwrap();
    assert_eq!(reply.cseq(), Some(request.cseq));
    reply
}

#[test]
fn server_and_client_agree_from_describe_to_teardown() {
    let mut client = Client::new("rtsp://127.0.0.1:8554/its/path.ts").unwrap();
    let reply = exchange(&client.describe(), |request| {
        let description = sdp::Description {
            name: "path.ts",
            origin: Ipv4Addr::LOCALHOST.into(),
            id: 1,
            version: 2,
            duration: Some(Duration::from_secs(60)),
            bits_per_second: 5_000_000,
        };
        Response::describe(request, &content_base(&request.url), sdp::mp2t(&description))
    });
    let described = client.described(&reply).unwrap();
    assert_eq!(described.stream_url, "rtsp://127.0.0.1:8554/its/path.ts/stream");
    assert_eq!(described.offer.duration, Some(Duration::from_secs(60)));

    let asked = PortPair { rtp: 50_000, rtcp: 50_001 };
    let server = PortPair { rtp: 6970, rtcp: 6971 };
    let offer = TransportOffer::Udp { ports: asked, destination: None };
    let reply = exchange(&client.setup(&offer), |request| {
        assert_eq!(asset_path(&request.path), PATH);
        assert_eq!(request.command, Ok(Command::Setup(vec![offer.clone()])));
        let granted = GrantedTransport::Udp { client: asked, server, ssrc: 0xFEED, source: None };
        Response::setup(request, "0123456789abcdef", Duration::from_secs(30), &granted)
    });
    let set_up = client.set_up(&reply).unwrap();
    assert_eq!((set_up.server, set_up.ssrc), (Some(server), Some(0xFEED)));
    assert_eq!(set_up.timeout, Duration::from_secs(30));

    let end = Duration::from_secs(60);
    let asked = NptRange { start: NptStart::At(Duration::from_secs(30)), end: None };
    let reply = exchange(&client.play(Some(asked)), |request| {
        assert_eq!(request.session.as_deref(), Some("0123456789abcdef"));
        let Ok(Command::Play(play)) = request.command else { panic!("{request:?}") };
        let start = Duration::from_millis(29_960);
        let info = RtpInfo { url: "rtsp://h/x", sequence: Some(65_535), timestamp: u32::MAX };
        Response::play(request, "0123456789abcdef", &play, start, Some(end), &[info])
    });
    assert_eq!(reply.header("Range"), Some("npt=29.960-60.000"));
    assert_eq!(reply.header("Scale"), None);
    let started = client.started(&reply).unwrap();
    let start = NptStart::At(Duration::from_millis(29_960));
    assert_eq!(started.range, Some(NptRange { start, end: Some(end) }));
    assert_eq!((started.sequence, started.timestamp), (Some(65_535), Some(u32::MAX)));

    let reply = exchange(&client.pause(), |request| {
        assert_eq!(request.command, Ok(Command::Pause));
        Response::in_session(request, "0123456789abcdef")
    });
    assert_eq!((reply.status(), reply.header("session")), (200, Some("0123456789abcdef")));
    let reply = exchange(&client.teardown(), |request| {
        assert_eq!(request.command, Ok(Command::Teardown));
        Response::in_session(request, "0123456789abcdef")
    });
    assert_eq!(reply.reason(), "OK");
}

#[test]
fn a_rate_that_is_not_played_is_answered_with_the_one_that_is() {
    let request = request(
        "PLAY rtsp://h/a.ts RTSP/1.0\r\nCSeq: 1\r\nSession: 1\r\nScale: -3.5\r\nSpeed: 2.5\r\n\r\n",
    );
    let Ok(Command::Play(play)) = &request.command else { panic!("{request:?}") };
    assert_eq!((play.scale, play.speed), (Some(-3.5), Some(2.5)));
    let info = RtpInfo { url: "rtsp://h/a.ts/stream", sequence: Some(1), timestamp: 2 };
    let played = PlayRequest { scale: Some(-4.0), speed: Some(1.0), ..*play };
    let response = Response::play(&request, "1", &played, Duration::ZERO, None, &[info]);
    assert_eq!((response.value("Scale"), response.value("Speed")), (Some("-4.0"), Some("1.0")));
    let text = String::from_utf8(response.encode()).unwrap();
    assert!(text.contains("\r\nRTP-Info: url=rtsp://h/a.ts/stream;seq=1;rtptime=2\r\n"), "{text}");
    // An independent reading of RTP-Info and Range.
    let (message, _) = rtsp_types::Message::<Vec<u8>>::parse(text.as_bytes()).unwrap();
    let rtsp_types::Message::Response(message) = message else { panic!("{text}") };
    let infos = message.typed_header::<rtsp_types::headers::RtpInfos>().unwrap().unwrap();
    let rtsp_types::headers::RtpInfos::V1(infos) = infos else { panic!("{infos:?}") };
    assert_eq!((infos[0].seq, infos[0].rtptime), (Some(1), Some(2)));
    let range = message.typed_header::<rtsp_types::headers::Range>().unwrap().unwrap();
    assert!(matches!(range, rtsp_types::headers::Range::Npt(_)));
}

#[test]
fn a_first_packet_that_is_not_known_has_no_number() {
    let request = request("PLAY rtsp://h/a.mp4 RTSP/1.0\r\nCSeq: 1\r\nSession: 1\r\n\r\n");
    let Ok(Command::Play(play)) = &request.command else { panic!("{request:?}") };
    let info = |url| RtpInfo { url, sequence: None, timestamp: 7 };
    let infos = ["rtsp://h/a.mp4/track0", "rtsp://h/a.mp4/track1"].map(info);
    let response = Response::play(&request, "1", play, Duration::ZERO, None, &infos);
    let expected = "url=rtsp://h/a.mp4/track0;rtptime=7,url=rtsp://h/a.mp4/track1;rtptime=7";
    assert_eq!(response.value("RTP-Info"), Some(expected));
}
