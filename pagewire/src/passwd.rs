// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire passwd`: adds a user to a file of users, or changes the password.
//!
//! The password comes from the terminal or from standard input, never from the command line, which
//! other users of the machine can read. The file is replaced as a whole; owner and mode are kept. A
//! new file is readable by its owner alone; in a folder that is closed to others (/etc/pagewire of
//! the Debian package) also by the folder's group, which the service runs as.
//!
//! Sources: htpasswd(1), htdigest(1). Does not lock the file: of two concurrent calls only the
//! lines of one are kept. Does not notify a running server, which reads the file again on SIGHUP.

use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serve::AccessConfig;
use serve::access::{htdigest_line, htpasswd_line};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

#[derive(Args)]
pub(crate) struct Options {
    /// File of users: the one of `serve --users`, or of `--digest-users` with --digest.
    file: PathBuf,
    /// Name of the user.
    user: String,
    /// Writes a line for Digest (htdigest, SHA-256).
    #[arg(long)]
    digest: bool,
    /// Writes it for players that know MD5 alone; the server needs --digest-md5.
    #[arg(long, requires = "digest")]
    md5: bool,
    /// Realm of the line for Digest: the one of `serve --realm`.
    #[arg(long, value_name = "TEXT", default_value = AccessConfig::REALM, requires = "digest")]
    realm: String,
}

pub(crate) fn run(options: Options) -> ExitCode {
    match options.change() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::wrong(&error),
    }
}

impl Options {
    fn change(&self) -> Result<(), String> {
        let password = password()?;
        let line = match self.digest {
            true => htdigest_line(&self.user, &self.realm, &password, self.md5),
            false => htpasswd_line(&self.user, &password),
        };
        self.write(&line.map_err(|error| error.to_string())?)
    }

    /// Replaces the line of the user in the file.
    fn write(&self, line: &str) -> Result<(), String> {
        // A link is resolved: its target is replaced, not the link. A missing file is created.
        let file = self.file.canonicalize().unwrap_or_else(|_| self.file.clone());
        let shown = file.display();
        let unwritten = |error: io::Error| format!("passwd {shown}: {error}; name another file");
        let (before, metadata) = match fs::read_to_string(&file) {
            Ok(text) => (text, Some(fs::metadata(&file).map_err(unwritten)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => (String::new(), None),
            Err(error) => return Err(unwritten(error)),
        };
        let text = replaced(&before, line, self.digest);
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let mut made = NamedTempFile::new_in(folder).map_err(unwritten)?;
        made.write_all(text.as_bytes()).map_err(unwritten)?;
        if let Some(metadata) = metadata {
            let mode = fs::Permissions::from_mode(metadata.mode() & 0o777);
            chown(made.path(), Some(metadata.uid()), Some(metadata.gid())).map_err(unwritten)?;
            made.as_file().set_permissions(mode).map_err(unwritten)?;
        } else {
            share_with_group(made.path(), folder).map_err(unwritten)?;
        }
        made.as_file().sync_all().map_err(unwritten)?;
        made.persist(&file).map_err(|error| unwritten(error.error))?;
        Ok(())
    }
}

/// Lets the group of a folder that is closed to others read a file in it, where this user may
/// change the file's group to that group.
fn share_with_group(file: &Path, folder: &Path) -> io::Result<()> {
    let metadata = fs::metadata(folder)?;
    let is_shared = metadata.mode() & 0o077 == 0o050;
    if is_shared && chown(file, None, Some(metadata.gid())).is_ok() {
        fs::set_permissions(file, fs::Permissions::from_mode(0o640))?;
    }
    Ok(())
}

/// Returns a text in which this line replaces the line of the same user, or is appended where there
/// is none. A user of Digest has a line for each realm and hash.
fn replaced(before: &str, line: &str, is_digest: bool) -> String {
    let key = |text: &str| {
        let fields: Vec<&str> = text.trim().split(':').collect();
        match fields[..] {
            [user, realm, hash] if is_digest => format!("{user}:{realm}:{}", hash.len()),
            [user, ..] => user.to_owned(),
            [] => String::new(),
        }
    };
    let (own, mut is_replaced) = (key(line), false);
    let mut text = String::with_capacity(before.len() + line.len() + 2);
    for other in before.lines() {
        match key(other) == own {
            true if is_replaced => continue,
            true => text.push_str(line),
            false => text.push_str(other),
        }
        is_replaced |= key(other) == own;
        text.push('\n');
    }
    if !is_replaced {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Reads a password: twice from a terminal, otherwise the first line of standard input.
fn password() -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("reading the password: {error}; try again");
    if io::stdin().is_terminal() {
        let ask = |prompt| rpassword::prompt_password(prompt).map(Zeroizing::new).map_err(failed);
        let first = ask("Password: ")?;
        if first != ask("The same password again: ")? {
            return Err("the two passwords are not the same; try again".to_owned());
        }
        return Ok(Zeroizing::new(first.as_bytes().to_vec()));
    }
    let mut read = Zeroizing::new(Vec::with_capacity(INPUT_BYTES_MAX as usize));
    io::stdin().lock().take(INPUT_BYTES_MAX).read_to_end(&mut read).map_err(failed)?;
    let end = read.iter().position(|byte| *byte == b'\n').unwrap_or(read.len());
    read.truncate(end);
    if read.last() == Some(&b'\r') {
        read.pop();
    }
    Ok(read)
}

const INPUT_BYTES_MAX: u64 = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_user_is_replaced_and_others_stay() {
        let before = "# users\nanna:old\nben:x\nanna:older";
        assert_eq!(replaced(before, "anna:new", false), "# users\nanna:new\nben:x\n");
        assert_eq!(replaced("", "anna:new", false), "anna:new\n");
        let digest = "anna:r:0123\nanna:s:0123\nanna:r:01234567\n";
        let expected = "anna:r:abcd\nanna:s:0123\nanna:r:01234567\n";
        assert_eq!(replaced(digest, "anna:r:abcd", true), expected);
    }

    #[test]
    fn file_keeps_its_mode_and_a_new_one_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let user = "anna".to_owned();
        let realm = AccessConfig::REALM.to_owned();
        let options = Options { file: file.clone(), user, digest: false, md5: false, realm };
        let mode = || fs::metadata(&file).unwrap().mode() & 0o777;
        options.write("anna:1").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        options.write("anna:2").unwrap();
        assert_eq!((mode(), fs::read_to_string(&file).unwrap().as_str()), (0o640, "anna:2\n"));
        // Like the folder of the service's settings: its group is the service's.
        let closed = folder.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o750)).unwrap();
        let shared = Options { file: closed.join("users"), ..options };
        shared.write("anna:1").unwrap();
        let (made, of) = (fs::metadata(&shared.file).unwrap(), fs::metadata(&closed).unwrap());
        assert_eq!((made.mode() & 0o777, made.gid()), (0o640, of.gid()));
        let options = shared;
        // Through a link: the link is kept.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let linked = Options { file: link.clone(), ..options };
        linked.write("anna:3").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "anna:3\n");
        let options = linked;
        let nowhere = Options { file: folder.path().join("none/users"), ..options };
        assert!(nowhere.write("anna:1").unwrap_err().contains("name another file"));
    }
}
