// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTSP through two HTTP connections: tunnels continue with another upload half; tunnels that are
//! cut in the middle or have no partner end, and nothing leaks.
//!
//! `timed` waits for an upload half that never arrives.
//!
//! Sources: `wire::rtsp::tunnel`.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::Server;
use crate::harness::clip::Clip;
use crate::harness::rtsp::base64;
use crate::interleaved::{Reader, heavy, session_of};
use crate::resource_snapshot::{ResourceSnapshot, await_nobody};
use crate::serve;

/// Opens the halves of a tunnel with this cookie; returns the upload half and the reader of the
/// other.
fn tunnel(server: &Server, cookie: &str) -> (TcpStream, Reader) {
    let mut reader = Reader::to(server);
    let head = format!(
        "GET /a.ts HTTP/1.0\r\nx-sessioncookie: {cookie}\r\n\
         Accept: application/x-rtsp-tunnelled\r\n\r\n"
    );
    reader.stream.write_all(head.as_bytes()).expect("the server reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        reader.stream.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.0 200 "), "{}", String::from_utf8_lossy(&answer));
    (upload(server, cookie), reader)
}

fn upload(server: &Server, cookie: &str) -> TcpStream {
    let mut upload = TcpStream::connect(server.rtsp).expect("the server listens");
    let head = format!(
        "POST /a.ts HTTP/1.0\r\nx-sessioncookie: {cookie}\r\nContent-Length: 32767\r\n\
         Content-Type: application/x-rtsp-tunnelled\r\n\r\n"
    );
    upload.write_all(head.as_bytes()).expect("the server reads");
    upload
}

#[track_caller]
fn ask_through(
    upload: &mut TcpStream,
    reader: &mut Reader,
    method: &str,
    headers: &[&str],
) -> String {
    let request = reader.request(method, "a.ts", headers);
    upload.write_all(base64(&request).as_bytes()).expect("the server reads");
    reader.reply()
}

/// Opens a tunnel and sets a session of `a.ts` up; returns its upload half, reader and Session
/// header.
fn tunnel_with_session(server: &Server, cookie: &str) -> (TcpStream, Reader, String) {
    let (mut up, mut reader) = tunnel(server, cookie);
    let transport = "Transport: RTP/AVP/TCP;unicast;interleaved=0-1";
    let reply = ask_through(&mut up, &mut reader, "SETUP", &[transport]);
    (up, reader, session_of(&reply))
}

/// As [`tunnel_with_session`]; the session plays.
fn playing_tunnel(server: &Server, cookie: &str) -> (TcpStream, Reader) {
    let (mut up, mut reader, session) = tunnel_with_session(server, cookie);
    ask_through(&mut up, &mut reader, "PLAY", &[&session]);
    reader.frame();
    (up, reader)
}

#[test]
fn a_tunnel_plays_and_goes_on_with_another_upload() {
    let clip = Clip::of_seconds(4, 1).bytes();
    let server = serve(&[("a.ts", &clip)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let (up, mut reader, session) = tunnel_with_session(&server, "one");
    // The client closes its POST and opens the next.
    drop(up);
    let mut up = upload(&server, "one");
    let reply = ask_through(&mut up, &mut reader, "PLAY", &[&session]);
    assert!(reply.starts_with("RTSP/1.0 200 "), "{reply}");
    assert!(reader.media_to_bye(0) == clip, "not the file");
    // The download half first: after the end of the upload half the server waits for the next POST.
    drop(reader);
    await_nobody(&server);
    drop(up);
    snapshot.assert_restored(&server);
}

#[test]
fn a_tunnel_whose_download_half_is_cut_ends() {
    let server = serve(&[("a.ts", &heavy(20))], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let (up, reader) = playing_tunnel(&server, "a");
    drop(reader);
    await_nobody(&server);
    drop(up);
    snapshot.assert_restored(&server);
}

#[test]
fn a_tunnel_whose_upload_half_is_no_base64_ends() {
    let server = serve(&[("a.ts", &heavy(20))], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let (mut up, mut reader) = playing_tunnel(&server, "b");
    up.write_all(b"\x01\x02\x03\x04\x05\x06\x07\x08").expect("the server reads");
    while reader.next().is_some() {}
    await_nobody(&server);
    drop((up, reader));
    snapshot.assert_restored(&server);
}

/// An upload half without a download half, a second tunnel of one cookie, a head without one.
#[test]
fn halves_of_tunnels_without_a_partner_are_refused() {
    let server = serve(&[("a.ts", &Clip::of_seconds(4, 1).bytes())], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let refused = |mut half: TcpStream| {
        let mut refusal = String::new();
        half.read_to_string(&mut refusal).expect("an answer");
        refusal
    };
    let refusal = refused(upload(&server, "nobody's"));
    assert!(refusal.starts_with("HTTP/1.0 404 "), "{refusal}");
    let (up, reader) = tunnel(&server, "c");
    let mut second = TcpStream::connect(server.rtsp).expect("the server listens");
    second.write_all(b"GET / HTTP/1.0\r\nx-sessioncookie: c\r\n\r\n").expect("the server reads");
    let refusal = refused(second);
    assert!(refusal.starts_with("HTTP/1.0 409 Conflict\r\n"), "{refusal}");
    assert!(refusal.contains("choose another"), "{refusal}");
    let mut browser = TcpStream::connect(server.rtsp).expect("the server listens");
    browser.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
    let refusal = refused(browser);
    assert!(refusal.starts_with("HTTP/1.0 400 ") && refusal.contains("this port speaks RTSP"));
    drop(reader);
    await_nobody(&server);
    drop(up);
    snapshot.assert_restored(&server);
}

mod timed {
    use super::*;

    /// The upload half first: the server waits ten seconds for the next POST.
    #[test]
    fn a_tunnel_without_its_upload_half_ends() {
        let clip = Clip::of_seconds(4, 1).bytes();
        let server = serve(&[("a.ts", &clip)], &[]);
        let snapshot = ResourceSnapshot::of(&server);
        let (up, reader) = playing_tunnel(&server, "a");
        drop(up);
        drop(reader);
        snapshot.assert_restored(&server);
    }
}
