// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels with third-party players: the multicast part of [`crate::matrix`], and viewers over TCP
//! who join late.
//!
//! A channel plays one film repeatedly. Each client records some seconds of it; the recording must
//! hold the film from its first frame on, and continue with it, frame by frame. ffmpeg, GStreamer
//! and mpv request the group from the RTSP server; VLC joins a group of plain UDP by itself, since
//! its SAT>IP plugin keeps SETUP of groups to satellite receivers.
//!
//! The tests run in a network of their own, with a multicast interface.
//!
//! Sources: RFC 2326 §12.39 (multicast), RFC 2250 §2.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::ffmpeg::{self, Frame, of_stream};
use crate::harness::film::short_film;
use crate::harness::{PROGRAM, Place, Server, gstreamer};
use crate::network::{self, Owner};
use crate::side_by_side::{self, Case};
use crate::{client, vlc};

const NETWORK: &str = "\
    ip link set lo up
    ip link add left type veth peer name right
    ip link set right up
    ip link set left up multicast on
    ip addr add 10.98.0.1/24 dev left
    ip -6 addr add fd98::1/64 dev left nodad
    ip route add 224.0.0.0/4 dev left
    ip -6 route add ff15::/16 dev left table local metric 1";
const HERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 98, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd98, 0, 0, 0, 0, 0, 0, 1)),
];

/// Transport by which a client receives the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Multicast,
    Tcp,
}

/// A channel that plays one film.
struct Channel {
    name: &'static str,
    /// Third byte of its groups' addresses.
    group: u8,
    /// Frames of the programme that it plays, pictures and sounds.
    streams: [Vec<Frame>; 2],
}

struct Recording<'a> {
    client: &'static Client,
    way: Way,
    address: IpAddr,
    channel: &'a Channel,
    server: &'a Server,
}

/// A player; `records` writes the received stream to a file, and returns false when a component is
/// not installed.
struct Client {
    name: &'static str,
    records: fn(&Recording<'_>, &str, &OsStr) -> bool,
}

const CLIENTS: &[Client] = &[
    Client { name: "ffmpeg", records: ffmpeg_records },
    Client { name: "gstreamer", records: gstreamer_records },
    Client { name: "mpv", records: mpv_records },
    Client { name: "vlc", records: vlc_records },
];

impl Recording<'_> {
    fn url(&self) -> String {
        let address = SocketAddr::new(self.address, self.server.rtsp.port());
        format!("rtsp://{address}/channel/{}", self.channel.name)
    }
}

impl Case for Recording<'_> {
    fn name(&self) -> String {
        let way = format!("{:?}", self.way).to_lowercase();
        let family = if self.address.is_ipv4() { "ipv4" } else { "ipv6" };
        format!("channels::{}/{way}/{family}/{}", self.client.name, self.channel.name)
    }

    fn plays(&self, name: &str) -> bool {
        let record = self.server.cache().join(format!("{}.ts", name.replace(['/', ':'], "-")));
        if !(self.client.records)(self, name, record.as_os_str()) {
            return false;
        }
        let Some(frames) = ffmpeg::frames(name, &[], record.as_os_str(), &[]) else {
            return false;
        };
        let streams = [0, 1].map(|stream| of_stream(&frames, stream));
        for film in &self.channel.streams {
            assert_goes_round(&streams, film);
        }
        true
    }
}

/// Returns groups of RTP and of plain UDP.
fn groups(group: u8, address: IpAddr) -> [SocketAddr; 2] {
    [5004, 5006].map(|port| {
        let group: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::new(239, 98, group, 1).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, group.into(), 1).into(),
        };
        SocketAddr::new(group, port)
    })
}

fn ffmpeg_records(case: &Recording<'_>, name: &str, record: &OsStr) -> bool {
    let transport = match case.way {
        Way::Multicast => "udp_multicast",
        Way::Tcp => "tcp",
    };
    let mut command = Command::new("ffmpeg");
    command.args(["-hide_banner", "-loglevel", "error", "-nostdin"]);
    command.args(["-rtsp_transport", transport, "-i", &case.url(), "-map", "0"]);
    command.args(["-c", "copy", "-f", "mpegts", "-t", RECORD_SECONDS]).arg(record);
    client(name, &mut command).map(|outcome| outcome.succeeded()).is_some()
}

/// Stopped by a signal, because a channel has no end; its exit status reflects that.
fn gstreamer_records(case: &Recording<'_>, name: &str, record: &OsStr) -> bool {
    if !gstreamer::has_elements(name, &["rtspsrc", "rtpmp2tdepay", "filesink"]) {
        return false;
    }
    let protocols = match case.way {
        Way::Multicast => "udp-mcast",
        Way::Tcp => "tcp",
    };
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", RECORD_SECONDS, "gst-launch-1.0", "-q", "rtspsrc"]);
    command.arg(format!("protocols={protocols}")).arg(format!("location={}", case.url()));
    command.args(["!", "rtpmp2tdepay", "!", "filesink"]);
    command.arg(format!("location={}", record.display()));
    client(name, &mut command).is_some()
}

fn mpv_records(case: &Recording<'_>, name: &str, record: &OsStr) -> bool {
    let transport = match case.way {
        Way::Multicast => "udp_multicast",
        Way::Tcp => "tcp",
    };
    let mut command = Command::new("mpv");
    command.args(["--no-config", "--no-terminal", "--vo=null", "--ao=null"]);
    command.arg(format!("--rtsp-transport={transport}")).arg(format!("--length={RECORD_SECONDS}"));
    command.arg(format!("--stream-record={}", record.display())).arg(case.url());
    client(name, &mut command).map(|outcome| outcome.succeeded()).is_some()
}

