// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the verbs that log in at RTSP servers, and the login for a URL.
//!
//! A password comes from the URL, else from the file of `--credentials`, else from the environment.
//! The rest of the program has a URL without it, so that no message can repeat it.
//!
//! Does not answer challenges (`client::ClientLogin` does).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use client::{ClientLogin, UserCredentials, Userinfo, rtsp_server, split_userinfo};
use zeroize::Zeroizing;

/// Sources of user and password besides the URL.
#[derive(Args, Clone, Default)]
pub(crate) struct LoginOptions {
    /// Users and passwords of RTSP servers: a file with a line rtsp://USER:PASSWORD@HOST[:PORT] for
    /// each, which its owner alone can read (mode 0600). Without a line for a server,
    /// $PAGEWIRE_RTSP_USER and $PAGEWIRE_RTSP_PASSWORD are taken.
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Sends a password also to servers that ask for it in clear text (Basic); everybody on the way
    /// can read it.
    #[arg(long)]
    allow_basic: bool,
}

/// Logins for the servers of URLs.
pub(crate) struct Logins {
    lines: Vec<CredentialsLine>,
    environment: Option<UserCredentials>,
    allows_basic: bool,
}

/// A line of a file of credentials.
struct CredentialsLine {
    /// Host in small letters, and port.
    server: (String, u16),
    user: String,
    password: Zeroizing<String>,
}

impl LoginOptions {
    /// Returns the name of an option that was given, if any.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let basic = self.allow_basic.then_some("--allow-basic");
        self.credentials.as_ref().map(|_| "--credentials").or(basic)
    }

    /// Reads the file and the environment.
    ///
    /// # Errors
    /// The fault, and what to do. It repeats no password.
    pub(crate) fn read(
        &self,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Logins, String> {
        let lines = match &self.credentials {
            Some(path) => read_lines(path)?,
            None => Vec::new(),
        };
        let text = |name: &str| {
            let value = variable(name).map(OsString::into_string).transpose();
            value.map_err(|_| format!("${name}: no UTF-8; set it again"))
        };
        let environment = match (text(USER)?, text(PASSWORD)?) {
            (Some(user), Some(password)) => {
                let credentials = UserCredentials::new(&user, &Zeroizing::new(password));
                Some(credentials.map_err(|fault| format!("${USER}: {fault}; set it again"))?)
            }
            (None, None) => None,
            (Some(_), None) => return Err(format!("${PASSWORD}: not set; set it beside ${USER}")),
            (None, Some(_)) => return Err(format!("${USER}: not set; set it beside ${PASSWORD}")),
        };
        Ok(Logins { lines, environment, allows_basic: self.allow_basic })
    }
}

impl Logins {
    /// Returns a URL without its user and password, and the login for its server.
    ///
    /// # Errors
    /// The fault, and what to do. It repeats no password.
    pub(crate) fn split(&self, url: &str) -> Result<(String, ClientLogin), String> {
        let is_rtsp = url.get(..SCHEME.len()).is_some_and(|s| s.eq_ignore_ascii_case(SCHEME));
        if !is_rtsp {
            return Ok((url.to_owned(), ClientLogin::default()));
        }
        let shown = || client::without_userinfo(url);
        let wrong = |fault| format!("URL: {}; {fault}", shown());
        let (plain, userinfo) = split_userinfo(url).map_err(wrong)?;
        let credentials = match userinfo {
            Some(Userinfo { user, password: Some(password) }) => {
                Some(UserCredentials::new(&user, &password).map_err(wrong)?)
            }
            other => self.find(&plain, other.map(|userinfo| userinfo.user)).map_err(wrong)?,
        };
        let mut login = ClientLogin::new(credentials);
        login.allows_basic = self.allows_basic;
        Ok((plain, login))
    }

    /// Returns the credentials for a URL without a password, of this user if one is given.
    fn find(
        &self,
        url: &str,
        user: Option<String>,
    ) -> Result<Option<UserCredentials>, client::InvalidUserinfo> {
        let line = rtsp_server(url).and_then(|server| {
            self.lines.iter().find(|line| {
                line.server == server && user.as_ref().is_none_or(|user| *user == line.user)
            })
        });
        match (line, user) {
            (Some(line), _) => UserCredentials::new(&line.user, &line.password).map(Some),
            (None, None) => Ok(self.environment.clone()),
            // Some cameras have a user without a password.
            (None, Some(user)) => UserCredentials::new(&user, "").map(Some),
        }
    }
}

