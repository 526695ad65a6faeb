// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads over connections that stay open: requests a second, and the server's CPU time.
//!
//! One thread on the client's core sends requests on all connections, then reads all responses. A
//! file is compared byte by byte before the measured time, and by its length within it.
//!
//! Sources: RFC 9112 §6.3 (length of a message).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use super::peer::Running;
use super::point::Instruments;
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
        let work = || {
            let (began, before, mut requests) = (Instant::now(), thread_time(), 0_u64);
            while requests == 0 || began.elapsed().as_secs_f64() < seconds {
                for connection in &mut connections {
                    ask(connection, bytes)?;
                }
                for connection in &mut connections {
                    read(connection, bytes, &mut buffer, |_, _| true)?;
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

/// Compares a download with the file.
pub(super) fn verify(port: u16, file: &[u8]) -> Result<(), Error> {
    let mut connection = connect(port)?;
    ask(&mut connection, file.len() as u64)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    read(&mut connection, file.len() as u64, &mut buffer, |place, bytes| {
        file.get(place..place + bytes.len()) == Some(bytes)
    })
}

/// Returns the name of the file of that size.
pub(super) fn name(bytes: u64) -> String {
    format!("{bytes}.bin")
}

/// Returns the number of connections; a large file fills one alone.
fn connections_for(bytes: u64) -> usize {
    if bytes < 10_000_000 { 8 } else { 1 }
}

fn connect(port: u16) -> Result<TcpStream, Error> {
    let failed = || Error::host(format!("connecting to port {port} of loopback"));
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed())?;
    stream.set_nodelay(true).map_err(failed())?;
    stream.set_read_timeout(Some(ANSWER_WAIT)).map_err(failed())?;
    Ok(stream)
}

fn ask(connection: &mut TcpStream, bytes: u64) -> Result<(), Error> {
    let request = format!("GET /{} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", name(bytes));
    connection.write_all(request.as_bytes()).map_err(Error::host("sending a request"))
}

/// Reads one response with a body of that length; calls `is_right` for each part and its offset.
fn read(
    connection: &mut TcpStream,
    bytes: u64,
    buffer: &mut [u8],
    mut is_right: impl FnMut(usize, &[u8]) -> bool,
) -> Result<(), Error> {
    let wrong = |found: String| Error::Wrong { member: name(bytes), found };
    let mut filled = 0;
    let body = loop {
        let came = connection.read(&mut buffer[filled..]).map_err(Error::host("an answer"))?;
        filled += came;
        let end = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n");
        match end {
            Some(end) => break end + 4,
            None if came == 0 => return Err(wrong("the connection was closed".to_owned())),
            None => {}
        }
    };
    let head = String::from_utf8_lossy(&buffer[..body]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|value| value.trim().parse::<u64>().ok());
    if !head.starts_with("http/1.1 200") || length != Some(bytes) {
        let status = head.lines().next().unwrap_or_default().to_owned();
        return Err(wrong(format!("{status}, length {length:?}")));
    }
    let mut place = filled - body;
    let mut right = is_right(0, &buffer[body..filled]);
    while (place as u64) < bytes && right {
        let came = connection.read(buffer).map_err(Error::host("an answer"))?;
        if came == 0 {
            return Err(wrong(format!("ended after {place} bytes")));
        }
        right = is_right(place, &buffer[..came]);
        place += came;
    }
    if right && place as u64 == bytes {
        return Ok(());
    }
    Err(wrong(format!("not the file's bytes, at {place} of them")))
}

const BUFFER_BYTES: usize = 1 << 20;
const ANSWER_WAIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answered(answer: &'static [u8], file: &[u8]) -> Result<(), Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            stream.write_all(answer).unwrap();
        });
        let verified = verify(port, file);
        server.join().unwrap();
        verified
    }

    #[test]
    fn download_is_the_file_or_an_error() {
        let right = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes";
        assert!(answered(right, b"bytes").is_ok());
        assert!(answered(right, b"bites").is_err());
        assert!(answered(right, b"byte").is_err());
        assert!(answered(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbyt", b"bytes").is_err());
        assert!(answered(b"HTTP/1.1 404 no\r\nContent-Length: 5\r\n\r\nbytes", b"bytes").is_err());
    }
}
