// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the verbs that log in at RTSP servers, and the logins for URLs: passwords, and trust
//! in servers of `rtsps:`.
//!
//! A password comes from the URL, else from the file of `--credentials`, else from the environment.
//! The rest of the program has a URL without it, so that no message can repeat it.
//!
//! Does not answer challenges (`client::ClientLogin` does).

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use client::{ClientLogin, RtspServer, UserCredentials, Userinfo, rtsp_server, split_userinfo};
use zeroize::Zeroizing;

use crate::server_trust::{ServerTrusts, TrustOptions};

/// Sources of user and password besides the URL, and of trust in servers.
#[derive(Args, Clone, Default)]
pub(crate) struct LoginOptions {
    /// Users and passwords of RTSP servers: a file with a line rtsp://USER:PASSWORD@HOST[:PORT] for
    /// each, rtsps:// for one over TLS (/ # ? and % in a password are written as %2F %23 %3F and
    /// %25), which its owner alone can read (mode 0600). Without a line for a server,
    /// $PAGEWIRE_RTSP_USER and $PAGEWIRE_RTSP_PASSWORD are taken.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Sends a password also to servers that ask for it in clear text (Basic); everybody on the way
    /// can read it. Not needed over TLS.
    #[arg(long)]
    allow_basic: bool,
    #[command(flatten)]
    trust: TrustOptions,
}

/// Sources of the logins for RTSP servers.
struct Logins<V> {
    lines: Vec<CredentialsLine>,
    variable: V,
    allows_basic: bool,
    trusts: ServerTrusts,
    /// Logins so far, with their servers. Streams of one server share a login.
    made: Vec<(RtspServer, ClientLogin)>,
}

/// A line of a file of credentials.
struct CredentialsLine {
    server: RtspServer,
    user: String,
    password: Zeroizing<String>,
}

impl LoginOptions {
    /// Options of a configuration file.
    pub(crate) fn new(
        credentials: Option<PathBuf>,
        allow_basic: bool,
        trust: TrustOptions,
    ) -> LoginOptions {
        LoginOptions { credentials, allow_basic, trust }
    }

    /// Removes user and password from a URL; returns the login.
    ///
    /// # Errors
    /// As for [`take_off`](Self::take_off).
    pub(crate) fn take_off_one(&self, url: &mut String) -> Result<ClientLogin, String> {
        let logins = self.take_off(std::slice::from_mut(url))?;
        Ok(logins.into_iter().next().expect("one for each URL"))
    }

    /// Removes users and passwords from URLs; returns a login for each.
    ///
    /// # Errors
    /// The fault, and what to do. It repeats no password.
    pub(crate) fn take_off(&self, urls: &mut [String]) -> Result<Vec<ClientLogin>, String> {
        self.take_off_with(urls, |name| std::env::var_os(name))
    }

    fn take_off_with(
        &self,
        urls: &mut [String],
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Vec<ClientLogin>, String> {
        let of_sdp = urls.iter().filter_map(|url| url.strip_prefix(::receive::SDP_SCHEME));
        if of_sdp.clone().any(|path| path.contains("://")) {
            return Err(
                "--sdp: an address; name a file, and write the address without --sdp".into()
            );
        }
        if !urls.iter().any(|url| is_rtsp(url)) {
            let given = [
                self.credentials.as_ref().map(|_| "--credentials"),
                self.allow_basic.then_some("--allow-basic"),
                self.trust.given(),
            ];
            return match given.into_iter().flatten().next() {
                None => Ok(vec![ClientLogin::default(); urls.len()]),
                Some(option) => {
                    let shown: Vec<String> =
                        urls.iter().map(|url| client::without_userinfo(url)).collect();
                    let scheme = if self.trust.given() == Some(option) { "rtsps" } else { "rtsp" };
                    Err(format!(
                        "{option}: {}; it is for RTSP; leave it out, or write an {scheme}:// \
                         address",
                        shown.join(" ")
                    ))
                }
            };
        }
        let lines = match &self.credentials {
            Some(path) => read_lines(path)?,
            None => Vec::new(),
        };
        let parts = urls.iter().map(|url| is_rtsp(url).then(|| UrlParts::of(url)).transpose());
        let parts = parts.collect::<Result<Vec<_>, String>>()?;
        let servers = parts.iter().flatten().map(|parts| parts.server.clone()).collect();
        let trusts = self.trust.read(servers)?;
        let allows_basic = self.allow_basic;
        let mut logins = Logins { lines, variable, allows_basic, trusts, made: Vec::new() };
        let parts = urls.iter_mut().zip(parts);
        let logins = parts.map(|(url, parts)| match parts {
            Some(parts) => logins.take_off(url, parts),
            None => Ok(ClientLogin::default()),
        });
        logins.collect()
    }
}

impl<V: Fn(&str) -> Option<OsString>> Logins<V> {
    fn take_off(&mut self, url: &mut String, parts: UrlParts) -> Result<ClientLogin, String> {
        let UrlParts { plain, userinfo, server } = parts;
        let credentials = self.credentials(&server, userinfo);
        let credentials = credentials.map_err(|fault| wrong_url(url, &fault))?;
        *url = plain;
        let is_same = |(of, login): &&(RtspServer, ClientLogin)| {
            *of == server && login.credentials == credentials
        };
        if let Some((_, login)) = self.made.iter().find(is_same) {
            return Ok(login.clone());
        }
        let mut login = ClientLogin::new(credentials);
        login.allows_basic = self.allows_basic;
        login.trust = self.trusts.of(&server);
        self.made.push((server, login.clone()));
        Ok(login)
    }

