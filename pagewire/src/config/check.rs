// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a configuration file against the disk: named files and folders, their modes, the
//! certificate with its key, and tokens and secrets with the films that they open.
//!
//! Faults of the file itself come first and alone; the host is examined only for a file that has
//! none. A file can thus be checked on another machine than the one it is meant for: status 1 then
//! means that the file is right.
//!
//! Costs a few system calls for each named file, and the reading of keys and certificates.
//!
//! Sources: stat(2), access(2).
//! Does not open sockets: an address may be in use by the very server that the file is for.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use serve::access::AccessConfig;

use super::keys::{self, FOLDER, Key};
use super::sources::{Given, Loaded, Origin, Sources};

/// Findings about a file.
#[derive(Debug, Default)]
pub(super) struct CheckReport {
    /// Faults of the file.
    pub(super) faults: Vec<String>,
    /// Files and folders that this host lacks.
    pub(super) missing: Vec<String>,
    /// Remarks about settings that are no fault.
    pub(super) notes: Vec<String>,
}

/// Checks a file.
pub(super) fn check(path: &Path) -> CheckReport {
    let mut report = CheckReport::default();
    let mut sources = Sources::of_file(path);
    sources.needs_no_folder();
    let loaded = match sources.load() {
        Ok(loaded) => loaded,
        Err(unusable) => {
            report.faults = unusable.texts();
            return report;
        }
    };
    let has_folder = loaded.given.iter().any(|given| is_of_file(given) && given.key.name == FOLDER);
    if !has_folder {
        let note = "folder: not in the file; name it on the command line of pagewire serve";
        report.notes.push(format!("{}: {note}", path.display()));
    }
    let Loaded { mut options, file, given, .. } = loaded;
    if !has_folder {
        options.leave_titles_out();
    }
    let user = options.check_user();
    for given in given.iter().filter(|given| is_of_file(given) && given.key.is_path()) {
        for value in &given.values {
            look(given, Path::new(value), &mut report);
        }
    }
    // The later checks read these files and would report them once more.
    if !report.missing.is_empty() {
        return report;
    }
    match options.config(file, false) {
        Ok(config) => {
            if let Err(error) = config.check() {
                report.faults.push(placed(&given, path, &crate::serve::with_flag(&error)));
                return report;
            }
            if let Err(error) = user {
                report.missing.push(placed(&given, path, &crate::serve::with_flag(&error)));
            }
            if let Err(error) = config.access.check() {
                report.missing.push(placed(&given, path, &error.to_string()));
            }
            if has_folder && !config.access.rules.is_empty() {
                let notes = unnamed_folders(&config.folder, &config.access);
                report.notes.extend(notes.map(|note| format!("{}: {note}", path.display())));
            }
            if let Some(Err(error)) = config.tls.as_ref().map(serve::TlsSource::check) {
                report.missing.push(placed(&given, path, &crate::serve::with_flag(&error)));
            }
        }
        Err(error) => {
            report.missing.push(placed(&given, path, &crate::serve::with_flag(&error)));
        }
    }
    report
}

/// Returns a note on each folder that no rule can name because its name is not UTF-8 (a TOML file
/// is text). Folders inside such a folder are not examined.
fn unnamed_folders(top: &Path, access: &AccessConfig) -> impl Iterator<Item = String> {
    let (mut looked_at, mut found) = (0, Vec::new());
    let mut folders = vec![String::new()];
    while let Some(above) = folders.pop() {
        // A folder that cannot be read is not served.
        let entries = fs::read_dir(top.join(&above)).into_iter().flatten().flatten();
        for entry in entries.take(ENTRIES_MAX - looked_at) {
            looked_at += 1;
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name();
            match name.to_str() {
                Some(name) if name.starts_with('.') => {}
                Some(name) if above.is_empty() => folders.push(name.to_owned()),
                Some(name) => folders.push(format!("{above}/{name}")),
                None => found.push((above.clone(), name)),
            }
        }
    }
    // Sorts folders under the most specific rules first.
    let rule_bytes = |above: &String| access.rule_of(above).map_or(0, str::len);
    found.sort_by_cached_key(|(above, name)| {
        (Reverse(rule_bytes(above)), above.clone(), name.clone())
    });
    let more = found.len().saturating_sub(UNNAMED_MAX);
    found.truncate(UNNAMED_MAX);
    let notes: Vec<String> = found
        .iter()
        .map(|(above, name)| {
            let decides = match access.rule_of(above) {
                Some(rule) => format!("the rules of path = {rule:?} decide about it"),
                None => "no rule opens it".to_owned(),
            };
            format!(
                "access: the name of the folder {:?} is no UTF-8, so no rule can name it: \
                 {decides}; for a rule of its own rename it (convmv -f latin1 -t utf8 --notest), \
                 or put it into a folder that has the rule",
                Path::new(above).join(name)
            )
        })
        .collect();
    let more = (more > 0).then(|| format!("access: {more} more such folders"));
    let rest = (looked_at == ENTRIES_MAX).then(|| {
        format!("access: of names that are no UTF-8 only the first {ENTRIES_MAX} were looked at")
    });
    notes.into_iter().chain(more).chain(rest)
}

