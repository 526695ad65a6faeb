// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sandbox of a server: the files that it may open, and the enforced restrictions for the log.
//!
//! Read access: the served folder, keys, the folders of the files that the options name (a replaced
//! file is a new file in the same folder; where that folder holds files of others, the file alone),
//! and the files that name look-ups and time zones need. Write access: the cache and the folders of
//! logs. Execute access: the program's folder, where an upgrade puts the new file, ffmpeg and ip.
//! When a fault in a parser makes the server open another path, the kernel answers `EACCES`,
//! whatever user it runs as.
//!
//! A successor process inherits the sandbox of its predecessor, and rules can only be added. The
//! paths it needs must therefore be among those of the predecessor; otherwise it refuses to start
//! and the predecessor continues.
//!
//! Costs one more path walk per opened file of the library ([`sandbox`]); sending costs nothing.
//!
//! Sources: landlock(7), seccomp(2). Does not restrict devices, addresses and users, which the
//! service manager restricts better.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox::{CallFilter, Enforced, FilePermissions};
use serve::{Config, Error, KeySource};

/// Mode of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SandboxMode {
    Auto,
    Off,
    Strict,
}

/// Files that the options name.
#[derive(Debug, Default)]
pub(super) struct NamedFiles {
    /// Files that may be read again.
    pub(super) read: Vec<PathBuf>,
    /// Files that are written.
    pub(super) written: Vec<PathBuf>,
}

/// Paths of a configuration, by kind of access.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Confinement {
    read: BTreeSet<PathBuf>,
    written: BTreeSet<PathBuf>,
}

impl SandboxMode {
    pub(super) fn of(name: &str) -> SandboxMode {
        match name {
            "off" => SandboxMode::Off,
            "strict" => SandboxMode::Strict,
            _ => SandboxMode::Auto,
        }
    }

    /// Confines this process to the paths that serving `config` needs; `held` are the paths of the
    /// sandbox in which it was started.
    ///
    /// # Errors
    /// See [`super::operation::Operation::equip`].
    pub(super) fn confine(
        self,
        config: &Config,
        files: &NamedFiles,
        held: Option<&str>,
    ) -> Result<Option<Confinement>, Error> {
        let wanted = Confinement::of(config, files);
        if let Some(held) = held.and_then(Confinement::parse) {
            return match wanted.missing_in(&held) {
                None => Ok(Some(held)),
                Some(path) => Err(Error::Option {
                    option: OPTION,
                    found: format!(
                        "{} is not among the paths of the running server's sandbox",
                        path.display()
                    ),
                    cure: "restart the server instead of upgrading it".to_owned(),
                }),
            };
        }
        if self == SandboxMode::Off {
            tracing::info!("sandbox: off");
            return Ok(None);
        }
        assert!(is_single_threaded(), "the sandbox closes before threads start");
        for file in files.written.iter().filter(|file| is_opened_alone(file)) {
            tracing::warn!(
                "sandbox: {}: the server may write this file and not its folder, which holds \
                 files of others: behind a rename (logrotate) it cannot make another; name a file \
                 in a folder of its own",
                file.display()
            );
        }
        let by_landlock = match wanted.permissions().restrict() {
            Ok(Enforced::Not) => Err("this kernel has none; it needs Linux 5.13 and lsm=".into()),
            Ok(Enforced::Fully | Enforced::Partly) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        let by_seccomp = CallFilter::of_servers().restrict().map_err(|error| error.to_string());
        for (name, result) in [("files (Landlock)", &by_landlock), ("calls (seccomp)", &by_seccomp)]
        {
            match result {
                Ok(()) => tracing::info!("sandbox: {name}: confined"),
                Err(found) if self == SandboxMode::Strict => {
                    return Err(Error::Option {
                        option: OPTION,
                        found: format!("strict: {found}"),
                        cure: "write auto to go without it".to_owned(),
                    });
                }
                Err(found) => tracing::info!("sandbox: {name}: open; {found}"),
            }
        }
        // A successor needs the paths only where the sandbox is enforced.
        Ok(by_landlock.is_ok().then_some(wanted))
    }
}

impl Confinement {
    fn of(config: &Config, files: &NamedFiles) -> Confinement {
        let mut read = BTreeSet::from([whole(&config.folder)]);
        if let Some(KeySource::Folder(folder)) = &config.keys {
            read.insert(whole(folder));
        }
        read.extend(files.read.iter().flat_map(|file| around(file)));
        let mut written = BTreeSet::new();
        // Creates the cache where it is missing: a rule needs an existing folder.
        let cache = media::PlanStore::open(config.cache.clone());
        written.extend(cache.folder().map(whole));
        // A rule for a file needs an existing file, too.
        files.written.iter().filter(|file| is_opened_alone(file)).for_each(|file| make(file));
        written.extend(files.written.iter().flat_map(|file| around(file)));
        Confinement { read, written }
    }

