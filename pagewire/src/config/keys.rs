// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of the configuration file and the names in the environment, made from the flags of
//! `pagewire serve`.
//!
//! A flag `--session-timeout` is the key `session_timeout` and the variable
//! `PAGEWIRE_SESSION_TIMEOUT`; the folder, which has no flag, is `folder`. Types, defaults and
//! texts are those of clap's definitions, and each value is judged by clap's parser of the flag: a
//! new flag is a new key with no line here. Properties that clap does not record have a list below.
//!
//! Costs one construction of the command line's definition per process.
//!
//! Sources: clap 4.6, `Arg`, `ValueParser`, `ContextKind`.
//! Does not read files or the environment.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory};

/// A setting of `pagewire serve`.
#[derive(Debug)]
pub(crate) struct Key {
    /// Name in the file.
    pub(crate) name: String,
    pub(crate) kind: KeyKind,
    arg: Arg,
}

/// Type of a value in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Number,
    Text,
    /// A text, or a list of texts.
    Texts,
}

/// Returns all keys, in the order of the help: the folder first, the log last.
pub(crate) fn all() -> &'static [Key] {
    static KEYS: OnceLock<Vec<Key>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let program = crate::Arguments::command();
        let serve = program.find_subcommand(SERVE).expect("it is a verb");
        let of_all = program.get_arguments().filter(|arg| arg.is_global_set());
        let args = serve.get_arguments().chain(of_all);
        let is_setting = |arg: &&Arg| !NO_KEYS.contains(&arg.get_id().as_str());
        args.filter(is_setting).map(|arg| Key::of(arg.clone())).collect()
    })
}

/// Returns the key with this name.
pub(crate) fn named(name: &str) -> Option<&'static Key> {
    all().iter().find(|key| key.name == name)
}

impl Key {
    fn of(arg: Arg) -> Key {
        let name = arg.get_long().map_or(arg.get_id().as_str(), |long| long).replace('-', "_");
        let parser = arg.get_value_parser().type_id();
        let numbers =
            [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()];
        let kind = match arg.get_action() {
            ArgAction::SetTrue => KeyKind::Switch,
            ArgAction::Append => KeyKind::Texts,
            // Sizes such as 10G are numbers with units: their parser is a function.
            _ if numbers.iter().any(|number| parser == *number) && !has_units(&arg) => {
                KeyKind::Number
            }
            _ => KeyKind::Text,
        };
        Key { name, kind, arg }
    }

    /// Returns the flag with its dashes; `None` for the folder.
    pub(crate) fn flag(&self) -> Option<String> {
        self.arg.get_long().map(|long| format!("--{long}"))
    }

