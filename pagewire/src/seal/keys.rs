// SPDX-License-Identifier: MIT OR Apache-2.0
//! Key options, the same for every form, and the prompt for a passphrase.
//!
//! A key is read from a file or an environment variable, or is derived from a passphrase. Every
//! user of the machine can read a command line, so `--key` needs a second flag that names the
//! risk.
//!
//! Reading fails where there is no key, no passphrase and no terminal to ask on.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use seal::folder::FolderForm;
use seal::folder_walk::DirHandle;
use seal::key::file::{self, Exposed};
use seal::key::passphrase::{Passphrase, Stretch};
use seal::key::{Origin, Secret};
use seal::{Error, counted, manifest};
use zeroize::Zeroizing;

use crate::escape::Escaped;

/// Source of the key; with none of these the terminal asks for a passphrase.
#[derive(Args)]
#[command(next_help_heading = "Key")]
pub(crate) struct Keys {
    /// File with the key: 16, 24 or 32 bytes, raw or as hex digits (openssl rand -hex 32).
    #[arg(long, value_name = "FILE", group = "key-source")]
    key_file: Option<PathBuf>,
    /// Environment variable with the key as hex digits.
    #[arg(long, value_name = "NAME", group = "key-source")]
    key_env: Option<String>,
    /// File with a passphrase as its only line.
    #[arg(long, value_name = "FILE", group = "key-source")]
    passphrase_file: Option<PathBuf>,
    /// Environment variable with a passphrase.
    #[arg(long, value_name = "NAME", group = "key-source")]
    passphrase_env: Option<String>,
    /// Key as hex digits. Every user of this machine can read it while the program runs.
    #[arg(long, value_name = "HEX", group = "key-source", requires = "insecure_key_argument")]
    key: Option<String>,
    /// Accept --key in spite of that.
    #[arg(long, requires = "key")]
    insecure_key_argument: bool,
}

/// Number of times that the passphrase prompt is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// For opening: a wrong passphrase is noticed.
    Once,
    /// For sealing: a typing error would make the files unreadable.
    Twice,
}

/// A key, or a passphrase that becomes one when the salt is known.
pub(crate) enum Key {
    Key(Secret),
    Passphrase(Passphrase),
}

impl Key {
    /// Returns the key; `stretch` derives one of `key_bytes` bytes from a passphrase. A folder that
    /// was sealed with a key has no `stretch`.
    pub(crate) fn secret(
        self,
        stretch: Option<&Stretch>,
        key_bytes: usize,
    ) -> Result<Secret, Error> {
        match (self, stretch) {
            (Key::Key(secret), None) => Ok(secret),
            (Key::Passphrase(passphrase), Some(stretch)) => {
                passphrase.stretched(stretch, key_bytes)
            }
            (Key::Key(secret), Some(_)) => Err(secret.origin().error(
                "this was sealed with a passphrase",
                "write --passphrase-file or --passphrase-env",
            )),
            (Key::Passphrase(passphrase), None) => Err(passphrase
                .origin()
                .error("this was sealed with a key", "write --key-file or --key-env")),
        }
    }
}

impl Keys {
    /// True when the options name a key rather than a passphrase.
    pub(crate) fn is_key(&self) -> bool {
        self.key_file.is_some() || self.key_env.is_some() || self.key.is_some()
    }

    /// Returns the path of the key file as given, or otherwise `other`.
    pub(crate) fn file_or(&self, other: &str) -> String {
        let file = self.key_file.as_ref();
        file.map_or_else(|| other.to_owned(), |file| file.display().to_string())
    }

    /// Reads the key or passphrase that the options name. Asks on the terminal when they name none,
    /// and warns on standard error of files that others may read or write.
    pub(crate) fn read(&self, ask: Ask) -> Result<Key, Error> {
        if let Some(path) = &self.key_file {
            let (secret, exposed) = file::key("--key-file", path)?;
            warn(exposed);
            return Ok(Key::Key(secret));
        }
        if let Some(path) = &self.passphrase_file {
            let (passphrase, exposed) = Passphrase::from_file("--passphrase-file", path)?;
            warn(exposed);
            return Ok(Key::Passphrase(passphrase));
        }
        if let Some(variable) = &self.key_env {
            return Secret::from_environment("--key-env", variable).map(Key::Key);
        }
        if let Some(variable) = &self.passphrase_env {
            return Passphrase::from_environment("--passphrase-env", variable).map(Key::Passphrase);
        }
        if let Some(digits) = &self.key {
            return Secret::from_hex(digits.as_bytes(), Origin::new("--key", "")).map(Key::Key);
        }
        prompted(ask).map(Key::Passphrase)
    }

    /// Returns the key of a sealed folder. The manifest holds the parameters that derive the key
    /// from a passphrase; without one, `form` gives the length of the key.
    pub(crate) fn of_folder(
        &self,
        folder: &Path,
        form: Option<&FolderForm>,
    ) -> Result<Secret, Error> {
        let header = manifest::header(&DirHandle::open(folder)?)?;
        if header.as_ref().is_some_and(|header| header.form == seal::epub::catalogue::FORM) {
            return Err(Error::Option {
                option: "folder",
                found: format!("{} was sealed by seal epub", folder.display()),
                cure: "write pagewire unseal epub, or pagewire seal verify epub".to_owned(),
            });
        }
        let form = header.as_ref().map_or(form, |header| FolderForm::named(&header.form));
        // An unknown form gets any length here: a later error names the form, not the key.
        let key_bytes = form.map_or(32, |form| form.key_bytes);
        let stretch = header.and_then(|header| header.stretch);
        self.read(Ask::Once)?.secret(stretch.as_ref(), key_bytes)
    }
}

