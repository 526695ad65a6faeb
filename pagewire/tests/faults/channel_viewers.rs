// SPDX-License-Identifier: MIT OR Apache-2.0
//! Viewers of a channel over RTSP: they pause, seek back, and wait for media that is not yet
//! available; a viewer who only watches misses nothing meanwhile.
//!
//! `timed` has viewers who do so for longer than the window keeps a part, one that does not read,
//! and the memory of the window, which stays bounded: 40 s, beside each other.
//!
//! Sources: RFC 2326 §3.6, §10.5, §10.6.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::clip::Clip;
use crate::harness::{PROGRAM, Place, Server};
use crate::interleaved::Reader;
use crate::resource_snapshot::await_nobody;

/// Starts a server with the channel `news`, which has been on the air long enough to be watched.
fn serve_channel(settings: &str) -> Server {
    let place = Place::new();
    place.put("a.ts", include_bytes!("../../assets/clip.ts"));
    // A high rate, because socket buffers are small.
    let clip = Clip { seed: 9, milliseconds: 8000, bits_per_second: 4_000_000, with_clock: true };
    place.put("heavy.ts", &clip.bytes());
    let config = place.top().join("pagewire.toml");
    let text = format!(
        "[channel.news]\nplaylist = [\"a.ts\"]\n{settings}\n\
         [channel.heavy]\nplaylist = [\"heavy.ts\"]\nconstant_rate_kbps = 6000\n"
    );
    fs::write(&config, text).expect("room for settings");
    let options = ["--config", config.to_str().expect("a plain path")];
    let server = Server::at(&place, Command::new(PROGRAM), &options);
    let deadline = Instant::now() + HANGING;
    for channel in ["channel/news", "channel/heavy"] {
        while !Reader::to(&server).ask("DESCRIBE", channel, &[]).starts_with("RTSP/1.0 200 ") {
            assert!(Instant::now() < deadline, "{channel} is not on the air: {}", server.log());
            thread::sleep(LOOK_EVERY);
        }
    }
    server
}

/// Returns sequence number and timestamp of a packet.
fn stamp(packet: &[u8]) -> (u16, u32) {
    let number = |at: usize, bytes: usize| {
        packet[at..at + bytes].iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
    };
    (number(2, 2) as u16, number(4, 4))
}

/// Reads media until `enough` is true of its packets and ticks; asserts that no packet is missing
/// behind `last`; returns the last one.
#[track_caller]
fn watch_until(
    reader: &mut Reader,
    last: Option<(u16, u32)>,
    enough: impl Fn(u32, u32) -> bool,
) -> (u16, u32) {
    let (mut last, mut packets, mut ticks) = (last, 0, 0);
    while packets == 0 || !enough(packets, ticks) {
        let (channel, data) = reader.frame();
        if channel != 0 {
            continue;
        }
        let (sequence, timestamp) = stamp(&data);
        if let Some((before, time)) = last {
            assert_eq!(sequence, before.wrapping_add(1), "a packet is missing");
            let step = timestamp.wrapping_sub(time) as i32;
            assert!((-1..SECOND as i32).contains(&step), "{step} ticks from packet to packet");
            ticks += step.max(0) as u32;
        }
        assert!(data[12..].chunks(188).all(|packet| packet[0] == 0x47), "whole packets");
        last = Some((sequence, timestamp));
        packets += 1;
    }
    last.expect("packets came")
}

/// Reads so many packets.
#[track_caller]
fn watch_packets(reader: &mut Reader, packets: u32, last: Option<(u16, u32)>) -> (u16, u32) {
    watch_until(reader, last, |seen, _| seen >= packets)
}

/// Returns the start of the range in an answer to PLAY, in seconds.
#[track_caller]
fn start_of(reply: &str) -> f64 {
    assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
    let range = reply.lines().find_map(|line| line.strip_prefix("Range: npt="));
    let start = range.and_then(|range| range.split('-').next()).and_then(|npt| npt.parse().ok());
    start.unwrap_or_else(|| panic!("no start in {reply}"))
}

