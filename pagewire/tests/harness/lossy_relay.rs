// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network that loses packets: a UDP relay between an RTSP client and a server that drops one in
//! N packets of RTP, of RTCP or of both. (The queueing discipline netem is not available on every
//! kernel.)
//!
//! The ports in Transport are rewritten, so both sides see the relay alone; requests and answers
//! are forwarded completely.
//!
//! Does not relay RTP over TCP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A relay; its threads end with the test's process.
pub(crate) struct LossyRelay {
    pub(crate) address: SocketAddr,
}

/// Ports of one SETUP.
struct Track {
    /// Sockets that the server sends to: RTP, RTCP.
    server_side: [UdpSocket; 2],
    /// Sockets that the client sends to.
    client_side: [UdpSocket; 2],
    client_ports: String,
}

impl LossyRelay {
    /// Relays to `server`, and drops each `nth` RTP packet.
    pub(crate) fn to(server: SocketAddr, nth: u64) -> LossyRelay {
        LossyRelay::dropping(server, [nth, u64::MAX])
    }

    /// Relays to `server`, and drops each nth RTP packet to the client, and each nth RTCP packet
    /// either way.
    pub(crate) fn dropping(server: SocketAddr, nth: [u64; 2]) -> LossyRelay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || relay(client, server, nth));
            }
        });
        LossyRelay { address }
    }
}

fn relay(client: TcpStream, server: SocketAddr, nth: [u64; 2]) {
    let server = TcpStream::connect(server).expect("the server listens");
    let tracks: Arc<Mutex<Vec<Track>>> = Arc::default();
    let (of_requests, own) = (tracks.clone(), client.local_addr().expect("connected"));
    let (mut from_client, mut to_server) = both(&client, &server);
    thread::spawn(move || {
        pass(&mut from_client, &mut to_server, |head| request(head, &of_requests));
    });
    let (mut from_server, mut to_client) = both(&server, &client);
    pass(&mut from_server, &mut to_client, |head| answer(head, &tracks, (own, nth)));
}

fn both(from: &TcpStream, to: &TcpStream) -> (TcpStream, TcpStream) {
    (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"))
}

/// Forwards messages, with their heads changed.
fn pass(from: &mut TcpStream, to: &mut TcpStream, change: impl Fn(&str) -> String) {
    let mut held = Vec::new();
    let mut buffer = [0; 16_384];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        held.extend_from_slice(&buffer[..bytes]);
        while let Some(end) = held.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = held.drain(..end + 4).collect();
            let head = change(&String::from_utf8(head).expect("heads are text"));
            if to.write_all(head.as_bytes()).is_err() {
                return;
            }
            // Bodies are short: they arrive with their heads.
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let length = length.map_or(0, |length| length.trim().parse().expect("a number"));
            while held.len() < length {
                let Ok(bytes @ 1..) = from.read(&mut buffer) else { return };
                held.extend_from_slice(&buffer[..bytes]);
            }
            let body: Vec<u8> = held.drain(..length).collect();
            if to.write_all(&body).is_err() {
                return;
            }
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Puts the relay's ports into a SETUP.
fn request(head: &str, tracks: &Mutex<Vec<Track>>) -> String {
    let Some(ports) = value(head, "client_port=") else { return head.to_owned() };
    let track = Track { server_side: pair(), client_side: pair(), client_ports: ports.to_owned() };
    let own = format!("client_port={}", ports_of(&track.server_side));
    let head = head.replace(&format!("client_port={ports}"), &own);
    tracks.lock().expect("nobody panicked").push(track);
    head
}

/// Puts the relay's ports into the answer to a SETUP, and begins to relay.
fn answer(head: &str, tracks: &Mutex<Vec<Track>>, (own, nth): (SocketAddr, [u64; 2])) -> String {
    let Some(ports) = value(head, "server_port=").map(str::to_owned) else {
        return head.to_owned();
    };
    let track = tracks.lock().expect("nobody panicked").pop().expect("its SETUP was seen");
    let seen = ports_of(&track.server_side);
    let head = head
        .replace(&format!("client_port={seen}"), &format!("client_port={}", track.client_ports))
        .replace(
            &format!("server_port={ports}"),
            &format!("server_port={}", ports_of(&track.client_side)),
        );
    let to_address = |ports: &str, place: usize| {
        let port =
            ports.split('-').nth(place).and_then(|port| port.parse().ok()).expect("two ports");
        SocketAddr::new(own.ip(), port)
    };
    for (place, nth) in nth.into_iter().enumerate() {
        let (server_side, client_side) = (&track.server_side[place], &track.client_side[place]);
        let to_server = if place == 0 { u64::MAX } else { nth };
        forward(server_side, client_side, (to_address(&track.client_ports, place), nth));
        forward(client_side, server_side, (to_address(&ports, place), to_server));
    }
    head
}

/// Forwards datagrams received at `from` through the socket `by`, except each `nth`.
fn forward(from: &UdpSocket, by: &UdpSocket, (to, nth): (SocketAddr, u64)) {
    let (from, by) = (from.try_clone().expect("a socket"), by.try_clone().expect("a socket"));
    from.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    thread::spawn(move || {
        let mut datagram = [0; 65_536];
        let mut count = 0_u64;
        while let Ok((bytes, _)) = from.recv_from(&mut datagram) {
            count += 1;
            if !count.is_multiple_of(nth) {
                let _ = by.send_to(&datagram[..bytes], to);
            }
        }
    });
}

/// Opens two sockets on an even port and the next.
fn pair() -> [UdpSocket; 2] {
    let on = |port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok();
    let pair = (0..1000).find_map(|_| {
        let first = on(0)?;
        let port = first.local_addr().ok()?.port();
        (port % 2 == 0).then(|| on(port + 1)).flatten().map(|second| [first, second])
    });
    pair.expect("an even port with a free neighbour")
}

fn ports_of(pair: &[UdpSocket; 2]) -> String {
    let port = |socket: &UdpSocket| socket.local_addr().expect("it is bound").port();
    format!("{}-{}", port(&pair[0]), port(&pair[1]))
}

/// Returns the value of a parameter of Transport.
fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let behind = &head[head.find(name)? + name.len()..];
    Some(behind.split([';', '\r', ',']).next().unwrap_or_default())
}