/// Prints a warning, before the work.
fn warn(exposed: Option<Exposed>) {
    if let Some(exposed) = exposed {
        eprintln!("pagewire: warning: {}", Escaped(exposed));
    }
}

/// Reads a passphrase from a file or a variable, or otherwise asks for it at the terminal.
pub(crate) fn passphrase(
    file: Option<&Path>,
    variable: Option<&str>,
    ask: Ask,
) -> Result<Passphrase, Error> {
    match (file, variable) {
        (Some(path), _) => {
            let (passphrase, exposed) = Passphrase::from_file("--passphrase-file", path)?;
            warn(exposed);
            Ok(passphrase)
        }
        (None, Some(variable)) => Passphrase::from_environment("--passphrase-env", variable),
        (None, None) => prompted(ask),
    }
}

fn prompted(ask: Ask) -> Result<Passphrase, Error> {
    let origin = || Origin::new("passphrase", "");
    let cure = "write --key-file, --key-env, --passphrase-file or --passphrase-env";
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(origin().error("no terminal to ask for it", cure));
    }
    let asked = |prompt| {
        rpassword::prompt_password(prompt)
            .map(|text| Zeroizing::new(text.into_bytes()))
            .map_err(|error| origin().error(&error.to_string(), cure))
    };
    let text = asked("Passphrase: ")?;
    if ask == Ask::Twice && text != asked("The same passphrase again: ")? {
        return Err(origin().error("the two are not the same", "try again"));
    }
    Passphrase::new(text, origin())
}

/// Parses an IV of 32 hex digits, for `--iv`.
pub(crate) fn iv(digits: &str) -> Result<[u8; 16], String> {
    let mut iv = [0; 16];
    if let Some(at) = digits.bytes().position(|digit| !digit.is_ascii_hexdigit()) {
        return Err(format!("byte {at} is not a hex digit; write 32 hex digits"));
    }
    if digits.len() != 2 * iv.len() {
        return Err(format!("{}; write 32", counted(digits.len() as u64, "hex digit")));
    }
    for (byte, at) in iv.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits");
    }
    Ok(iv)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        keys: Keys,
    }

    fn read(arguments: &[&str]) -> Result<Key, String> {
        let all = std::iter::once(&"seal").chain(arguments);
        let command = Command::try_parse_from(all).map_err(|error| error.to_string())?;
        command.keys.read(Ask::Once).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_on_the_command_line_takes_a_second_word() {
        let digits = "00112233445566778899aabbccddeeff";
        assert!(read(&["--key", digits]).err().unwrap().contains("--insecure-key-argument"));
        assert!(read(&["--insecure-key-argument"]).is_err());
        let key = read(&["--key", digits, "--insecure-key-argument"]).ok().unwrap();
        assert_eq!(key.secret(None, 32).unwrap().bytes()[15], 0xFF);
        let wrong = read(&["--key", "zz", "--insecure-key-argument"]).err().unwrap();
        assert!(wrong.starts_with("--key: byte 0 is not a hex digit"), "{wrong}");
    }

    #[test]
    fn one_source_of_a_key_and_no_more() {
        assert!(read(&["--key-file", "a", "--key-env", "B"]).is_err());
        assert!(read(&["--key-file", "a", "--passphrase-file", "b"]).is_err());
    }

    #[test]
    fn a_key_and_a_passphrase_are_not_taken_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "ab".repeat(16)).unwrap();
        let name = path.to_str().unwrap();
        let salt = [0; 16];
        let stretch = Stretch { memory_kib: 32, passes: 1, lanes: 1, salt };
        let key_bytes = |option, stretch| {
            let key = read(&[option, name]).ok().unwrap();
            key.secret(stretch, 24).map(|secret| secret.bytes().len()).map_err(|e| e.to_string())
        };
        assert_eq!(key_bytes("--key-file", None), Ok(16));
        assert_eq!(key_bytes("--passphrase-file", Some(&stretch)), Ok(24));
        let wrong = key_bytes("--key-file", Some(&stretch)).unwrap_err();
        assert!(wrong.contains("sealed with a passphrase; write --passphrase-file"), "{wrong}");
        let wrong = key_bytes("--passphrase-file", None).unwrap_err();
        assert!(wrong.contains("sealed with a key"), "{wrong}");
    }

    #[test]
    fn an_iv_is_32_hex_digits() {
        assert_eq!(iv("000102030405060708090a0b0c0d0e0F").unwrap()[15], 15);
        for wrong in
            ["", "00", "zz0102030405060708090a0b0c0d0e0f", "é00102030405060708090a0b0c0d0e"]
        {
            assert!(iv(wrong).unwrap_err().contains("write 32"), "{wrong}");
        }
    }
}