/// Plays from `npt`, and drops the packets received before the answer.
#[track_caller]
fn seek(reader: &mut Reader, session: &str, npt: &str) -> f64 {
    let start = start_of(&reader.ask("PLAY", NEWS, &[session, &format!("Range: npt={npt}-")]));
    reader.drop_frames();
    start
}

/// Pauses, and drops nothing; returns the last packet before the answer.
#[track_caller]
fn pause(reader: &mut Reader, session: &str, last: (u16, u32)) -> (u16, u32) {
    let reply = reader.ask("PAUSE", NEWS, &[session]);
    assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
    let frames = reader.take_frames();
    let media = frames.iter().rev().find(|(channel, _)| *channel == 0);
    media.map_or(last, |(_, packet)| stamp(packet))
}

#[test]
fn a_viewer_of_a_channel_misses_no_packet() {
    let server = serve_channel("time_shift_s = 60");
    let mut reader = Reader::to(&server);
    reader.play(NEWS, "0-1");
    watch_packets(&mut reader, 150, None);
    drop(reader);
    await_nobody(&server);
    server.stop();
}

#[test]
fn a_viewer_who_paused_goes_on_with_the_next_packet() {
    let server = serve_channel("time_shift_s = 60");
    let mut reader = Reader::to(&server);
    let session = reader.play(NEWS, "0-1");
    let last = watch_packets(&mut reader, 20, None);
    let last = pause(&mut reader, &session, last);
    // The channel continues meanwhile, as another viewer observes.
    let mut other = Reader::to(&server);
    other.play(NEWS, "0-1");
    watch_packets(&mut other, 20, None);
    start_of(&reader.ask("PLAY", NEWS, &[&session]));
    watch_packets(&mut reader, 40, Some(last));
    drop((reader, other));
    await_nobody(&server);
    server.stop();
}

#[test]
fn a_viewer_goes_back_and_returns_to_the_present() {
    let server = serve_channel("time_shift_s = 60");
    let mut reader = Reader::to(&server);
    let session = reader.set_up(NEWS, "0-1");
    let began = start_of(&reader.ask("PLAY", NEWS, &[&session]));
    // A viewer joins three seconds behind the present, or at a younger channel's beginning; places
    // to start are a second apart.
    watch_until(&mut reader, None, |_, ticks| ticks > 5 * SECOND);
    let back = seek(&mut reader, &session, &format!("{:.3}", began + 0.5));
    assert!((began - 3.0..began + 0.6).contains(&back), "from {began}, back to {back}");
    watch_packets(&mut reader, 20, None);
    // A future time is the present, and so are `now` and 0.
    for npt in ["99999", "now", "0"] {
        let live = seek(&mut reader, &session, npt);
        assert!(live > began + 0.9, "npt={npt}: {live}, having begun at {began} 5 s ago");
        watch_packets(&mut reader, 20, None);
    }
    let reply = reader.ask("PLAY", NEWS, &[&session, "Range: npt=20-10"]);
    assert!(reply.starts_with("RTSP/1.0 457 "), "{reply}");
    watch_packets(&mut reader, 20, None);
    drop(reader);
    await_nobody(&server);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
}

const NEWS: &str = "channel/news";
/// Guards against hanging; not a measure of speed.
const HANGING: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Ticks of an RTP timestamp.
const SECOND: u32 = 90_000;

mod timed {
    use super::*;

    /// Reads media for a time; asserts that no packet is missing behind `last`; returns the last.
    #[track_caller]
    fn watch(reader: &mut Reader, time: Duration, last: Option<(u16, u32)>) -> (u16, u32) {
        let began = Instant::now();
        watch_until(reader, last, |packets, _| {
            let is_over = began.elapsed() >= time;
            assert!(!is_over || packets > 10, "{packets} packets in {time:?}");
            is_over
        })
    }

    /// Over two changes of the window's parts and of the file.
    fn watches_on(server: &Server) {
        let mut reader = Reader::to(server);
        reader.play(NEWS, "0-1");
        watch(&mut reader, Duration::from_secs(30), None);
    }

