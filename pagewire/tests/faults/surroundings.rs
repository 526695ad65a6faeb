// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults around a server that streams: the link goes down and up again, the wall clock is set,
//! reports of receivers are lost. Sessions play on.

use std::fs::{self, OpenOptions};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use crate::harness::answer::http;
use crate::harness::clip::{Clip, PAYLOAD_BYTES};
use crate::harness::lossy_relay::LossyRelay;
use crate::harness::rtsp::{Control, Player};
use crate::harness::{PROGRAM, Place, Server, watchdog};
use crate::network::{self, Owner, sh};
use crate::serve;

/// A wall clock that a test sets for one program: a library that is loaded before the C library.
struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    fn new(folder: &Path) -> Clock {
        let at = |name: &str| folder.join(name);
        let clock = Clock { library: at("clock.so"), offset: at("clock-offset") };
        fs::write(&clock.offset, 0_i64.to_ne_bytes()).expect("room for a file");
        fs::write(at("clock.c"), CLOCK).expect("room for a file");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&clock.library).arg(at("clock.c"));
        let status = compiler.status().expect("a C compiler, which linking needs");
        assert!(status.success(), "{status}");
        clock
    }

    /// Sets the clock by so many seconds, relative to its current value.
    fn set_by(&self, step_s: i64) {
        let before = fs::read(&self.offset).expect("it was written");
        let before = i64::from_ne_bytes(before.try_into().expect("eight bytes"));
        let mut file = OpenOptions::new().write(true).open(&self.offset).expect("it was written");
        file.rewind().expect("it is a file");
        file.write_all(&(before + step_s).to_ne_bytes()).expect("room for it");
    }
}

/// Adds to CLOCK_REALTIME the seconds stored in a mapped file.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
        int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
        offset = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
        close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
        int status = syscall(SYS_clock_gettime, clock, now);
        if (clock == CLOCK_REALTIME && offset && offset != MAP_FAILED)
                now->tv_sec += *offset;
        return status;
}
"#;

mod timed {
    use super::*;

    /// Sessions outlive a link that is down for seconds: packets due meanwhile are lost, the rest
    /// arrives in time.
    #[test]
    fn sessions_outlive_a_link_that_goes_down_and_up() {
        let name = "surroundings::timed::inside_a_network_whose_link_goes_down";
        network::run(Owner::User, "ip link set lo up", name);
    }

    #[test]
    #[ignore = "run by sessions_outlive_a_link_that_goes_down_and_up"]
    fn inside_a_network_whose_link_goes_down() {
        const DOWN: Duration = Duration::from_secs(2);
        let film = Clip::of_seconds(31, 8).bytes();
        let server = serve(&[("film.ts", &film)], &[]);
        let mut player = Player::set_up(server.rtsp, "film.ts");
        let first = player.play();
        player.hear("it plays", |heard| heard.packets.len() > 20);
        sh("ip link set lo down");
        sleep(DOWN);
        let before = player.heard().packets.len();
        sh("ip link set lo up");
        player.hear("it plays again", |heard| heard.packets.len() > before + 20);
        // The last packet has the number that it has without a gap.
        let packets = film.len().div_ceil(PAYLOAD_BYTES);
        let last = first.wrapping_add((packets - 1) as u16);
        let number = |packet: &Vec<u8>| u16::from_be_bytes([packet[2], packet[3]]);
        player.hear("the film's end", |heard| heard.packets.last().map(number) == Some(last));
        let lost = packets - player.heard().packets.len();
        assert!(lost > 0 && lost < packets / 2, "{lost} of {packets} packets");
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
        server.stop();
    }

    /// The wall clock is used for dates; packets are due by the monotonic clock.
    #[test]
    fn a_clock_that_is_set_moves_dates_and_no_packet() {
        const SECONDS: u64 = 8;
        let place = Place::new();
        let film = Clip::of_seconds(32, SECONDS).bytes();
        place.put("film.ts", &film);
        let settings = "[channel.news]\nplaylist = [\"film.ts\"]\norder = \"loop\"\n";
        fs::write(place.top().join("pagewire.toml"), settings).expect("room for a file");
        let clock = Clock::new(place.top());
        let mut command = Command::new(PROGRAM);
        command.env("LD_PRELOAD", &clock.library).env("CLOCK_OFFSET", &clock.offset);
        let config = place.top().join("pagewire.toml");
        let options = ["--config", config.to_str().expect("UTF-8")];
        let server = Server::at(&place, command, &options);
        server.await_stream("film.ts");
        let date = || {
            let answer = http(server.http, "GET", "/film.ts");
            let text = answer.header("Date").expect("answers are dated").to_owned();
            let date = httpdate::parse_http_date(&text).expect("a date of RFC 9110");
            date.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while Control::to(server.rtsp).ask("DESCRIBE", "channel/news", &[]).status != 200 {
            assert!(Instant::now() < deadline, "the channel is not on the air: {}", server.log());
            sleep(Duration::from_millis(200));
        }
        let mut player = Player::set_up(server.rtsp, "film.ts");
        let mut viewer = Player::set_up(server.rtsp, "channel/news");
        let first = player.play();
        viewer.play();
        let began = Instant::now();
        player.hear("it plays", |heard| heard.packets.len() > 20);
        for step_s in [3600, -3600, 86_400, -40] {
            let (before, seen) = (date(), viewer.heard().packets.len());
            clock.set_by(step_s);
            sleep(Duration::from_secs(1));
            let moved = date().cast_signed() - before.cast_signed();
            assert!((moved - step_s).abs() < 20, "the server's clock moved by {moved} s");
            viewer.hear("the channel goes on", |heard| heard.packets.len() > seen + 20);
        }
        let packets = film.len().div_ceil(PAYLOAD_BYTES);
        player.hear("the film to its end", |heard| heard.packets.len() == packets);
        let took = began.elapsed();
        assert!(took > Duration::from_secs(SECONDS - 2), "it was sent in {took:?}");
        player.heard().assert_gapless(&film, first);
        let numbers = viewer.heard();
        let number = |packet: &Vec<u8>| u16::from_be_bytes([packet[2], packet[3]]);
        let is_next = |two: &[Vec<u8>]| number(&two[1]) == number(&two[0]).wrapping_add(1);
        assert!(numbers.packets.windows(2).all(is_next), "the channel has no gap");
        drop(numbers);
        server.stop();
    }

    /// A player whose every tenth report is lost keeps its session, whose timeout is three seconds.
    #[test]
    fn sessions_live_while_a_tenth_of_the_reports_is_lost() {
        let film = Clip::of_seconds(33, 30).bytes();
        let server = serve(&[("film.ts", &film)], &["--session-timeout", "3"]);
        let relay = LossyRelay::dropping(server.rtsp, [u64::MAX, 10]);
        let mut command = Command::new(PROGRAM);
        let url = format!("rtsp://{}/film.ts", relay.address);
        command.args(["load", &url, "--sessions", "1", "--seconds", "10", "--within", "10000"]);
        let outcome = watchdog::run(&mut command, Duration::from_secs(60)).expect("it is there");
        let output = String::from_utf8_lossy(&outcome.stdout).into_owned() + &outcome.stderr;
        assert!(outcome.status.success(), "{output}");
        let log = server.stop();
        assert!(!log.contains("not heard from"), "{log}");
    }
}
