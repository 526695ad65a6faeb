// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source of a stream, as a URL.
//!
//! `udp://[SENDER@]ADDRESS:PORT[?interface=NAME&sender=ADDRESS,…&buffer=BYTES]`: a multicast
//! address is joined, any other is a local address of this host (`0.0.0.0` or `[::]`: all of them).
//! With senders, a group is joined for these senders only (source-specific multicast, RFC 4607),
//! and datagrams of others are not recorded. `rtp://` means the same: RTP and bare transport
//! streams are distinguished packet by packet. `rtsp://HOST[:PORT]/PATH` names a source at a
//! server, `rtsps:` one over TLS.
//!
//! A user or a password in a URL is refused, and no message repeats them: they are given apart
//! (`RecordOptions::logins`).
//!
//! Sources: RFC 3986 §3, RFC 4607 §1.
//! Does not resolve names in `udp://`: a stream is received at an address.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use client::{has_userinfo, without_userinfo};
use paths::Port;

use crate::error::{Error, RecordSetting};

/// Source of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamSource {
    /// Datagrams to a port.
    Udp(Port),
    /// An asset or a live stream of an RTSP server.
    Rtsp(String),
    /// Tracks of a session description (SDP) file.
    Sdp(PathBuf),
}

impl StreamSource {
    /// Parses a URL.
    ///
    /// # Errors
    /// Caller: the fault of the URL, and the form to write.
    pub fn parse(url: &str) -> Result<StreamSource, Error> {
        if let Some(path) = url.strip_prefix(SDP_SCHEME) {
            return Ok(StreamSource::Sdp(PathBuf::from(path)));
        }
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        match scheme.to_ascii_lowercase().as_str() {
            "rtsp" | "rtsps" if has_userinfo(url) => {
                Err(wrong(url, "leave user and password out of it: they are given apart"))
            }
            "rtsp" | "rtsps" => match wire::rtsp::client::Client::new(url) {
                Ok(_) => Ok(StreamSource::Rtsp(url.to_owned())),
                Err(_) => Err(wrong(url, "write rtsp://HOST[:PORT]/PATH, or rtsps:// over TLS")),
            },
            "udp" | "rtp" => udp(rest).map(StreamSource::Udp).map_err(|cure| wrong(url, cure)),
            _ => Err(wrong(url, "write udp://ADDRESS:PORT or rtsp://HOST/PATH")),
        }
    }

    /// Returns a label of the source that can be part of a file name.
    pub fn label(&self) -> String {
        let text = match self {
            StreamSource::Udp(port) => port.address.to_string(),
            StreamSource::Rtsp(url) => {
                url.split_once("://").map_or("", |(_, rest)| rest).to_owned()
            }
            StreamSource::Sdp(path) => {
                path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into())
            }
        };
        let path = text.split(['?', '#']).next().unwrap_or_default();
        let path = path.strip_suffix(".ts").unwrap_or(path);
        let fit = |c: char| if c.is_alphanumeric() || ".-_".contains(c) { c } else { '-' };
        let label: String = path.chars().map(fit).take(LABEL_CHARS_MAX).collect();
        // Dots at the ends would hide the file or name a folder.
        label.trim_matches(['-', '.']).to_owned()
    }
}

fn udp(rest: &str) -> Result<Port, &'static str> {
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (senders, address) = place.rsplit_once('@').unwrap_or(("", place));
    let address: SocketAddr = address
        .trim_end_matches('/')
        .parse()
        .map_err(|_| "write an address and a port, such as udp://239.1.1.1:5004")?;
    let mut port =
        Port { address, sources: Vec::new(), interface: None, buffer_bytes: BUFFER_BYTES };
    add_senders(&mut port, senders)?;
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let value = percent_encoding::percent_decode_str(value).decode_utf8();
        let value = value.map_err(|_| "write options in UTF-8")?;
        match name {
            "interface" if !value.is_empty() => port.interface = Some(value.into_owned()),
            "sender" => add_senders(&mut port, &value)?,
            "buffer" => {
                port.buffer_bytes = value.parse().map_err(|_| "write buffer=BYTES as a number")?;
            }
            _ => return Err("write interface=NAME, sender=ADDRESS or buffer=BYTES behind the ?"),
        }
    }
    Ok(port)
}

fn add_senders(port: &mut Port, senders: &str) -> Result<(), &'static str> {
    for sender in senders.split(',').filter(|sender| !sender.is_empty()) {
        let sender: IpAddr = sender
            .trim_matches(['[', ']'])
            .parse()
            .map_err(|_| "write the sender as an address, such as udp://10.0.0.7@232.1.1.1:5004")?;
        if sender.is_ipv4() != port.address.is_ipv4() {
            return Err("write a sender of the same family as the address");
        }
        port.sources.push(sender);
    }
    Ok(())
}

/// Returns advice to record a source of unsupported formats with ffmpeg, which must transcode them
/// for a transport stream.
pub(crate) fn by_ffmpeg(url: &str, offered: &str) -> String {
    let has_pictures = offered.contains("video");
    let codecs = if has_pictures { "-c:v libx264 -bf 0 -c:a aac" } else { "-c:a aac" };
    // In a shell, only the quote itself is special between single quotes.
    let url = url.replace('\'', r"'\''");
    format!(
        "record `pagewire receive udp://127.0.0.1:5004` instead, while `ffmpeg -rtsp_transport tcp \
         -i '{url}' {codecs} -f rtp_mpegts rtp://127.0.0.1:5004` makes a transport stream of it \
         (if the camera answers 461, leave out `-rtsp_transport tcp`)"
    )
}

