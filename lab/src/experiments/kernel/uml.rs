// SPDX-License-Identifier: MIT OR Apache-2.0
//! User Mode Linux, built or found in the cache, and the root folders of guests.
//!
//! Sources: kernel/uml/build.sh, kernel/uml/boot.sh, guest/build.sh, guest/root.sh.
//! Does not build anything itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::KernelLab;
use super::program::paths_of;
use measure::Error;
use measure::meter::Cores;

/// A kernel that is a program.
pub(super) struct Uml {
    boot: PathBuf,
    pub(super) linux: PathBuf,
    /// Core of the guests. Their kernel and their programs run alternately; a wake-up on another
    /// core costs more than the measured calls, by a varying amount.
    core: usize,
}

impl Uml {
    /// Builds missing files.
    pub(super) fn ready(lab: &KernelLab<'_>) -> Result<Uml, Error> {
        let boot = lab.checkout.file("kernel/uml/boot.sh")?;
        let build = lab.checkout.file("kernel/uml/build.sh")?;
        lab.step("the kernel for User Mode Linux (minutes, the first time)");
        let mut build = Command::new(build);
        let found = paths_of(build.arg("plain"), &["linux"], BUILD_LIMIT, lab)?;
        Ok(Uml { boot, linux: found["linux"].clone(), core: Cores::allowed().last() })
    }

    /// Returns the command that boots it from a root folder, with words for the kernel and for the
    /// guest and the time `limit`.
    pub(super) fn command(
        &self,
        root: &Path,
        (kernel, words): (&[&str], &[&str]),
        limit: Duration,
    ) -> Command {
        let mut command = Command::new(&self.boot);
        command.arg("--root").arg(root).arg("--linux").arg(&self.linux);
        command.args(["--memory", MEMORY, "--timeout", &limit.as_secs().to_string()]);
        command.args(["--core", &self.core.to_string()]);
        if !kernel.is_empty() {
            command.args(["--kernel-args", &kernel.join(" ")]);
        }
        command.arg("--").args(words);
        command
    }
}

/// Makes a folder with the guest's program as its init, and `files`, each `FROM=TO`; with a shell
/// for workloads that need one.
pub(super) fn root(
    lab: &KernelLab<'_>,
    (name, shell): (&str, bool),
    files: &[String],
) -> Result<PathBuf, Error> {
    let build = lab.checkout.file("guest/build.sh")?;
    let make = lab.checkout.file("guest/root.sh")?;
    lab.step("the guest's program");
    let built = paths_of(&mut Command::new(build), &["guest"], BUILD_LIMIT, lab)?;
    let root = lab.folder(name);
    let mut make = Command::new(make);
    make.env("GUEST", &built["guest"]);
    if !shell {
        make.arg("--no-shell");
    }
    paths_of(make.arg(&root).args(files), &[], BUILD_LIMIT, lab)?;
    Ok(root)
}

const MEMORY: &str = "1024M";
/// Time limit for a kernel on one slow core.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
