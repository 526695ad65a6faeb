// SPDX-License-Identifier: MIT OR Apache-2.0
//! A viewer that plays the last track of a file over one transport of RTSP.
//!
//! Sources: RFC 2326 §10.12 (interleaved); "Tunnelling RTSP and RTP through HTTP" (Apple).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::harness::rtsp::{LOCALHOST, PortPair, base64};

/// Transport of the media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Udp,
    Tcp,
    /// RTSP and media through HTTP.
    Tunnel,
}

/// A connection, or the two of a tunnel.
pub(crate) struct Viewer {
    way: Way,
    upload: TcpStream,
    download: BufReader<TcpStream>,
    base: String,
    session: Option<String>,
    ports: PortPair,
    /// Interleaved packets of media so far.
    packets: usize,
}

/// A status line with headers, and a body.
pub(crate) struct Reply {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn is_ok(&self) -> bool {
        self.head.starts_with("RTSP/1.0 200 ")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Viewer {
    pub(crate) fn open(server: SocketAddr, way: Way, name: &str) -> Viewer {
        let connect = || {
            let stream = TcpStream::connect(server).expect("the server listens");
            stream.set_read_timeout(Some(WAIT)).expect("a time limit");
            stream
        };
        let mut download = connect();
        let upload = match way {
            Way::Udp | Way::Tcp => download.try_clone().expect("a descriptor"),
            Way::Tunnel => {
                let common = format!(
                    "/{name} HTTP/1.0\r\nx-sessioncookie: {name}\r\n\
                     Accept: application/x-rtsp-tunnelled\r\n"
                );
                write!(download, "GET {common}\r\n").expect("the server reads");
                let mut upload = connect();
                let length = "Content-Length: 32767";
                write!(upload, "POST {common}{length}\r\n\r\n").expect("the server reads");
                upload
            }
        };
        let base = format!("rtsp://{server}/{name}");
        let download = BufReader::new(download);
        let ports = PortPair::on(LOCALHOST);
        let mut viewer = Viewer { way, upload, download, base, session: None, ports, packets: 0 };
        if way == Way::Tunnel {
            let reply = viewer.reply();
            assert!(reply.head.starts_with("HTTP/1.0 200 "), "{name}: {}", reply.head);
        }
        viewer
    }

    /// Sends a request and returns its reply; `headers` are whole lines with their ends.
    pub(crate) fn ask(&mut self, method: &str, url: &str, headers: &str) -> Reply {
        let session = self.session.as_ref();
        let session = session.map(|id| format!("Session: {id}\r\n")).unwrap_or_default();
        let text = format!("{method} {url} RTSP/1.0\r\nCSeq: 1\r\n{session}{headers}\r\n");
        let text = if self.way == Way::Tunnel { base64(&text) } else { text };
        self.upload.write_all(text.as_bytes()).expect("the server reads");
        self.reply()
    }

    pub(crate) fn describe(&mut self) -> Reply {
        let url = self.base.clone();
        self.ask("DESCRIBE", &url, "")
    }

    /// Sets the last track up and plays with these headers; returns the reply to PLAY, or the
    /// refusal.
    pub(crate) fn play(&mut self, headers: &str) -> Result<Reply, Reply> {
        let description = self.describe();
        if !description.is_ok() {
            return Err(description);
        }
        // The attribute of the last track: that of the session precedes it.
        let mut lines = description.body.lines().rev();
        let control = lines.find_map(|line| line.strip_prefix("a=control:"));
        let control = control.expect("every description has one");
        let url = format!("{}/{control}", self.base);
        let transport = match self.way {
            Way::Udp => self.ports.transport(),
            Way::Tcp | Way::Tunnel => "Transport: RTP/AVP/TCP;unicast;interleaved=0-1".to_owned(),
        };
        let granted = self.ask("SETUP", &url, &format!("{transport}\r\n"));
        if !granted.is_ok() {
            return Err(granted);
        }
        let session = granted.header("Session").expect("a session");
        self.session = session.split(';').next().map(str::to_owned);
        let url = self.base.clone();
        let playing = self.ask("PLAY", &url, headers);
        if playing.is_ok() { Ok(playing) } else { Err(playing) }
    }

    /// Waits for a packet of media.
    pub(crate) fn await_packet(&mut self) {
        if self.way == Way::Udp {
            self.ports.rtp.set_read_timeout(Some(WAIT)).expect("a time limit");
            self.ports.rtp.recv(&mut [0; 2048]).expect("a packet comes");
            return;
        }
        while self.packets == 0 {
            assert!(self.frame(), "an answer that nobody asked for");
        }
    }

    /// Reads a frame if the next bytes are one.
    fn frame(&mut self) -> bool {
        let next = self.download.fill_buf().expect("something comes");
        assert!(!next.is_empty(), "{}: closed", self.base);
        if next[0] != b'$' {
            return false;
        }
        let mut head = [0; 4];
        self.download.read_exact(&mut head).expect("a frame's head");
        let mut packet = vec![0; u16::from_be_bytes([head[2], head[3]]).into()];
        self.download.read_exact(&mut packet).expect("a frame");
        self.packets += usize::from(head[1] == 0);
        true
    }

    fn reply(&mut self) -> Reply {
        while self.frame() {}
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let count = self.download.read_line(&mut head).expect("a reply");
            assert!(count > 0, "{}: closed", self.base);
        }
        let mut reply = Reply { head, body: String::new() };
        let bytes = reply.header("Content-Length").map_or(0, |bytes| bytes.parse().unwrap());
        // The download half of a tunnel declares the maximum length of its content.
        if reply.head.starts_with("RTSP/") {
            let mut body = vec![0; bytes];
            self.download.read_exact(&mut body).expect("a body");
            reply.body = String::from_utf8(body).expect("a description");
        }
        reply
    }
}

const WAIT: Duration = Duration::from_secs(60);
