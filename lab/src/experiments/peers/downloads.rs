// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads over connections that stay open: requests a second, and the server's CPU time.
//!
//! One thread on the client's core sends requests on all connections, then reads all responses. A
//! file is compared byte by byte before the measured time, and by its length within it.
//!
//! A file's bytes follow from their place, so that none has to be held for the comparison.
//!
//! Sources: RFC 9112 §6.3 (length of a message).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::peer::Running;
use super::point::Instruments;
use crate::experiments::http::response::{Wanted, read};
use measure::Error;
use measure::meter::{Cores, pin, thread_time};

/// Result of downloading a file again and again.
pub(super) struct Downloads {
    pub(super) per_second: f64,
    pub(super) cpu_us: f64,
    pub(super) cpu_s_per_gb: f64,
    /// Part of its core that the client used.
    pub(super) client: f64,
}

/// Downloads a file of `bytes` for `seconds`, once at least.
pub(super) fn measure(
    instruments: &Instruments,
    running: &Running,
    cores: &Cores,
    bytes: u64,
    seconds: f64,
) -> Result<Downloads, Error> {
    let client = || {
        pin(cores, true);
        let mut connections = Vec::new();
        for _ in 0..connections_for(bytes) {
            connections.push(connect(running.http_port)?);
        }
        let mut buffer = vec![0; BUFFER_BYTES];
        let (request, wanted) = (request(bytes), Wanted::file(bytes));
        let work = || {
            let (began, before, mut requests) = (Instant::now(), thread_time(), 0_u64);
            while requests == 0 || began.elapsed().as_secs_f64() < seconds {
                for connection in &mut connections {
                    ask(connection, &request)?;
                }
                for connection in &mut connections {
                    read(connection, wanted, &mut buffer, |_, _| true)
                        .map_err(|found| wrong(bytes, found))?;
                    requests += 1;
                }
            }
            Ok((requests, (thread_time() - before).as_secs_f64()))
        };
        instruments.around(&running.processes, work)
    };
    // The thread ends, and its pinning to a core with it.
    let done = std::thread::scope(|scope| scope.spawn(client).join().expect("it does not panic"));
    let ((requests, client), cpu, wall) = done?;
    let count = requests as f64;
    Ok(Downloads {
        per_second: count / wall,
        cpu_us: cpu * 1e6 / count,
        cpu_s_per_gb: cpu * 1e9 / (count * bytes as f64),
        client: client / wall,
    })
}

/// Compares a download of the file of `bytes` with its content.
pub(super) fn verify(port: u16, bytes: u64) -> Result<(), Error> {
    let (request, wanted) = (request(bytes), Wanted::file(bytes));
    let mut connection = connect(port)?;
    ask(&mut connection, &request)?;
    read(&mut connection, wanted, &mut vec![0; BUFFER_BYTES], is_content)
        .map_err(|found| wrong(bytes, found))
}

/// Writes a file to download, whose bytes follow from their place.
pub(crate) fn write(path: &Path, bytes: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
    (0..bytes / 8).try_for_each(|index| out.write_all(&word(index)))?;
    out.write_all(&word(bytes / 8)[..(bytes % 8) as usize])?;
    out.flush()
}

/// True when these bytes are at that place of such a file.
pub(crate) fn is_content(place: u64, bytes: &[u8]) -> bool {
    let within = (place % 8) as usize;
    let first = bytes.len().min((8 - within) % 8);
    let (first, rest) = bytes.split_at(first);
    let from = (place + first.len() as u64) / 8;
    word(place / 8)[within..].starts_with(first)
        && rest.chunks(8).zip(from..).all(|(eight, index)| word(index).starts_with(eight))
}

/// Returns eight bytes of a file: no two words of one are equal.
fn word(index: u64) -> [u8; 8] {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Returns the name of the file of that size.
pub(crate) fn name(bytes: u64) -> String {
    format!("{bytes}.bin")
}

/// Returns the number of connections; a large file fills one alone.
fn connections_for(bytes: u64) -> usize {
    if bytes < 10_000_000 { 8 } else { 1 }
}

pub(crate) fn connect(port: u16) -> Result<TcpStream, Error> {
    let failed = || Error::host(format!("connecting to port {port} of loopback"));
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed())?;
    stream.set_nodelay(true).map_err(failed())?;
    stream.set_read_timeout(Some(ANSWER_WAIT)).map_err(failed())?;
    Ok(stream)
}

fn request(bytes: u64) -> String {
    format!("GET /{} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", name(bytes))
}

fn ask(connection: &mut TcpStream, request: &str) -> Result<(), Error> {
    connection.write_all(request.as_bytes()).map_err(Error::host("sending a request"))
}

fn wrong(bytes: u64, found: String) -> Error {
    Error::Wrong { member: name(bytes), found }
}

const BUFFER_BYTES: usize = 1 << 20;
const ANSWER_WAIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_known_at_every_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name(1_003));
        write(&path, 1_003).unwrap();
        let file = std::fs::read(&path).unwrap();
        assert_eq!(file.len(), 1_003);
        assert_ne!(file[..8], file[8..16]);
        for from in 0..40 {
            for until in from..=file.len() {
                assert!(is_content(from as u64, &file[from..until]), "{from}..{until}");
            }
        }
        for place in 1..file.len() {
            assert!(!is_content(place as u64, &file[..9]), "{place}");
            let mut damaged = file.clone();
            damaged[place] ^= 1;
            assert!(!is_content(0, &damaged), "{place}");
        }
    }
}
