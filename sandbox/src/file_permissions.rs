// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that a process may open, by Landlock.
//!
//! Files that are open already stay open. A kernel without Landlock restricts nothing, and an older
//! Landlock omits the rights that it does not support. [`Enforced`] reports this, and the caller
//! informs the operator.
//!
//! Sources: landlock(7).
//! Does not restrict metadata (stat, chmod), which Landlock leaves to the file's mode.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::error::SandboxError;

/// The newest Landlock ABI whose rights are handled; an older kernel supports fewer.
const INTERFACE: ABI = ABI::V6;

/// Files and folders, with all their descendants, that a process may open.
#[derive(Debug, Clone, Default)]
pub struct FilePermissions {
    grants: Vec<(PathBuf, BitFlags<AccessFs>)>,
    keeps_network: bool,
}

/// Degree to which the kernel restricts files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    /// All handled rights.
    Fully,
    /// Only the rights that this kernel supports.
    Partly,
    /// No rights: the kernel has no Landlock, or does not enable it (`lsm=`).
    Not,
}

impl FilePermissions {
    /// Permits nothing: no file may be opened, no socket bound or connected over TCP, no signal
    /// sent to other processes.
    pub fn none() -> FilePermissions {
        FilePermissions::default()
    }

    /// Adds files and folders that may be read.
    #[must_use]
    pub fn reading<P: Into<PathBuf>>(self, paths: impl IntoIterator<Item = P>) -> Self {
        self.with(paths, AccessFs::ReadFile | AccessFs::ReadDir)
    }

    /// Adds files and folders that may be read, and whose programs may be executed.
    #[must_use]
    pub fn executing<P: Into<PathBuf>>(self, paths: impl IntoIterator<Item = P>) -> Self {
        self.with(paths, AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute)
    }

    /// Adds folders in which files may be read, made, written and removed.
    #[must_use]
    pub fn writing<P: Into<PathBuf>>(self, paths: impl IntoIterator<Item = P>) -> Self {
        let all = AccessFs::from_all(INTERFACE);
        let special = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock;
        self.with(paths, all & !special)
    }

    /// Leaves TCP, signals and abstract sockets unrestricted.
    #[must_use]
    pub fn with_network(self) -> Self {
        FilePermissions { keeps_network: true, ..self }
    }

    fn with<P: Into<PathBuf>>(
        mut self,
        paths: impl IntoIterator<Item = P>,
        access: BitFlags<AccessFs>,
    ) -> Self {
        self.grants.extend(paths.into_iter().map(|path| (path.into(), access)));
        self
    }

    /// Restricts the calling thread and the threads that it creates. Skips files that do not exist.
    ///
    /// # Errors
    /// The kernel refuses a rule.
    pub fn restrict(&self) -> Result<Enforced, SandboxError> {
        let mut rules = Ruleset::default().handle_access(AccessFs::from_all(INTERFACE))?;
        if !self.keeps_network {
            rules = rules
                .handle_access(AccessNet::from_all(INTERFACE))?
                .scope(Scope::from_all(INTERFACE))?;
        }
        let mut rules = rules.create()?;
        for (path, access) in &self.grants {
            let Ok(opened) = PathFd::new(path) else { continue };
            let of_files = match path.is_dir() {
                true => *access,
                false => *access & AccessFs::from_file(INTERFACE),
            };
            rules = rules.add_rule(PathBeneath::new(opened, of_files))?;
        }
        Ok(match rules.restrict_self()?.ruleset {
            RulesetStatus::FullyEnforced => Enforced::Fully,
            RulesetStatus::PartiallyEnforced => Enforced::Partly,
            RulesetStatus::NotEnforced => Enforced::Not,
        })
    }
}
