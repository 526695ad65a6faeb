// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire trace`: due and sent times of the packets of one session, as a file.
//!
//! Queries the administrator's listener of a running server, which observes the session for some
//! seconds. Without a session it lists the existing ones.
//!
//! Sources: `docs/openapi.json`; RFC 9112 §6.3 (an answer that ends with its connection). Does not
//! support TLS, and follows no redirection.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use terminal::escape::Escaped;
use terminal::output;

#[derive(Args)]
pub(crate) struct Options {
    /// Session, as in the list; without it the sessions are listed.
    session: Option<String>,
    /// Administrator's address of the server: what `pagewire serve --admin` was given.
    #[arg(long, value_name = "URL")]
    admin: String,
    /// Time to watch.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = seconds())]
    seconds: u64,
    /// File to write; standard output without it.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// perfetto for ui.perfetto.dev, csv for a spreadsheet.
    #[arg(long, value_name = "FORMAT", default_value = "perfetto")]
    format: TraceFormat,
    /// Administrator to log in as, where the server has users. The password is that of the
    /// environment's PAGEWIRE_PASSWORD, or asked for.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum TraceFormat {
    Perfetto,
    Csv,
}

pub(crate) fn run(options: Options) -> ExitCode {
    match traced(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err((message, is_caller)) => crate::failed(&message, is_caller),
    }
}

/// Message, and true where the command line is at fault.
type Failure = (String, bool);

fn traced(options: Options) -> Result<(), Failure> {
    let authority = authority(&options.admin)?;
    let mut admin = AdminClient { authority, cookie: None };
    if let Some(user) = &options.user {
        admin.log_in(user)?;
    }
    let Some(session) = &options.session else { return list(&admin) };
    let is_plain = session.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if session.is_empty() || !is_plain {
        let cure = "leave it out for a list of the sessions";
        return Err((format!("session {session:?}: no identifier of one; {cure}"), true));
    }
    let format = match options.format {
        TraceFormat::Perfetto => "perfetto",
        TraceFormat::Csv => "csv",
    };
    let seconds = options.seconds;
    let target = format!("/v1/sessions/{session}/trace?seconds={seconds}&format={format}");
    let wait = Duration::from_secs(seconds) + ANSWER_WAIT;
    let file = admin.ask("GET", &target, None, wait)?.1;
    match &options.output {
        Some(path) => fs::write(path, file).map_err(|error| {
            (format!("--output {}: {error}; name a file to write", path.display()), true)
        }),
        None => {
            output::print(String::from_utf8_lossy(&file));
            Ok(())
        }
    }
}

/// Prints the sessions.
fn list(admin: &AdminClient) -> Result<(), Failure> {
    let text = admin.ask("GET", "/v1/sessions", None, ANSWER_WAIT)?.1;
    let wrong = || (format!("{}: its answer is no list of sessions", admin.authority), false);
    let list: Value = serde_json::from_slice(&text).map_err(|_| wrong())?;
    let rows = list["sessions"].as_array().ok_or_else(wrong)?;
    let field = |row: &Value, name: &str| row[name].as_str().unwrap_or("-").to_owned();
    let mut lines = String::new();
    for row in rows {
        let megabits = row["bits_per_s"].as_f64().unwrap_or_default() / 1e6;
        let [id, address, asset] = ["id", "address", "asset"].map(|name| field(row, name));
        let cause = field(row, "cause_text");
        let line = format!("{id:<10} {address:<22} {megabits:>8.2} Mb/s  {asset}  {cause}");
        lines.push_str(Escaped(line.trim_end()).to_string().as_str());
        lines.push('\n');
    }
    if rows.is_empty() {
        lines.push_str("no session now\n");
    }
    output::print(lines);
    Ok(())
}

/// Client of an administrator's listener.
struct AdminClient {
    authority: String,
    cookie: Option<String>,
}

impl AdminClient {
    fn log_in(&mut self, user: &str) -> Result<(), Failure> {
        let password = match std::env::var("PAGEWIRE_PASSWORD") {
            Ok(password) => password,
            Err(_) => rpassword::prompt_password(format!("password of {}: ", Escaped(user)))
                .map_err(|error| (format!("asking for a password: {error}"), false))?,
        };
        let content = json!({ "user": user, "password": password }).to_string();
        let (head, _) = self.ask("POST", "/v1/login", Some(&content), ANSWER_WAIT)?;
        let cookie = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let value = value.trim().split(';').next()?;
            name.eq_ignore_ascii_case("set-cookie").then(|| value.to_owned())
        });
        self.cookie = cookie;
        Ok(())
    }

    /// Sends a request; returns head and content of the answer.
    fn ask(
        &self,
        method: &str,
        target: &str,
        content: Option<&str>,
        wait: Duration,
    ) -> Result<(String, Vec<u8>), Failure> {
        let failed = |error: std::io::Error| {
            let cure = match error.kind() {
                ErrorKind::ConnectionRefused => "; is it running with --admin?",
                _ => "",
            };
            (format!("{}: {error}{cure}", self.authority), false)
        };
        let mut stream = TcpStream::connect(&self.authority).map_err(failed)?;
        stream.set_read_timeout(Some(wait)).map_err(failed)?;
        let cookie = self.cookie.as_ref().map(|cookie| format!("Cookie: {cookie}\r\n"));
        let length = content.map(|content| {
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n", content.len())
        });
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}{}\r\n{}",
            self.authority,
            cookie.unwrap_or_default(),
            length.unwrap_or_default(),
            content.unwrap_or_default()
        );
        stream.write_all(request.as_bytes()).map_err(failed)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(failed)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
        let status = answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let (Some(end), Some(status)) = (end, status) else {
            return Err((format!("{}: its answer is not HTTP", self.authority), false));
        };
        let status = String::from_utf8_lossy(status).into_owned();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let content = answer.split_off(end + 4);
        match &*status {
            "200" => Ok((head, content)),
            "401" if self.cookie.is_none() && method == "GET" => {
                Err((format!("{}: it has users; name one with --user", self.authority), true))
            }
            status => {
                let reason: Value = serde_json::from_slice(&content).unwrap_or_default();
                let reason = reason["error"].as_str().unwrap_or("no reason");
                Err((format!("{}: {status} {reason}", self.authority), false))
            }
        }
    }
}

/// Returns host and port of an address such as `http://127.0.0.1:9090`.
fn authority(url: &str) -> Result<String, Failure> {
    let rest = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_plain =
        rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"[]:.-".contains(&byte));
    match has_port && is_plain {
        true => Ok(rest.to_owned()),
        false => Err((format!("--admin {url}: write http://ADDRESS:PORT, as serve has it"), true)),
    }
}

/// Parses the time of a trace.
fn seconds() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=60)
}

const ANSWER_WAIT: Duration = Duration::from_secs(20);
/// A trace has at most 131,072 packets of three events.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_host_and_port() {
        for (url, expected) in [
            ("http://127.0.0.1:9090", Some("127.0.0.1:9090")),
            ("http://[::1]:9090/", Some("[::1]:9090")),
            ("localhost:1", Some("localhost:1")),
            ("https://a:1", None),
            ("http://a", None),
            ("http://a:1/v1", None),
            ("http://a\r\nb:1", None),
        ] {
            assert_eq!(authority(url).ok().as_deref(), expected, "{url}");
        }
    }
}
