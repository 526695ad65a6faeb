// SPDX-License-Identifier: MIT OR Apache-2.0
//! Report of a web page to the test that opened it: a request to a port of the test, on loopback,
//! whose path is the report.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the first report; `None` when none arrives in time.
pub(crate) fn report(listener: &TcpListener, limit: Duration) -> Option<String> {
    listener.set_nonblocking(true).expect("a socket has the option");
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        stream.set_nonblocking(false).expect("a socket has the option");
        stream.set_read_timeout(Some(limit)).expect("a socket has the option");
        let mut request = [0; 2048];
        let read = stream.read(&mut request).ok()?;
        // The page reads no answer.
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        let text = String::from_utf8_lossy(&request[..read]).into_owned();
        let path = text.strip_prefix("GET /")?.split(' ').next()?;
        return Some(path.replace("%20", " "));
    }
    None
}
