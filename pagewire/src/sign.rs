// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire sign`: an address that opens a film until a time, without a user or a password.
//!
//! Sources: RFC 3986 §3; the signature is described in `access/src/signed_url.rs`. Does not contact
//! the server: the key alone signs.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serve::access::{SignedUrl, UrlKeys, with_query};

use crate::output;

#[derive(Args)]
pub(crate) struct Options {
    /// Address of a file, stream, playlist or folder: http, https, rtsp or rtsps. The address of a
    /// playlist, an MPD or a player page opens the film that it is of.
    url: String,
    /// File of keys, a name and a secret a line: the one of `serve --url-key-file`. The first key
    /// signs.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Time for which the address is good, such as 90s, 30m, 12h or 7d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = lasting)]
    expires: Duration,
    /// Opens all that lies below the address, too.
    #[arg(long)]
    prefix: bool,
    /// Opens it to this client alone.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let keys = match UrlKeys::read("--key-file", &options.key_file) {
        Ok(keys) => keys,
        Err(error) => return crate::wrong(&error.to_string()),
    };
    match options.signed(&keys, SystemTime::now()) {
        Ok(signed) => {
            output::line(signed);
            ExitCode::SUCCESS
        }
        Err(error) => crate::wrong(&error),
    }
}

impl Options {
    fn signed(&self, keys: &UrlKeys, now: SystemTime) -> Result<String, String> {
        let wrong = |found: &str| format!("{}: {found}; {CURE}", self.url);
        let (scheme, rest) = self.url.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        if !["http", "https", "rtsp", "rtsps"].contains(&scheme) {
            return Err(wrong("another scheme"));
        }
        let slash = rest.find('/').ok_or_else(|| wrong("no path"))?;
        let path = rest[slash..].split(['?', '#']).next().unwrap_or_default();
        if self.url.contains('#') {
            return Err(wrong("a fragment"));
        }
        let decoded = serve::access::decoded_path(path);
        let (path, is_prefix) = match film_of(&decoded) {
            Some(film) if !self.prefix => (film, true),
            _ => (decoded.as_str(), self.prefix),
        };
        let expires = now.duration_since(UNIX_EPOCH).unwrap_or_default() + self.expires;
        let url = SignedUrl {
            path: path.to_owned(),
            is_prefix,
            expires_s: expires.as_secs(),
            address: self.address,
        };
        let query = keys.sign(&url).ok_or_else(|| wrong("a path with .."))?;
        Ok(with_query(&self.url, &query).into_owned())
    }
}

/// Returns the film or folder whose playlist, MPD or page a path is; `None` for other paths, and
/// for those of the whole server.
fn film_of(path: &str) -> Option<&str> {
    let (film, item) = path.rsplit_once('/')?;
    let is_item = ["master.m3u8", "manifest.mpd", "player.html"].contains(&item);
    (is_item && !film.trim_matches('/').is_empty()).then_some(film)
}

/// Parses a time such as 90s, 30m, 12h or 7d.
fn lasting(text: &str) -> Result<Duration, String> {
    let unit_s = match text.chars().next_back() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).unwrap_or_default().parse::<u64>().ok();
    let seconds = number.and_then(|number| number.checked_mul(unit_s));
    let seconds = seconds.filter(|seconds| (1..=EXPIRES_S_MAX).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "write a time such as 90s, 30m, 12h, 7d".into())
}

const CURE: &str = "write an address such as http://host:8080/film.mp4/master.m3u8";
/// Ten years.
const EXPIRES_S_MAX: u64 = 10 * 366 * 86_400;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sign: Options,
    }

    fn signed(arguments: &[&str]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "one 0123456789abcdef0123456789abcdef\n").unwrap();
        let name = path.to_str().unwrap().to_owned();
        let line = ["sign", "--key-file", &name].into_iter().chain(arguments.iter().copied());
        let options = Line::try_parse_from(line).map_err(|error| error.to_string())?.sign;
        let keys = UrlKeys::read("--key-file", &path).unwrap();
        options.signed(&keys, UNIX_EPOCH + Duration::from_secs(1000))
    }

    #[test]
    fn address_of_a_playlist_opens_its_film() {
        let query = signed(&["http://h:1/a%20b/c.mp4/master.m3u8", "--expires", "1m"]).unwrap();
        let start = "http://h:1/a%20b/c.mp4/master.m3u8?expires=1060&key=one&prefix=/a%20b/c.mp4&";
        assert!(query.starts_with(start), "{query}");
        let file = signed(&["rtsp://h/c.ts?es", "--address", "::1"]).unwrap();
        assert!(file.starts_with("rtsp://h/c.ts?es&expires=4600&key=one&address=::1&"), "{file}");
        let folder = signed(&["http://h/films", "--prefix"]).unwrap();
        assert!(folder.contains("prefix=/films&"), "{folder}");
        let top = signed(&["http://h/master.m3u8"]).unwrap();
        assert!(!top.contains("prefix="), "it would open everything: {top}");
    }

    #[test]
    fn addresses_and_times_that_cannot_be_signed_are_refused() {
        for wrong in ["h/a.ts", "ftp://h/a.ts", "http://h", "http://h/a.ts#x", "http://h/../a"] {
            assert!(signed(&[wrong]).is_err(), "{wrong}");
        }
        for wrong in ["", "1", "h", "0s", "-1h", "1w", "1é", "99999999999999999999h", "10000d"] {
            assert!(lasting(wrong).is_err(), "{wrong}");
        }
        assert_eq!(lasting("2h"), Ok(Duration::from_secs(7200)));
    }
}
