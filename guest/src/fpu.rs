// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cost of vector registers inside a kernel, measured by the module `pagewire_fpu`.
//!
//! The module measures sections and copies when its file is read; the job prints those lines as
//! `guest: fpu …`. The job itself measures the cost of a section to a program that calls the
//! kernel: it reads two files that differ only by a section. The difference is the cost of saving
//! the program's registers, of the section, and of loading the registers again.
//!
//! Setting: `calls=` (2,000), the reads of each file.
//!
//! Sources: `kernel/fpu/pagewire_fpu.c`.

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use crate::error::Error;
use crate::guest_job::GuestJob;
use crate::protocol::ConsoleLine;
use crate::settings::GuestSettings;

/// The job.
pub(crate) static JOB: GuestJob = GuestJob { name: "fpu", run };

const TABLE: &str = "/proc/pagewire_fpu";
const PARAMETERS: &str = "/sys/module/pagewire_fpu/parameters";
const CALLS: u64 = 2000;
/// Repeats of a measurement; the least is printed, as the others contain interrupts.
const REPEATS: u32 = 5;

fn run(settings: &GuestSettings) -> Result<(), Error> {
    let table = read_to_string(TABLE).map_err(Error::host("read", TABLE))?;
    for line in table.lines() {
        ConsoleLine::Fpu(line).say();
    }
    let calls = settings.number("calls").unwrap_or(CALLS);
    for name in ["crossing", "crossing_section"] {
        let path = format!("{PARAMETERS}/{name}");
        let file = File::open(&path).map_err(Error::host("open", path.as_str()))?;
        let least = (0..REPEATS).map(|_| time(&file, calls)).collect::<Result<Vec<_>, _>>();
        let least = least.map_err(Error::host("read", path))?.into_iter().min().unwrap_or(0);
        let each_ps = u128::from(least) * 1000 / u128::from(calls);
        ConsoleLine::Fpu(&format!("{name} ps={each_ps}")).say();
    }
    Ok(())
}

/// Returns the nanoseconds of `calls` reads of the file's start.
fn time(file: &File, calls: u64) -> std::io::Result<u64> {
    let mut buffer = [0; 16];
    let began = Instant::now();
    for _ in 0..calls {
        file.read_at(&mut buffer, 0)?;
    }
    Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
