// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time-outs and reports of sessions of a whole server, under a clock that the test sets: a session
//! ends at its time and not a millisecond before it, and a sender report has the times of its look.
//!
//! Requests and responses travel over loopback; the test waits for them, and time stands still
//! meanwhile. Looks of the server's own task in between see the same time.
//!
//! Does not test that the task looks ([`housekeeping`]).

use std::net::SocketAddr;
use std::time::UNIX_EPOCH;

use clock::SetClock;
use wire::mp2t::CLOCK_RATE_HZ;
use wire::rtcp::ReceptionReport;
use wire::rtp::Header;

use super::*;
use crate::config::Config;
use crate::prefetch::fetch;
use crate::rtsp::player::Player;
use crate::server::Server;

static CLIP: &[u8] = include_bytes!("../../../pagewire/assets/clip.ts");

const WALL: Duration = Duration::from_secs(1_800_000_000);
const MS: Duration = Duration::from_millis(1);
/// Against hanging.
const LIMIT: Duration = Duration::from_secs(60);

/// A server whose time the test sets, with one session.
struct Scene {
    set: SetClock,
    server: Server,
    player: Player,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn open() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("served")).unwrap();
        std::fs::write(folder.path().join("served/clip.ts"), CLIP).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut config = Config::new(folder.path().join("served"));
        (config.rtsp, config.http) = (any, any);
        let set = SetClock::at(UNIX_EPOCH + WALL);
        let server = Server::start_with(config, fetch, set.clock()).await.unwrap();
        let player = Player::set_up(&format!("rtsp://{}/clip.ts", server.rtsp())).await;
        Scene { set, server, player, _folder: folder }
    }

    fn state(&self) -> &Arc<ServerState> {
        &self.server.state
    }

    /// Looks after all sessions; true while there is one.
    fn looks(&self) -> bool {
        look(self.state());
        self.state().sessions.len() == 1
    }

    /// Asserts that the session ends after this time of silence, and not before.
    #[track_caller]
    fn assert_ends_after(&self, time: Duration) {
        self.assert_lives_for(time - MS);
        self.set.advance(MS);
        assert!(!self.looks(), "it has lived for longer than {time:?}");
    }

    #[track_caller]
    fn assert_lives_for(&self, time: Duration) {
        self.set.advance(time);
        assert!(self.looks(), "it has ended within {time:?}");
    }

    /// Lets time pass until the pacer has sent a packet; returns its header.
    async fn first_packet(&self) -> Header {
        let mut packet = [0; 2048];
        let wait = async {
            loop {
                let received = self.player.rtp.recv(&mut packet);
                if let Ok(bytes) = tokio::time::timeout(MS, received).await {
                    return bytes.unwrap();
                }
                // The pacer's thread looks again when a millisecond has passed.
                self.set.advance(MS);
            }
        };
        let bytes = tokio::time::timeout(LIMIT, wait).await.expect("a packet");
        Header::parse(&packet[..bytes]).unwrap().0
    }

    /// Waits until the packets that are due have left.
    async fn sent_in_time(&self) {
        let session = self.state().sessions.all().remove(0);
        let SessionContent::Stream(source) = &session.content else { panic!("it is a stream") };
        let now = self.set.now();
        let is_behind = || {
            let progress = session.first_stream().link.progress();
            let clock = progress.clock.expect("it has begun");
            progress.next < source.asset.plan.packets_before(clock.ticks_at(now))
        };
        let wait = async {
            while is_behind() {
                tokio::time::sleep(MS).await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.expect("packets that are due");
    }

    /// Waits for an RTCP datagram of the server.
    async fn rtcp(&self) -> Vec<RtcpItem> {
        let mut datagram = [0; 2048];
        let received = self.player.rtcp.recv(&mut datagram);
        let bytes = tokio::time::timeout(LIMIT, received).await.expect("RTCP").unwrap();
        rtcp::parse(&datagram[..bytes]).unwrap().collect()
    }

    async fn sender_report(&self) -> rtcp::SenderInfo {
        let sender = |item: RtcpItem| match item {
            RtcpItem::Sender(info) => Some(info),
            _ => None,
        };
        self.rtcp().await.into_iter().find_map(sender).expect("a sender report")
    }
}

#[tokio::test]
async fn session_ends_at_its_time_out_which_each_sign_of_life_prolongs() {
    let mut scene = Scene::open().await;
    let timeout = scene.state().live.current().session_timeout;
    scene.player.play(None).await;
    for _ in 0..60 {
        // Over an hour.
        scene.assert_lives_for(timeout - MS);
        let request = scene.player.client.get_parameter();
        scene.player.connection.ask(request).await;
    }
    scene.assert_lives_for(timeout - MS);
    let report = ReceptionReport { ssrc: scene.player.ssrc, ..ReceptionReport::default() };
    let report = rtcp::receiver_report(7, &[report], "receiver");
    on_rtcp(scene.state(), scene.player.rtcp.local_addr().unwrap(), &report);
    scene.assert_lives_for(timeout - MS);
    // A stranger's port prolongs nothing.
    let stranger = "127.0.0.1:9".parse().unwrap();
    on_rtcp(scene.state(), stranger, &report);
    scene.assert_ends_after(MS);
    while !scene.rtcp().await.iter().any(|item| matches!(item, RtcpItem::Bye { .. })) {}
    scene.server.stop().await;
}

#[tokio::test]
async fn session_that_never_plays_ends_earlier() {
    let scene = Scene::open().await;
    let limits = scene.state().limits.limits();
    assert!(limits.play_within < scene.state().live.current().session_timeout);
    scene.assert_ends_after(limits.play_within);
    let counts = scene.state().limits.refusals.counts();
    assert_eq!(counts["not_played"], 1);
    scene.server.stop().await;
}

/// Both times of a report are of one moment, whenever it is sent.
#[tokio::test]
async fn sender_reports_have_both_times_of_one_moment() {
    let mut scene = Scene::open().await;
    let started = scene.player.play(None).await;
    let first = scene.first_packet().await;
    assert_eq!((Some(first.timestamp), first.ssrc), (started.timestamp, scene.player.ssrc));
    let session = scene.state().sessions.all().remove(0);
    let clock = session.first_stream().link.progress().clock.expect("it has begun");
    let (mut reported, mut intervals) = (None, Vec::new());
    for _ in 0..40 {
        scene.set.advance(LOOK_EVERY);
        let due = session.control.lock().report_at;
        let now = scene.state().now();
        // A pacer that is far behind moves the clock.
        scene.sent_in_time().await;
        assert!(scene.looks());
        if now < due {
            continue;
        }
        let moment = scene.set.clock().moment();
        let ntp = rtcp::ntp(moment.since_epoch().unwrap());
        // On a slow machine one was due before the first packet was here.
        let info = loop {
            let info = scene.sender_report().await;
            if info.ntp >= ntp {
                break info;
            }
        };
        assert_eq!(info.ntp, ntp);
        let ticks = clock.ticks_at(moment.at) - clock.ticks;
        let stamps = ticks * u64::from(CLOCK_RATE_HZ) / TICKS_PER_SECOND;
        let found = info.rtp_timestamp.wrapping_sub(first.timestamp);
        // The first timestamp is rounded to units of 90 kHz.
        assert!(u64::from(found).abs_diff(stamps) <= 1, "{found} {stamps}");
        if let Some(reported) = reported.replace(moment.at) {
            intervals.push(moment.at - reported);
        }
    }
    // RFC 3550 §6.2: half to one and a half of five seconds, divided by e - 3/2; seen at looks.
    let allowed = rtcp::report_interval(false, 0)..rtcp::report_interval(false, u32::MAX);
    for interval in &intervals {
        assert!(*interval >= allowed.start, "{intervals:?}");
        assert!(*interval <= allowed.end + LOOK_EVERY, "{intervals:?}");
    }
    assert!(!intervals.is_empty(), "two reports at least in ten seconds");
    scene.server.stop().await;
}
