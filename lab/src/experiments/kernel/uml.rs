// SPDX-License-Identifier: MIT OR Apache-2.0
//! User Mode Linux, ready to be booted: built or found in the cache, with a guest's root folder.
//!
//! Sources: kernel/uml/build.sh, kernel/uml/boot.sh, guest/build.sh, guest/root.sh.
//! Does not do: build anything itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Course;
use super::program::paths_of;
use crate::error::Error;

/// A kernel and a guest for it.
pub(super) struct Uml {
    boot: PathBuf,
    /// The kernel, a program.
    pub(super) linux: PathBuf,
    root: PathBuf,
}

impl Uml {
    /// Builds what is missing. `files` are put into the root of that name, each as `FROM=TO`.
    pub(super) fn ready(
        course: &Course<'_>,
        (profile, name, files): (&str, &str, &[String]),
    ) -> Result<Uml, Error> {
        let boot = course.checkout.file("kernel/uml/boot.sh")?;
        let build = course.checkout.file("kernel/uml/build.sh")?;
        course.step("the kernel for User Mode Linux (minutes, the first time)");
        let linux = paths_of(&build, &[profile], &["linux"], BUILD_LIMIT, course)?;
        let root = root(course, (name, true), files)?;
        Ok(Uml { boot, linux: linux["linux"].clone(), root })
    }

    /// What boots it, with words for the kernel and for the guest; it is given `limit`.
    pub(super) fn command(&self, kernel: &[&str], words: &[&str], limit: Duration) -> Command {
        let mut command = Command::new(&self.boot);
        command.arg("--root").arg(&self.root).arg("--linux").arg(&self.linux);
        command.args(["--memory", MEMORY, "--timeout", &limit.as_secs().to_string()]);
        if !kernel.is_empty() {
            command.args(["--kernel-args", &kernel.join(" ")]);
        }
        // What a kernel leaves behind, gmon.out for one, goes with the run.
        command.current_dir(self.root.parent().unwrap_or(Path::new("/")));
        command.arg("--").args(words);
        command
    }
}

/// A folder with the guest's program as its init, and `files`, each `FROM=TO`; with a shell where
/// workloads shall have one.
pub(super) fn root(
    course: &Course<'_>,
    (name, shell): (&str, bool),
    files: &[String],
) -> Result<PathBuf, Error> {
    let build = course.checkout.file("guest/build.sh")?;
    let make = course.checkout.file("guest/root.sh")?;
    course.step("the guest's program");
    paths_of(&build, &[], &["guest"], BUILD_LIMIT, course)?;
    let root = course.folder(name);
    let folder = root.to_string_lossy().into_owned();
    let without: &[&str] = if shell { &[] } else { &["--no-shell"] };
    let mut arguments = [without, &[&folder]].concat();
    arguments.extend(files.iter().map(String::as_str));
    paths_of(&make, &arguments, &[], BUILD_LIMIT, course)?;
    Ok(root)
}

const MEMORY: &str = "1024M";
/// A kernel on one slow core.
const BUILD_LIMIT: Duration = Duration::from_secs(3600);