    /// Returns the credentials for a server; `Err` has the fault.
    fn credentials(
        &self,
        server: &RtspServer,
        userinfo: Option<Userinfo>,
    ) -> Result<Option<UserCredentials>, String> {
        let new = |user: &str, password: &str| {
            UserCredentials::new(user, password).map(Some).map_err(|fault| fault.to_string())
        };
        let user = match userinfo {
            Some(Userinfo { user, password: Some(password) }) => return new(&user, &password),
            Some(Userinfo { user, password: None }) if !user.is_empty() => Some(user),
            _ => None,
        };
        let is_wanted = |found: &str| user.as_ref().is_none_or(|user| user == found);
        let line = self.lines.iter().find(|line| line.server == *server && is_wanted(&line.user));
        if let Some(line) = line {
            return new(&line.user, &line.password);
        }
        match (self.environment()?, &user) {
            (Some((user, password)), _) if is_wanted(&user) => new(&user, &password),
            (_, None) => Ok(None),
            (_, Some(_)) => Err(NO_PASSWORD.to_owned()),
        }
    }

    /// User and password of the environment; `Err` has the fault.
    fn environment(&self) -> Result<Option<(String, Zeroizing<String>)>, String> {
        let text = |name: &str| {
            let value = (self.variable)(name).map(OsString::into_string).transpose();
            value.map_err(|_| format!("${name} is no UTF-8; set it again"))
        };
        match (text(USER)?, text(PASSWORD)?) {
            (Some(user), Some(password)) => Ok(Some((user, Zeroizing::new(password)))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(format!("${USER} is set, and ${PASSWORD} is not; set both")),
            (None, Some(_)) => Err(format!("${PASSWORD} is set, and ${USER} is not; set both")),
        }
    }
}

/// Parts of an RTSP URL.
pub(crate) struct UrlParts {
    /// The URL without user and password.
    pub(crate) plain: String,
    pub(crate) userinfo: Option<Userinfo>,
    pub(crate) server: RtspServer,
}

impl UrlParts {
    /// Splits a URL.
    ///
    /// # Errors
    /// The fault of the URL, without a password.
    pub(crate) fn of(url: &str) -> Result<UrlParts, String> {
        if has_broken_password(url) {
            return Err(wrong_url(url, &format!("{ESCAPES}, and @ in a path as %40")));
        }
        let parts = split_userinfo(url);
        let (plain, userinfo) = parts.map_err(|fault| wrong_url(url, &fault.to_string()))?;
        match rtsp_server(&plain) {
            Some(server) => Ok(UrlParts { plain, userinfo, server }),
            // A password without a host would be shown.
            None => Err("URL: no host and port of a server in it; write \
                         rtsp://HOST[:PORT]/PATH, or rtsp://USER:PASSWORD@HOST[:PORT]/PATH"
                .to_owned()),
        }
    }
}

fn wrong_url(url: &str, fault: &str) -> String {
    format!("URL: {}; {fault}", client::without_userinfo(url))
}

/// True for an `rtsp:` or `rtsps:` URL.
pub(crate) fn is_rtsp(url: &str) -> bool {
    behind_scheme(url).is_some()
}

/// Returns the part of an RTSP URL behind its scheme.
fn behind_scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)).then_some(rest)
}

/// True where a `/`, `#` or `?` that is not escaped seems to end the host within a password: in
/// `rtsp://anna:1/2@camera/` the host would be `anna`, and `b` in `rtsp://anna:a@b/2@camera/`.
fn has_broken_password(url: &str) -> bool {
    let Some(rest) = behind_scheme(url) else { return false };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let user = authority.rsplit_once('@').map_or(authority, |(user, _)| user);
    user.contains(':') && !user.starts_with('[') && path.contains('@')
}