    /// Returns the name in the environment.
    pub(crate) fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.name.to_ascii_uppercase())
    }

    /// Returns the help text in one line.
    pub(crate) fn help(&self) -> String {
        let help = self.arg.get_long_help().or(self.arg.get_help());
        let text = help.map(ToString::to_string).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns the heading of the help under which the setting is listed.
    pub(crate) fn heading(&self) -> Option<&str> {
        self.arg.get_help_heading()
    }

    /// Returns the default value, if there is one.
    pub(crate) fn default(&self) -> Option<String> {
        let values = self.arg.get_default_values();
        match self.kind {
            KeyKind::Switch => Some("false".to_owned()),
            _ => values.first().map(|value| value.to_string_lossy().into_owned()),
        }
    }

    /// Returns the accepted values, where they are a list.
    pub(crate) fn choices(&self) -> Vec<String> {
        let values = self.arg.get_possible_values().into_iter();
        match self.kind {
            KeyKind::Switch => Vec::new(),
            _ => values.map(|value| value.get_name().to_owned()).collect(),
        }
    }

    /// Returns the placeholder of the value in the help.
    pub(crate) fn value_name(&self) -> &str {
        let name = self.arg.get_value_names().and_then(|names| names.first());
        name.map_or("VALUE", |name| name.as_str())
    }

    /// True where the value names a file or folder.
    pub(crate) fn is_path(&self) -> bool {
        let parser = self.arg.get_value_parser().type_id();
        parser == TypeId::of::<std::path::PathBuf>() || self.takes_file() || self.takes_folder()
    }

    /// True where the value may name a file.
    pub(crate) fn takes_file(&self) -> bool {
        self.value_name().split('|').any(|word| word == "FILE")
    }

    /// True where the value may name a folder.
    pub(crate) fn takes_folder(&self) -> bool {
        self.name == FOLDER || self.value_name().split('|').any(|word| word == "DIR")
    }

    /// True where the named file holds a secret.
    pub(crate) fn is_secret_file(&self) -> bool {
        SECRET_FILES.contains(&self.name.as_str())
    }

    /// True where the server creates the file or folder.
    pub(crate) fn is_made(&self) -> bool {
        MADE.contains(&self.name.as_str())
    }

    /// True where a running server can adopt a new value.
    pub(crate) fn is_reloaded(&self) -> bool {
        RELOADED.contains(&self.name.as_str())
    }

    /// Returns the definition without rules about other settings and about values: it accepts any
    /// text.
    pub(super) fn loose(&'static self) -> Arg {
        let arg = Arg::new(self.name.as_str());
        let Some(long) = self.arg.get_long() else {
            return arg.value_parser(clap::value_parser!(OsString)).index(1);
        };
        let arg = arg.long(long).action(self.arg.get_action().clone());
        match self.kind {
            KeyKind::Switch => arg,
            _ => arg.value_parser(clap::value_parser!(OsString)),
        }
    }

    /// Returns the command-line arguments that set this value.
    pub(super) fn arguments(&self, value: &OsStr) -> Vec<OsString> {
        match (self.flag(), self.kind) {
            (None, _) => vec!["--".into(), value.to_owned()],
            (Some(_), KeyKind::Switch) if value != "true" => Vec::new(),
            (Some(flag), KeyKind::Switch) => vec![flag.into()],
            (Some(flag), _) => {
                let mut argument = OsString::from(flag);
                argument.push("=");
                argument.push(value);
                vec![argument]
            }
        }
    }

    /// Judges a value by the parser of the flag.
    ///
    /// # Errors
    /// The value found, and the value to write.
    pub(crate) fn check(&self, value: &OsStr) -> Result<(), String> {
        if self.name == LOG {
            return crate::log::check(&value.to_string_lossy());
        }
        let mut line = vec![OsString::from(SERVE)];
        line.extend(self.arguments(value));
        if self.name != FOLDER {
            line.extend(["--".into(), ".".into()]);
        }
        let Err(error) = serve_command().try_get_matches_from_mut(line) else { return Ok(()) };
        match error.kind() {
            // Rules about other settings are judged when all settings have been read.
            ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict => Ok(()),
            _ => Err(self.refusal(&error)),
        }
    }

    /// Returns, from clap's error, the value found and the value to write.
    fn refusal(&self, error: &clap::Error) -> String {
        if let Some(ContextValue::Strings(valid)) = error.get(ContextKind::ValidValue)
            && !valid.is_empty()
        {
            return format!("no such value; write {}", valid.join(" or "));
        }
        let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
        if let Some((_, range)) = reason.split_once(" is not in ") {
            return format!("out of range; write {}", range.replace("..=", " to "));
        }
        if reason.starts_with("write ") {
            return format!("unusable; {reason}");
        }
        if let Some((found, cure)) = reason.split_once(": write ") {
            return format!("{found}; write {cure}");
        }
        let found = if reason.is_empty() { "unusable" } else { reason.trim_end_matches('.') };
        if found.contains("; ") {
            return found.to_owned();
        }
        let such_as = self.default().map_or(String::new(), |value| format!(", such as {value}"));
        format!("{found}; write {}{such_as}", self.value_name())
    }

    /// Returns the minimum and the maximum of a number.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        if self.kind != KeyKind::Number {
            return None;
        }
        // A parser of numbers reports its range only in the error for a value outside it.
        let reasons = ["-1", "18446744073709551615", "9223372036854775807"].map(OsStr::new);
        let reasons = reasons.map(|number| self.check(number).err());
        reasons.into_iter().flatten().find_map(|reason| {
            let (least, most) = reason.split_once("; write ")?.1.split_once(" to ")?;
            Some((least.parse().ok()?, most.parse().ok()?))
        })
    }
}

/// True for a number that is written with a unit, such as 10G.
fn has_units(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().any(|name| ["BYTES", "RATE"].contains(&name.as_str()))
}

/// Returns the verb `serve` by itself, with its rules and the flags that all verbs have.
fn serve_command() -> Command {
    let program = crate::Arguments::command();
    let of_all = program.get_arguments().filter(|arg| arg.is_global_set()).cloned();
    let serve = Command::new(SERVE).args(of_all);
    <crate::serve::Options as clap::Args>::augment_args(serve).no_binary_name(false)
}

/// Returns the verb `serve` for a first pass over the command line: any text is a value, and no
/// argument requires another, which may be in the file.
pub(super) fn loose_command(name: &'static str) -> Command {
    let config = Arg::new(CONFIG).long(CONFIG).value_parser(clap::value_parser!(OsString));
    let is_global = |key: &&Key| key.arg.is_global_set();
    let own = all().iter().filter(|key| !is_global(key)).map(Key::loose);
    Command::new(name).arg(config).args(own)
}

/// Returns the arguments of all verbs, relaxed as those of `serve` are in [`loose_command`], for a
/// command of its own.
pub(super) fn loose_globals() -> impl Iterator<Item = Arg> {
    all().iter().filter(|key| key.arg.is_global_set()).map(Key::loose)
}

