// SPDX-License-Identifier: MIT OR Apache-2.0
//! An HTTP server for tests that answers each path as scripted, correctly or not.
//!
//! Sources: RFC 9112; RFC 9110 §14.
//! Does not serve files.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::ts_check::tests::packet;

/// Answer to a path.
#[derive(Clone)]
pub(super) enum Answer {
    /// 200, or 206 to a Range request.
    Body(Vec<u8>),
    /// 200 in chunks.
    Chunked(Vec<u8>),
    /// These bytes; then the connection is closed.
    Raw(Vec<u8>),
    /// 302 to this address.
    Redirect(String),
    /// A 200 whose body is sent in pieces of this size.
    Slow { body: Vec<u8>, piece: usize, every: Duration },
    /// The answer after a delay.
    Late(Duration, Box<Answer>),
    /// One answer for each request; the last one repeats.
    InTurn(Vec<Answer>),
    /// A correct answer, after which the connection is closed without notice.
    ThenClosed(Vec<u8>),
}

impl Answer {
    pub(super) fn text(text: impl Into<String>) -> Answer {
        Answer::Body(text.into().into_bytes())
    }

    pub(super) fn status(line: &str) -> Answer {
        Answer::Raw(format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n").into_bytes())
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub(super) struct SeenRequest {
    pub(super) path: String,
    pub(super) range: Option<String>,
    pub(super) at: Instant,
    /// Number of the connection.
    pub(super) connection: usize,
}

/// The server; it ends with the runtime.
pub(super) struct ScriptedOrigin {
    base: String,
    script: Arc<Script>,
}

struct Script {
    answers: Vec<(String, Answer)>,
    requests: Mutex<Vec<SeenRequest>>,
    counts: Mutex<HashMap<String, usize>>,
}

impl ScriptedOrigin {
    pub(super) async fn start(
        answers: impl IntoIterator<Item = (&'static str, Answer)>,
    ) -> ScriptedOrigin {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let answers = answers.into_iter().map(|(path, answer)| (path.to_owned(), answer));
        let script = Arc::new(Script {
            answers: answers.collect(),
            requests: Mutex::default(),
            counts: Mutex::default(),
        });
        let of_connections = script.clone();
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(respond(stream, of_connections.clone(), connection));
            }
        });
        ScriptedOrigin { base, script }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(super) fn requests(&self) -> Vec<SeenRequest> {
        self.script.requests.lock().unwrap().clone()
    }

    /// Requests of one path.
    pub(super) fn of(&self, path: &str) -> Vec<SeenRequest> {
        self.requests().into_iter().filter(|request| request.path == path).collect()
    }
}

impl Script {
    fn answer(&self, path: &str) -> Answer {
        let known = self.answers.iter().find(|(known, _)| known == path);
        let Some((_, answer)) = known else { return Answer::status("404 Not Found") };
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(path.to_owned()).or_default();
        *count += 1;
        match answer {
            Answer::InTurn(all) => all[(*count - 1).min(all.len() - 1)].clone(),
            answer => answer.clone(),
        }
    }
}

async fn respond(mut stream: TcpStream, script: Arc<Script>, connection: usize) {
    let mut received = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if !stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {
                return;
            }
        };
        let head = String::from_utf8(received.drain(..end).collect()).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let range = head.lines().find_map(|line| line.strip_prefix("Range: bytes="));
        let range = range.map(str::to_owned);
        let seen = SeenRequest {
            path: path.clone(),
            range: range.clone(),
            at: Instant::now(),
            connection,
        };
        script.requests.lock().unwrap().push(seen);
        let mut answer = script.answer(&path);
        while let Answer::Late(wait, late) = answer {
            tokio::time::sleep(wait).await;
            answer = *late;
        }
        if !send(&mut stream, answer, range).await {
            return;
        }
    }
}

/// Sends an answer; returns true where the connection is kept.
async fn send(stream: &mut TcpStream, answer: Answer, range: Option<String>) -> bool {
    let whole = |body: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    match answer {
        Answer::Body(body) => {
            let span = range.as_deref().and_then(|range| range.split_once('-'));
            let span = span.map(|(from, to)| {
                (from.parse::<usize>().unwrap(), to.parse::<usize>().unwrap().min(body.len() - 1))
            });
            let bytes = match span {
                None => whole(&body),
                Some((from, to)) => {
                    let head = format!(
                        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{to}/{}\r\n\
                         Content-Length: {}\r\n\r\n",
                        body.len(),
                        to + 1 - from
                    );
                    [head.as_bytes(), &body[from..=to]].concat()
                }
            };
            stream.write_all(&bytes).await.is_ok()
        }
        Answer::Chunked(body) => {
            let mut bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in body.chunks(1000) {
                bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            stream.write_all(&bytes).await.is_ok()
        }
        Answer::Raw(bytes) => {
            // The client may have closed the connection after an error.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            false
        }
        Answer::Redirect(to) => {
            let head = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).await.is_ok()
        }
        Answer::Slow { body, piece, every } => {
            for piece in whole(&body).chunks(piece) {
                if stream.write_all(piece).await.is_err() {
                    return false;
                }
                tokio::time::sleep(every).await;
            }
            true
        }
        Answer::ThenClosed(body) => {
            let _ = stream.write_all(&whole(&body)).await;
            false
        }
        Answer::Late(..) | Answer::InTurn(_) => unreachable!("they were resolved"),
    }
}

/// A segment of a transport stream whose counters continue those of the previous segments.
pub(super) fn ts_segment(index: usize) -> Vec<u8> {
    let mut bytes = packet(0, index as u8);
    for n in 0..TS_PACKETS {
        bytes.extend(packet(256, (index * TS_PACKETS + n) as u8));
    }
    bytes
}

/// A playlist with an end and this number of segments, named `s0.ts` and so on.
pub(super) fn vod(segments: usize, seconds: f64) -> String {
    let mut text = live(0, segments, seconds);
    text.push_str("#EXT-X-ENDLIST\n");
    text
}

/// A playlist without an end.
pub(super) fn live(first: usize, segments: usize, seconds: f64) -> String {
    let target = seconds.ceil() as u64;
    let mut text = format!(
        "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:{target}\n\
         #EXT-X-MEDIA-SEQUENCE:{first}\n"
    );
    for index in first..first + segments {
        text.push_str(&format!("#EXTINF:{seconds:.3},\ns{index}.ts\n"));
    }
    text
}

const TS_PACKETS: usize = 99;