    /// Parses the `Display` form.
    fn parse(text: &str) -> Option<Confinement> {
        let mut found = Confinement::default();
        for line in text.split('\0') {
            let (kind, path) = line.split_at_checked(1)?;
            match kind {
                "r" => found.read.insert(path.into()),
                "w" => found.written.insert(path.into()),
                _ => return None,
            };
        }
        Some(found)
    }

    /// Returns a path of this confinement that `held` lacks.
    fn missing_in<'p>(&'p self, held: &Confinement) -> Option<&'p Path> {
        let is_below =
            |path: &Path, set: &BTreeSet<PathBuf>| set.iter().any(|p| path.starts_with(p));
        let unread = self.read.iter().find(|path| !is_below(path, &held.read));
        let unwritten = self.written.iter().find(|path| !is_below(path, &held.written));
        unread.or(unwritten).map(PathBuf::as_path)
    }

    fn permissions(&self) -> FilePermissions {
        let own = std::env::current_exe().ok();
        let own = own.as_deref().and_then(Path::parent).map(Path::to_owned);
        FilePermissions::none()
            .with_network()
            .reading(READ)
            .reading(&self.read)
            // A successor reads the measurements of the paths, which are stored per device.
            .reading(measure::calibration_folder())
            .executing(RUN)
            .executing(own)
            .executing(PROGRAMS.iter().flat_map(|name| program(name)))
            .writing(WRITTEN)
            .writing(&self.written)
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.read.iter().map(|path| ('r', path));
        let lines = lines.chain(self.written.iter().map(|path| ('w', path)));
        for (index, (kind, path)) in lines.enumerate() {
            let between = if index == 0 { "" } else { "\0" };
            write!(out, "{between}{kind}{}", path.display())?;
        }
        Ok(())
    }
}

/// Returns the path without links and relative parts, where it exists.
fn whole(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Returns the folders in which a file may be replaced: the folder of its name, and the folder of a
/// link's target. In folders shared with other files it returns the file alone, which then has to
/// be written in place.
fn around(file: &Path) -> BTreeSet<PathBuf> {
    let places = names(file).map(|file| match own_folder(&file) {
        Some(folder) => whole(folder),
        None => file,
    });
    places.into()
}

/// True for a file whose folder is not opened for it.
fn is_opened_alone(file: &Path) -> bool {
    names(file).iter().any(|file| own_folder(file).is_none())
}

/// Returns the path of a file as named, and the target of a link there.
fn names(file: &Path) -> [PathBuf; 2] {
    [std::path::absolute(file).unwrap_or_else(|_| file.to_owned()), whole(file)]
}

/// Returns the folder of a file, unless it is a user's home or holds files of others.
fn own_folder(file: &Path) -> Option<&Path> {
    let is_home = |folder: &Path| folder.parent() == Some(Path::new("/home"));
    let is_shared = |folder: &Path| SHARED.iter().any(|shared| folder == Path::new(shared));
    file.parent().filter(|folder| !is_shared(folder) && !is_home(folder))
}

/// Creates a file that is to be written. The server opens it again and reports an error.
fn make(file: &Path) {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = std::fs::OpenOptions::new();
    let made = options.append(true).create(true).mode(0o640).custom_flags(flags).open(file);
    let _ = made.inspect_err(|error| tracing::debug!("{}: {error}", file.display()));
}

/// Waits for threads that have been joined: the kernel may list one for a moment longer.
fn is_single_threaded() -> bool {
    let count = || std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    for _ in 0..THREAD_TRIES {
        if count() == 1 {
            return true;
        }
        std::thread::sleep(THREAD_RETRY);
    }
    false
}

/// Returns the path of a program in PATH, and the target of a link there.
fn program(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name));
    found.filter(|file| file.is_file()).take(1).flat_map(|file| [whole(&file), file]).collect()
}

