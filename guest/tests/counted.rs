// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the amounts that a workload prints with those that the kernel counted.
//!
//! `/proc/self/io` counts the bytes and calls of read and write, of this process and the children
//! it waited for. The guest runs twice, with different amounts: the cost of its own start, its
//! files and its lines is the same in both, so the difference is the workload's alone. One test in
//! a file of its own, because another one in the same process would be counted too.
//!
//! Sources: proc(5), `/proc/[pid]/io`; send and recv are not counted there, so `udp_1400` is not
//! here.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::Read;
use std::process::Command;

/// Both amounts exceed the point from which a check reads back the same number of bytes for any
/// amount.
const CASES: &[(&str, [&str; 2])] = &[
    ("pipe_4k", ["bytes=1M", "bytes=9M"]),
    ("pipe_64k", ["bytes=1M", "bytes=9M"]),
    ("pipe_throughput", ["calls=1000", "calls=5000"]),
    ("tmpfs_read_16k", ["bytes=20M", "bytes=50M"]),
    ("tmpfs_read_256k", ["bytes=20M", "bytes=50M"]),
    ("tmpfs_write_4k", ["bytes=20M", "bytes=50M"]),
    ("tmpfs_write_1m", ["bytes=20M", "bytes=50M"]),
    ("unix_32k", ["bytes=1M", "bytes=9M"]),
    ("file_copy_256", ["bytes=1M", "bytes=3M"]),
    ("file_copy_1024", ["bytes=6M", "bytes=9M"]),
    ("context_switch", ["calls=400", "calls=2400"]),
];
/// A line has a few digits more where more was moved.
const BYTES_OF_LINES_MAX: u64 = 64;

/// Bytes and calls that the kernel has counted.
fn counted() -> Option<[u64; 2]> {
    // Reads by one call: the standard library reads a file by as many calls as its length requires.
    let mut text = [0; 4096];
    let bytes = File::open("/proc/self/io").and_then(|mut file| file.read(&mut text)).ok()?;
    let text = std::str::from_utf8(&text[..bytes]).expect("text");
    let of = |key: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
    };
    Some([of("rchar:")? + of("wchar:")?, of("syscr:")? + of("syscw:")?])
}

/// Amounts printed by the guest, and those counted by the kernel meanwhile.
fn run(name: &str, amount: &str) -> Option<([u64; 2], [u64; 2])> {
    let folder = tempfile::tempdir().expect("a folder");
    let output = folder.path().join("said");
    let console = File::create(&output).expect("a file");
    let before = counted()?;
    let status = Command::new(env!("CARGO_BIN_EXE_guest"))
        .args([name, amount])
        .stdout(console)
        .status()
        .expect("the guest runs");
    let after = counted()?;
    assert!(status.success(), "{name} {amount}");
    let text = fs::read_to_string(output).expect("what was said");
    let of = |key: &str| -> u64 {
        let words = text.split_whitespace();
        words.filter_map(|word| word.strip_prefix(key)).next().expect(key).parse().expect(key)
    };
    let own = [of("bytes="), of("calls=")];
    Some((own, [after[0] - before[0], after[1] - before[1]]))
}

#[test]
fn the_kernel_counts_the_same() {
    for (name, [less, more]) in CASES {
        let (Some((own_less, counted_less)), Some((own_more, counted_more))) =
            (run(name, less), run(name, more))
        else {
            eprintln!("skip: counted: no /proc/self/io on this host");
            return;
        };
        let [own_bytes, own_calls] = [0, 1].map(|at| own_more[at] - own_less[at]);
        let [bytes, calls] = [0, 1].map(|at| counted_more[at] - counted_less[at]);
        assert_eq!(own_calls, calls, "{name}: calls");
        let lines = bytes.abs_diff(own_bytes);
        assert!(lines <= BYTES_OF_LINES_MAX, "{name}: said {own_bytes}, counted {bytes}");
    }
}
