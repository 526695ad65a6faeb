// SPDX-License-Identifier: MIT OR Apache-2.0
//! Duties of the first process of a machine: mounts, brings interfaces up, loads modules and
//! switches off.
//!
//! Runs only as process 1; a normal program skips all of it, so that the workloads can be tested on
//! any host. A facility that the kernel lacks (debugfs, a dummy interface) is skipped: the job that
//! needs it reports it.
//!
//! Sources: mount(2), finit_module(2), reboot(2); `Documentation/admin-guide/init.rst` of Linux.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};

use crate::error::Error;
use crate::network;
use crate::settings::GuestSettings;

/// Kind, folder, data, and true when the kernel may lack it.
const MOUNTS: &[(&str, &str, Option<&str>, bool)] = &[
    ("proc", "/proc", None, false),
    ("sysfs", "/sys", None, false),
    ("devtmpfs", "/dev", None, false),
    ("tmpfs", "/tmp", Some("size=90%"), false),
    ("debugfs", "/sys/kernel/debug", None, true),
];
const MODULES: &str = "/lib/modules";
/// Interface that drops all packets; a neighbour on it needs no address resolution.
const DUMMY: (&str, Ipv4Addr, u8) = ("dummy0", Ipv4Addr::new(10, 9, 0, 1), 24);

/// True in the first process of the machine.
pub(crate) fn is_ours() -> bool {
    std::process::id() == 1
}

/// Sets up everything before the first workload.
pub(crate) fn set_up(settings: &GuestSettings) -> Result<(), Error> {
    for &(kind, folder, data, may_lack) in MOUNTS {
        mount_one(kind, folder, data, may_lack)?;
    }
    let found = modules(Path::new(MODULES))?;
    load(&settings.wanted_modules(found)?, settings)?;
    if !network::up("lo", None)? {
        return Err(Error::Unavailable {
            what: "network".into(),
            found: "no interface lo".into(),
            cure: "build the kernel with CONFIG_NET and CONFIG_INET",
        });
    }
    let (interface, address, prefix_bits) = DUMMY;
    network::up(interface, Some((address, prefix_bits)))?;
    Ok(())
}

fn mount_one(kind: &str, folder: &str, data: Option<&str>, may_lack: bool) -> Result<(), Error> {
    let what = || format!("{kind} on {folder}");
    match rustix::fs::mkdir(folder, Mode::from_raw_mode(0o755)) {
        // Below /sys the folder exists, or the kernel lacks the facility.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) if may_lack => return Ok(()),
        Err(error) => return Err(Error::host("mkdir", folder)(error)),
    }
    let data = data.map(CString::new).transpose().map_err(io::Error::from);
    let data = data.map_err(Error::host("mount", what()))?;
    match mount(kind, folder, kind, MountFlags::empty(), data.as_deref()) {
        // EBUSY: the kernel has mounted it (CONFIG_DEVTMPFS_MOUNT).
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(Errno::NODEV | Errno::NOENT) if may_lack => Ok(()),
        Err(error) => Err(Error::host("mount", what())(error)),
    }
}

/// Returns the modules in a folder, sorted by name; none when there is no folder.
fn modules(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let refused = |error| Error::host("read folder", folder.display().to_string())(error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(refused)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(refused)?.path();
        if path.extension().is_some_and(|extension| extension == "ko") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Loads the modules in an order in which each finds the symbols it needs.
fn load(files: &[PathBuf], settings: &GuestSettings) -> Result<(), Error> {
    let mut open = files.to_vec();
    while !open.is_empty() {
        let before = open.len();
        let mut later = Vec::new();
        let mut refusal = None;
        for file in open {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
            let parameters = settings.module_parameters(&name);
            let object = format!("{} {parameters}", file.display());
            match load_one(&file, &parameters) {
                Ok(()) => {}
                // ENOENT is an unknown symbol: another module may define it.
                Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                    refusal = Some(Error::host("finit_module", object)(error));
                    later.push(file);
                }
                Err(error) => return Err(Error::host("finit_module", object)(error)),
            }
        }
        if let Some(refusal) = refusal
            && later.len() == before
        {
            return Err(refusal);
        }
        open = later;
    }
    Ok(())
}

fn load_one(file: &Path, parameters: &str) -> io::Result<()> {
    let file = fs::File::open(file)?;
    Ok(finit_module(&file, &CString::new(parameters)?, 0)?)
}

/// Switches the machine off after the output has been written.
pub(crate) fn power_off() -> Result<(), Error> {
    // Ignores an error: a console that is not a terminal has no output to wait for.
    let _ = rustix::termios::tcdrain(io::stdout());
    rustix::fs::sync();
    reboot(RebootCommand::PowerOff).map_err(Error::host("reboot", "power off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_in_order_and_nothing_else_is() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.ko", "a.ko", "readme", "c.ko.xz"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let found = modules(folder.path()).expect("a list");
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["a.ko", "b.ko"]);
        assert!(modules(&folder.path().join("none")).expect("no folder").is_empty());
    }
}
