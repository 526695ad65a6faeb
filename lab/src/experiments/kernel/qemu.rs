// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's kernel under QEMU, fetched or found in the cache, and modules for it.
//!
//! Sources: kernel/qemu/fetch.sh, kernel/qemu/boot.sh.
//! Does not install packages; they are unpacked in the cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::KernelLab;
use super::program::paths_of;
use measure::Error;

/// A stock kernel.
pub(super) struct Qemu {
    boot: PathBuf,
    /// The kernel's dummy network device, a module.
    pub(super) dummy: PathBuf,
    /// Release of the kernel, as printed by uname -r.
    pub(super) version: String,
}

/// Settings of a boot.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    /// QEMU's name of the processor.
    pub(super) processor: &'a str,
    /// True when the guest's clock counts instructions.
    pub(super) counts: bool,
}

impl Qemu {
    /// Fetches missing files.
    pub(super) fn ready(lab: &KernelLab<'_>) -> Result<Qemu, Error> {
        let boot = lab.checkout.file("kernel/qemu/boot.sh")?;
        let mut fetch = Command::new(lab.checkout.file("kernel/qemu/fetch.sh")?);
        lab.step("Debian's kernel (130 MB, the first time)");
        let found = paths_of(&mut fetch, &["version", "dummy"], FETCH_LIMIT, lab)?;
        let version = found["version"].to_string_lossy().into_owned();
        Ok(Qemu { boot, dummy: found["dummy"].clone(), version })
    }

    /// Returns the command that boots it from a root folder with words for the guest and the time
    /// `limit`.
    pub(super) fn command(
        &self,
        root: &Path,
        (machine, words): (Machine<'_>, &[&str]),
        limit: Duration,
    ) -> Command {
        let mut command = Command::new(&self.boot);
        command.arg("--root").arg(root).args(["--cpu", machine.processor]);
        if machine.counts {
            command.arg("--icount");
        }
        command.args(["--timeout", &limit.as_secs().to_string(), "--"]).args(words);
        command
    }
}

/// Builds the engine's module for a kernel, `uml` or `debian`, with its self-test at load.
pub(super) fn engine(lab: &KernelLab<'_>, kernel: &str) -> Result<PathBuf, Error> {
    let mut build = Command::new(lab.checkout.file("kernel/rtp/build.sh")?);
    build.arg(kernel).env("DEBUG", "1");
    module(lab, &mut build)
}

/// Builds a module by a script of the checkout; returns its path.
pub(super) fn module(lab: &KernelLab<'_>, build: &mut Command) -> Result<PathBuf, Error> {
    lab.step("a module");
    let mut built = paths_of(build, &["module"], FETCH_LIMIT, lab)?;
    Ok(built.remove("module").expect("as wanted"))
}

/// Formats a module of the host as a file of a guest, for guest/root.sh.
pub(super) fn into_modules(module: &Path, name: &str) -> String {
    format!("{}=/lib/modules/{name}.ko", module.display())
}

/// Time limit for a slow line.
const FETCH_LIMIT: Duration = Duration::from_secs(1800);