const OPTION: &str = "--sandbox";
const THREAD_TRIES: u32 = 50;
const THREAD_RETRY: Duration = Duration::from_millis(2);
/// Folders that hold files of others.
const SHARED: &[&str] = &["/", "/etc", "/home", "/root", "/tmp", "/var", "/run", "/usr"];
/// Facts about process and host, host names, certificates of authorities, time zones.
const READ: &[&str] = &[
    "/proc",
    "/sys",
    "/dev/urandom",
    "/etc/ca-certificates",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/machine-id",
    "/etc/nsswitch.conf",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/run/systemd/resolve",
    "/usr/local/share/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
];
/// Programs that the server runs: ffmpeg for pictures of films, ip for the device that leads to an
/// address.
const PROGRAMS: &[&str] = &["ffmpeg", "ip"];
/// Libraries, and the dynamic loader that programs name.
const RUN: &[&str] = &["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];
const WRITTEN: &[&str] = &["/dev/null", "/dev/pagewire_rtp"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_sandbox_are_told_and_compared() {
        let set = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let held =
            Confinement { read: set(&["/srv/films", "/etc/pagewire"]), written: set(&["/c"]) };
        assert_eq!(Confinement::parse(&held.to_string()), Some(held));
        let held = Confinement { read: set(&["/srv"]), written: set(&["/c"]) };
        for (read, written, missing) in [
            (&["/srv"][..], &["/c"][..], None),
            (&["/srv/films"], &["/c/d"], None),
            (&["/srv2"], &["/c"], Some("/srv2")),
            (&["/srv"], &["/srv"], Some("/srv")),
        ] {
            let wanted = Confinement { read: set(read), written: set(written) };
            assert_eq!(wanted.missing_in(&held), missing.map(Path::new), "{wanted}");
        }
        assert_eq!(Confinement::parse("x/srv"), None);
    }

    #[test]
    fn a_replaced_file_is_found_in_its_folder_but_not_all_of_etc() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("archive")).unwrap();
        std::fs::create_dir_all(top.join("live")).unwrap();
        std::fs::write(top.join("archive/key1"), "x").unwrap();
        std::os::unix::fs::symlink("../archive/key1", top.join("live/key")).unwrap();
        let found = around(&top.join("live/key"));
        assert_eq!(found, BTreeSet::from([top.join("live"), top.join("archive")]));
        let alone = around(Path::new("/etc/hostname"));
        assert_eq!(alone, BTreeSet::from([PathBuf::from("/etc/hostname")]));
        let home = Path::new("/home").join("nobody-of-this-name");
        for (file, is_alone) in [
            (home.join("access.log"), true),
            (home.join("logs/access.log"), false),
            (PathBuf::from("/tmp/access.log.of.nobody"), true),
            (PathBuf::from("/var/log/pagewire/access.log"), false),
        ] {
            assert_eq!(is_opened_alone(&file), is_alone, "{}", file.display());
            assert_eq!(around(&file).contains(&file), is_alone, "{}", file.display());
        }
    }
}
