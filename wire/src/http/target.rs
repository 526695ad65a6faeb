// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the request target and the Host field.
//!
//! Escapes are decoded once and strictly. A NUL or a malformed escape is refused rather than passed
//! on, because the next reader of the path (a file system, a log, a proxy) would read it
//! differently. Dot segments and empty segments stay in the path: only the layer that opens files
//! can refuse them reliably, and it must do so in any case.
//!
//! Sources: RFC 9112 §3.2 (target forms), RFC 9110 §4.2.4 (userinfo), §7.2 (Host), §9.3.6
//! (CONNECT), RFC 3986 §2.1, §3.2.2 (reg-name, IP-literal).

use std::net::Ipv6Addr;

use super::malformed::Malformed;
use super::path_text::path_text;
use super::request::Method;

/// A parsed request target.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestTarget {
    /// Percent-decoded ([`path_text`]), begins with `/`.
    pub(super) path: String,
    /// As received, without the `?`.
    pub(super) query: Option<String>,
    /// Authority of an absolute-form or authority-form target, which takes precedence over the
    /// Host field (RFC 9112 §3.2.2).
    pub(super) authority: Option<String>,
}

/// Parses `target`; offsets in faults count from its first byte.
pub(super) fn parse(method: &Method, target: &str) -> Result<RequestTarget, Malformed> {
    if let Some(at) = target.find('#') {
        return Err(bad(at, "fragment in the request target", "RFC 9112 §3.2"));
    }
    let (authority, local, local_at) = if is_connect(method) {
        (Some(connect_authority(target)?.to_owned()), "/", 0)
    } else if target.starts_with('/') {
        (None, target, 0)
    } else if target == "*" {
        if *method != Method::Options {
            return Err(bad(0, "target * with a method other than OPTIONS", "RFC 9112 §3.2.4"));
        }
        // The answer for the whole server is the answer for its root.
        (None, "/", 0)
    } else {
        let (authority, local_at) = split_absolute(target)?;
        (Some(authority.to_owned()), &target[local_at..], local_at)
    };
    let (raw_path, query) = match local.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (local, None),
    };
    let path = if raw_path.is_empty() {
        "/".to_owned()
    } else {
        decode(raw_path).map_err(|fault| fault.shifted(local_at as u64))?
    };
    Ok(RequestTarget { path, query, authority })
}

fn is_connect(method: &Method) -> bool {
    matches!(method, Method::Other(name) if name == "CONNECT")
}

/// Authority-form, which CONNECT alone has: a host and a port that can be connected to.
fn connect_authority(target: &str) -> Result<&str, Malformed> {
    let port = target.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if is_authority(target) && port.is_some_and(|port| port != 0) {
        return Ok(target);
    }
    Err(bad(0, "target of CONNECT that is not a host and port", "RFC 9112 §3.2.3"))
}

/// Authority of an absolute-form target, and where its path, query or end begins.
fn split_absolute(target: &str) -> Result<(&str, usize), Malformed> {
    let scheme_bytes = ["http://", "https://"]
        .iter()
        .find(|scheme| {
            target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })
        .map(|scheme| scheme.len())
        .ok_or_else(|| bad(0, "request target is neither a path nor an http URL", TARGET_FORMS))?;
    let rest = &target[scheme_bytes..];
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    if authority.contains('@') {
        return Err(bad(scheme_bytes, "userinfo in the request target", "RFC 9110 §4.2.4"));
    }
    if !is_authority(authority) {
        return Err(bad(scheme_bytes, "request target without a valid host", "RFC 9110 §4.2.1"));
    }
    Ok((authority, scheme_bytes + authority.len()))
}

/// `uri-host [ ":" port ]`, with a host of at least one character. An IP-literal must be an IPv6
/// address: no other version is defined.
pub(super) fn is_authority(text: &str) -> bool {
    let (host_is_valid, rest) = if let Some(literal) = text.strip_prefix('[') {
        let Some((address, rest)) = literal.split_once(']') else {
            return false;
        };
        (address.parse::<Ipv6Addr>().is_ok(), rest)
    } else {
        let host = &text[..text.find(':').unwrap_or(text.len())];
        let is_name = (1..=HOST_BYTES_MAX).contains(&host.len());
        (is_name && host.bytes().all(is_reg_name_byte), &text[host.len()..])
    };
    let port_is_valid = match rest.strip_prefix(':') {
        Some(port) => port.bytes().all(|b| b.is_ascii_digit()),
        None => rest.is_empty(),
    };
    host_is_valid && port_is_valid
}

/// unreserved, sub-delims and the `%` of an escape (RFC 3986 §3.2.2).
fn is_reg_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