fn wrong(url: &str, cure: &str) -> Error {
    let shown = if names_senders(url) { url.to_owned() } else { without_userinfo(url) };
    let found: String = shown.chars().filter(|c| !c.is_control()).take(URL_CHARS_SHOWN).collect();
    Error::Setting { setting: RecordSetting::Url, found, cure: cure.to_owned() }
}

/// True if the text before the @ consists of addresses, and is no password.
fn names_senders(url: &str) -> bool {
    let udp = ["udp://", "rtp://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let senders = udp.and_then(|rest| rest.rsplit_once('@'));
    let is_address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    senders.is_some_and(|(senders, _)| senders.split(',').all(is_address))
}

/// Prefix of a session description file in the list of URLs.
pub const SDP_SCHEME: &str = "sdp:";
/// Three seconds at 20 Mb/s, as the kernel counts (its own overhead included).
pub(crate) const BUFFER_BYTES: u32 = 8 << 20;
const LABEL_CHARS_MAX: usize = 100;
const URL_CHARS_SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn port(url: &str) -> Port {
        match StreamSource::parse(url).unwrap() {
            StreamSource::Udp(port) => port,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn groups_senders_and_interfaces_are_read() {
        let plain = port("udp://239.1.1.1:5004");
        assert_eq!(plain.address, "239.1.1.1:5004".parse().unwrap());
        assert!(plain.sources.is_empty() && plain.interface.is_none());
        assert_eq!(port("UDP://@239.1.1.1:5004"), plain);
        assert_eq!(port("rtp://239.1.1.1:5004/"), plain);
        let specific = port("udp://10.0.0.7@232.1.1.1:5004?interface=eth0&buffer=1000000");
        assert_eq!(specific.sources, ["10.0.0.7".parse::<IpAddr>().unwrap()]);
        assert_eq!(specific.interface.as_deref(), Some("eth0"));
        assert_eq!(specific.buffer_bytes, 1_000_000);
        assert_eq!(port("udp://232.1.1.1:5004?sender=10.0.0.7,10.0.0.8").sources.len(), 2);
        let six = port("udp://[fd00::7]@[ff3e::1]:5004");
        assert_eq!(six.address, "[ff3e::1]:5004".parse().unwrap());
        assert_eq!(six.sources, ["fd00::7".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_write() {
        for (url, cure) in [
            ("http://h/a.ts", "write udp://ADDRESS:PORT or rtsp://HOST/PATH"),
            ("rtsp:///film.ts", "write rtsp://HOST[:PORT]/PATH"),
            ("239.1.1.1:5004", "write udp://ADDRESS:PORT"),
            ("udp://239.1.1.1", "write an address and a port"),
            ("udp://host:5004", "write an address and a port"),
            ("udp://fd00::7@239.1.1.1:5004", "of the same family"),
            ("udp://239.1.1.1:5004?ttl=3", "write interface=NAME"),
            ("udp://239.1.1.1:5004?buffer=big", "as a number"),
        ] {
            let error = StreamSource::parse(url).unwrap_err();
            assert!(error.is_caller());
            let message = error.to_string();
            assert!(
                message.starts_with(&format!("URL: {url}; ")) && message.contains(cure),
                "{message}"
            );
        }
    }

    #[test]
    fn user_and_password_are_refused_and_not_repeated() {
        for (url, found) in [
            ("rtsp://user:secret@cam:554/live", "URL: rtsp://…@cam:554/live; leave user and pass"),
            ("rtsp://user:sec/ret@cam/live", "URL: rtsp://…@cam/live; write rtsp://HOST"),
            ("udp://me:secret@239.1.1.1:5004", "URL: udp://…@239.1.1.1:5004; write the sender as"),
            ("user:secret@cam/live", "URL: …@cam/live; write udp://ADDRESS:PORT"),
        ] {
            let message = StreamSource::parse(url).unwrap_err().to_string();
            assert!(message.starts_with(found), "{message}");
            assert!(
                !["secret", "ret@", "user:"].iter().any(|word| message.contains(word)),
                "{message}"
            );
        }
    }

    #[test]
    fn a_url_in_a_command_stays_one_word_of_the_shell() {
        let message = by_ffmpeg("rtsp://h/a'; touch /tmp/x; '$(id)`id`", "JPEG video");
        let word = r"-i 'rtsp://h/a'\''; touch /tmp/x; '\''$(id)`id`' -c:v libx264 -bf 0 -c:a aac";
        assert!(message.contains(word), "{message}");
        assert!(message.contains("answers 461, leave out `-rtsp_transport tcp`"), "{message}");
    }

    #[test]
    fn labels_are_fit_for_file_names() {
        let label = |url: &str| StreamSource::parse(url).unwrap().label();
        assert_eq!(label("udp://10.0.0.7@232.1.1.1:5004"), "232.1.1.1-5004");
        assert_eq!(label("udp://[ff3e::1]:5004"), "ff3e--1--5004");
        assert_eq!(label("rtsp://h:8554/a/b.ts?x=../.."), "h-8554-a-b");
        assert_eq!(label("rtsp://h/../../etc"), "h-..-..-etc");
    }
}
