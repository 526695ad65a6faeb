// SPDX-License-Identifier: MIT OR Apache-2.0
//! Merges the settings of `serve` from the command line, the environment, the files that systemd
//! hands over, and the configuration file.
//!
//! The first source in this order that has a setting wins; the default comes last. The winning
//! values are written as one command line, which clap parses by its rules, so that a setting means
//! the same in every source. A command line alone, without a file and variables, is parsed as it
//! is.
//!
//! In the environment `PAGEWIRE_SESSION_TIMEOUT=30` is `--session-timeout 30`; a list has commas
//! between its items, a switch is `true` or `false`. `PAGEWIRE_AUTH_URL_FILE=/run/secrets/url`
//! reads a value from the file, so that the environment holds no secret. A file with a secret that
//! no source names is read from `$CREDENTIALS_DIRECTORY` (systemd's `LoadCredential=tls_key:PATH`).
//!
//! Costs a few hundred microseconds at the start and at each reload.
//!
//! Sources: systemd.exec(5), "CREDENTIALS"; clap 4.6. Does not examine the files that settings name
//! ([`super::check`] does).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Parser};

use super::keys::{self, CONFIG, FOLDER, Key, KeyKind, SERVE, VARIABLE_PREFIX};
use super::nearest::nearest;
use super::{FileConfig, relations};
use crate::Arguments;

/// Returns the value of an environment variable by its name.
pub(crate) type Environment = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// The command line of a server and its environment; read again at each reload.
pub(crate) struct Sources {
    program: OsString,
    /// Settings of the command line, with their values.
    line: Vec<(&'static Key, Vec<OsString>)>,
    config: Option<PathBuf>,
    /// False for a command that serves nothing.
    needs_folder: bool,
    environment: Box<Environment>,
}

/// Origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        path: PathBuf,
        line: usize,
    },
    /// An environment variable, by its name.
    Environment(String),
    /// A file that systemd hands over.
    Credential(PathBuf),
    CommandLine,
}

/// A setting with its values and their origin.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) key: &'static Key,
    pub(crate) values: Vec<OsString>,
    pub(crate) origin: Origin,
    /// True where the value was read from the file of a secret.
    pub(crate) is_secret: bool,
}

/// All settings of a server, parsed.
pub(crate) struct Loaded {
    pub(crate) log: String,
    pub(crate) log_format: crate::log::LogFormat,
    pub(crate) options: crate::serve::Options,
    /// Tables of the file; its flags are among `given`.
    pub(crate) file: FileConfig,
    /// Settings that a source has set, also those set to their default.
    pub(crate) given: Vec<Given>,
    /// Remarks about settings that are no fault.
    pub(crate) notes: Vec<String>,
}

/// Reasons why settings cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The command line alone is wrong.
    Line(Box<clap::Error>),
    /// Faults of the file and the environment, one text each.
    Faults(Vec<String>),
}

impl Unusable {
    /// Prints the faults; exit status 2.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Unusable::Line(error) => error.exit(),
            Unusable::Faults(faults) => crate::all_wrong(&faults),
        }
    }

    /// Returns the faults, one text each.
    pub(crate) fn texts(self) -> Vec<String> {
        match self {
            Unusable::Line(error) => vec![error.render().to_string()],
            Unusable::Faults(faults) => faults,
        }
    }
}

impl Sources {
    /// Reads a command line that starts a server; returns `None` for one that does not, and for one
    /// that clap refuses in any case.
    pub(crate) fn of_line(line: &[OsString], environment: Box<Environment>) -> Option<Sources> {
        let loose = Arguments::command().mut_subcommand(SERVE, |_| keys::loose_command(SERVE));
        let matches = loose.try_get_matches_from(line).ok()?;
        let (_, matches) = matches.subcommand().filter(|(verb, _)| *verb == SERVE)?;
        let program = line.first().cloned().unwrap_or_else(|| "pagewire".into());
        Some(Sources::of_matches(program, matches, environment))
    }

    /// Collects the settings of a verb with the arguments of [`keys::loose_command`].
    pub(super) fn of_matches(
        program: OsString,
        matches: &ArgMatches,
        environment: Box<Environment>,
    ) -> Sources {
        let is_written = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        let line = keys::all().iter().filter(|key| is_written(&key.name)).map(|key| {
            let values = match key.kind {
                KeyKind::Switch => vec![matches.get_flag(&key.name).to_string().into()],
                _ => {
                    let raw = matches.get_raw(&key.name).into_iter().flatten();
                    raw.map(OsStr::to_owned).collect()
                }
            };
            (key, values)
        });
        let line = line.collect();
        let config = matches.get_raw(CONFIG).and_then(|mut raw| raw.next()).map(PathBuf::from);
        Sources { program, line, config, needs_folder: true, environment }
    }

