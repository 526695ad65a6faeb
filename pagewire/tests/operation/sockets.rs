// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of a service manager: identified by name, checked, and served.
//!
//! Sources: sd_listen_fds(3), sd_notify(3).

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::Started;
use crate::harness::answer::http;
use crate::harness::rtsp::Control;
use crate::harness::watchdog;
use crate::harness::{PROGRAM, Place, uninterrupted};

/// Returns a command that runs the program with a descriptor as its third, as systemd does: the
/// shell keeps its process ID when it becomes the program.
fn with_descriptor(descriptor: OwnedFd, name: &str, place: &Place) -> Command {
    let script = "exec 3<&0 </dev/null; export LISTEN_PID=$$; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, PROGRAM, "--log=info", "serve", "--rtsp", "127.0.0.1:0", "--cache"])
        .arg(place.cache())
        .arg(place.folder())
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", name)
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::from(descriptor));
    command
}

#[test]
fn a_socket_of_the_service_manager_is_served_under_its_name() {
    let place = Place::new();
    place.put("film.txt", b"text");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    // Connections are queued before the server runs: none is refused.
    let early = std::thread::spawn(move || http(address, "GET", "/film.txt"));
    let mut command = with_descriptor(listener.into(), "http", &place);
    // The address of the manager wins over the configured one.
    command.args(["--http", "127.0.0.1:1"]).stderr(Stdio::null());
    let server = Started::by(&mut command);
    assert_eq!(server.http, address);
    assert_eq!(early.join().expect("an answer").body, b"text");
    assert_eq!(http(address, "GET", "/film.txt").status, 200);
    assert_eq!(Control::to(server.rtsp).ask("OPTIONS", "*", &[]).status, 200);
}

#[test]
fn sockets_that_are_not_what_they_are_named_are_refused() {
    let place = Place::new();
    let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let udp = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    let cases: [(OwnedFd, &str, &str); 3] = [
        (udp, "http", "LISTEN_FDS: descriptor 3, http: no TCP socket; write ListenStream="),
        (tcp(), "web", "LISTEN_FDNAMES: descriptor 3 is named \"web\"; write FileDescriptorName="),
        (File::open("/dev/null").expect("it is there").into(), "rtsp", "rtsp: no TCP socket"),
    ];
    for (descriptor, name, words) in cases {
        let mut command = with_descriptor(descriptor, name, &place);
        command.args(["--http", "127.0.0.1:0"]);
        let stderr = watchdog::unnamed_file();
        command.stdout(Stdio::null()).stderr(stderr.try_clone().expect("a descriptor"));
        let mut child = command.spawn().expect("a shell is part of every system");
        let status = watchdog::wait(&mut child, Duration::from_secs(60)).expect("it ends at once");
        let text = String::from_utf8(watchdog::contents(stderr)).expect("UTF-8");
        assert_eq!(status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Variables inherited from another service are not for this process.
#[test]
fn sockets_of_another_process_are_left_alone() {
    let place = Place::new();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cache"]);
    command.arg(place.cache()).arg(place.folder()).stderr(Stdio::null());
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "http");
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let server = Started::by(&mut command);
    assert_eq!(server.http.ip(), Ipv4Addr::LOCALHOST);
    assert_eq!(http(server.http, "GET", "/index.json").status, 200);
}

#[test]
fn service_manager_is_told_of_start_life_and_end() {
    let place = Place::new();
    let path = place.top().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a new path");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cache"]);
    command.arg(place.cache()).arg(place.folder()).stderr(Stdio::null());
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000");
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    let mut server = Started::by(&mut command);
    let mut buffer = [0; 512];
    let mut heard = || {
        let bytes = uninterrupted(|| manager.recv(&mut buffer)).expect("a message in time");
        String::from_utf8(buffer[..bytes].to_vec()).expect("text")
    };
    let ready = heard();
    let status = format!("STATUS=serving rtsp://{} and http://{}", server.rtsp, server.http);
    assert_eq!(ready, format!("READY=1\n{status}\n"));
    // Ten of them fit into the socket: an interval as long as the time limit of the test allows.
    for _ in 0..2 {
        assert_eq!(heard(), "WATCHDOG=1\n");
    }
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let last = std::iter::repeat_with(&mut heard).find(|message| message != "WATCHDOG=1\n");
    assert_eq!(last.as_deref(), Some("STOPPING=1\nSTATUS=stopping\n"));
    let status = watchdog::wait(&mut server.child, Duration::from_secs(60));
    assert!(status.is_some_and(|status| status.success()));
}
