// SPDX-License-Identifier: MIT OR Apache-2.0
//! User and password, and the part of a URL that holds them.
//!
//! They are taken off a URL before anything else reads it, so that no message, file name or figure
//! can repeat them.
//!
//! Sources: RFC 3986 §2.1, §3.2.1 (userinfo); RFC 7616 §4 (UTF-8).

use std::fmt;

use zeroize::Zeroizing;

use crate::connect::authority;

/// User and password for a server; `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct UserCredentials {
    pub(super) user: String,
    password: Zeroizing<String>,
}

impl UserCredentials {
    /// User and password of the caller.
    ///
    /// # Errors
    /// A user with control characters, which a header cannot contain.
    pub fn new(user: &str, password: &str) -> Result<UserCredentials, InvalidUserinfo> {
        if user.chars().any(char::is_control) {
            return Err(InvalidUserinfo::Control);
        }
        Ok(UserCredentials { user: user.to_owned(), password: Zeroizing::new(password.to_owned()) })
    }

    pub(super) fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for UserCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Userinfo of a URL, decoded; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Userinfo {
    /// The user; may be empty.
    pub user: String,
    /// The password; `None` without a colon.
    pub password: Option<Zeroizing<String>>,
}

impl fmt::Debug for Userinfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Userinfo")
    }
}

/// Fault of a user name or a password. Its text repeats neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidUserinfo {
    /// The user contains control characters.
    #[error("the user contains a control character")]
    Control,
    /// The decoded bytes are not UTF-8.
    #[error("user or password is not UTF-8; write its UTF-8 bytes as %XX")]
    Encoding,
}

/// Splits a URL into the URL without userinfo, and the userinfo. Characters that are special in a
/// URL are written as %XX; an @ in a password is accepted as it is.
///
/// # Errors
/// Userinfo that is not UTF-8.
pub fn split_userinfo(url: &str) -> Result<(String, Option<Userinfo>), InvalidUserinfo> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok((url.to_owned(), None)) };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let Some((userinfo, host)) = authority.rsplit_once('@') else {
        return Ok((url.to_owned(), None));
    };
    let (user, password) = match userinfo.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (userinfo, None),
    };
    let decoded = |text: &str| {
        let text = percent_encoding::percent_decode_str(text).decode_utf8();
        text.map(String::from).map_err(|_| InvalidUserinfo::Encoding)
    };
    let password = password.map(decoded).transpose()?.map(Zeroizing::new);
    let userinfo = Userinfo { user: decoded(user)?, password };
    Ok((format!("{scheme}://{host}{path}"), Some(userinfo)))
}

/// An RTSP server, as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RtspServer {
    /// Name, in small letters, or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// `rtsps:`. The same port without TLS is another server: credentials of one are not sent to
    /// the other.
    pub is_tls: bool,
}

impl fmt::Display for RtspServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

/// The server that an `rtsp:` or `rtsps:` URL names; `None` for any other text.
pub fn rtsp_server(url: &str) -> Option<RtspServer> {
    let client = wire::rtsp::client::Client::new(url).ok()?;
    let (host, port) = (client.host().to_ascii_lowercase(), client.port());
    Some(RtspServer { host, port, is_tls: client.is_tls() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn userinfo_is_taken_off_a_url_and_decoded() {
        let split = |url: &str| {
            let (url, userinfo) = split_userinfo(url).unwrap();
            let userinfo = userinfo.map(|userinfo| {
                (userinfo.user, userinfo.password.map(|password| password.to_string()))
            });
            (url, userinfo)
        };
        let some = |user: &str, password: Option<&str>| {
            Some((user.to_owned(), password.map(str::to_owned)))
        };
        for (url, plain, userinfo) in [
            ("rtsp://h/a@b", "rtsp://h/a@b", None),
            ("rtsp://u:p@h", "rtsp://h", some("u", Some("p"))),
            ("rtsp://u:p%40s:s@h:554/a?b#c", "rtsp://h:554/a?b#c", some("u", Some("p@s:s"))),
            ("rtsp://u:p@ss@[::1]/a", "rtsp://[::1]/a", some("u", Some("p@ss"))),
            ("rtsp://u@h/", "rtsp://h/", some("u", None)),
            ("rtsp://u:@h/", "rtsp://h/", some("u", Some(""))),
            ("rtsp://:p@h/", "rtsp://h/", some("", Some("p"))),
            ("rtsp://%C3%BC:%25@h/", "rtsp://h/", some("ü", Some("%"))),
            ("u:p@h/a", "u:p@h/a", None),
        ] {
            assert_eq!(split(url), (plain.to_owned(), userinfo), "{url}");
        }
        assert_eq!(split_userinfo("rtsp://u:%FF@h/"), Err(InvalidUserinfo::Encoding));
    }

    #[test]
    fn servers_are_hosts_and_ports_with_or_without_tls() {
        let server =
            |host: &str, port, is_tls| Some(RtspServer { host: host.to_owned(), port, is_tls });
        assert_eq!(rtsp_server("RTSP://Cam/a"), server("cam", 554, false));
        assert_eq!(rtsp_server("rtsp://[::1]:8554"), server("::1", 8554, false));
        assert_eq!(rtsp_server("rtsps://cam/a"), server("cam", 322, true));
        assert_eq!(rtsp_server("http://cam/a"), None);
    }

    #[test]
    fn nothing_shows_a_password() {
        let credentials = UserCredentials::new("anna", "secret").unwrap();
        assert_eq!(format!("{credentials:?}"), "Credentials");
        let split = split_userinfo("rtsp://anna:secret@h/").unwrap();
        assert_eq!(format!("{split:?}"), "(\"rtsp://h/\", Some(Userinfo))");
        let injected = UserCredentials::new("a\r\nX: y", "p").unwrap_err();
        assert_eq!(injected, InvalidUserinfo::Control);
    }
}
