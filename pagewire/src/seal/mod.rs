// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal`: encrypts a library file by file; each form of protection is one file here and
//! one line of [`Protection`].
//!
//! All forms share [`Running`], `progress`, `failures` and `summary`. Exit status: 0 all done; 1
//! some files failed and the others are done, or the run was stopped; 2 a wrong option.
//!
//! The crate `seal` does the work.

pub(crate) mod epub;
pub(crate) mod failures;
mod folder;
pub(crate) mod hls;
pub(crate) mod keys;
mod progress;
mod summary;
mod verify;
mod writing;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::{Args, Subcommand};
use seal::Error;
use seal::engine::{MEMORY_BYTES, SealOutcome, SealProgress, Settings};

use progress::{Audience, watched};
pub(crate) use progress::{Total, size};
pub(crate) use writing::Writing;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    form: Protection,
}

/// The forms, one file and one line each.
#[derive(Subcommand)]
enum Protection {
    /// Encrypt every file below a folder into another; tree, modes and times are kept.
    Folder(folder::Options),
    /// Protect EPUB publications by Readium LCP, basic profile: a book or a catalogue.
    Epub(Box<epub::Options>),
    /// Make encrypted HTTP Live Streaming presentations of MPEG-TS files (films).
    Hls(hls::Options),
    /// Open sealed files with OpenSSL, a second implementation, and compare them.
    Verify(verify::Options),
}

pub(crate) fn run(options: Options) -> ExitCode {
    match options.form {
        Protection::Folder(options) => folder::run(options),
        Protection::Epub(options) => epub::run(*options),
        Protection::Hls(options) => hls::run(options),
        Protection::Verify(options) => verify::run(options),
    }
}

/// Options of every form.
#[derive(Args)]
pub(crate) struct Running {
    /// Worker threads [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory for slices and open files of all workers together, such as 64M.
    #[arg(long, value_name = "BYTES", value_parser = crate::serve::bytes)]
    #[arg(default_value_t = MEMORY_BYTES as u64, hide_default_value = true)]
    memory: u64,
    /// Progress and result as JSON on standard output, an object a line.
    #[arg(long)]
    json: bool,
}

impl Running {
    /// Returns the settings of the engine.
    ///
    /// # Errors
    /// The memory is not enough for one worker.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let memory_bytes = usize::try_from(self.memory).unwrap_or(usize::MAX);
        Settings::here(self.threads.map(usize::from)).within(memory_bytes)
    }

    /// Runs `work` with progress shown, lets Ctrl-C stop it, and reports its outcome. `total`
    /// returns the bytes and files of the whole run and is called repeatedly. `work` returns an
    /// error when it cannot begin.
    pub(crate) fn run(
        &self,
        total: impl Fn() -> Total + Sync,
        work: impl FnOnce(&SealProgress) -> Result<SealOutcome, Error>,
    ) -> ExitCode {
        let seen = Arc::new(SealProgress::default());
        let stopped = seen.clone();
        let stop = move || stopped.stop.store(true, Ordering::Relaxed);
        crate::interrupt::on_interrupt("what is done is kept, nothing half is left", stop);
        let audience = Audience::here(self.json);
        let outcome = watched(audience, &seen, total, || work(&seen));
        let outcome = outcome
            .unwrap_or_else(|error| SealOutcome { failed: vec![error], ..SealOutcome::default() });
        summary::say(audience, &outcome);
        failures::passed_over(&outcome.passed_over);
        failures::note(&outcome.remarks);
        match failures::end(&outcome.failed, Some(&outcome)) {
            ExitCode::SUCCESS if outcome.is_stopped => ExitCode::FAILURE,
            status => status,
        }
    }
}