pub(super) const SERVE: &str = "serve";
pub(super) const CONFIG: &str = "config";
pub(crate) const FOLDER: &str = "folder";
pub(crate) const LOG: &str = "log";
pub(crate) const VARIABLE_PREFIX: &str = "PAGEWIRE_";
/// Arguments that are not settings.
const NO_KEYS: &[&str] = &["help", "version", CONFIG];
/// Files that hold a secret: private keys, tokens, passwords.
const SECRET_FILES: &[&str] =
    &["tls_key", "hls_key_file", "key_token_file", "users", "digest_users", "url_key_file"];
/// Files and folders that the server creates.
const MADE: &[&str] = &["cache", "access_log"];
/// Settings that a reload replaces; all others need a restart. [`serve::Server::reload`] and
/// `serve/reload.rs` apply them.
const RELOADED: &[&str] = &[
    "log",
    "tls_cert",
    "tls_key",
    "tls_self_signed",
    "session_timeout",
    "hls_key_file",
    "keys",
    "key_token_file",
    "allow_origin",
    "users",
    "digest_users",
    "digest_md5",
    "realm",
    "url_key_file",
    "jwks",
    "jwt_audience",
    "jwt_issuer",
    "jwt_algorithm",
    "jwt_leeway",
    "auth_url",
    "auth_cache",
    "sessions_per_user",
    "sessions_per_asset",
    "rate",
    "rate_per_user",
    "admit_load",
    "sessions_per_connection",
    "sessions_per_address",
    "sessions",
    "connections_per_address",
    "connections",
    "requests_per_second",
    "http_pace",
    "http_rate_per_connection",
    "http_rate_per_address",
    "http_rate",
    "play_within",
    "exempt_from_limits",
    "allow_low_ports",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_key_and_every_key_its_flag() {
        let program = crate::Arguments::command();
        let serve = program.find_subcommand(SERVE).unwrap();
        let flags: Vec<_> = serve
            .get_arguments()
            .chain(program.get_arguments().filter(|arg| arg.is_global_set()))
            .filter(|arg| arg.get_id() != CONFIG)
            .collect();
        assert!(flags.len() > 35, "{}", flags.len());
        for arg in &flags {
            let name = arg.get_long().unwrap_or(FOLDER).replace('-', "_");
            let key = named(&name).unwrap_or_else(|| panic!("{name} has no key"));
            assert_eq!(key.flag().as_deref().map(|flag| &flag[2..]), arg.get_long(), "{name}");
            assert!(key.help().len() > 10, "{name} has no help");
        }
        assert_eq!(all().len(), flags.len());
        for key in all() {
            let file = format!("{}_file", key.name);
            let is_clear = key.is_path() || named(&file).is_none();
            assert!(is_clear, "PAGEWIRE_{file} is a flag's and a secret's");
        }
        for name in SECRET_FILES.iter().chain(MADE).chain(RELOADED) {
            let others = ["users", "digest_users", "url_key_file", "access_log"];
            assert!(named(name).is_some() || others.contains(name), "{name} is no key");
        }
    }

    #[test]
    fn kinds_are_those_of_the_parsers() {
        for (name, kind) in [
            ("folder", KeyKind::Text),
            ("session_timeout", KeyKind::Number),
            ("pacers", KeyKind::Number),
            ("cache_size", KeyKind::Text),
            ("http_rate", KeyKind::Text),
            ("allow_low_ports", KeyKind::Switch),
            ("path", KeyKind::Texts),
            ("rtsp", KeyKind::Text),
        ] {
            assert_eq!(named(name).unwrap().kind, kind, "{name}");
        }
        assert_eq!(named("session_timeout").unwrap().range(), Some((1, 86_400)));
        assert_eq!(named("sessions").unwrap().range(), Some((1, 1_000_000)));
        let paths = ["folder", "cache", "tls_key", "keys", "key_token_file"];
        assert!(paths.iter().all(|name| named(name).unwrap().is_path()));
        assert!(!named("rtsp").unwrap().is_path());
    }

    #[test]
    fn refused_values_have_a_reason_and_a_cure() {
        for (name, value, expected) in [
            ("session_timeout", "0", "out of range; write 1 to 86400"),
            ("kernel_tls", "on", "no such value; write auto or off"),
            ("http_pace", "quick", "unusable; write a factor such as 4x, or off"),
            ("rtsp", "8554", "invalid socket address syntax; write ADDRESS:PORT, such as 127"),
            ("log", "serve=loud", "unusable"),
        ] {
            let found = named(name).unwrap().check(OsStr::new(value)).unwrap_err();
            assert!(found.starts_with(expected), "{name} = {value}: {found}");
        }
        for (name, value) in
            [("https", "0.0.0.0:443"), ("folder", "-x"), ("keys", "-"), ("log", "info")]
        {
            assert_eq!(named(name).unwrap().check(OsStr::new(value)), Ok(()), "{name}");
        }
    }
}
