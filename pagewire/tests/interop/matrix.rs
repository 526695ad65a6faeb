// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix tests: every client over every transport and address family, with films of one programme
//! and of two; frames or bytes must equal the file's.
//!
//! ffmpeg and mpv copy frames, compared by size and MD5; GStreamer and VLC write the transport
//! stream, compared byte by byte. One server serves all. The cases run side by side, since each
//! lasts as long as its film; every case is printed with its outcome.
//!
//! Sources: RFC 2326 §10.12, §12.39.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;
use std::process::Command;

use crate::ffmpeg::{self, Frame, of_stream};
use crate::harness::film::short_film;
use crate::harness::{PROGRAM, Place, Server, gstreamer};
use crate::side_by_side::{self, Case};
use crate::{assert_bytes, client, vlc};

/// Transport of the media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Udp,
    Tcp,
    /// RTSP through HTTP.
    Tunnel,
}

/// A film of the matrix.
struct Title {
    name: &'static str,
    programmes: usize,
    bytes: Vec<u8>,
    /// Frames of the file as read by ffmpeg.
    frames: Vec<Frame>,
}

struct Play<'a> {
    client: &'static Client,
    way: Way,
    address: IpAddr,
    title: &'a Title,
    server: &'a Server,
}

struct Client {
    name: &'static str,
    /// Plays the title of a case at a URL; returns false when a component of the client is not
    /// installed.
    plays: fn(&Play<'_>, &str) -> bool,
    /// Returns the reason why the client cannot play a case.
    lacks: fn(Way, IpAddr) -> Option<&'static str>,
}

const CLIENTS: &[Client] = &[
    Client { name: "ffmpeg", plays: ffmpeg_plays, lacks: |_, _| None },
    Client { name: "gstreamer", plays: gstreamer_plays, lacks: |_, _| None },
    Client { name: "mpv", plays: mpv_plays, lacks: |_, _| None },
    Client { name: "vlc", plays: vlc_plays, lacks: vlc_lacks },
];

/// Multicast belongs to channels: [`crate::channels`].
const WAYS: &[Way] = &[Way::Udp, Way::Tcp, Way::Tunnel];
const ADDRESSES: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

impl Play<'_> {
    /// Returns the URL of the title with this scheme.
    fn url(&self, scheme: &str, port: u16) -> String {
        let address = std::net::SocketAddr::new(self.address, port);
        format!("{scheme}://{address}/{}", self.title.name)
    }
}

impl Case for Play<'_> {
    /// Returns a name such as `matrix::ffmpeg/tcp/ipv6/two.ts`.
    fn name(&self) -> String {
        let way = format!("{:?}", self.way).to_lowercase();
        let family = if self.address.is_ipv4() { "ipv4" } else { "ipv6" };
        format!("matrix::{}/{way}/{family}/{}", self.client.name, self.title.name)
    }

    fn plays(&self, name: &str) -> bool {
        if let Some(reason) = (self.client.lacks)(self.way, self.address) {
            eprintln!("skip: {name}: {reason}");
            return false;
        }
        if let Err(error) = UdpSocket::bind((self.address, 0)) {
            eprintln!("skip: {name}: no address {}: {error}", self.address);
            return false;
        }
        (self.client.plays)(self, name)
    }
}

fn cases<'a>(titles: &'a [Title], server: &'a Server) -> Vec<Play<'a>> {
    let mut cases = Vec::new();
    for client in CLIENTS {
        for (&way, &address) in
            WAYS.iter().flat_map(|way| ADDRESSES.iter().map(move |address| (way, address)))
        {
            let of_title = |title| Play { client, way, address, title, server };
            cases.extend(titles.iter().map(of_title));
        }
    }
    cases
}

fn ffmpeg_plays(case: &Play<'_>, name: &str) -> bool {
    let transport = match case.way {
        Way::Udp => "udp",
        Way::Tcp => "tcp",
        Way::Tunnel => "http",
    };
    let url = case.url("rtsp", case.server.rtsp.port());
    let options = ["-copyts", "-rtsp_transport", transport];
    let Some(received) = ffmpeg::frames(name, &options, OsStr::new(&url), &[]) else {
        return false;
    };
    let all: Vec<usize> = (0..2 * case.title.programmes).collect();
    assert_streams(&received, &case.title.frames, &all);
    true
}

