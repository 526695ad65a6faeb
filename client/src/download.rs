// SPDX-License-Identifier: MIT OR Apache-2.0
//! A verifying download: one GET, whose bytes are checked against Content-Length.
//!
//! It serves the demo, the tests, and people who measure a server's throughput. It keeps no copy of
//! the file and can pass the bytes to a function that compares them. Costs one copy out of the
//! socket.
//!
//! Sources: RFC 9112 §3.2, §4, §6.3 (framing); RFC 9110 §15.
//! Does not support ranges, redirections, chunked bodies or TLS; curl does.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connect::{authority, connect};
use super::http_head::{HEAD_BYTES_MAX, Head};
use super::http_url::UrlParts;
use super::{one_line, wrong_url};
use crate::error::Error;

/// Target of the bytes of a download.
#[non_exhaustive]
pub enum DownloadTarget<'a> {
    /// The bytes are only counted.
    Nowhere,
    /// A file; an existing one is replaced.
    File(&'a Path),
    /// A function that receives the bytes in order, in pieces of any size.
    Sink(&'a mut (dyn FnMut(&[u8]) + Send)),
}

/// Progress of a download.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DownloadProgress {
    /// Bytes received.
    pub bytes: u64,
    /// Length of the body, where the server announces one.
    pub bytes_total: Option<u64>,
    /// Time since the request.
    pub elapsed: Duration,
}

/// Result of a complete download.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Download {
    /// URL of the download.
    pub url: String,
    /// The status: 200.
    pub status: u16,
    /// The Content-Type, where the server sends one.
    pub content_type: Option<String>,
    /// Bytes of the body.
    pub bytes: u64,
    /// Time from the request to the first byte of the answer, in seconds.
    pub first_byte_s: f64,
    /// Time from the request to the last byte, in seconds.
    pub wall_s: f64,
}

impl std::fmt::Display for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = self.bytes as f64 / 1e6 / self.wall_s.max(1e-9);
        write!(f, "{}: {} bytes in {:.3} s, {rate:.1} MB/s", self.url, self.bytes, self.wall_s)
    }
}

/// Downloads a file from an `http:` URL. `progress` is called ten times a second at most.
///
/// # Errors
/// The server cannot be reached; it answers with a status other than 200 (with the text of its
/// body); the body is shorter than announced; the file cannot be written.
pub async fn download(
    url: &str,
    target: DownloadTarget<'_>,
    mut progress: impl FnMut(&DownloadProgress),
) -> Result<Download, Error> {
    let url_parts = UrlParts::parse(url).ok_or_else(|| wrong_url(url))?;
    let stream = connect(&url_parts.host, url_parts.port).await?;
    let mut fetch = Fetch {
        peer: format!("http {}", authority(&url_parts.host, url_parts.port)),
        path: one_line(&url_parts.path, PATH_CHARS_SHOWN),
        stream,
        buffer: vec![0; READ_BYTES],
        filled: 0,
    };
    let began = Instant::now();
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: pagewire\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n",
        url_parts.path,
        authority(&url_parts.host, url_parts.port)
    );
    let sent = fetch.stream.write_all(request.as_bytes()).await;
    sent.map_err(|error| fetch.fault(format!("the connection broke: {error}")))?;
    let head = fetch.head().await?;
    let first_byte_s = began.elapsed().as_secs_f64();
    if head.status != 200 {
        return Err(fetch.refusal(&head).await);
    }
    let mut sink = OpenTarget::new(target).await?;
    let bytes = fetch.body(&head, &mut sink, began, &mut progress).await?;
    sink.close().await?;
    Ok(Download {
        url: url.to_owned(),
        status: head.status,
        content_type: head.content_type,
        bytes,
        first_byte_s,
        wall_s: began.elapsed().as_secs_f64(),
    })
}

/// One request and its response.
struct Fetch {
    peer: String,
    path: String,
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes of the body received with the head, at the front of the buffer.
    filled: usize,
}

impl Fetch {
    fn fault(&self, found: impl std::fmt::Display) -> Error {
        Error::Peer { peer: self.peer.clone(), found: format!("GET {}: {found}", self.path) }
    }

    /// Reads into the buffer from offset `from` on; returns 0 at the end of the connection.
    async fn read(&mut self, from: usize) -> Result<usize, Error> {
        let read = self.stream.read(&mut self.buffer[from..]).await;
        read.map_err(|error| self.fault(format!("the connection broke: {error}")))
    }

