// SPDX-License-Identifier: MIT OR Apache-2.0
//! One RTSP session whose packets are kept: the sample that is compared with the clip.
//!
//! Sources: RFC 2326 §10 (methods), §12.39 (Transport), appendix C.1.1 (control URLs).
//! Does not send receiver reports; a sample ends before a server misses them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use measure::Error;

/// A playing session.
pub(crate) struct Session {
    stream: BufReader<TcpStream>,
    url: String,
    /// Header line of the session, once it is set up.
    session: String,
    number: u32,
}

impl Session {
    /// Plays `url` with RTP to `port` and RTCP to the port after it.
    pub(crate) fn play(url: &str, port: u16) -> Result<Session, Error> {
        Session::play_by(url, &format!("RTP/AVP;unicast;client_port={port}-{}", port + 1))
    }

    /// Plays `url` with RTP and RTCP on the connection, which is not read.
    pub(crate) fn play_interleaved(url: &str) -> Result<Session, Error> {
        Session::play_by(url, "RTP/AVP/TCP;unicast;interleaved=0-1")
    }

    fn play_by(url: &str, transport: &str) -> Result<Session, Error> {
        let failed = || Error::host(format!("connecting to {url}"));
        let authority = url.trim_start_matches("rtsp://").split('/').next().unwrap_or_default();
        let stream = TcpStream::connect(authority).map_err(failed())?;
        stream.set_read_timeout(Some(ANSWER_WAIT)).map_err(failed())?;
        let stream = BufReader::new(stream);
        let mut session =
            Session { stream, url: url.to_owned(), session: String::new(), number: 0 };
        let (head, description) = session.ask("DESCRIBE", url, "Accept: application/sdp\r\n")?;
        let base = header(&head, "content-base").unwrap_or(url).trim_end_matches('/').to_owned();
        let control = description.lines().rev().find_map(|line| line.strip_prefix("a=control:"));
        let target = match control.map(str::trim) {
            None | Some("*") => base.clone(),
            Some(control) if control.starts_with("rtsp://") => control.to_owned(),
            Some(control) => format!("{base}/{control}"),
        };
        let (head, _) = session.ask("SETUP", &target, &format!("Transport: {transport}\r\n"))?;
        let id = header(&head, "session").and_then(|value| value.split(';').next());
        session.session = format!("Session: {}\r\n", id.unwrap_or_default().trim());
        session.url = base;
        session.ask("PLAY", &session.url.clone(), "Range: npt=0-\r\n")?;
        Ok(session)
    }

    /// Returns head and body of a response; an error unless the status is 200.
    fn ask(&mut self, method: &str, url: &str, more: &str) -> Result<(String, String), Error> {
        let failed = || Error::host(format!("{method} {url}"));
        self.number += 1;
        let (number, session) = (self.number, &self.session);
        let request = format!("{method} {url} RTSP/1.0\r\nCSeq: {number}\r\n{session}{more}\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).map_err(failed())?;
        let mut head = String::new();
        loop {
            let read = self.stream.read_line(&mut head).map_err(failed())?;
            if read == 0 || head.ends_with("\r\n\r\n") {
                break;
            }
        }
        let bytes = header(&head, "content-length").and_then(|value| value.parse().ok());
        let mut body = vec![0; bytes.unwrap_or(0).min(BODY_BYTES_MAX)];
        self.stream.read_exact(&mut body).map_err(failed())?;
        let status = head.lines().next().unwrap_or("no answer");
        if !status.starts_with("RTSP/1.0 200") {
            let what = format!("{method} {url}");
            return Err(Error::Host { what, found: status.to_owned() });
        }
        Ok((head, String::from_utf8_lossy(&body).into_owned()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The server is about to end in any case.
        let _ = self.ask("TEARDOWN", &self.url.clone(), "");
    }
}

/// Returns the value of a header; `name` is in lower case.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|field| field.0.eq_ignore_ascii_case(name)).map(|field| field.1.trim())
}

const ANSWER_WAIT: Duration = Duration::from_secs(10);
const BODY_BYTES_MAX: usize = 64 << 10;