/// Reads a file of credentials.
fn read_lines(path: &Path) -> Result<Vec<CredentialsLine>, String> {
    let wrong =
        |found: &str, cure: &str| format!("--credentials {}: {found}; {cure}", path.display());
    let unread = |error: io::Error| wrong(&error.to_string(), "name a file that can be read");
    let file = File::open(path).map_err(unread)?;
    let metadata = file.metadata().map_err(unread)?;
    if metadata.mode() & OTHERS != 0 {
        let found = format!("others can read it (mode {:04o})", metadata.mode() & 0o7777);
        return Err(wrong(&found, "chmod 600 it, and change the passwords that others may know"));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(wrong(&format!("more than {BYTES_MAX} bytes"), "name a file of credentials"));
    }
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let parsed = lines.map(|(index, line)| {
        let found = format!("line {}", index + 1);
        server_login(line).ok_or_else(|| wrong(&found, "write rtsp://USER:PASSWORD@HOST[:PORT]"))
    });
    parsed.collect()
}

fn server_login(line: &str) -> Option<CredentialsLine> {
    let (plain, userinfo) = split_userinfo(line).ok()?;
    let Userinfo { user, password } = userinfo?;
    UserCredentials::new(&user, "").ok()?;
    Some(CredentialsLine { server: rtsp_server(&plain)?, user, password: password? })
}

const SCHEME: &str = "rtsp://";
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
        (folder, LoginOptions { credentials: Some(path), allow_basic: false })
    }

    fn credentials(user: &str, password: &str) -> Option<UserCredentials> {
        Some(UserCredentials::new(user, password).unwrap())
    }

    #[test]
    fn a_password_is_that_of_the_url_then_of_the_file_then_of_the_environment() {
        let text = "# cameras\nrtsp://anna:p%40ss@cam\n\nrtsp://ben:x@CAM:8554/ignored\n";
        let (_folder, options) = file(text, 0o600);
        let environment = |name: &str| Some(OsString::from(name.to_lowercase()));
        let logins = options.read(environment).unwrap();
        let variables = || credentials("pagewire_rtsp_user", "pagewire_rtsp_password");
        for (url, plain, found) in [
            ("rtsp://eve:y@cam/a", "rtsp://cam/a", credentials("eve", "y")),
            ("rtsp://cam/a", "rtsp://cam/a", credentials("anna", "p@ss")),
            ("RTSP://anna@Cam:554/a", "RTSP://Cam:554/a", credentials("anna", "p@ss")),
            ("rtsp://cam:8554/a", "rtsp://cam:8554/a", credentials("ben", "x")),
            ("rtsp://eve@cam/a", "rtsp://cam/a", credentials("eve", "")),
            ("rtsp://cam:555/a", "rtsp://cam:555/a", variables()),
            ("rtsp://other/a", "rtsp://other/a", variables()),
        ] {
            let (split, login) = logins.split(url).unwrap();
            assert_eq!((split.as_str(), login.credentials), (plain, found), "{url}");
        }
        let (_, login) = logins.split("udp://10.0.0.1@239.1.1.1:5004").unwrap();
        assert_eq!(login.credentials, None);
        let (url, login) =
            LoginOptions::default().read(nothing).unwrap().split("rtsp://h").unwrap();
        assert_eq!((url.as_str(), login.credentials), ("rtsp://h", None));
    }

    #[test]
    fn faults_are_told_without_a_password() {
        for (text, mode, found) in [
            ("rtsp://anna:secret@cam\n", 0o644, "others can read it (mode 0644); chmod 600"),
            ("rtsp://anna:secret@cam\nanna:secret\n", 0o600, ": line 2; write rtsp://USER:PASS"),
            ("rtsp://anna@cam\n", 0o600, ": line 1; write rtsp://USER:PASSWORD@HOST[:PORT]"),
            ("rtsp://a%0d%0ab:secret@cam\n", 0o600, ": line 1; write rtsp://USER:PASSWORD@HOST"),
        ] {
            let (_folder, options) = file(text, mode);
            let fault = options.read(nothing).err().expect(text);
            assert!(fault.contains(found) && !fault.contains("secret"), "{fault}");
        }
        let only_user = |name: &str| (name == USER).then(|| OsString::from("anna"));
        let fault = LoginOptions::default().read(only_user).err().unwrap();
        assert!(fault.starts_with("$PAGEWIRE_RTSP_PASSWORD: not set"), "{fault}");
        let logins = LoginOptions::default().read(nothing).unwrap();
        let fault = logins.split("rtsp://anna:secret%FF@cam/a").unwrap_err();
        assert!(fault.starts_with("URL: rtsp://…@cam/a; user or password is not UTF-8"), "{fault}");
    }
}