/// Reads a file of credentials.
fn read_lines(path: &Path) -> Result<Vec<CredentialsLine>, String> {
    let wrong =
        |found: &str, cure: &str| format!("--credentials {}: {found}; {cure}", path.display());
    let unread = |error: io::Error| wrong(&error.to_string(), "name a file that can be read");
    let file = File::open(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    if let Some(mode) = mode_for_others(&metadata) {
        let found = format!("others can read it (mode {mode:04o})");
        return Err(wrong(&found, "chmod 600 it, and change the passwords that others may know"));
    }
    // Reserved at once: a buffer that grows leaves copies of passwords in memory.
    let mut text = Zeroizing::new(String::with_capacity(BYTES_MAX as usize + 1));
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(wrong(&format!("more than {BYTES_MAX} bytes"), "name a file of credentials"));
    }
    let (mut read, mut seen) = (Vec::new(), HashSet::new());
    for (index, line) in text.trim_start_matches('\u{feff}').lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = index + 1;
        let form = format!(
            "write rtsp://USER:PASSWORD@HOST[:PORT] or rtsps://… without a path; {ESCAPES}"
        );
        let line = credentials_line(line).ok_or_else(|| wrong(&format!("line {number}"), &form))?;
        if !seen.insert((line.server.clone(), line.user.clone())) {
            let found = format!("line {number}: this user of this server has a line already");
            return Err(wrong(&found, "leave one out"));
        }
        read.push(line);
    }
    Ok(read)
}

/// Returns the mode of a file of passwords that others than its owner can use; `None` also for a
/// pipe (`<(pass show cameras)`), of which permissions mean nothing.
pub(crate) fn mode_for_others(metadata: &Metadata) -> Option<u32> {
    let mode = metadata.mode() & 0o7777;
    (metadata.is_file() && mode & OTHERS != 0).then_some(mode)
}

fn credentials_line(line: &str) -> Option<CredentialsLine> {
    if has_broken_password(line) {
        return None;
    }
    let (plain, userinfo) = split_userinfo(line).ok()?;
    let Userinfo { user, password } = userinfo?;
    let host = behind_scheme(&plain)?.trim_end_matches('/');
    if host.contains(['/', '?', '#']) || UserCredentials::new(&user, "").is_err() {
        return None;
    }
    Some(CredentialsLine { server: rtsp_server(&plain)?, user, password: password? })
}

const SCHEMES: [&str; 2] = ["rtsp", "rtsps"];
const ESCAPES: &str = "write / # ? and % in a password as %2F %23 %3F and %25";
const NO_PASSWORD: &str = "no password for this user; write rtsp://USER:PASSWORD@HOST (with an \
                           empty one, rtsp://USER:@HOST; rtsps:// over TLS), or a line in a file \
                           of --credentials";
