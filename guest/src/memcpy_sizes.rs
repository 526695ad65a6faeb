// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the kernel's histogram of copy sizes, one `guest: memcpy-sizes` line a figure.
//!
//! The file in debugfs comes from kernel/memcpy: lines of caller, bucket and count. A parameter of
//! the kernel makes it count from boot on; `memcpy-sizes-on` clears it, so that it counts only the
//! next jobs of the guest: `memcpy-sizes-on copies memcpy-sizes`.

use std::fs::{self, File};
use std::io::{self, Write};

use crate::error::Error;
use crate::guest_job::GuestJob;
use crate::protocol::ConsoleLine;

/// Prints the histogram.
pub(crate) static SAY: GuestJob = GuestJob { name: "memcpy-sizes", run: |_| say() };
/// Clears the histogram and starts counting.
pub(crate) static BEGIN: GuestJob = GuestJob { name: "memcpy-sizes-on", run: |_| begin() };

const FILE: &str = "/sys/kernel/debug/memcpy_sizes";

fn begin() -> Result<(), Error> {
    for word in ["reset", "on"] {
        let mut file = File::options().write(true).open(FILE).map_err(refused("open"))?;
        // Writes the word by one call: the kernel parses each write as a word.
        file.write_all(word.as_bytes()).map_err(refused("write"))?;
    }
    Ok(())
}

fn refused(call: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |error| match error.kind() {
        io::ErrorKind::NotFound => Error::Unavailable {
            what: "memcpy-sizes".into(),
            found: format!("no file {FILE}"),
            cure: "boot the kernel that kernel/uml/build.sh makes",
        },
        _ => Error::host(call, FILE)(error),
    }
}

fn say() -> Result<(), Error> {
    let text = fs::read_to_string(FILE).map_err(refused("read"))?;
    for figure in figures(&text)? {
        ConsoleLine::MemcpySizes(figure).say();
    }
    Ok(())
}

/// Returns the lines that are figures, after a check of their form.
fn figures(text: &str) -> Result<Vec<&str>, Error> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [caller, bucket, count]
                if !caller.is_empty() && !bucket.is_empty() && count.parse::<u64>().is_ok() =>
            {
                Ok(line)
            }
            _ => Err(Error::Wrong {
                what: FILE.into(),
                expected: "a line of caller, bucket, count".into(),
                found: line.into(),
            }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_three_words_and_comments_are_passed_over() {
        let text = "# caller bucket count\ncopy_page 4096 17\n\nmemmove 0-7 3\n";
        assert_eq!(figures(text).expect("figures"), ["copy_page 4096 17", "memmove 0-7 3"]);
        for bad in ["a b", "a b c", "a b 1 2", "a  1"] {
            assert!(figures(bad).is_err(), "{bad}");
        }
    }
}
