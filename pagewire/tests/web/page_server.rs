// SPDX-License-Identifier: MIT OR Apache-2.0
//! Server of the player page: the page, its script, the libraries of npm, files of a packager, the
//! licence with a clear key, and the report that the page posts back.
//!
//! A thread per connection, one request each. The media of pagewire is served by pagewire, at
//! another origin.
//!
//! Sources: RFC 9112 (messages); Encrypted Media Extensions §9.1.4 (licences of clear keys).
//! Does not serve ranges.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// Content that is served beside the page.
#[derive(Clone, Default)]
pub(crate) struct Served {
    /// Library of a player: its name in the page, and its path.
    pub(crate) library: Option<(&'static str, PathBuf)>,
    /// Folder of a packager's files.
    pub(crate) folder: Option<PathBuf>,
    /// Licence returned for every request for a key.
    pub(crate) licence: String,
}

impl Served {
    fn file(&self, name: &str) -> Option<Vec<u8>> {
        match &self.library {
            Some((known, path)) if name == *known => fs::read(path).ok(),
            _ => fs::read(self.folder.as_ref()?.join(name)).ok(),
        }
    }
}

/// A running server; its threads end with the test program.
pub(crate) struct PageServer {
    address: SocketAddr,
    reports: Receiver<Vec<u8>>,
}

impl PageServer {
    /// Serves the page, and this content beside it.
    pub(crate) fn start(served: Served) -> PageServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (sender, reports) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (served, sender) = (served.clone(), sender.clone());
                // A browser that is killed leaves requests in the middle.
                thread::spawn(move || answer(stream, &served, &sender));
            }
        });
        PageServer { address, reports }
    }

    /// Returns an address of this server.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Returns the next report; `None` when none arrives in time.
    pub(crate) fn report(&self, limit: Duration) -> Option<Vec<u8>> {
        self.reports.recv_timeout(limit).ok()
    }
}

fn answer(stream: TcpStream, served: &Served, reports: &Sender<Vec<u8>>) -> Option<()> {
    stream.set_read_timeout(Some(REQUEST_WAIT)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let (mut bytes, mut field) = (0, String::new());
    while reader.read_line(&mut field).ok()? > 2 {
        if let Some((name, value)) = field.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            bytes = value.trim().parse().ok()?;
        }
        field.clear();
    }
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let name = target.trim_start_matches('/');
    let mut body = vec![0; bytes];
    reader.read_exact(&mut body).ok()?;
    let content = match (method, name) {
        ("POST", "report") => {
            reports.send(body).ok()?;
            Some(Vec::new())
        }
        ("POST", "licence") => Some(served.licence.clone().into_bytes()),
        (_, "page.html") => Some(PAGE.as_bytes().to_vec()),
        (_, "player.js") => Some(SCRIPT.as_bytes().to_vec()),
        _ => served.file(name),
    };
    let kind = match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        Some("m3u8") => "application/vnd.apple.mpegurl",
        Some("mpd") => "application/dash+xml",
        _ => "application/octet-stream",
    };
    let status = if content.is_some() { "200 OK" } else { "404 Not Found" };
    let content = content.unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        content.len()
    );
    let mut stream = reader.into_inner();
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&content).ok()
}

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("player.js");
const REQUEST_WAIT: Duration = Duration::from_secs(60);