fn vlc_records(case: &Recording<'_>, name: &str, record: &OsStr) -> bool {
    let [_, bare] = groups(case.channel.group, case.address);
    let options =
        ["--miface=left", "--demux=dump", "--demuxdump-access=file", "--demuxdump-file=-"];
    let url = format!("udp://@{bare}");
    let Some(received) = vlc::recording(name, &url, &options, RECORD_SECONDS) else {
        return false;
    };
    fs::write(record, received).expect("room for a recording");
    true
}

/// Asserts that a stream holds the complete film from its first frame on, and continues with it.
/// The last frame may be cut.
#[track_caller]
fn assert_goes_round(streams: &[Vec<Frame>; 2], film: &[Frame]) {
    let same = |a: &Frame, b: &Frame| a.bytes == b.bytes && a.hash == b.hash;
    // The first of the two streams that a recorder received is its first stream.
    let start = streams.iter().find_map(|received| {
        let start = received.iter().position(|frame| same(frame, &film[0]));
        start.map(|start| (received, start))
    });
    let sizes = streams.each_ref().map(Vec::len);
    let (received, start) = start.unwrap_or_else(|| panic!("no first frame in {sizes:?}"));
    let whole = &received[start..received.len() - 1];
    assert!(whole.len() >= film.len(), "{} frames, {} in the film", whole.len(), film.len());
    for (index, (found, sent)) in whole.iter().zip(film.iter().cycle()).enumerate() {
        assert!(same(found, sent), "frame {index} behind the start: {found:?}, not {sent:?}");
    }
}

/// Returns the channels, and their settings; `None` where there is no film.
fn channels(test: &str, place: &Place) -> Option<(Vec<Channel>, String)> {
    let (mut channels, mut settings) = (Vec::new(), String::new());
    for (group, (name, programmes)) in [("one", 1), ("two", 2)].into_iter().enumerate() {
        let file = format!("{name}.ts");
        let path = short_film(test, programmes, 6)?;
        place.put(&file, &fs::read(&path).expect("it was made"));
        let frames = ffmpeg::frames(test, &[], path.as_os_str(), &[])?;
        // The last programme, so that the choice is tested, too.
        let streams = [2 * programmes - 2, 2 * programmes - 1].map(|at| of_stream(&frames, at));
        let group = group as u8;
        let targets: Vec<_> = HERE
            .into_iter()
            .flat_map(|address| {
                let [rtp, udp] = groups(group, address);
                [format!("\"rtp://{rtp}\""), format!("\"udp://{udp}\"")]
            })
            .collect();
        settings += &format!(
            "[channel.{name}]\nplaylist = [\"{file}\"]\nprogram = {programmes}\n\
             interface = \"left\"\nsend = [{}]\n",
            targets.join(", ")
        );
        channels.push(Channel { name, group, streams });
    }
    Some((channels, settings))
}

/// Waits until each channel has begun its film twice: a channel begins at a position that depends
/// on the clock, and leaves out the packets that are then too late at its end.
fn await_whole_films(server: &Server) {
    let deadline = Instant::now() + CHANNEL_WAIT;
    loop {
        let mut connection = TcpStream::connect(server.http).expect("HTTP listens");
        let host = server.http;
        let request = format!("GET /channels.json HTTP/1.1\r\nHost: {host}\r\n");
        write!(connection, "{request}Connection: close\r\n\r\n").expect("a request");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer and its end");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let state: Value = serde_json::from_str(body).expect("the state is JSON");
        let channels = state["channels"].as_array().expect("a list of channels");
        if channels.iter().all(|channel| channel["programmes"].as_u64() > Some(2)) {
            // Viewers over RTSP are some seconds behind.
            return thread::sleep(Duration::from_secs(5));
        }
        assert!(Instant::now() < deadline, "{state:#}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn every_client_receives_every_channel() {
    let test = "channels::inside_a_network_with_groups";
    let words = format!("--exact {test} --ignored --nocapture");
    let Some(output) = network::inside(Owner::RootIfAny, NETWORK, &words) else { return };
    assert!(output.contains("1 passed"), "{test} was not found:\n{output}");
    output.lines().filter(|line| line.starts_with("case: ")).for_each(|line| eprintln!("{line}"));
}

#[test]
#[ignore = "run by the test above, in a network of its own"]
fn inside_a_network_with_groups() {
    let test = "channels::inside_a_network_with_groups";
    let place = Place::new();
    let Some((channels, settings)) = channels(test, &place) else { return };
    let config = place.top().join("pagewire.toml");
    fs::write(&config, settings).expect("room for settings");
    let options = ["--config", config.to_str().expect("a plain path")];
    let server = Server::listening("[::]:0", &place, Command::new(PROGRAM), &options);
    await_whole_films(&server);
    let mut cases = Vec::new();
    for client in CLIENTS {
        for channel in &channels {
            let of = |way, address| Recording { client, way, address, channel, server: &server };
            cases.extend(HERE.map(|address| of(Way::Multicast, address)));
            // VLC's plugin does not support TCP.
            if client.name != "vlc" {
                cases.push(of(Way::Tcp, HERE[0]));
            }
        }
    }
    side_by_side::run(cases);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

/// More than two films of six seconds: one of them is whole.
const RECORD_SECONDS: &str = "15";
/// More than two films.
const CHANNEL_WAIT: Duration = Duration::from_secs(30);