/// Compares byte by byte.
fn gstreamer_plays(case: &Play<'_>, name: &str) -> bool {
    if !gstreamer::has_elements(name, &["rtspsrc", "rtpmp2tdepay", "fdsink"]) {
        return false;
    }
    let (scheme, protocols) = match case.way {
        Way::Udp => ("rtsp", "udp"),
        Way::Tcp => ("rtsp", "tcp"),
        Way::Tunnel => ("rtsph", "tcp"),
    };
    let mut command = Command::new("gst-launch-1.0");
    command.args(["-q", "rtspsrc"]).arg(format!("protocols={protocols}"));
    command.arg(format!("location={}", case.url(scheme, case.server.rtsp.port())));
    command.args(["!", "rtpmp2tdepay", "!", "fdsink", "fd=1", "sync=false"]);
    let Some(outcome) = client(name, &mut command) else { return false };
    assert_bytes(&gstreamer::played(outcome), &case.title.bytes);
    true
}

/// mpv selects one picture and one sound and records their frames: those of the last programme, so
/// that the streams of the second are found, too.
fn mpv_plays(case: &Play<'_>, name: &str) -> bool {
    let transport = match case.way {
        Way::Udp => "udp",
        Way::Tcp => "tcp",
        Way::Tunnel => "http",
    };
    let programme = case.title.programmes;
    let record = case.server.cache().join(format!("{}.ts", name.replace(['/', ':'], "-")));
    let mut command = Command::new("mpv");
    command.args(["--no-config", "--no-terminal", "--vo=null", "--ao=null"]);
    command.arg(format!("--rtsp-transport={transport}"));
    command.arg(format!("--vid={programme}")).arg(format!("--aid={programme}"));
    command.arg(format!("--stream-record={}", record.display()));
    command.arg(case.url("rtsp", case.server.rtsp.port()));
    let Some(outcome) = client(name, &mut command) else { return false };
    outcome.succeeded();
    let Some(received) = ffmpeg::frames(name, &[], record.as_os_str(), &[]) else { return false };
    let received: Vec<_> = received.into_iter().map(Frame::without_times).collect();
    let sent: Vec<_> = case.title.frames.iter().cloned().map(Frame::without_times).collect();
    assert_streams(&received, &sent, &[2 * programme - 2, 2 * programme - 1]);
    true
}

fn vlc_plays(case: &Play<'_>, name: &str) -> bool {
    let options = ["--demux=dump", "--demuxdump-access=file", "--demuxdump-file=-"];
    let url = case.url("rtsp", case.server.rtsp.port());
    let Some(received) = vlc::output(name, &url, &options) else { return false };
    assert_bytes(&received, &case.title.bytes);
    true
}

fn vlc_lacks(way: Way, address: IpAddr) -> Option<&'static str> {
    match (way, address) {
        (Way::Udp, IpAddr::V4(_)) => None,
        (Way::Udp, IpAddr::V6(_)) => {
            Some("the SAT>IP plugin of Debian's VLC opens no IPv6 address")
        }
        (Way::Tcp | Way::Tunnel, _) => Some("the SAT>IP plugin of Debian's VLC has UDP alone"),
    }
}

/// Asserts that these streams of a file were received, each whole and in order.
#[track_caller]
fn assert_streams(received: &[Frame], sent: &[Frame], streams: &[usize]) {
    if let Err(difference) = ffmpeg::check_streams(received, sent, streams) {
        panic!("{difference}");
    }
}

/// Returns the films with one and with two programmes; `None`, with the reason printed, where they
/// cannot be made.
fn titles(test: &str) -> Option<Vec<Title>> {
    let title = |(name, programmes)| {
        let path = short_film(test, programmes, 6)?;
        let bytes = std::fs::read(&path).expect("it was made");
        let frames = all_frames(test, &path)?;
        for stream in 0..2 * programmes {
            let count = of_stream(&frames, stream).len();
            assert!(count > 100, "{count} frames in stream {stream}");
        }
        Some(Title { name, programmes, bytes, frames })
    };
    [("one.ts", 1), ("two.ts", 2)].into_iter().map(title).collect()
}

fn all_frames(test: &str, path: &Path) -> Option<Vec<Frame>> {
    ffmpeg::frames(test, &["-copyts"], path.as_os_str(), &[])
}

#[test]
fn every_client_receives_every_film_over_every_transport() {
    let test = "matrix::every_client_receives_every_film_over_every_transport";
    let Some(titles) = titles(test) else { return };
    let place = Place::new();
    for title in &titles {
        place.put(title.name, &title.bytes);
    }
    let any =
        if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() { "[::]:0" } else { "0.0.0.0:0" };
    let server = Server::listening(any, &place, Command::new(PROGRAM), &[]);
    for title in &titles {
        server.await_stream(title.name);
    }
    side_by_side::run(cases(&titles, &server));
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}
