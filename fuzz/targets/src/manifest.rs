// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes journals of sealed folders (`seal::manifest::parse`) with forged bytes.
//!
//! Others may be able to write a journal. The input is parsed unchanged, and again with a valid
//! header and a valid check on every line, which the fuzzer would never guess.
//!
//! Checked: paths stay below the folder; nanoseconds are below a second; the good part ends at the
//! end of a line.

use std::path::{Component, Path};

use seal::manifest::{self, Manifest};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget { name: "manifest", run };

const KEY: [u8; 32] = [7; 32];
const BOOT: &str = "this start";

fn run(data: &[u8]) {
    let _ = manifest::parse_header(data);
    if let Ok(manifest) = manifest::parse(data, &KEY, BOOT).expect("memory can be read") {
        check(&manifest, data);
    }
    let zeros = "0".repeat(32);
    let header = format!(
        "{{\"header\":{{\"pagewire_seal\":{},\"form\":\"gcm\",\"iv\":null,\"argon2id\":null,\
         \"salt\":\"{zeros}\",\"key_check\":\"{zeros}{zeros}\"}}}}",
        manifest::VERSION
    );
    let lines = std::iter::once(header.as_bytes()).chain(data.split(|&byte| byte == b'\n'));
    let forged: Vec<u8> = lines.flat_map(|object| manifest::checked_line(object, &KEY)).collect();
    let manifest = manifest::parse(&forged[..], &KEY, BOOT).expect("memory can be read");
    check(&manifest.expect("the header is a good one"), &forged);
}

/// Checks the invariants of every manifest, for any origin.
fn check(manifest: &Manifest, bytes: &[u8]) {
    let good = usize::try_from(manifest.good_bytes).expect("no more than there are");
    assert!(good > 0 && bytes[..good].ends_with(b"\n"));
    let lines = bytes.split(|&byte| byte == b'\n').count();
    assert!(manifest.records.len() + manifest.damaged as usize <= lines);
    for (path, kept) in &manifest.records {
        let mut parts = Path::new(path).components();
        assert!(parts.all(|part| matches!(part, Component::Normal(_))), "{path:?}");
        let record = &kept.record;
        assert!(record.modified.ns < 1_000_000_000);
        let done = manifest.is_done(path, record.source_bytes, record.modified);
        assert_eq!(done, kept.is_believed.then_some(record));
    }
}