/// Most files and folders that are searched for names that no rule can name.
const ENTRIES_MAX: usize = 100_000;

/// Most such folders that are listed by name.
const UNNAMED_MAX: usize = 8;

fn is_of_file(given: &Given) -> bool {
    matches!(given.origin, Origin::File { .. })
}

/// Checks a file or folder that a setting names.
fn look(given: &Given, path: &Path, report: &mut CheckReport) {
    let key = given.key;
    let shown = path.to_string_lossy();
    if shown == "-" || shown.contains("://") {
        return;
    }
    let found = match key.is_made() {
        true => look_at_made(path),
        false => look_at(key, path),
    };
    if let Err(found) = found {
        report.missing.push(format!("{}: {} = {shown}: {found}", given.origin, key.name));
        return;
    }
    let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode() & 0o777);
    if let Some(mode) = mode.ok().filter(|mode| key.is_secret_file() && mode & 0o007 != 0) {
        report.missing.push(format!(
            "{}: {} = {shown}: a secret that every user of this host can use (mode {mode:o}); \
             chmod 600 {shown}",
            given.origin, key.name
        ));
    }
}

/// Checks a file or folder that has to exist.
fn look_at(key: &Key, path: &Path) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if key.takes_file() => {
            "no such file; make it, or name another".to_owned()
        }
        io::ErrorKind::NotFound => {
            format!("no such folder; make it (mkdir -p {}), or name another", path.display())
        }
        _ => format!("{error}; name one that the user of the server may read"),
    })?;
    match (metadata.is_dir(), key.takes_file(), key.takes_folder()) {
        (true, true, false) => return Err("a folder; name a file in it".to_owned()),
        (false, false, true) => return Err("a file; name the folder that it lies in".to_owned()),
        _ => {}
    }
    let opened = match metadata.is_dir() {
        true => fs::read_dir(path).map(|_| ()),
        false => fs::File::open(path).map(|_| ()),
    };
    opened.map_err(|error| format!("{error}; name one that the user of the server may read"))
}

/// Checks a path that the server creates: the nearest existing folder above it.
fn look_at_made(path: &Path) -> Result<(), String> {
    let mut above = PathBuf::from(path);
    while !above.exists() {
        if !above.pop() {
            return Ok(());
        }
    }
    rustix::fs::access(&above, Access::WRITE_OK).map_err(|error| {
        let shown = above.display();
        format!("{shown}: {error}; name a place that the user of the server may write to")
    })
}

/// Puts the place in the file before a message that begins with a flag.
fn placed(given: &[Given], file: &Path, message: &str) -> String {
    let (flag, rest) = message.split_once(": ").unwrap_or(("", message));
    let flag = flag.split(' ').next().unwrap_or_default();
    let key = keys::all().iter().find(|key| key.flag().as_deref() == Some(flag));
    let given = key.and_then(|key| given.iter().find(|given| given.key.name == key.name));
    match (key, given) {
        (Some(key), Some(given)) => format!("{}: {}: {rest}", given.origin, key.name),
        (Some(key), None) => format!("{}: {}: {rest}", file.display(), key.name),
        (None, _) => format!("{}: {message}", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use serve::access::rules::RuleDraft;

    use super::*;

    #[test]
    fn folders_that_no_rule_can_name_are_named_with_the_rule_that_decides() {
        let place = tempfile::tempdir().unwrap();
        for name in [&b"caf\xe9/b\xe9"[..], b"films/private/b\xe8b\xe9", b"films/caf\xc3\xa9"] {
            fs::create_dir_all(place.path().join(OsStr::from_bytes(name))).unwrap();
        }
        fs::write(place.path().join(OsStr::from_bytes(b"films/a\xe9.ts")), b"").unwrap();
        let mut access = AccessConfig::default();
        access.rules = ["films", "films/private", "films/private/b"]
            .map(|path| {
                let (path, verbs) = (Some(path.to_owned()), vec!["play".to_owned()]);
                let allow = vec!["anyone".to_owned()];
                RuleDraft { path, verbs, allow, channel: None }.check().unwrap()
            })
            .to_vec();
        let mut notes: Vec<String> = unnamed_folders(place.path(), &access).collect();
        notes.sort();
        let [first, second] = &notes[..] else { panic!("{notes:#?}") };
        assert!(
            first.contains("\"caf\\xE9\" is no UTF-8, so no rule can name it: no rule opens it")
        );
        let decides = "\"films/private/b\\xE8b\\xE9\" is no UTF-8, so no rule can name it: the \
                       rules of path = \"films/private\" decide about it; for a rule of its own";
        assert!(second.contains(decides), "{second}");
    }
}