    /// Does the same, within [`READ_WAIT`].
    async fn read_in_time(&mut self, from: usize) -> Result<usize, Error> {
        let read = timeout(READ_WAIT, self.read(from)).await;
        read.unwrap_or_else(|_| {
            Err(self.fault(format!("no byte came in {} s", READ_WAIT.as_secs())))
        })
    }

    /// Reads the head, all of it within [`READ_WAIT`].
    async fn head(&mut self) -> Result<Head, Error> {
        let head = timeout(READ_WAIT, self.whole_head()).await;
        head.unwrap_or_else(|_| {
            Err(self.fault(format!("the head was not whole in {} s", READ_WAIT.as_secs())))
        })
    }

    async fn whole_head(&mut self) -> Result<Head, Error> {
        loop {
            let received = &self.buffer[..self.filled];
            if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = Head::parse(&received[..end]).map_err(|found| self.fault(found))?;
                if head.is_chunked {
                    return Err(self.fault("Transfer-Encoding chunked, which is not read here"));
                }
                self.buffer.copy_within(end + 4..self.filled, 0);
                self.filled -= end + 4;
                return Ok(head);
            }
            if self.filled >= HEAD_BYTES_MAX {
                return Err(self.fault(format!("head of more than {HEAD_BYTES_MAX} bytes")));
            }
            match self.read(self.filled).await? {
                0 => {
                    return Err(self.fault("the server closed the connection instead of answering"));
                }
                bytes => self.filled += bytes,
            }
        }
    }

    async fn refusal(&mut self, head: &Head) -> Error {
        // One read is enough for one line.
        let room = self.filled;
        let more =
            if room < self.buffer.len() { self.read_in_time(room).await.unwrap_or(0) } else { 0 };
        self.fault(head.refusal(&self.buffer[..room + more]))
    }

    async fn body(
        &mut self,
        head: &Head,
        sink: &mut OpenTarget<'_>,
        began: Instant,
        progress: &mut impl FnMut(&DownloadProgress),
    ) -> Result<u64, Error> {
        let total = head.content_bytes;
        let mut bytes = 0_u64;
        let mut reported = began;
        let mut filled = std::mem::take(&mut self.filled);
        loop {
            let due = total.map_or(u64::MAX, |total| total - bytes);
            let count = u64::try_from(filled).unwrap_or(u64::MAX).min(due);
            sink.write(&self.buffer[..count as usize]).await?;
            bytes += count;
            let now = Instant::now();
            let is_done = total == Some(bytes);
            if is_done || now >= reported + PROGRESS_EVERY {
                reported = now;
                progress(&DownloadProgress { bytes, bytes_total: total, elapsed: now - began });
            }
            if is_done {
                return Ok(bytes);
            }
            filled = self.read_in_time(0).await?;
            if filled == 0 {
                return match total {
                    None => Ok(bytes),
                    Some(total) => {
                        Err(self.fault(format!("the connection ended at byte {bytes} of {total}")))
                    }
                };
            }
        }
    }
}

