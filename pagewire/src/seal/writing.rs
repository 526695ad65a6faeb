// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of writing targets, the same for every form: replacing files and syncing them.

use clap::{Args, ValueEnum};
use seal::folder::Durability;

#[derive(Args)]
pub(crate) struct Writing {
    /// Replaces files that are there and are not what would be written.
    #[arg(long)]
    pub(crate) force: bool,
    /// Moment by which the bytes are on the disk.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    sync: When,
}

/// [`Durability`] as a value of the command line.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum When {
    /// All of it when the run ends.
    #[default]
    End,
    /// Each file before it takes its name.
    Each,
    /// Whenever the kernel writes them back.
    None,
}

impl Writing {
    pub(crate) fn sync(&self) -> Durability {
        match self.sync {
            When::End => Durability::End,
            When::Each => Durability::Each,
            When::None => Durability::None,
        }
    }
}