    /// Reads a file by itself, for `config check`.
    pub(super) fn of_file(path: &Path) -> Sources {
        Sources {
            program: "pagewire".into(),
            line: Vec::new(),
            config: Some(path.to_owned()),
            needs_folder: true,
            environment: Box::new(|_| None),
        }
    }

    /// Allows loading without a folder to serve: the settings are only examined.
    pub(super) fn needs_no_folder(&mut self) {
        self.needs_folder = false;
    }

    /// Reads all sources.
    ///
    /// # Errors
    /// The faults of all sources.
    pub(crate) fn load(&self) -> Result<Loaded, Unusable> {
        let mut faults = Vec::new();
        let mut notes = Vec::new();
        let from_line = self.line.iter().map(|(key, values)| Given {
            key,
            values: values.clone(),
            origin: Origin::CommandLine,
            is_secret: false,
        });
        let mut given: Vec<Given> = from_line.collect();
        add(&mut given, self.variables(&mut faults));
        let variable = format!("{VARIABLE_PREFIX}{}", CONFIG.to_ascii_uppercase());
        let named = self.variable(&variable).map(PathBuf::from);
        let file = self.config.clone().or(named);
        let mut of_file = FileConfig::default();
        if let Some(path) = &file {
            match super::read(path) {
                Ok(read) => of_file = read,
                Err(found) => faults.extend(found),
            }
        }
        let settings = std::mem::take(&mut of_file.settings).into_iter().map(|setting| Given {
            key: keys::named(&setting.key).expect("the file was read by the keys"),
            values: setting.values,
            origin: Origin::File { path: file.clone().unwrap_or_default(), line: setting.line },
            is_secret: false,
        });
        add(&mut given, settings.collect());
        let credentials = self.credentials(&given);
        add(&mut given, credentials);
        if !faults.is_empty() {
            return Err(Unusable::Faults(faults));
        }
        self.notes(&mut notes);
        // A switch that is off counts as absent.
        let is_on = |given: &Given| given.key.kind != KeyKind::Switch || given.values[0] != "false";
        let effective: Vec<Given> = given.iter().filter(|given| is_on(given)).cloned().collect();
        let arguments = self.parse(&effective, file.as_deref())?;
        let crate::Verb::Serve(options) = arguments.verb else {
            unreachable!("the line has this verb")
        };
        let (log, log_format) = (arguments.log, arguments.log_format);
        Ok(Loaded { log, log_format, options: *options, file: of_file, given, notes })
    }