/// Percent-decodes a path. Unescaped non-ASCII bytes are accepted unchanged, as curl and old
/// players send them.
fn decode(raw: &str) -> Result<String, Malformed> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let at = raw.len() - rest.len();
        if byte != b'%' {
            decoded.push(byte);
            rest = after;
            continue;
        }
        let value = match after {
            [high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match value {
            Some(0) => return Err(bad(at, "NUL in the request target", "RFC 3986 §7.3")),
            Some(value) => decoded.push(value),
            None => {
                return Err(bad(at, "% without two hexadecimal digits", "RFC 3986 §2.1"));
            }
        }
        rest = &after[2..];
    }
    Ok(path_text(&decoded).into_owned())
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn bad(offset: usize, what: &'static str, section: &'static str) -> Malformed {
    Malformed::new(400, offset, what, section)
}

/// RFC 3986 §3.2.2: names of DNS are no longer.
const HOST_BYTES_MAX: usize = 255;
const TARGET_FORMS: &str = "RFC 9112 §3.2";

#[cfg(test)]
mod tests {
    use super::*;

    fn path(target: &str) -> String {
        parse(&Method::Get, target).expect(target).path
    }

    fn fault(target: &str) -> Malformed {
        parse(&Method::Get, target).expect_err(target)
    }

    #[test]
    fn origin_form_is_decoded_once() {
        assert_eq!(path("/"), "/");
        assert_eq!(path("/a%20b.ts"), "/a b.ts");
        assert_eq!(path("/%25%32%30"), "/%20");
        assert_eq!(path("/%c3%A4"), "/ä");
        assert_eq!(path("/ä"), "/ä");
        assert_eq!(path("/%ff"), "/\u{10ffff}");
        assert_eq!(path("//x"), "//x");
        assert_eq!(path("/../%2e%2e/x"), "/../../x");
    }

    #[test]
    fn query_is_cut_off_and_not_decoded() {
        let target = parse(&Method::Get, "/a?x=%20?y").unwrap();
        assert_eq!((target.path.as_str(), target.query.as_deref()), ("/a", Some("x=%20?y")));
        assert_eq!(parse(&Method::Get, "/a?").unwrap().query.as_deref(), Some(""));
    }

    #[test]
    fn absolute_form_names_host_and_path() {
        for (target, authority, path) in [
            ("http://example.org/a", "example.org", "/a"),
            ("HTTP://example.org:8080", "example.org:8080", "/"),
            ("https://[::1]:80/a/b", "[::1]:80", "/a/b"),
            ("http://h?q", "h", "/"),
        ] {
            let parsed = parse(&Method::Get, target).expect(target);
            assert_eq!(
                (parsed.authority.as_deref(), parsed.path.as_str()),
                (Some(authority), path)
            );
        }
        assert_eq!(parse(&Method::Get, "http://h?q").unwrap().query.as_deref(), Some("q"));
    }

    #[test]
    fn asterisk_is_for_options() {
        assert_eq!(parse(&Method::Options, "*").unwrap().path, "/");
        assert_eq!(fault("*").status, 400);
    }

    #[test]
    fn faults_name_the_byte() {
        for (target, offset) in [
            ("/ab%00", 3),
            ("/ab%", 3),
            ("/ab%4", 3),
            ("/ab%4g", 3),
            ("/ab%%41", 3),
            ("http://h/%zz", 9),
            ("/a#b", 2),
            ("a/b", 0),
            ("ftp://h/", 0),
            ("http:///a", 7),
            ("http://u@h/", 7),
            ("http://h:8x/", 7),
        ] {
            let fault = fault(target);
            assert_eq!((fault.status, fault.offset), (400, offset), "{target}");
        }
    }

    #[test]
    fn authorities() {
        for good in ["h", "h:", "h:80", "1.2.3.4:8", "[::1]", "[fe80::1.2.3.4]:80", "a_b-c.d"] {
            assert!(is_authority(good), "{good}");
        }
        for bad in ["", ":80", "h:8a", "[::1", "[]", "[::1]x", "[g]", "a b", "a/b", "<h>", "ä"] {
            assert!(!is_authority(bad), "{bad}");
        }
    }

    #[test]
    fn ip_literal_is_an_address_of_ipv6() {
        for bad in ["[1]", "[1.2.3.4]", "[a..b::c]", "[1::2::3]", "[1:2:3:4:5:6:7:8:9]", "[v1.a]"] {
            assert!(!is_authority(bad), "{bad}");
        }
        for good in ["[::]", "[1:2:3:4:5:6:7:8]", "[::ffff:1.2.3.4]:80", "[ABCD::EF98]:"] {
            assert!(is_authority(good), "{good}");
        }
    }

    #[test]
    fn target_of_connect_is_a_host_and_a_port() {
        let connect = Method::Other("CONNECT".to_owned());
        for good in ["h:1", "h:65535", "1.2.3.4:80", "[::1]:443"] {
            let target = parse(&connect, good).expect(good);
            assert_eq!((target.authority.as_deref(), target.path.as_str()), (Some(good), "/"));
            assert_eq!(fault(good).status, 400, "{good}: no target of a GET");
        }
        for bad in ["/", "*", "h", "h:", "h:0", "h:65536", ":80", "[::1]", "http://h:80", "u@h:80"]
        {
            assert_eq!(parse(&connect, bad).expect_err(bad).status, 400, "{bad}");
        }
    }
}
