// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's kernel under QEMU, ready to be booted: fetched or found in the cache, with a guest's
//! root folder that has modules for it.
//!
//! Sources: kernel/qemu/fetch.sh, kernel/qemu/boot.sh, kernel/rtp/build.sh.
//! Does not do: install anything; packages are unpacked in the cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Course;
use super::program::paths_of;
use super::uml;
use crate::error::Error;

/// A stock kernel and a guest for it.
pub(super) struct Qemu {
    boot: PathBuf,
    root: PathBuf,
    /// As uname -r has it there.
    pub(super) version: String,
}

/// How it is booted.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    /// As QEMU names them.
    pub(super) processor: &'a str,
    /// The guest's clock counts instructions.
    pub(super) counts: bool,
}

impl Qemu {
    /// Fetches and builds what is missing: the kernel and the guest, with the kernel's dummy device
    /// and `files` in its root, each `FROM=TO`.
    pub(super) fn ready(
        course: &Course<'_>,
        (name, files): (&str, &[String]),
    ) -> Result<Qemu, Error> {
        let boot = course.checkout.file("kernel/qemu/boot.sh")?;
        let fetch = course.checkout.file("kernel/qemu/fetch.sh")?;
        course.step("Debian's kernel (130 MB, the first time)");
        let wanted = ["version", "dummy"];
        let fetched = paths_of(&fetch, &[], &wanted, FETCH_LIMIT, course)?;
        let mut files = files.to_vec();
        files.push(into_modules(&fetched["dummy"], "dummy.ko"));
        let root = uml::root(course, (name, false), &files)?;
        let version = fetched["version"].to_string_lossy().into_owned();
        Ok(Qemu { boot, root, version })
    }

    /// What boots it with words for the guest; it is given `limit`.
    pub(super) fn command(&self, machine: Machine<'_>, words: &[&str], limit: Duration) -> Command {
        let mut command = Command::new(&self.boot);
        command.arg("--root").arg(&self.root).args(["--cpu", machine.processor]);
        if machine.counts {
            command.arg("--icount");
        }
        command.args(["--timeout", &limit.as_secs().to_string(), "--"]).args(words);
        command
    }
}

/// A module built by a script of the checkout, as a file of the guest.
pub(super) fn module(
    course: &Course<'_>,
    (script, arguments): (&str, &[&str]),
    name: &str,
) -> Result<String, Error> {
    let script = course.checkout.file(script)?;
    course.step(&format!("the module {name}"));
    let built = paths_of(&script, arguments, &["module"], FETCH_LIMIT, course)?;
    Ok(into_modules(&built["module"], name))
}

/// A module of the host as a file of the guest.
fn into_modules(module: &Path, name: &str) -> String {
    format!("{}=/lib/modules/{name}", module.display())
}

/// By a slow line.
const FETCH_LIMIT: Duration = Duration::from_secs(1800);