const USER: &str = "PAGEWIRE_RTSP_USER";
const PASSWORD: &str = "PAGEWIRE_RTSP_PASSWORD";
/// Permissions of the group and of others.
const OTHERS: u32 = 0o077;
/// A line for each of ten thousand cameras.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn nothing(_: &str) -> Option<OsString> {
        None
    }

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, LoginOptions) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (folder, LoginOptions { credentials: Some(path), ..LoginOptions::default() })
    }

    fn credentials(user: &str, password: &str) -> Option<UserCredentials> {
        Some(UserCredentials::new(user, password).unwrap())
    }

    /// The URL without a user, and the credentials.
    fn taken_off(
        options: &LoginOptions,
        url: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<(String, Option<UserCredentials>), String> {
        let mut urls = [url.to_owned()];
        let mut logins = options.take_off_with(&mut urls, variable)?;
        let [url] = urls;
        Ok((url, logins.remove(0).credentials))
    }

    #[test]
    fn a_password_is_that_of_the_url_then_of_the_file_then_of_the_environment() {
        let text = "# cameras\r\nrtsp://anna:p%40ss@cam\r\n\nrtsp://ben:x@CAM:8554/\n\
                    rtsps://ida:z@cam:8554\n";
        let (_folder, options) = file(text, 0o600);
        let environment = |name: &str| Some(OsString::from(name.to_lowercase()));
        let variables = || credentials("pagewire_rtsp_user", "pagewire_rtsp_password");
        for (url, plain, found) in [
            ("rtsp://eve:y@cam/a", "rtsp://cam/a", credentials("eve", "y")),
            ("rtsp://eve:@cam/a", "rtsp://cam/a", credentials("eve", "")),
            ("rtsp://cam/a", "rtsp://cam/a", credentials("anna", "p@ss")),
            ("RTSP://anna@Cam:554/a", "RTSP://Cam:554/a", credentials("anna", "p@ss")),
            ("rtsp://cam:8554/a", "rtsp://cam:8554/a", credentials("ben", "x")),
            ("rtsps://cam:8554/a", "rtsps://cam:8554/a", credentials("ida", "z")),
            ("rtsps://cam:554/a", "rtsps://cam:554/a", variables()),
            ("rtsp://cam:555/a", "rtsp://cam:555/a", variables()),
            ("rtsp://@other/a", "rtsp://other/a", variables()),
            ("rtsp://pagewire_rtsp_user@other/a", "rtsp://other/a", variables()),
            ("rtsp://[::1]:554/a@b", "rtsp://[::1]:554/a@b", variables()),
        ] {
            let (split, login) = taken_off(&options, url, environment).unwrap();
            assert_eq!((split.as_str(), login), (plain, found), "{url}");
        }
        let fault = taken_off(&options, "rtsp://eve@cam/a", environment).unwrap_err();
        assert!(fault.starts_with("URL: rtsp://…@cam/a; no password for this user"), "{fault}");
        let (url, login) = taken_off(&LoginOptions::default(), "rtsp://h", nothing).unwrap();
        assert_eq!((url.as_str(), login), ("rtsp://h", None));
        let only_user = |name: &str| (name == USER).then(|| OsString::from("anna"));
        let udp = "udp://10.0.0.1@239.1.1.1:5004";
        let found = taken_off(&LoginOptions::default(), udp, only_user).unwrap();
        assert_eq!(found, (udp.to_owned(), None));
        let fault = taken_off(&options, udp, nothing).unwrap_err();
        assert!(fault.contains("it is for RTSP"), "{fault}");
    }

    #[test]
    fn faults_are_told_without_a_password() {
        for (text, mode, found) in [
            ("rtsp://anna:secret@cam\n", 0o644, "others can read it (mode 0644); chmod 600"),
            ("rtsp://anna:secret@cam\nanna:secret\n", 0o600, ": line 2; write rtsp://USER:PASS"),
            ("rtsp://anna@cam\n", 0o600, ": line 1; write rtsp://USER:PASSWORD@HOST[:PORT]"),
            ("rtsp://anna:secret@cam/live\n", 0o600, ": line 1; write rtsp://USER:PASSWORD@HOST"),
            ("rtsp://anna:1/secret@cam\n", 0o600, ": line 1; write rtsp://USER:PASSWORD@HOST"),
            ("rtsp://a:secret@c\nrtsp://a:x@C:554\n", 0o600, "line 2: this user of this server"),
            ("rtsp://a%0d%0ab:secret@cam\n", 0o600, ": line 1; write rtsp://USER:PASSWORD@HOST"),
        ] {
            let (_folder, options) = file(text, mode);
            let fault = taken_off(&options, "rtsp://cam/", nothing).unwrap_err();
            assert!(fault.contains(found) && !fault.contains("secret"), "{fault}");
        }
        let only_user = |name: &str| (name == USER).then(|| OsString::from("anna"));
        let options = LoginOptions::default();
        let fault = taken_off(&options, "rtsp://cam/", only_user).unwrap_err();
        assert!(fault.contains("$PAGEWIRE_RTSP_PASSWORD is not; set both"), "{fault}");
        for (url, found) in [
            ("rtsp://anna:secret%FF@cam/a", "URL: rtsp://…@cam/a; user or password is not UTF-8"),
            ("rtsp://anna:12/secret@cam/a", "URL: rtsp://…@cam/a; write / # ? and % in a passwo"),
            ("rtsp://anna:secret", "URL: no host and port of a server in it; write rtsp://HOST"),
            ("rtsp://anna:x@y/secret@cam/a", "URL: rtsp://…@cam/a; write / # ? and % in a passwo"),
            ("rtsps://anna:12/secret@cam/a", "URL: rtsps://…@cam/a; write / # ? and % in a pa"),
            ("sdp:rtsp://anna:secret@cam/a", "--sdp: an address; name a file"),
            ("rtsp://anna:#secret@cam/a", "URL: rtsp://…@cam/a; write / # ? and % in a password"),
        ] {
            let fault = taken_off(&options, url, nothing).unwrap_err();
            assert!(fault.starts_with(found) && !fault.contains("secret"), "{fault}");
        }
    }

    #[test]
    fn streams_of_one_server_share_a_login() {
        let mut urls =
            ["rtsp://a:p@cam/1", "rtsp://a:p@CAM:554/2", "rtsp://a:q@cam/3"].map(str::to_owned);
        let mut logins = Logins {
            lines: Vec::new(),
            variable: nothing,
            allows_basic: false,
            trusts: ServerTrusts::default(),
            made: Vec::new(),
        };
        for url in &mut urls {
            let parts = UrlParts::of(url).unwrap();
            logins.take_off(url, parts).unwrap();
        }
        assert_eq!(logins.made.len(), 2, "by server and password");
    }
}