/// An open target.
enum OpenTarget<'a> {
    Nowhere,
    File(&'a Path, tokio::fs::File),
    Sink(&'a mut (dyn FnMut(&[u8]) + Send)),
}

impl<'a> OpenTarget<'a> {
    async fn new(target: DownloadTarget<'a>) -> Result<OpenTarget<'a>, Error> {
        Ok(match target {
            DownloadTarget::Nowhere => OpenTarget::Nowhere,
            DownloadTarget::Sink(sink) => OpenTarget::Sink(sink),
            DownloadTarget::File(path) => {
                let file = tokio::fs::File::create(path).await;
                OpenTarget::File(path, file.map_err(|source| Error::on_file("open", path, source))?)
            }
        })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self {
            OpenTarget::Nowhere => Ok(()),
            OpenTarget::Sink(sink) => {
                sink(bytes);
                Ok(())
            }
            OpenTarget::File(path, file) => {
                file.write_all(bytes).await.map_err(|source| Error::on_file("write", path, source))
            }
        }
    }

    async fn close(self) -> Result<(), Error> {
        match self {
            OpenTarget::File(path, mut file) => {
                file.flush().await.map_err(|source| Error::on_file("write", path, source))
            }
            OpenTarget::Nowhere | OpenTarget::Sink(_) => Ok(()),
        }
    }
}

const READ_BYTES: usize = 256 << 10;
const PATH_CHARS_SHOWN: usize = 200;
const READ_WAIT: Duration = Duration::from_secs(20);
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    /// Answers one GET with these bytes and closes.
    async fn serve(answer: Vec<u8>) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/a.ts", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            stream.write_all(&answer).await.unwrap();
            stream.shutdown().await.unwrap();
            String::from_utf8(request).unwrap()
        });
        (url, served)
    }

    fn answer(status: &str, length: usize, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n");
        let head = format!("{head}Content-Length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn what_is_sent_arrives_in_the_sink_and_in_the_file() {
        let body: Vec<u8> = (0..READ_BYTES * 2 + 77).map(|n| (n % 251) as u8).collect();
        let (url, served) = serve(answer("200 OK", body.len(), &body)).await;
        let mut seen = Vec::new();
        let mut last = None;
        let mut sink = |bytes: &[u8]| seen.extend_from_slice(bytes);
        let done =
            download(&url, DownloadTarget::Sink(&mut sink), |now| last = Some(*now)).await.unwrap();
        assert!(seen == body);
        assert_eq!((done.status, done.bytes), (200, body.len() as u64));
        assert_eq!(
            last.map(|now| (now.bytes, now.bytes_total)),
            Some((done.bytes, Some(done.bytes)))
        );
        assert!(served.await.unwrap().starts_with("GET /a.ts HTTP/1.1\r\nHost: 127.0.0.1:"));

        let (url, _) = serve(answer("200 OK", body.len(), &body)).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ts");
        download(&url, DownloadTarget::File(&path), |_| {}).await.unwrap();
        assert!(std::fs::read(&path).unwrap() == body);
    }

    #[tokio::test]
    async fn an_empty_file_is_a_file() {
        let (url, _) = serve(answer("200 OK", 0, b"")).await;
        assert_eq!(download(&url, DownloadTarget::Nowhere, |_| {}).await.unwrap().bytes, 0);
    }

    #[tokio::test]
    async fn refusals_and_early_ends_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        std::fs::write(&path, b"kept").unwrap();
        for (bytes, found) in [
            (answer("404 Not Found", 8, b"no such\n"), "GET /a.ts: 404 Not Found: no such"),
            (answer("404 Not Found", 13, b"404 Not Found"), "GET /a.ts: 404 Not Found"),
            (answer("404 Not Found", 19, b"404 Not Found: gone"), "/a.ts: 404 Not Found: gone"),
            (answer("200 OK", 10, b"12345"), "GET /a.ts: the connection ended at byte 5 of 10"),
            (Vec::new(), "the server closed the connection instead of answering"),
            (vec![b'x'; HEAD_BYTES_MAX + 1], "head of more than 16384 bytes"),
            (b"SSH-2.0-x\r\n\r\n".to_vec(), "no HTTP/1 status line (RFC 9112 §4)"),
        ] {
            let is_begun = bytes.starts_with(b"HTTP/1.1 200");
            let (url, _served) = serve(bytes).await;
            let target =
                if is_begun { DownloadTarget::Nowhere } else { DownloadTarget::File(&path) };
            let error = download(&url, target, |_| {}).await.unwrap_err().to_string();
            assert!(error.ends_with(found), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }

    /// A server that sends a byte of its head each second.
    #[tokio::test(start_paused = true)]
    async fn a_head_has_one_deadline() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/a.ts", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for byte in b"HTTP/1.1 200 OK\r\nServer: one that has all the time" {
                tokio::time::sleep(Duration::from_secs(1)).await;
                stream.write_all(&[*byte]).await.unwrap();
            }
        });
        let began = tokio::time::Instant::now();
        let error = download(&url, DownloadTarget::Nowhere, |_| {}).await.unwrap_err().to_string();
        assert!(error.ends_with("GET /a.ts: the head was not whole in 20 s"), "{error}");
        assert_eq!(began.elapsed().as_secs(), 20);
        serving.abort();
    }

    #[tokio::test]
    async fn nobody_there() {
        let (_held, address) = crate::trial_sockets::nobody();
        let error = download(&format!("http://{address}/"), DownloadTarget::Nowhere, |_| {}).await;
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(&format!("connect {address}: Connection refused")), "{error}");
    }
}