    /// Lists the files and folders that settings are read from, and read again at each reload.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let variable = format!("{VARIABLE_PREFIX}{}", CONFIG.to_ascii_uppercase());
        let secrets = keys::all().iter().filter(|key| !key.is_path());
        let secrets = secrets.map(|key| format!("{}{FILE_SUFFIX}", key.variable()));
        let variables = std::iter::once(variable).chain(secrets);
        let mut files: Vec<PathBuf> =
            variables.filter_map(|name| self.variable(&name)).map(PathBuf::from).collect();
        files.extend(self.config.clone());
        let folder = self.variable(CREDENTIALS).map(PathBuf::from);
        files.extend(folder.map(|folder| folder.join("any")));
        files
    }

    /// Parses settings as one command line.
    fn parse(&self, given: &[Given], file: Option<&Path>) -> Result<Arguments, Unusable> {
        match Arguments::try_parse_from(self.line_of(given)) {
            Ok(arguments) => Ok(arguments),
            Err(error) => {
                let is_line = |given: &Given| given.origin == Origin::CommandLine;
                if given.iter().all(is_line) && file.is_none() {
                    return Err(Unusable::Line(Box::new(error)));
                }
                let parse = |given: &[Given]| Arguments::try_parse_from(self.line_of(given)).err();
                Err(Unusable::Faults(relations::faults(given, file, parse)))
            }
        }
    }

    /// Writes settings as a command line, with the folder last.
    fn line_of(&self, given: &[Given]) -> Vec<OsString> {
        let mut line = vec![self.program.clone(), SERVE.into()];
        let (folder, flags): (Vec<_>, Vec<_>) =
            given.iter().partition(|given| given.key.name == FOLDER);
        let has_folder = !folder.is_empty() || self.needs_folder;
        for given in flags.into_iter().chain(folder) {
            line.extend(given.values.iter().flat_map(|value| given.key.arguments(value)));
        }
        if !has_folder {
            line.extend(["--".into(), ".".into()]);
        }
        line
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }

    /// Reads the settings of the environment.
    fn variables(&self, faults: &mut Vec<String>) -> Vec<Given> {
        let mut given = Vec::new();
        for key in keys::all() {
            let name = key.variable();
            let file = format!("{name}{FILE_SUFFIX}");
            // For a flag that names a file, the path itself is the value.
            let file = Some(file).filter(|_| !key.is_path());
            let (name, value, is_secret) = match self.variable(&name) {
                Some(value) => (name, value, false),
                None => {
                    let Some((name, path)) = file.and_then(|file| {
                        self.variable(&file).map(|path| (file, PathBuf::from(path)))
                    }) else {
                        continue;
                    };
                    match secret(&path) {
                        Ok(value) => (name, value, true),
                        Err(fault) => {
                            faults.push(format!("{name}={}: {fault}", path.display()));
                            continue;
                        }
                    }
                }
            };
            match values(key, &value) {
                Ok(values) => {
                    let origin = Origin::Environment(name);
                    given.push(Given { key, values, origin, is_secret });
                }
                Err(refusal) => {
                    let shown = if is_secret { "…".into() } else { value.to_string_lossy() };
                    faults.push(format!("{name}={shown}: {refusal}"));
                }
            }
        }
        given
    }

    /// Returns the files of secrets that systemd hands over and no other source names.
    fn credentials(&self, given: &[Given]) -> Vec<Given> {
        let Some(folder) = self.variable(CREDENTIALS).map(PathBuf::from) else {
            return Vec::new();
        };
        let is_free = |key: &&Key| !given.iter().any(|given| given.key.name == key.name);
        let secrets = keys::all().iter().filter(|key| key.is_secret_file()).filter(is_free);
        secrets
            .map(|key| (key, folder.join(&key.name)))
            .filter(|(_, path)| path.is_file())
            .map(|(key, path)| Given {
                key,
                values: vec![path.clone().into_os_string()],
                origin: Origin::Credential(path),
                is_secret: false,
            })
            .collect()
    }

    /// Notes variables whose names resemble one that is read but are not read themselves.
    fn notes(&self, notes: &mut Vec<String>) {
        let known: Vec<String> = keys::all().iter().map(Key::variable).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        for (name, _) in std::env::vars_os() {
            let Some(name) = name.to_str().filter(|name| name.starts_with(VARIABLE_PREFIX)) else {
                continue;
            };
            let is_read = known.contains(&name)
                || name.strip_suffix(FILE_SUFFIX).is_some_and(|name| known.contains(&name))
                || name == format!("{VARIABLE_PREFIX}CONFIG")
                || name == crate::serve::HANDOVER_LINK;
            let near = nearest(name, &known).filter(|near| near.len().abs_diff(name.len()) <= 2);
            if let Some(near) = near.filter(|_| !is_read && self.variable(name).is_some()) {
                notes.push(format!("environment {name}: no such setting; write {near}"));
            }
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => out.write_str("default"),
            Origin::File { path, line } => write!(out, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(out, "environment {name}"),
            Origin::Credential(path) => write!(out, "credential {}", path.display()),
            Origin::CommandLine => out.write_str("command line"),
        }
    }
}

/// Adds the settings of a source that no earlier source has.
fn add(given: &mut Vec<Given>, source: Vec<Given>) {
    for setting in source {
        if !given.iter().any(|given| given.key.name == setting.key.name) {
            given.push(setting);
        }
    }
}

/// Reads and judges the value of a variable.
fn values(key: &Key, value: &OsStr) -> Result<Vec<OsString>, String> {
    let values = match key.kind {
        KeyKind::Switch => match value.to_str().map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "1" | "yes" | "on") => vec!["true".into()],
            Some("false" | "0" | "no" | "off") => vec!["false".into()],
            _ => return Err("no switch; write true or false".to_owned()),
        },
        KeyKind::Texts => {
            let text = value.to_str().ok_or("text that is not UTF-8; write UTF-8")?;
            text.split(',').map(|item| item.trim().into()).collect()
        }
        KeyKind::Number | KeyKind::Text => vec![value.to_owned()],
    };
    if key.kind != KeyKind::Switch {
        values.iter().try_for_each(|value| key.check(value))?;
    }
    Ok(values)
}

/// Reads the value of a secret from its file: one line.
fn secret(path: &Path) -> Result<OsString, String> {
    let super::FileText { text, .. } = super::text_of("", path).map_err(|faults| {
        let fault = faults.into_iter().next().unwrap_or_default();
        fault.split_once(": ").map_or(fault.clone(), |(_, reason)| reason.to_owned())
    })?;
    let value = text.trim_end_matches(['\n', '\r']);
    match value.is_empty() || value.contains('\n') {
        true => Err("not one line; write the value alone into the file".to_owned()),
        false => Ok(value.into()),
    }
}

const FILE_SUFFIX: &str = "_FILE";
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