    fn goes_on_after_a_pause(server: &Server) {
        let mut reader = Reader::to(server);
        let session = reader.play(NEWS, "0-1");
        let last = watch(&mut reader, Duration::from_secs(3), None);
        let last = pause(&mut reader, &session, last);
        // The window moves to another part meanwhile.
        thread::sleep(Duration::from_secs(13));
        let reply = reader.ask("PLAY", NEWS, &[&session]);
        start_of(&reply);
        watch(&mut reader, Duration::from_secs(5), Some(last));
    }

    fn goes_back_and_forth(server: &Server) {
        let mut reader = Reader::to(server);
        let session = reader.set_up(NEWS, "0-1");
        let began = start_of(&reader.ask("PLAY", NEWS, &[&session]));
        watch(&mut reader, Duration::from_secs(15), None);
        let back = seek(&mut reader, &session, &format!("{:.3}", began + 3.0));
        assert!((began - 3.0..began + 3.1).contains(&back), "from {began}, back to {back}");
        watch(&mut reader, Duration::from_secs(2), None);
        // A future time is the present, and so are `now` and 0.
        for npt in ["99999", "now", "0"] {
            let live = seek(&mut reader, &session, npt);
            assert!(live > began + 8.0, "npt={npt}: {live}, having begun at {began} 17 s ago");
            watch(&mut reader, Duration::from_secs(2), None);
        }
        let reply = reader.ask("PLAY", NEWS, &[&session, "Range: npt=20-10"]);
        assert!(reply.starts_with("RTSP/1.0 457 "), "{reply}");
        watch(&mut reader, Duration::from_secs(1), None);
    }

    /// The parts it holds are dropped and their memory is freed; its session ends or skips.
    fn never_reads(server: &Server) {
        let mut silent = Reader::to(server);
        silent.keep_small();
        silent.play("channel/heavy", "0-1");
        thread::sleep(Duration::from_secs(32));
        let memory = resident_bytes(server);
        // Two channels of 6 and 1 Mb/s, four parts each.
        assert!(memory < 200 << 20, "{memory} bytes resident");
    }

    fn resident_bytes(server: &Server) -> u64 {
        let path = format!("/proc/{}/status", server.pid());
        let status = fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let kib: u64 = line.trim_end_matches("kB").trim().parse().expect("a number");
        kib << 10
    }

    #[test]
    fn viewers_of_a_channel_pause_and_go_back() {
        let server = serve_channel("time_shift_s = 60");
        let cases: [fn(&Server); 4] =
            [watches_on, goes_on_after_a_pause, goes_back_and_forth, never_reads];
        thread::scope(|scope| {
            let running = cases.map(|case| {
                let server = &server;
                scope.spawn(move || case(server))
            });
            let failed = running.map(|case| case.join().is_err());
            assert_eq!(failed, [false; 4], "failed, as said above: {}", server.log());
        });
        await_nobody(&server);
        let log = server.stop();
        assert!(!log.contains("panicked"), "{log}");
    }

    /// The window is that of a channel without time shift: the paused position is no longer
    /// available, and play continues with the oldest media.
    #[test]
    fn long_pause_goes_on_with_the_oldest_there_is() {
        let server = serve_channel("time_shift_s = 0");
        let mut reader = Reader::to(&server);
        let session = reader.set_up(NEWS, "0-1");
        let began = start_of(&reader.ask("PLAY", NEWS, &[&session]));
        watch(&mut reader, Duration::from_secs(1), None);
        reader.ask("PAUSE", NEWS, &[&session]);
        reader.drop_frames();
        thread::sleep(Duration::from_secs(35));
        let again = start_of(&reader.ask("PLAY", NEWS, &[&session]));
        assert!(again > began + 5.0 && again < began + 40.0, "{again}, paused at {began}");
        watch(&mut reader, Duration::from_secs(3), None);
        drop(reader);
        await_nobody(&server);
        server.stop();
    }
}
